"""How far a replay came, in a small file, so that a broken one goes on."""

from pathlib import Path

import msgspec
from msgspec import Struct


class _SavedProgress(Struct, frozen=True):
    start_ms: int
    done_until_ms: int


class ReplayProgressFile:
    """The memory of one replay, from ``start_ms`` to before ``end_ms``.

    What another broke off that this one does not reach stays remembered, and this one is not then.
    """

    def __init__(self, path: Path, start_ms: int, end_ms: int) -> None:
        self._path = path
        self._start_ms = start_ms
        self._end_ms = end_ms

    def create_directory(self) -> None:
        """Make the folder. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def resume_ms(self) -> int:
        """Where to begin: at the start, or where an earlier replay of the same time was broken off."""
        earlier = self._load()
        if earlier is None or not earlier.start_ms <= self._start_ms <= earlier.done_until_ms:
            return self._start_ms
        return earlier.done_until_ms

    def save(self, done_until_ms: int) -> None:
        """Replace the file as a whole, so that a break leaves the old one."""
        if self._may_overwrite():
            fresh = self._path.with_suffix(".new")
            fresh.write_bytes(msgspec.json.encode(_SavedProgress(self._start_ms, done_until_ms)))
            fresh.replace(self._path)

    def complete(self) -> None:
        """There is nothing to go on with."""
        if self._may_overwrite():
            self.clear()

    def clear(self) -> None:
        """Begin anew next time."""
        self._path.unlink(missing_ok=True)

    def _may_overwrite(self) -> bool:
        earlier = self._load()
        return earlier is None or self._start_ms <= earlier.done_until_ms <= self._end_ms

    def _load(self) -> _SavedProgress | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_SavedProgress)
        except (OSError, msgspec.DecodeError):
            return None

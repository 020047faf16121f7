"""How far a replay came, in a small file, so that a broken one goes on."""

from pathlib import Path

import msgspec
from msgspec import Struct


class _Remembered(Struct, frozen=True):
    start_ms: int
    done_until_ms: int


class ReplayMemory:
    """The memory of one replay, from ``start_ms`` to before ``end_ms``.

    What another broke off that this one does not reach stays remembered, and this one is not then.
    """

    def __init__(self, path: Path, start_ms: int, end_ms: int) -> None:
        self._path = path
        self._start_ms = start_ms
        self._end_ms = end_ms

    def make_room(self) -> None:
        """Make the folder. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def resume_ms(self) -> int:
        """Where to begin: at the start, or where an earlier replay of the same time was broken off."""
        earlier = self._earlier()
        if earlier is None or not earlier.start_ms <= self._start_ms <= earlier.done_until_ms:
            return self._start_ms
        return earlier.done_until_ms

    def remember(self, done_until_ms: int) -> None:
        """Replace the file as a whole, so that a break leaves the old one."""
        if self._is_ours():
            fresh = self._path.with_suffix(".new")
            fresh.write_bytes(msgspec.json.encode(_Remembered(self._start_ms, done_until_ms)))
            fresh.replace(self._path)

    def finished(self) -> None:
        """There is nothing to go on with."""
        if self._is_ours():
            self.forget()

    def forget(self) -> None:
        """Begin anew next time."""
        self._path.unlink(missing_ok=True)

    def _is_ours(self) -> bool:
        earlier = self._earlier()
        return earlier is None or self._start_ms <= earlier.done_until_ms <= self._end_ms

    def _earlier(self) -> _Remembered | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Remembered)
        except (OSError, msgspec.DecodeError):
            return None

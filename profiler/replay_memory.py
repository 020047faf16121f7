"""How far a replay came, in a small file, so that a broken one goes on."""

from pathlib import Path

import msgspec
from msgspec import Struct


class _Remembered(Struct, frozen=True):
    start_ms: int
    done_until_ms: int


class ReplayMemory:
    """The memory of one replay, which begins at ``start_ms``."""

    def __init__(self, path: Path, start_ms: int) -> None:
        self._path = path
        self._start_ms = start_ms

    def resume_ms(self) -> int:
        """Where to begin: at the start, or where an earlier replay of the same time was broken off."""
        try:
            earlier = msgspec.json.decode(self._path.read_bytes(), type=_Remembered)
        except (OSError, msgspec.DecodeError):
            return self._start_ms
        covers_the_start = earlier.start_ms <= self._start_ms <= earlier.done_until_ms
        return earlier.done_until_ms if covers_the_start else self._start_ms

    def remember(self, done_until_ms: int) -> None:
        """Replace the file as a whole, so that a break leaves the old one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(_Remembered(self._start_ms, done_until_ms)))
        fresh.replace(self._path)

    def forget(self) -> None:
        """Begin anew next time."""
        self._path.unlink(missing_ok=True)

"""The memory that several processes hold together, now and at most, from readings of each. Pure."""

from collections.abc import Iterable, Mapping

from profiler.sources.process_tree import ProcessReading


class TreeMemory:
    """The memory of a tree now, and its peak: with the kernel's high-water marks between readings.

    Between two readings the tree may have held the mark of one process that rose plus what the
    others held at the smaller end. Two rises are never added: nobody saw them together.
    """

    def __init__(self) -> None:
        self._previous: Mapping[tuple[int, int], ProcessReading] = {}
        self.peak_bytes: int | None = None

    def add(self, processes: Iterable[ProcessReading]) -> int | None:
        """The tree's memory now; None if no process has any (all are zombies)."""
        now = {process.identity: process for process in processes}
        shares = [process.share_bytes for process in now.values() if process.share_bytes is not None]
        if not shares:
            return None
        held_by = {
            identity: _held_through_step(self._previous.get(identity), process) for identity, process in now.items()
        }
        held_bytes = sum(held_by.values())
        with_new_marks = (
            _high_water_bytes(self._previous.get(identity), process) + held_bytes - held_by[identity]
            for identity, process in now.items()
            if _has_new_high_water_mark(self._previous.get(identity), process)
        )
        marks = (process.peak_bytes or 0 for process in now.values())  # the tree held no less than one of it did
        self.peak_bytes = max(self.peak_bytes or 0, sum(shares), *marks, *with_new_marks)
        self._previous = now
        return sum(shares)


def _held_through_step(before: ProcessReading | None, now: ProcessReading) -> int:
    """What a process held at both ends of a step, as far as is known."""
    if before is None:
        return 0
    return min(before.share_bytes or 0, now.share_bytes or 0)


def _has_new_high_water_mark(before: ProcessReading | None, now: ProcessReading) -> bool:
    """Whether the mark is new; a lower one belongs to a program executed since."""
    return now.peak_bytes is not None and (before is None or before.peak_bytes != now.peak_bytes)


def _high_water_bytes(before: ProcessReading | None, now: ProcessReading) -> int:
    """The high-water mark less the pages that are counted at others.

    Where somebody let go of shared pages since the last reading, more of them is counted at the others than
    was when the mark was set: as much again as the process's own part of them has changed.
    """
    ends = [max((end.rss_bytes or 0) - (end.share_bytes or 0), 0) for end in (before, now) if end is not None]
    return max((now.peak_bytes or 0) - max(ends) - (max(ends) - min(ends)), 0)

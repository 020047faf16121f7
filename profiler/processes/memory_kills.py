"""Which of a batch's processes the kernel killed for want of memory. Pure.

The container's own control group counts them exactly, where it can be read. Otherwise, and where
the group was gone before it could be read a last time, there is the whole machine's counter: on
Fargate the machine is the task's alone; on an instance with other tasks a kill counts as the
batch's if a process of it ended in the same second, and its processes do not end all the time.
"""

from collections.abc import Sequence

from msgspec import Struct

from profiler.figures import mebibytes
from profiler.record import MemoryKills, Process
from profiler.series import MonotonicCounter
from profiler.sources.process_tree import ProcessReading

_MAX_SHOWN = 5
_MAX_END_FRACTION = 0.1
_MAX_FEW_STEPS = 3


class OomKillCounts(Struct, frozen=True, kw_only=True):
    """The kernel's counters: of the container, since its start; of the machine, since it was started."""

    in_container: int | None = None
    on_host: int | None = None


class OomKillTracker:
    """Matches the rises of a counter with the processes that ended meanwhile.

    A process is seen to end with the reading in which the counter rose, or with the next one.
    """

    def __init__(self) -> None:
        self._in_container = MonotonicCounter()
        self._host_before: int | None = None
        self._host_kills = 0
        self._pending = 0
        self._pending_on_host = 0
        self._steps = 0
        self._steps_with_an_end = 0
        self._victims: list[Process] = []

    def add(self, counted: OomKillCounts, ended: Sequence[ProcessReading], missed_pids: int) -> None:
        """Take a reading: the counters, who has ended since the last one, and how many came and went unseen."""
        by_container = counted.in_container is not None
        new_kills = self._increase(counted)
        pending = self._pending + new_kills
        self._steps += 1
        self._steps_with_an_end += bool(ended or missed_pids)
        victims = sorted(ended, key=lambda process: -(process.rss_bytes or 0))[:pending]
        self._victims = [*self._victims, *(_shown(process) for process in victims)][:_MAX_SHOWN]
        attributed = len(victims) or min(pending, missed_pids)
        if not by_container:
            self._host_kills += min(attributed, self._pending_on_host + new_kills)
        self._pending = min(new_kills, pending - attributed)
        self._pending_on_host = 0 if by_container else self._pending

    def kills(self, *, is_host_dedicated: bool) -> MemoryKills | None:
        """What is known so far; None if nothing was killed, or nothing ties a kill to the batch."""
        count = self._in_container.total or 0
        if is_host_dedicated or self._steps_with_an_end <= max(_MAX_FEW_STEPS, _MAX_END_FRACTION * self._steps):
            count += self._host_kills
        return MemoryKills(count=count, processes=tuple(self._victims)) if count else None

    def _increase(self, counted: OomKillCounts) -> int:
        """How many more there are: in the container, or on the machine where that one is not to be read (any more)."""
        before, self._host_before = self._host_before, counted.on_host
        if counted.in_container is not None:
            growth = self._in_container.add(counted.in_container)
            return counted.in_container if growth is None else growth
        if counted.on_host is None or before is None:
            return 0
        return max(counted.on_host - before, 0)


def _shown(process: ProcessReading) -> Process:
    return Process(name=process.name, max_memory_used_mb=mebibytes(process.rss_bytes))

"""The CPU time of several processes, from readings of each. Pure."""

from collections.abc import Iterable, Mapping

from profiler.sources.process_tree import ProcessReading

# A parent's children time is shown in whole ticks, user and system apart.
_ROUNDING_NS = 20_000_000


class TreeCpu:
    """The CPU time of a tree from readings of its processes: it never falls and loses nobody."""

    def __init__(self) -> None:
        self._previous: Mapping[tuple[int, int], ProcessReading] = {}
        self._reaped_ns = 0
        self._unreaped_ns = 0
        self.total_ns = 0

    def add(self, processes: Iterable[ProcessReading], reaped_ns: int) -> int:
        """The total now; ``reaped_ns`` is what this process itself has waited for so far.

        Who is gone must have been added to somebody's children time. What is missing there was
        reaped by nobody (a parent that ignores SIGCHLD) and is kept at its last known value.
        """
        now = {process.identity: process for process in processes}
        before = self._previous
        gone = [_cpu_ns(process) for identity, process in before.items() if identity not in now]
        handed_over_ns = max(reaped_ns - self._reaped_ns, 0) + sum(
            max(process.children_cpu_ns - before[identity].children_cpu_ns, 0)
            for identity, process in now.items()
            if identity in before
        )
        self._unreaped_ns += max(sum(gone) - len(gone) * _ROUNDING_NS - handed_over_ns, 0)
        self._previous, self._reaped_ns = now, reaped_ns
        present_ns = sum(_cpu_ns(process) for process in now.values())
        self.total_ns = max(self.total_ns, present_ns + reaped_ns + self._unreaped_ns)
        return self.total_ns


def _cpu_ns(process: ProcessReading) -> int:
    return process.own_cpu_ns + process.children_cpu_ns

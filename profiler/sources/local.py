"""The local source: a command's process tree, sampled as if it were one container.

CPU is each process's own clock plus what the kernel handed to parents that waited for children;
what ends without being waited for keeps its last known time. Memory is the sum of the processes'
shares (see :class:`profiler.sources.process_tree.ProcessTree`). Where the command is in a control
group of its own, the group's counters take their place: its CPU time misses nobody, and its
memory is what a container's would be.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from profiler.sources import Unavailable, proc
from profiler.sources.cgroup_counters import MemoryReading
from profiler.sources.container_stats import ContainerSample
from profiler.sources.own_cgroup import OwnCgroup
from profiler.sources.process_tree import ProcessReading, ProcessTree
from profiler.sources.tree_blocks import TreeBlocks

# A parent's children time is shown in whole ticks, user and system apart.
_ROUNDING_NS = 20_000_000

_Readings = Mapping[tuple[int, int], ProcessReading]


class GroupPeak(Struct, frozen=True, kw_only=True):
    """A control group's high-water mark, the most page cache seen in it, and whether all processes stayed in it."""

    size_bytes: int | None = None
    cache_bytes: int = 0
    holds_all: bool = True


class TreeCpu:
    """The CPU time of a tree from readings of its processes: it never falls and loses nobody."""

    def __init__(self) -> None:
        self._previous: _Readings = {}
        self._reaped_ns = 0
        self._unclaimed_ns = 0
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
        self._unclaimed_ns += max(sum(gone) - len(gone) * _ROUNDING_NS - handed_over_ns, 0)
        self._previous, self._reaped_ns = now, reaped_ns
        present_ns = sum(_cpu_ns(process) for process in now.values())
        self.total_ns = max(self.total_ns, present_ns + reaped_ns + self._unclaimed_ns)
        return self.total_ns


class TreeMemory:
    """The memory of a tree now, and its peak: with the kernel's high-water marks between readings.

    Between two readings the tree may have held the mark of one process that rose plus what the
    others held at the smaller end. Two rises are never added: nobody saw them together.
    """

    def __init__(self) -> None:
        self._previous: _Readings = {}
        self.peak_bytes: int | None = None

    def add(self, processes: Iterable[ProcessReading]) -> int | None:
        """The tree's memory now; None if no process has any (all are zombies)."""
        now = {process.identity: process for process in processes}
        shares = [process.share_bytes for process in now.values() if process.share_bytes is not None]
        if not shares:
            return None
        held_by = {identity: _smaller_share(self._previous.get(identity), process) for identity, process in now.items()}
        held_bytes = sum(held_by.values())
        risen = (
            _mark_bytes(process) + held_bytes - held_by[identity]
            for identity, process in now.items()
            if _rose(self._previous.get(identity), process)
        )
        self.peak_bytes = max(self.peak_bytes or 0, sum(shares), *risen)
        self._previous = now
        return sum(shares)


class GroupMemory:
    """The memory of the command's own control group, for as long as all its processes are seen to be in it."""

    def __init__(self, cgroup: OwnCgroup) -> None:
        self._cgroup = cgroup
        self._seen: frozenset[tuple[int, int]] = frozenset()
        self._left = False
        self.used_peak_bytes: int | None = None
        self.cache_peak_bytes = 0

    def now(self, processes: Iterable[ProcessReading]) -> int | None:
        """The group's memory now; None without a group, and once a process has left it for another."""
        reading = self._cgroup.memory()
        if reading is None:
            return None
        self._remember(reading)
        now = {process.identity: process.pid for process in processes}
        self._left = self._left or any(
            not self._cgroup.holds(pid) for identity, pid in now.items() if identity not in self._seen
        )
        self._seen = frozenset(now)
        if self._left:
            return None
        self.used_peak_bytes = max(self.used_peak_bytes or 0, reading.used_bytes)
        return reading.used_bytes

    def at_the_end(self) -> GroupPeak:
        """The kernel's mark, and whether it tells the command's peak. Page cache outlives the processes."""
        reading = self._cgroup.memory()
        if reading is not None:
            self._remember(reading)
        return GroupPeak(
            size_bytes=self._cgroup.memory_peak_bytes(), cache_bytes=self.cache_peak_bytes, holds_all=not self._left
        )

    def _remember(self, reading: MemoryReading) -> None:
        self.cache_peak_bytes = max(self.cache_peak_bytes, reading.cache_bytes or 0)


class LocalSource:
    """Samples of one command's tree, and of its control group, if it has one.

    ``not_its_cpu_ns`` of the tree's CPU time went into starting the command.
    """

    name = "processes"

    def __init__(
        self, tree: ProcessTree, cgroup: OwnCgroup, started_ns: int, vcpus: float, not_its_cpu_ns: int
    ) -> None:
        self._tree = tree
        self._cgroup = cgroup
        self._cpu = TreeCpu()
        self._memory = TreeMemory()
        self._blocks = TreeBlocks()
        self._group_memory = GroupMemory(cgroup)
        self._vcpus = vcpus
        self._not_its_cpu_ns = not_its_cpu_ns
        self._read_ns = started_ns
        self._shown_cpu_ns = 0
        self.most_processes = 0
        self.cpu_ns = 0

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that the samples know of."""
        peaks = (self._memory.peak_bytes, self._group_memory.used_peak_bytes)
        return max((peak for peak in peaks if peak is not None), default=None)

    def group_peak(self) -> GroupPeak:
        """The control group's mark, when the command has ended."""
        return self._group_memory.at_the_end()

    def sample(self, read_ns: int, reaped_ns: int, reaped_blocks: proc.BlockBytes) -> ContainerSample | Unavailable:
        """The tree now; the last two are what this process itself has waited for so far."""
        processes = self._tree.read()
        if not processes:
            return Unavailable("no process of the command can be read in /proc")
        self.most_processes = max(self.most_processes, len(processes))
        tree_bytes, group_bytes = self._memory.add(processes), self._group_memory.now(processes)
        blocks = self._blocks.add(processes, reaped_blocks)
        return ContainerSample(
            read_ns=read_ns,
            cpu_ns=self._plausible(self._add_cpu(processes, reaped_ns), read_ns),
            memory_used_bytes=tree_bytes if group_bytes is None else group_bytes,
            block_read_bytes=None if blocks is None else blocks.read_bytes,
            block_write_bytes=None if blocks is None else blocks.write_bytes,
            pids=sum(process.threads for process in processes),
        )

    def last_sample(self, read_ns: int, reaped_ns: int) -> ContainerSample:
        """After the command's end there are counters only; ``cpu_ns`` is final then."""
        leftover = self._tree.read()
        self.most_processes = max(self.most_processes, len(leftover) + 1)
        return ContainerSample(read_ns=read_ns, cpu_ns=self._plausible(self._add_cpu(leftover, reaped_ns), read_ns))

    def _add_cpu(self, processes: Iterable[ProcessReading], reaped_ns: int) -> int:
        tree_ns = max(self._cpu.add(processes, reaped_ns) - self._not_its_cpu_ns, 0)
        self.cpu_ns = max(self.cpu_ns, tree_ns, self._cgroup.cpu_ns() or 0)
        return self.cpu_ns

    def _plausible(self, cpu_ns: int, read_ns: int) -> int:
        """Ticks of 10 ms can show more than all CPUs give in a short step: the rest comes later."""
        most_ns = self._shown_cpu_ns + round(max(read_ns - self._read_ns, 0) * self._vcpus)
        self._read_ns = read_ns
        self._shown_cpu_ns = max(self._shown_cpu_ns, min(cpu_ns, most_ns))
        return self._shown_cpu_ns


def _cpu_ns(process: ProcessReading) -> int:
    return process.own_cpu_ns + process.children_cpu_ns


def _smaller_share(before: ProcessReading | None, now: ProcessReading) -> int:
    """What a process held at both ends of a step, as far as is known."""
    if before is None:
        return 0
    return min(before.share_bytes or 0, now.share_bytes or 0)


def _rose(before: ProcessReading | None, now: ProcessReading) -> bool:
    """Whether the mark is new; a lower one belongs to a program executed since."""
    return now.peak_bytes is not None and (before is None or before.peak_bytes != now.peak_bytes)


def _mark_bytes(process: ProcessReading) -> int:
    """The high-water mark less the pages that are counted at others."""
    shared_bytes = max((process.rss_bytes or 0) - (process.share_bytes or 0), 0)
    return max((process.peak_bytes or 0) - shared_bytes, 0)

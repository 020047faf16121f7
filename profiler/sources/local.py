"""The local source: a command's process tree, sampled as if it were one container.

CPU is each process's own clock plus what the kernel handed to parents that waited for children;
what ends without being waited for keeps its last known time. Memory is the sum of the processes'
shares (see :class:`profiler.sources.process_tree.ProcessTree`). Where the command is in a control
group of its own, the group's counters take their place: its CPU time misses nobody, and its
memory is what a container's would be.
"""

from collections.abc import Iterable

from profiler.known import max_known
from profiler.sources import Unavailable, proc
from profiler.sources.cgroup_counters import GroupPeak, MemoryReading
from profiler.sources.container_stats import ContainerSample
from profiler.sources.own_cgroup import CommandCgroup
from profiler.sources.process_tree import ProcessReading, ProcessTree
from profiler.sources.tree_blocks import TreeBlocks
from profiler.sources.tree_cpu import TreeCpu
from profiler.sources.tree_memory import TreeMemory


class GroupMemory:
    """The memory of the command's own control group, for as long as all its processes are seen to be in it."""

    def __init__(self, cgroup: CommandCgroup) -> None:
        self._cgroup = cgroup
        self._known_members: frozenset[tuple[int, int]] = frozenset()
        self._has_escaped_process = False
        self.used_peak_bytes: int | None = None
        self.cache_peak_bytes = 0

    def read(self, processes: Iterable[ProcessReading]) -> int | None:
        """The group's memory now; None without a group, and once a process has left it for another."""
        reading = self._cgroup.memory()
        if reading is None:
            return None
        self._update_cache_peak(reading)
        now = {process.identity: process.pid for process in processes}
        self._has_escaped_process = self._has_escaped_process or any(
            not self._cgroup.contains(pid) for identity, pid in now.items() if identity not in self._known_members
        )
        self._known_members = frozenset(now)
        if self._has_escaped_process:
            return None
        self.used_peak_bytes = max(self.used_peak_bytes or 0, reading.used_bytes)
        return reading.used_bytes

    def final_peak(self) -> GroupPeak:
        """The kernel's mark, and whether it tells the command's peak. Page cache outlives the processes."""
        reading = self._cgroup.memory()
        if reading is not None:
            self._update_cache_peak(reading)
        return GroupPeak(
            size_bytes=self._cgroup.memory_peak_bytes(),
            cache_bytes=self.cache_peak_bytes,
            includes_all_processes=not self._has_escaped_process,
        )

    def _update_cache_peak(self, reading: MemoryReading) -> None:
        self.cache_peak_bytes = max(self.cache_peak_bytes, reading.cache_bytes or 0)


class CommandSampler:
    """Samples of one command's tree, and of its control group, if it has one.

    ``startup_cpu_ns`` of the tree's CPU time went into starting the command.
    """

    name = "processes"

    def __init__(
        self, tree: ProcessTree, cgroup: CommandCgroup, started_ns: int, vcpus: float, startup_cpu_ns: int
    ) -> None:
        self._tree = tree
        self._cgroup = cgroup
        self._cpu = TreeCpu()
        self._memory = TreeMemory()
        self._blocks = TreeBlocks()
        self._group_memory = GroupMemory(cgroup)
        self._vcpus = vcpus
        self._startup_cpu_ns = startup_cpu_ns
        self._read_ns = started_ns
        self._reported_cpu_ns = 0
        self.processes: tuple[ProcessReading, ...] = ()
        self.max_processes = 0
        self.cpu_ns = 0

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that the samples know of."""
        return max_known(self._memory.peak_bytes, self._group_memory.used_peak_bytes)

    def group_peak(self) -> GroupPeak:
        """The control group's mark, when the command has ended."""
        return self._group_memory.final_peak()

    def sample(self, read_ns: int, reaped_ns: int, reaped_blocks: proc.BlockBytes) -> ContainerSample | Unavailable:
        """The tree now; the last two are what this process itself has waited for so far."""
        processes = self.processes = self._tree.read()
        if not processes:
            return Unavailable("no process of the command can be read in /proc")
        self.max_processes = max(self.max_processes, len(processes))
        tree_bytes, group_bytes = self._memory.add(processes), self._group_memory.read(processes)
        blocks = self._blocks.add(processes, reaped_blocks)
        return ContainerSample(
            read_ns=read_ns,
            cpu_ns=self._clamp_to_capacity(self._add_cpu(processes, reaped_ns), read_ns),
            memory_used_bytes=tree_bytes if group_bytes is None else group_bytes,
            block_read_bytes=None if blocks is None else blocks.read_bytes,
            block_write_bytes=None if blocks is None else blocks.write_bytes,
            pids=sum(process.threads for process in processes),
        )

    def final_sample(self, read_ns: int, reaped_ns: int) -> ContainerSample:
        """After the command's end there are counters only; ``cpu_ns`` is final then."""
        leftover = self._tree.read()
        self.max_processes = max(self.max_processes, len(leftover) + 1)
        return ContainerSample(
            read_ns=read_ns, cpu_ns=self._clamp_to_capacity(self._add_cpu(leftover, reaped_ns), read_ns)
        )

    def _add_cpu(self, processes: Iterable[ProcessReading], reaped_ns: int) -> int:
        tree_ns = max(self._cpu.add(processes, reaped_ns) - self._startup_cpu_ns, 0)
        self.cpu_ns = max(self.cpu_ns, tree_ns, self._cgroup.cpu_ns() or 0)
        return self.cpu_ns

    def _clamp_to_capacity(self, cpu_ns: int, read_ns: int) -> int:
        """Ticks of 10 ms can show more than all CPUs give in a short step: the rest comes later."""
        most_ns = self._reported_cpu_ns + round(max(read_ns - self._read_ns, 0) * self._vcpus)
        self._read_ns = read_ns
        self._reported_cpu_ns = max(self._reported_cpu_ns, min(cpu_ns, most_ns))
        return self._reported_cpu_ns

"""What is known of one batch's processes: readings in, aggregates of constant size out. Pure."""

from msgspec import Struct

from profiler.known import max_known
from profiler.processes.agreement import Reading, SourceComparison
from profiler.processes.memory_kills import OomKillCounts, OomKillTracker
from profiler.processes.process_totals import ProcessTotals, ShowArguments
from profiler.sources.cgroup_counters import GroupPeak
from profiler.sources.container_cgroup import GroupReading
from profiler.sources.container_stats import ContainerSample
from profiler.sources.processes import ProcessSnapshot
from profiler.sources.tree_cpu import TreeCpu
from profiler.sources.tree_memory import TreeMemory
from profiler.usage import ContainerUsage

# A rate over a step of a few milliseconds is mostly the rounding of the counters.
_MIN_STEP_FRACTION = 0.5


class ReadingContext(Struct, frozen=True, kw_only=True):
    """When a container was read, on both clocks, and in which of its lives.

    ``started_ns`` is when that incarnation began, None if its counters may be older.
    """

    incarnation: str
    monotonic_ns: int
    wall_ns: int
    started_ns: int | None = None


class BatchProcesses:
    """Follows one batch container by name, through all its lives.

    CPU time and memory are the control group's where that can be read, else the processes'.
    """

    def __init__(self, interval_ns: int, show_arguments: ShowArguments) -> None:
        self._min_step_ns = round(_MIN_STEP_FRACTION * interval_ns)
        self._incarnation: str | None = None
        self._tree_cpu = TreeCpu()
        self._tree_memory = TreeMemory()
        self._previous_cpu_ns = 0
        self._current_cpu_ns = 0
        self._last_added_ns: int | None = None
        self._threads = 0
        self._is_end_observed = False
        self._max_high_water_bytes: int | None = None
        self._group_used_bytes: int | None = None
        self.group_peak = GroupPeak()
        self.has_data = False
        self.usage = ContainerUsage(interval_ns)
        self.totals = ProcessTotals(show_arguments)
        self.kills = OomKillTracker()
        self.comparison = SourceComparison()

    def add(
        self, snapshot: ProcessSnapshot, group: GroupReading | None, host_kills: int | None, context: ReadingContext
    ) -> None:
        """Take a reading of the processes and of their control group, if that can be read."""
        if context.incarnation != self._incarnation:
            self._begin(context.incarnation)
        processes = snapshot.processes
        is_alive = any(process.rss_bytes is not None for process in processes)
        self.has_data = self.has_data or is_alive
        self.totals.add(processes)
        group_kills = None if group is None else group.oom_kills
        self.kills.add(
            OomKillCounts(in_container=group_kills, on_host=host_kills), snapshot.ended, snapshot.missed_pids
        )
        tree_bytes = self._tree_memory.add(processes)
        self._max_high_water_bytes = max_known(
            self._max_high_water_bytes, *(process.peak_bytes for process in processes)
        )
        self._count_cpu(self._tree_cpu.add(processes, 0))
        used_bytes = self._add_group(group, is_alive=is_alive)
        if is_alive:
            self._threads = sum(process.threads for process in processes)
            self._add_sample(tree_bytes if used_bytes is None else used_bytes, self._threads, context)

    def add_group(self, group: GroupReading, context: ReadingContext) -> None:
        """Take a reading of the control group alone, when it was not the processes' turn."""
        self._add_sample(self._add_group(group, is_alive=True), self._threads, context)

    @property
    def cpu_ns(self) -> int:
        """All CPU time that was seen."""
        return self._previous_cpu_ns + self._current_cpu_ns

    @property
    def can_read_cgroup(self) -> bool:
        """Whether the control group could be read."""
        return self.group_peak.size_bytes is not None or self._group_used_bytes is not None

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that was seen, by the marks of the processes too: the truth is no less.

        Where the processes share memory that is counted at each of them, no sum is trusted, but the
        mark of the largest.
        """
        of_processes = (
            self._max_high_water_bytes if self.comparison.counts_shared_memory_twice else self._tree_memory.peak_bytes
        )
        return max_known(of_processes, self._group_used_bytes)

    def _begin(self, incarnation: str) -> None:
        self._incarnation = incarnation
        self._previous_cpu_ns += self._current_cpu_ns
        self._current_cpu_ns = 0
        self._tree_cpu = TreeCpu()
        self._is_end_observed = False

    def _count_cpu(self, cpu_ns: int | None) -> None:
        self._current_cpu_ns = max(self._current_cpu_ns, cpu_ns or 0)

    def _add_group(self, group: GroupReading | None, *, is_alive: bool) -> int | None:
        """Take the group's counters; returns the memory in use.

        Its mark tells everything up to now. Between the last reading and an end that was not seen
        it may have risen once more.
        """
        before = self.group_peak
        if group is None:
            includes_all_processes = before.includes_all_processes and (
                self._is_end_observed or not self.can_read_cgroup
            )
            self.group_peak = GroupPeak(
                size_bytes=before.size_bytes,
                cache_bytes=before.cache_bytes,
                includes_all_processes=includes_all_processes,
            )
            return None
        self._is_end_observed = not is_alive
        cache_bytes = 0 if group.memory is None else group.memory.cache_bytes or 0
        self.group_peak = GroupPeak(
            size_bytes=max_known(before.size_bytes, group.peak_bytes),
            cache_bytes=max(before.cache_bytes, cache_bytes),
            includes_all_processes=before.includes_all_processes,
        )
        self._count_cpu(group.cpu_ns)
        used_bytes = None if group.memory is None else group.memory.used_bytes
        self._group_used_bytes = max_known(self._group_used_bytes, used_bytes)
        return used_bytes

    def _add_sample(self, memory_bytes: int | None, threads: int, context: ReadingContext) -> None:
        cpu_ns = self._current_cpu_ns
        self.comparison.on_reading(Reading(context.wall_ns, cpu_ns, memory_bytes))
        if self._last_added_ns is not None and context.monotonic_ns - self._last_added_ns < self._min_step_ns:
            return
        self._last_added_ns = context.monotonic_ns
        sample = ContainerSample(read_ns=context.wall_ns, cpu_ns=cpu_ns, memory_used_bytes=memory_bytes, pids=threads)
        self.usage.add(
            sample, docker_id=context.incarnation, received_ns=context.monotonic_ns, started_ns=context.started_ns
        )

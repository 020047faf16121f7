"""The usage of one batch by its processes: aggregates of constant size, compared with the task stats."""

import math
from collections import deque
from collections.abc import Sequence
from functools import partial

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.process_totals import GroupPeak, GroupTotal, TreeCpu, TreeMemory, lacks_memory
from profiler.aggregation.series_by_command import SeriesByCommand
from profiler.aggregation.slowdown import CpuDemand
from profiler.aggregation.statistics import MonotonicCounter
from profiler.aggregation.time_breakdown import IdleBetween, TimeAccount, never_idle
from profiler.aggregation.usage_by_command import OomKillTracker, ProcessTotals, ShowArguments
from profiler.collectors.processes.process_reader import ProcessSnapshot
from profiler.core.optional_math import max_known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.cgroup.container_group import GroupReading
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.thread_times import ThreadSample
from profiler.record.units import MIB

# On Fargate the task stats are up to 10 s old on arrival.
_MAX_PENDING = 64
_CPU_TOLERANCE, _CPU_TOLERANCE_SECONDS = 0.05, 0.5
_MEMORY_TOLERANCE, _MEMORY_TOLERANCE_BYTES = 0.10, 32 * MIB
_MIN_COMPARISONS = 3


class SourceComparison:
    """Compares the readings of the processes with the task stats; with too few samples, they agree.

    Memory is compared at each sample, by majority: a spike may show in one source only.
    """

    def __init__(self) -> None:
        self._readings: deque[ContainerSample] = deque(maxlen=_MAX_PENDING)
        self._pending: deque[ContainerSample] = deque(maxlen=_MAX_PENDING)
        self._last_cpu_ns: tuple[int, int] | None = None
        self._stats_cpu_ns = self._processes_cpu_ns = 0
        self._comparisons = 0
        self._comparisons_above = 0
        self._comparisons_below = 0
        self._stats_bytes = 0
        self._excess_bytes = 0

    def on_sample(self, sample: ContainerSample) -> None:
        self._pending.append(sample)

    def on_reading(self, reading: ContainerSample) -> None:
        """Add a reading of all processes together, later than the last one."""
        self._readings.append(reading)
        while self._pending and self._pending[0].read_ns <= reading.read_ns:
            self._compare(self._pending.popleft())

    @property
    def cpu_agrees(self) -> bool:
        """Whether the CPU time agrees to 5 % or 0.5 s."""
        tolerance_ns = max(_CPU_TOLERANCE * self._stats_cpu_ns, _CPU_TOLERANCE_SECONDS * NS_PER_SECOND)
        return abs(self._processes_cpu_ns - self._stats_cpu_ns) <= tolerance_ns

    @property
    def memory_agrees(self) -> bool:
        """Whether the memory is neither higher nor lower, by more than 10 % or 32 MiB, in most of the samples."""
        return not (self.counts_shared_memory_twice or self._is_majority(self._comparisons_below))

    @property
    def counts_shared_memory_twice(self) -> bool:
        """Whether the sum over the processes exceeds the memory in use, because shared pages count for each of them."""
        return self._is_majority(self._comparisons_above)

    def warnings(self) -> tuple[str, ...]:
        """A sentence for each difference."""
        sentences = []
        if not self.cpu_agrees:
            sentences.append(
                f"Task stats and the batch's processes differ on CPU time: {self._stats_cpu_ns / NS_PER_SECOND:.1f} s "
                f"against {self._processes_cpu_ns / NS_PER_SECOND:.1f} s over the same time; "
                "the time series is from the task stats."
            )
        if not self.memory_agrees:
            stats_bytes = self._stats_bytes // self._comparisons
            processes_bytes = stats_bytes + self._excess_bytes // self._comparisons
            reason = "memory that the processes share"
            if not self.counts_shared_memory_twice:
                reason = "mapped page cache, tmpfs or kernel memory"
            sentences.append(
                f"Task stats and the batch's processes differ on memory: {stats_bytes // MIB} MB against "
                f"{processes_bytes // MIB} MB on average ({reason}); the time series is from the task stats."
            )
        return tuple(sentences)

    def _compare(self, sample: ContainerSample) -> None:
        later = next((reading for reading in self._readings if reading.read_ns >= sample.read_ns), None)
        earlier = next((reading for reading in reversed(self._readings) if reading.read_ns <= sample.read_ns), None)
        if earlier is None or later is None:
            return
        if sample.cpu_ns is not None and earlier.cpu_ns is not None and later.cpu_ns is not None:
            step_ns = max(later.read_ns - earlier.read_ns, 1)
            grown_ns = (later.cpu_ns - earlier.cpu_ns) * (sample.read_ns - earlier.read_ns) // step_ns
            processes_ns, last = earlier.cpu_ns + grown_ns, self._last_cpu_ns
            if last is not None and sample.cpu_ns >= last[0]:  # else the container was restarted
                self._stats_cpu_ns += sample.cpu_ns - last[0]
                self._processes_cpu_ns += processes_ns - last[1]
            self._last_cpu_ns = sample.cpu_ns, processes_ns
        used_bytes, before, after = sample.memory_used_bytes, earlier.memory_used_bytes, later.memory_used_bytes
        if used_bytes is not None and before is not None and after is not None:
            low, high = sorted((before, after))
            self._comparisons += 1
            self._stats_bytes += used_bytes
            excess_bytes = min(max(used_bytes, low), high) - used_bytes
            self._excess_bytes += excess_bytes
            tolerance_bytes = max(_MEMORY_TOLERANCE * used_bytes, _MEMORY_TOLERANCE_BYTES)
            self._comparisons_above += excess_bytes > tolerance_bytes
            self._comparisons_below += -excess_bytes > tolerance_bytes

    def _is_majority(self, moments: int) -> bool:
        return self._comparisons >= _MIN_COMPARISONS and 2 * moments > self._comparisons


class StatsPeak:
    """The container's own mark in the task stats (cgroup v1), which bounds the marks of its processes.

    Those also count file pages of other groups. It bounds readings before its own, until a restart.
    """

    def __init__(self) -> None:
        self._read_ns = 0
        self._bytes: int | None = None
        self.needed_ns = 0  # the last rise of the processes' peak
        self.is_usable = True  # until a restart: the container's mark then no longer covers the time before

    def on_sample(self, sample: ContainerSample) -> None:
        """Add a sample of the task stats. A lower mark than before belongs to a new control group."""
        mark_bytes = sample.memory_usage_peak_bytes
        if mark_bytes is not None and sample.read_ns > self._read_ns:
            self.is_usable = self.is_usable and mark_bytes >= (self._bytes or 0)
            self._read_ns, self._bytes = sample.read_ns, mark_bytes

    @property
    def size_bytes(self) -> int | None:
        """The bound; None if no mark was read since the last rise."""
        return self._bytes if self.is_usable and self._read_ns >= self.needed_ns else None


class BatchProcesses:
    """Aggregates the readings of one batch container by name, over all its incarnations.

    An incarnation is one control group of one Docker id. CPU time and memory come from the control group if it is
    readable, else from the processes. All times are by the wall clock as it was set at the start of the collector,
    ``started_ns`` is the start of the run. ``is_new`` is False if the container was restarted before it was first read.
    ``idle_ns`` is the time between two moments in which all GPUs were idle.
    """

    def __init__(
        self,
        interval_ns: int,
        show_arguments: ShowArguments,
        series_points: int = 0,
        *,
        started_ns: int | None = None,
        is_new: bool = True,
        idle_ns: IdleBetween = never_idle,
    ) -> None:
        self._started_ns = started_ns
        self._is_new = is_new
        # A rate over a step of a few milliseconds is mostly rounding of the counters.
        self._min_step_ns = interval_ns // 2
        self._has_begun = False
        self._tree_cpu = TreeCpu()
        self._tree_memory = TreeMemory()
        self._group_cpu = MonotonicCounter()
        self._group_kills: int | None = None
        self._last_added_ns: int | None = None
        self._threads = 0
        self._is_end_observed = False
        self._is_mark_current = False
        self._has_missed_end = False
        self._mark_bytes: int | None = None
        self._max_cache_bytes = 0
        self._group_used_bytes: int | None = None
        self._group_total = GroupTotal()
        self._largest_bytes = 0
        self.has_data = False
        self.usage = ContainerUsage(interval_ns, series_points)
        self.demand = CpuDemand()
        make_series = None
        if started_ns is not None and series_points:
            make_series = partial(SeriesByCommand, started_ns, interval_ns, series_points, is_new=is_new)
        self.totals = ProcessTotals(show_arguments, make_series)
        self.time = TimeAccount(started_ns if is_new else None, interval_ns, idle_ns)
        self._is_alive = False
        self.kills = OomKillTracker()
        self.comparison = SourceComparison()
        self._stats_peak = StatsPeak()

    def on_sample(self, sample: ContainerSample) -> None:
        self.comparison.on_sample(sample)
        self._stats_peak.on_sample(sample)

    def add(
        self,
        snapshot: ProcessSnapshot,
        group: GroupReading | None,
        host_kills: int | None,
        read_ns: int,
        threads: ThreadSample | None = None,
    ) -> None:
        """Add a reading of the processes, of their threads and, if readable, of their control group."""
        processes = snapshot.processes
        is_alive = any(process.rss_bytes is not None for process in processes)
        self.has_data = self.has_data or is_alive
        self.totals.add(processes, read_ns if is_alive else None)
        used_bytes = self._add_group(group, is_alive=is_alive, processes=processes)
        group_kills, self._group_kills = self._group_kills, None
        self.kills.add(group_kills, host_kills, snapshot.ended, snapshot.missed_pids)
        memory = self._tree_memory
        before = memory.peak_bytes, memory.largest_mark_bytes
        tree_bytes = memory.add(processes)
        if before != (memory.peak_bytes, memory.largest_mark_bytes):
            # A reading of all processes takes at most a tenth of a second after its time stamp.
            self._stats_peak.needed_ns = read_ns + NS_PER_SECOND // 10
        self._tree_cpu.add(processes, 0)
        if is_alive:
            self._threads = sum(process.threads for process in processes)
            self._add_sample(tree_bytes if used_bytes is None else used_bytes, read_ns)
        if threads is not None and (is_alive or self._is_alive):
            add_step = self.time.add if is_alive else self.time.finish
            add_step(read_ns, self.cpu_ns, threads, self.usage.series)
            self._is_alive = is_alive

    def add_group(self, group: GroupReading, read_ns: int | None = None) -> None:
        """Add a reading of the control group alone; without a time it adds no sample."""
        used_bytes = self._add_group(group, is_alive=True)
        if read_ns is not None:
            self._add_sample(used_bytes, read_ns)

    @property
    def cpu_ns(self) -> int:
        """The CPU time of all incarnations, in nanoseconds: each source counts every process once."""
        return max(self._group_cpu.total or 0, self._tree_cpu.total_ns)

    def group_peak(self, *, is_running: bool) -> GroupPeak:
        """The control group's high-water mark, and whether it covers all processes.

        It covers them if the mark of every incarnation was read after the end of its last process. For a batch that is
        running, the mark of the last reading suffices.
        """
        is_complete = self._is_end_observed or (is_running and self._is_mark_current)
        return GroupPeak(
            size_bytes=self._mark_bytes,
            cache_bytes=self._max_cache_bytes,
            includes_all_processes=is_complete and not self._has_missed_end,
            uncounted_bytes=self._group_total.uncounted_bytes,
        )

    @property
    def peak_bytes(self) -> int | None:
        """The largest memory use seen, including the high-water marks of the processes: a lower bound of the peak.

        If shared memory is counted for each process, sums are not used; the largest high-water mark of one process is
        used instead. Where the task stats have the container's own mark, it bounds them, unless it lacks memory of one
        process: of mapped files that other containers read first.
        """
        memory = self._tree_memory
        of_processes = memory.largest_mark_bytes if self.comparison.counts_shared_memory_twice else memory.peak_bytes
        bound_bytes = self._stats_peak.size_bytes
        if of_processes is not None and bound_bytes is not None:
            of_processes = min(of_processes, bound_bytes)
        peak_bytes, mark_bytes = max_known(of_processes, self._group_used_bytes), memory.largest_mark_bytes
        return mark_bytes if lacks_memory(peak_bytes or 0, mark_bytes or 0) else peak_bytes

    def counts_shared_memory_twice(self, size_bytes: float | None) -> bool:
        """Whether the sum over the processes is more than the container can have used.

        This bound comes from most of the task stats, or from its high-water mark, or from its size (``size_bytes``).
        """
        bounds = [bound for bound in (self._mark_bytes, self._stats_peak.size_bytes, size_bytes) if bound is not None]
        largest_bytes = (1 + _MEMORY_TOLERANCE) * min(bounds, default=math.inf) + _MEMORY_TOLERANCE_BYTES
        return self.comparison.counts_shared_memory_twice or (self._tree_memory.peak_bytes or 0) > largest_bytes

    def begin_incarnation(self) -> None:
        """The following readings are of another control group than those before."""
        if self._has_begun:
            self._has_missed_end = self._has_missed_end or not self._is_end_observed
            self._stats_peak.is_usable = False
        self._has_begun = True
        self._group_cpu.restart()
        self._largest_bytes = 0
        self.kills.restart()
        self._is_end_observed = self._is_mark_current = False

    def _add_group(
        self, group: GroupReading | None, *, is_alive: bool, processes: Sequence[ProcessReading] = ()
    ) -> int | None:
        """Add a reading of the control group; returns the memory in use, in bytes, which no process exceeds.

        The mark is final if no process ran before it was read. A group under removal may lack it, which shows no end.
        """
        if group is None:
            self._is_mark_current = False
            return None
        self._is_mark_current = group.has_mark
        if group.has_mark:
            self._is_end_observed = not is_alive if group.is_empty is None else group.is_empty
        self._mark_bytes = max_known(self._mark_bytes, group.peak_bytes)
        cache_bytes = None if group.memory is None else group.memory.cache_bytes
        self._max_cache_bytes = max(self._max_cache_bytes, cache_bytes or 0)
        if group.cpu_ns is not None:
            self._group_cpu.add(group.cpu_ns)
        if group.oom_kills is not None:
            self._group_kills = group.oom_kills
        used_bytes = None if group.memory is None else group.memory.used_bytes
        if group.memory is not None and is_alive:
            largest = max(processes, key=lambda process: process.rss_bytes or 0, default=None)
            if largest is None or largest.rss_bytes is None:
                used_bytes = self._group_total.between(group.memory, self._largest_bytes, 0)
            else:
                self._largest_bytes = largest.rss_bytes
                used_bytes = self._group_total.read(group.memory, (largest,), largest.rss_bytes, is_exact=True)
        self._group_used_bytes = max_known(self._group_used_bytes, used_bytes)
        return used_bytes

    def _add_sample(self, memory_bytes: int | None, read_ns: int) -> None:
        sample = ContainerSample(
            read_ns=read_ns, cpu_ns=self.cpu_ns, memory_used_bytes=memory_bytes, pids=self._threads
        )
        self.comparison.on_reading(sample)
        if self._last_added_ns is not None and read_ns - self._last_added_ns < self._min_step_ns:
            return
        self._last_added_ns = read_ns
        self.usage.add(sample, received_ns=read_ns, started_ns=self._started_ns, is_new=self._is_new)
        self.demand.add(self.usage.last_vcpu or 0.0, self.usage.take_ended_step_ns())

"""The usage of one batch by its processes: aggregates of constant size."""

from collections.abc import Iterable, Sequence
from functools import partial

from msgspec import Struct

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.gpu_idle_breakdown import IdleGpus
from profiler.aggregation.out_of_memory import OomKillTracker
from profiler.aggregation.process_table import ProcessTotals, ShowArguments
from profiler.aggregation.process_tree_usage import GroupPeak, TreeCpu, TreeMemory
from profiler.aggregation.series_by_command import SeriesByCommand
from profiler.aggregation.slowdown import CpuDemand
from profiler.aggregation.statistics import MeanAndMaximum, MonotonicCounter
from profiler.aggregation.time_breakdown import TimeAccount
from profiler.collectors.processes.container_processes import ProcessSnapshot
from profiler.collectors.processes.task_stats_comparison import SourceComparison
from profiler.core.optional_math import first_known, max_known, sum_of_both
from profiler.core.timestamps import LONG_AGO_NS
from profiler.readers.cgroup.container_group import GroupReading
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux.look import ThreadsLook
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.record_model import NO_READINGS, AverageAndMaximum
from profiler.record.units import MIB


class ThreadReadings(Struct, frozen=True, kw_only=True):
    """What was read of the threads together with the processes: a look, if one was taken, and the
    CPU time that was read of processes which have ended since the last reading. ``is_skipped``: no
    process has begun or ended, and no thread has its turn.
    """

    look: ThreadsLook | None = None
    read_ended_ns: int = 0
    is_skipped: bool = False


class BatchProcesses:
    """Aggregates the readings of one batch over all its incarnations: the control groups of its
    Docker ids.

    CPU time and memory come from the control group if it is readable, else from the processes. All
    times are by the wall clock as it was set at the start of the collector, ``started_ns`` is the
    start of the run. ``is_new`` is False if the container was restarted before it was first read.
    ``counts_huge_pages``: the memory used has them. ``ring_bound_bytes``: the most that was used
    together with packet rings; 0 without rings.
    """

    def __init__(
        self,
        interval_ns: int,
        show_arguments: ShowArguments,
        series_points: int = 0,
        *,
        started_ns: int | None = None,
        is_new: bool = True,
        gpus: IdleGpus | None = None,
    ) -> None:
        self._started_ns = started_ns
        self._is_new = is_new
        # A rate over a step of a few milliseconds is mostly rounding of the counters.
        self._min_step_ns = interval_ns // 2
        self._has_begun = False
        self._tree_cpu = TreeCpu()
        self.memory = TreeMemory()
        self._group_cpu = MonotonicCounter()
        self._group_kills: int | None = None
        self._last_added_ns = LONG_AGO_NS
        self.cpu_read_ns: int | None = None
        self._is_cpu_new = False  # the group's CPU time was read
        self._threads = 0
        self._is_end_observed = False
        self._is_mark_current = False
        self._has_missed_end = False
        self._mark_bytes: int | None = None
        self._max_cache_bytes = 0
        self._huge_page_bytes = MeanAndMaximum()
        self.ring_bound_bytes = 0
        self.counts_huge_pages = False
        self.has_data = False
        self.usage = ContainerUsage(interval_ns, series_points)
        self.demand = CpuDemand()
        make_series = None
        if started_ns is not None and series_points:
            make_series = partial(
                SeriesByCommand, started_ns, interval_ns, series_points, is_new=is_new
            )
        self.totals = ProcessTotals(show_arguments, make_series)
        self.time = TimeAccount(started_ns if is_new else None, interval_ns, gpus)
        self._main_pid: int | None = None
        self.kills = OomKillTracker()
        self.comparison = SourceComparison()

    def add_reading(
        self,
        snapshot: ProcessSnapshot,
        group: GroupReading | None,
        host_kills: int | None,
        read_ns: int,
        threads: ThreadReadings | None = None,
        *,
        machine_bytes: int | None = None,
        ring_bytes: int = 0,
    ) -> None:
        """Add a reading of the batch's processes, at ``read_ns``.

        ``group``: its control group's counters; without them, memory is the processes' sum, or lies
        between it and ``machine_bytes``. ``host_kills``: the machine's kills for lack of memory so
        far. ``threads``: None if they are not read. ``ring_bytes``: the rings of packet sockets.
        """
        processes = snapshot.processes
        is_alive = any(process.rss_bytes is not None for process in processes)
        self.has_data = self.has_data or is_alive
        used_bytes = self._add_group(group, is_alive=is_alive)
        group_kills = self._group_kills
        self._group_kills = None
        has_main_ended = any(process.pid == self._main_pid for process in snapshot.ended)
        self.kills.add_reading(
            group_kills,
            host_kills,
            snapshot.ended,
            snapshot.missed_pids,
            has_main_ended=has_main_ended,
            is_group_current=group is not None and group.oom_kills is not None,
        )
        self._main_pid = snapshot.main_pid
        tree_bytes = self.memory.add_reading(processes)
        self._tree_cpu.add_reading(processes, 0)
        self.totals.add_reading(processes, read_ns if is_alive else None, cpu_ns=self.cpu_ns)
        if processes or self._is_cpu_new:  # a zombie has its final CPU time
            self.cpu_read_ns = read_ns
            self._is_cpu_new = False
        if is_alive:
            self._add_huge_pages(processes, group)
            self._threads = sum(process.threads for process in processes)
            if used_bytes is None:
                used_bytes = tree_bytes
            else:
                machine_bytes = None
            if ring_bytes:
                bound_bytes = ring_bytes + (used_bytes or 0)
                self.ring_bound_bytes = max(self.ring_bound_bytes, bound_bytes)
            self._add_sample(used_bytes, read_ns, machine_bytes)
        if threads is not None:
            self._add_threads(threads, processes, read_ns)

    def _add_threads(
        self, threads: ThreadReadings, processes: Sequence[ProcessReading], read_ns: int
    ) -> None:
        """Add the look that was taken with the processes, if any, and what ran unread since the
        last one.
        """
        if threads.look is not None:
            self.time.add_look(read_ns, threads.look, self.usage.series)
        if threads.is_skipped:
            return
        ended_ns = self.cpu_ns - sum([process.own_cpu_ns for process in processes])
        self.time.add_total(read_ns, ended_ns, threads.read_ended_ns)
        self._add_unread_cpu()

    def add_stats(self, sample: ContainerSample) -> None:
        """Compare the statistics of the container with the readings of its processes."""
        self.comparison.on_sample(sample)
        self.counts_huge_pages = self.counts_huge_pages or sample.has_huge_pages
        self._add_unread_cpu()

    def _add_unread_cpu(self) -> None:
        unread_ns, since_ns = self.comparison.take_unread_cpu()
        if unread_ns:
            self.time.add_unread(unread_ns, since_ns)

    def add_group(self, group: GroupReading, read_ns: int | None = None) -> None:
        """Add a reading of the control group alone; without a time it adds no sample."""
        used_bytes = self._add_group(group, is_alive=True)
        if read_ns is not None:
            self._add_sample(used_bytes, read_ns)

    @property
    def cpu_ns(self) -> int:
        """The CPU time of all incarnations, in nanoseconds: each source counts every process
        once.
        """
        return max(self._group_cpu.total or 0, self._tree_cpu.total_ns)

    @property
    def known_cpu_ns(self) -> int:
        """The same, with what of it only the task stats know."""
        return max(self.cpu_ns, self._tree_cpu.total_ns + self.comparison.unread_cpu_ns)

    @property
    def huge_pages(self) -> AverageAndMaximum:
        """The huge pages in addition to the memory used: those of the process with most, or of the
        group, at least.
        """
        huge_pages = self._huge_page_bytes.average_and_maximum(per=MIB)
        return huge_pages if huge_pages.max and not self.counts_huge_pages else NO_READINGS

    def _add_huge_pages(
        self, processes: Sequence[ProcessReading], group: GroupReading | None
    ) -> None:
        held_bytes = max([process.huge_page_bytes or 0 for process in processes], default=0)
        if group is not None:
            held_bytes = max(held_bytes, group.huge_page_bytes or 0)
            if group.memory is not None and group.memory.has_huge_pages:
                self.counts_huge_pages = True
        self._huge_page_bytes.add_reading(held_bytes)

    def group_peak(self, *, is_running: bool) -> GroupPeak:
        """The group's high-water mark: complete if each incarnation's was read after its last
        process, or now.
        """
        is_complete = self._is_end_observed or (is_running and self._is_mark_current)
        return GroupPeak(
            size_bytes=self._mark_bytes,
            cache_bytes=self._max_cache_bytes,
            includes_all_processes=is_complete and not self._has_missed_end,
        )

    @property
    def peak_bytes(self) -> int | None:
        """The largest memory use seen, including the high-water marks of the processes: a lower
        bound of the peak.
        """
        # The marks, too, count what the stats showed to be none of the batch's.
        lacking_bytes = min(self.comparison.lacking_bytes, 0)
        peak_bytes = sum_of_both(self.memory.peak_bytes, lacking_bytes)
        return max_known(peak_bytes, self.usage.memory_max_bytes)

    def begin_incarnation(self) -> None:
        """The following readings are of another control group than those before."""
        self.add_remaining_readings()
        self.time.end_threads()
        self.comparison.lacking_bytes = 0
        if self._has_begun:
            self._has_missed_end = self._has_missed_end or not self._is_end_observed
        self._has_begun = True
        self._group_cpu.reset_to_zero()
        self.kills.start_new_group()
        self._is_end_observed = False
        self._is_mark_current = False

    def _add_group(self, group: GroupReading | None, *, is_alive: bool) -> int | None:
        """Returns the memory in use.

        The mark is final if no process ran before it was read.
        """
        if group is None:
            self._is_mark_current = False
            return None
        self._is_mark_current = group.has_mark
        if group.has_mark:
            self._is_end_observed = first_known(group.is_empty, not is_alive)
        self._mark_bytes = max_known(self._mark_bytes, group.peak_bytes)
        if group.cpu_ns is not None:
            self._group_cpu.advance_to(group.cpu_ns)
            self._is_cpu_new = True
        self._group_kills = first_known(group.oom_kills, self._group_kills)
        if group.memory is None:
            return None
        self._max_cache_bytes = max(self._max_cache_bytes, group.memory.cache_bytes or 0)
        return group.memory.used_bytes

    def _add_sample(
        self,
        memory_bytes: int | None,
        read_ns: int,
        machine_bytes: int | None = None,
    ) -> None:
        sample = ContainerSample(
            read_ns=read_ns, cpu_ns=self.cpu_ns, memory_used_bytes=memory_bytes, pids=self._threads
        )
        self._add_usage(self.comparison.on_reading(sample, machine_bytes))

    def add_remaining_readings(self) -> None:
        self._add_usage(self.comparison.readings_until())

    def _add_usage(self, samples: Iterable[ContainerSample]) -> None:
        """Add samples, but for those that come too soon after the last one."""
        for sample in samples:
            read_ns = sample.read_ns
            if read_ns - self._last_added_ns >= self._min_step_ns:
                self._last_added_ns = read_ns
                self.usage.add_sample(
                    sample, received_ns=read_ns, started_ns=self._started_ns, is_new=self._is_new
                )
                self.demand.add_step(self.usage.last_vcpu or 0.0, self.usage.take_ended_step_ns())

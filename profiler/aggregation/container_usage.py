"""The usage of one container: aggregates its samples in constant memory."""

import math
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.statistics import (
    RELATIVE_ERROR,
    DeviceReadings,
    MeanAndMaximum,
    MonotonicCounter,
    SeldomReadMean,
    TimeWeightedStatistics,
    UseWindow,
)
from profiler.core.optional_math import difference, first_known, max_known, quotient
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux.host import Host
from profiler.readers.memory_usage import is_negligible, is_notable

if TYPE_CHECKING:
    from profiler.aggregation.time_series import RunSeries

# A first step shorter than this fraction of the usual one is merged with the next. At the first
# sample the counter includes work of the container runtime from before the start, which would be a
# high rate over a short step.
_MIN_FIRST_STEP_FRACTION = 0.5
# Stats are refreshed every 20 s at least (EC2; every 10 s on Fargate).
_MAX_STATS_PERIOD_NS = 20 * NS_PER_SECOND
# A step of up to this many sampling intervals leaves no gap in the readings.
_REGULAR_STEP = 1.05
# Counters can be late. What all CPUs provide in this time is possible in addition to what they
# provide in the step.
_MAX_LATENESS_NS = 60 * NS_PER_SECOND
# How far above the capacity of its time the CPU time of a new container may be: its start is not
# known to the tick.
_NEW_CONTAINER_SLACK_NS = NS_PER_SECOND
# A rate or a memory usage is possible up to this multiple of the machine's.
_MARGIN = 1.5
_UNKNOWN_MACHINE = Host()
_SIZES = (
    *("memory_used_bytes", "memory_cache_bytes", "memory_mapped_file_bytes"),
    "memory_usage_peak_bytes",
)
_get_sizes = attrgetter(*_SIZES)
_NETWORK = ("network_rx_bytes", "network_tx_bytes")
_MAX_TOTAL = 2**63 - 1  # of the integers of readers
BLOCK_COUNTERS = ("block_read_bytes", "block_write_bytes")


class UsageWindow(Struct):
    """CPU and memory over one period: the whole run, or the time since a checkpoint."""

    vcpu: TimeWeightedStatistics = field(default_factory=TimeWeightedStatistics)
    memory_bytes: TimeWeightedStatistics = field(default_factory=TimeWeightedStatistics)
    cpu_ns: int = 0
    covered_ns: int = 0

    @property
    def cpu_seconds(self) -> float | None:
        return self.cpu_ns / NS_PER_SECOND if self.covered_ns else None


class ContainerUsage:
    """The usage of one container, across restarts and changes of its Docker id.

    The vCPU of a step is the increase of ``total_usage`` divided by the increase of ``read``
    between two samples. The first step begins at the container's start, where the counter was 0. A
    sample with an unchanged ``read`` is a duplicate. A step in which the wall clock was set is
    corrected by as much. Values that the machine cannot reach are left out and counted in
    ``impossible``. ``received_ns`` is the monotonic time of ``last_sample``. ``kernel_peak_bytes``
    is the peak by the kernel's mark after the end, without page cache. ``memory_bound_bytes``: the
    most that may have been used at a sample. ``memory_marked_bytes``: the most that the kernel's
    mark had, when it rose, beside the page cache of the samples before and after; 0 without a mark.
    0 points: no series.
    """

    def __init__(
        self,
        nominal_step_ns: int,
        series_points: int = 0,
        machine: Host = _UNKNOWN_MACHINE,
        finest_ns: int | None = None,
    ) -> None:
        self._nominal_step_ns = nominal_step_ns
        self._series_points = series_points
        self._finest_ns = finest_ns
        # Anything is possible on a machine of unknown size.
        self._machine = machine
        self._machine_vcpu = first_known(machine.vcpu, math.inf)
        self._clock_shift_ns = 0
        # ``read`` in addition to the monotonic clock, since the wall clock was set.
        self._moved_ns = 0
        self.run = UsageWindow()
        self._windows: tuple[UsageWindow, ...] = (self.run,)  # and the current interval
        self._cpu_ns = MonotonicCounter()
        self._counters = {name: MonotonicCounter() for name in (*_NETWORK, *BLOCK_COUNTERS)}
        self.steps_ms = TimeWeightedStatistics()
        self._usual_step_ms: float | None = None
        self._usual_step_samples = 0
        # The time since the last known CPU time (None if unknown), and CPU time that was not
        # counted yet.
        self._carried_ns: int | None = 0
        self._carried_cpu_ns = 0
        self._cpu_received_ns: int | None = None
        self._epoch: str | None = None
        self.received_ns: int | None = None
        self.last_vcpu: float | None = None
        self._last_vcpu_read_ns: int | None = None
        # The time of the last CPU time, by the wall clock as it was set at the start of the run.
        self.cpu_until_ns: int | None = None
        self.last_sample: ContainerSample | None = None
        self._ended_step_ns = 0
        self.series: RunSeries | None = None
        self.last_read_ns: int | None = None
        self.samples = 0
        self.duplicates = 0
        self.impossible = 0
        self.memory_max_bytes: int | None = None
        self.memory_cache_bytes = MeanAndMaximum()
        # Quick readings have neither.
        self.memory_mapped_file_bytes = SeldomReadMean()
        self.memory_huge_page_bytes = SeldomReadMean()
        self.memory_max_at_ns: int | None = None
        self.memory_max_kernel_bytes: int | None = None
        self.memory_bound_bytes = 0
        self.memory_usage_peak_bytes: int | None = None
        self.memory_marked_bytes = 0
        self._mark_used_bytes: int | None = None
        self._unsure_mark_bytes = 0
        self._last_cache_bytes = 0
        self.kernel_peak_bytes: int | None = None
        self.memory_limit_bytes: int | None = None
        self.memory_limit_hits: int | None = None
        self.max_pids: int | None = None

    def add_sample(
        self,
        sample: ContainerSample,
        *,
        epoch: str = "",
        received_ns: int,
        started_ns: int | None,
        attempt_started_ns: int | None = None,
        is_new: bool = True,
        shares_network: bool = False,
        clock_shift_ns: int = 0,
    ) -> bool:
        """Add a sample, received at ``received_ns`` (monotonic); returns False if it is a
        duplicate.

        ``epoch`` is the container's Docker id: with a new one, the counters may begin at 0, but not
        the network's if the task shares them (awsvpc). ``attempt_started_ns`` is the last start of
        a container that was restarted. ``is_new``: the counters were 0 at the start of the run.
        ``clock_shift_ns``: the amount by which the wall clock was set since the start until now;
        this ``read`` may be older.
        """
        is_repeated = sample.read_ns == self.last_read_ns or (
            clock_shift_ns == self._clock_shift_ns and self._is_older_than_last(sample)
        )
        if is_repeated and epoch == self._epoch:
            self.duplicates += 1
            return False
        is_first = self.last_read_ns is None
        if is_first and self._series_points:
            from profiler.aggregation.time_series import RunSeries  # the shortest runs have none

            start_ns = first_known(started_ns, sample.read_ns)
            self.series = RunSeries(
                start_ns, self._nominal_step_ns, self._series_points, self._finest_ns
            )
        step_ns, attempt_ns = self._step_and_attempt_ns(
            sample, received_ns, started_ns, attempt_started_ns, clock_shift_ns
        )
        if self._epoch not in (None, epoch) and self._can_count_from_zero(sample, attempt_ns):
            self._restart_counters(shares_network=shares_network)
        reported_cpu_ns = sample.cpu_ns
        sample = self._without_impossible_values(sample, step_ns, received_ns, is_new=is_new)
        if sample.cpu_ns is not None:
            self._cpu_received_ns = received_ns
        self._add_cpu(sample, step_ns, attempt_ns, is_new=is_new)
        if not is_first and step_ns is not None:
            self.steps_ms.add_value(step_ns / NS_PER_MS, 1)
        self._add_memory(sample, attempt_ns)
        if sample.cpu_ns == reported_cpu_ns:  # else the other counters are as wrong
            self._add_counters(sample)
        self.max_pids = max_known(self.max_pids, sample.pids)
        self.samples += 1
        self.last_sample = sample
        self.last_read_ns = sample.read_ns
        self.received_ns = received_ns
        self._epoch = epoch
        return True

    def _step_and_attempt_ns(
        self,
        sample: ContainerSample,
        received_ns: int,
        started_ns: int | None,
        attempt_started_ns: int | None,
        clock_shift_ns: int,
    ) -> tuple[int | None, int | None]:
        """The length of the step that ends at this sample, and its part in the last attempt;
        None if it is unknown.

        ``read`` is older than the sample's arrival. The clock was set before it if, since then,
        ``read`` has moved by an amount that differs from the monotonic clock's by nearly that much.
        """
        pending_ns = clock_shift_ns - self._clock_shift_ns
        is_set = False
        if self.last_read_ns is None or self.received_ns is None:
            step_ns = sample.read_ns - started_ns if started_ns is not None else 0
            is_set = step_ns > pending_ns
        else:
            step_ns = sample.read_ns - self.last_read_ns
            if pending_ns:
                self._moved_ns += step_ns - (received_ns - self.received_ns)
            else:
                self._moved_ns = 0
            is_set = abs(self._moved_ns - pending_ns) < abs(self._moved_ns)
        if is_set:
            step_ns -= pending_ns
            self._clock_shift_ns = clock_shift_ns
            self._moved_ns = 0
        if step_ns <= 0:
            return None, None
        attempt_ns = step_ns
        if attempt_started_ns is not None and sample.read_ns > attempt_started_ns:
            attempt_ns = min(sample.read_ns - attempt_started_ns, step_ns)
        return step_ns, attempt_ns

    def _can_count_from_zero(self, sample: ContainerSample, attempt_ns: int | None) -> bool:
        """Whether the CPU time of a new container can have begun at its start: agents may
        continue older counters.
        """
        if sample.cpu_ns is None or attempt_ns is None:
            return True
        return sample.cpu_ns <= self._machine_vcpu * (attempt_ns + _NEW_CONTAINER_SLACK_NS)

    def _restart_counters(self, *, shares_network: bool) -> None:
        self._cpu_ns.reset_to_zero()
        for name, counter in self._counters.items():
            if not (shares_network and name in _NETWORK):
                counter.reset_to_zero()

    def _add_counters(self, sample: ContainerSample) -> None:
        for name, counter in self._counters.items():
            value = getattr(sample, name)
            if value is not None:
                counter.advance_to(value)

    def _is_older_than_last(self, sample: ContainerSample) -> bool:
        """Whether the sample was read before the last one: its CPU time is lower, too."""
        if self.last_read_ns is None or sample.cpu_ns is None:
            return False
        return sample.read_ns < self.last_read_ns and self._cpu_ns.is_below(sample.cpu_ns)

    def _may_have_restarted(
        self, cpu_ns: int, vcpu: float, step_ns: int | None, received_ns: int
    ) -> bool:
        """Whether the CPU time can be that of a counter that began at 0 after its last value.

        The start of a container takes some, so 0 is none.
        """
        if step_ns is not None and self._carried_ns is not None:
            since_ns = step_ns + self._carried_ns
        else:
            since_ns = received_ns - (self._cpu_received_ns or received_ns) + _MAX_STATS_PERIOD_NS
        return 0 < cpu_ns <= vcpu * (since_ns + _NEW_CONTAINER_SLACK_NS)

    def _without_impossible_values(
        self, sample: ContainerSample, step_ns: int | None, received_ns: int, *, is_new: bool
    ) -> ContainerSample:
        """The sample without memory, or growth of the CPU time, that is beyond the whole
        machine.
        """
        self.impossible += sample.is_memory_impossible
        cpu_ns = sample.cpu_ns
        vcpu = self._machine.vcpu
        memory_bytes = self._machine.memory_bytes
        if cpu_ns is not None and vcpu is not None:
            growth_ns = self._cpu_ns.growth_to(cpu_ns)
            if growth_ns is None:
                growth_ns = cpu_ns if is_new and step_ns is not None else 0
            is_possible = growth_ns <= vcpu * (
                (step_ns or 0) + (self._carried_ns or 0) + _MAX_LATENESS_NS
            )
            if is_possible and self._cpu_ns.is_below(cpu_ns):
                is_possible = self._may_have_restarted(cpu_ns, vcpu, step_ns, received_ns)
            if not is_possible:
                self.impossible += 1
                sample = replace(sample, cpu_ns=None)
        if memory_bytes is None:
            return sample
        limit_bytes = _MARGIN * memory_bytes
        if max(filter(None, _get_sizes(sample)), default=0) <= limit_bytes:
            return sample
        impossible: dict[str, None] = {}
        for name in _SIZES:
            if (getattr(sample, name) or 0) > limit_bytes:
                impossible[name] = None
        self.impossible += 1
        return replace(sample, **impossible)

    def _add_cpu(
        self,
        sample: ContainerSample,
        step_ns: int | None,
        attempt_ns: int | None,
        *,
        is_new: bool,
    ) -> None:
        """Add the CPU time of a step; one without a CPU time counts with the next."""
        cpu_ns = sample.cpu_ns
        if cpu_ns is None:
            if step_ns is None or self._carried_ns is None:
                self._carried_ns = None
            else:
                self._carried_ns += step_ns
            return
        self.cpu_until_ns = sample.read_ns - self._clock_shift_ns
        is_from_start = is_new and self._cpu_ns.total is None
        growth_ns = self._cpu_ns.advance_to(cpu_ns)
        if growth_ns is None and is_from_start:
            growth_ns = cpu_ns
        elif growth_ns == cpu_ns and attempt_ns != step_ns:
            # A reset: nothing is known of the time before the start.
            step_ns = attempt_ns
            self._carried_ns = 0
        carried_ns = self._carried_ns
        carried_cpu_ns = self._carried_cpu_ns
        self._carried_ns = 0
        self._carried_cpu_ns = 0
        if growth_ns is None or step_ns is None or carried_ns is None:
            return
        step_ns += carried_ns
        growth_ns += carried_cpu_ns
        is_short = is_from_start and step_ns < _MIN_FIRST_STEP_FRACTION * self._nominal_step_ns
        vcpu = growth_ns / step_ns
        # A rate beyond the machine comes from a clock that was set back within the step, or from
        # late counters.
        if is_short or vcpu > _MARGIN * self._machine_vcpu:
            self._carried_ns = step_ns
            self._carried_cpu_ns = growth_ns
            return
        for window in self._windows:
            window.vcpu.add_value(vcpu, step_ns)
            window.cpu_ns += growth_ns
            window.covered_ns += step_ns
        self.last_vcpu = vcpu
        self._last_vcpu_read_ns = sample.read_ns
        self._ended_step_ns = step_ns
        if self.series is not None:
            end_ns = sample.read_ns - self._clock_shift_ns
            self.series.add_cpu(end_ns - step_ns, end_ns, growth_ns)

    def _add_memory(self, sample: ContainerSample, step_ns: int | None) -> None:
        self._add_high_water_mark(sample)
        self.memory_limit_hits = max_known(self.memory_limit_hits, sample.memory_limit_hits)
        if sample.memory_limit_bytes is not None:
            self.memory_limit_bytes = sample.memory_limit_bytes
        if sample.memory_used_bytes is None:
            return
        bound_bytes = sample.memory_used_bytes + sample.memory_pinned_bytes
        self.memory_bound_bytes = max(self.memory_bound_bytes, bound_bytes)
        if self.memory_max_bytes is None or sample.memory_used_bytes > self.memory_max_bytes:
            self.memory_max_bytes = sample.memory_used_bytes
            self.memory_max_at_ns = sample.read_ns - self._clock_shift_ns
            self.memory_max_kernel_bytes = sample.memory_kernel_bytes
        held_ns = self._memory_weight_ns(step_ns)
        # A value with an unknown step counts for one tick, so that it is not lost.
        weight_ns = held_ns or self._nominal_step_ns
        for window in self._windows:
            window.memory_bytes.add_value(sample.memory_used_bytes, weight_ns)
        self.memory_cache_bytes.add_reading(sample.memory_cache_bytes, weight_ns)
        self.memory_mapped_file_bytes.add_reading(sample.memory_mapped_file_bytes, weight_ns)
        self.memory_huge_page_bytes.add_reading(sample.memory_huge_page_bytes, weight_ns)
        if self.series is not None:
            at_ns = sample.read_ns - self._clock_shift_ns
            self.series.add_memory(at_ns, sample.memory_used_bytes, held_ns=held_ns)

    def _add_high_water_mark(self, sample: ContainerSample) -> None:
        """Add the kernel's high-water mark, which includes what could be dropped at that time."""
        mark_bytes = sample.memory_usage_peak_bytes
        cache_bytes = sample.memory_cache_bytes
        if (
            mark_bytes is not None
            and cache_bytes is not None
            and mark_bytes > (self.memory_usage_peak_bytes or 0)
        ):
            # The mark has risen since the last sample, with no more that can be dropped than now,
            # unless some of it has been dropped since.
            used_bytes = mark_bytes - cache_bytes
            if is_negligible(self._last_cache_bytes - cache_bytes, mark_bytes):
                self._mark_used_bytes = max_known(self._mark_used_bytes, used_bytes)
            else:
                self._unsure_mark_bytes = max(self._unsure_mark_bytes, used_bytes)
            beside_bytes = mark_bytes - max(cache_bytes, self._last_cache_bytes)
            self.memory_marked_bytes = max(self.memory_marked_bytes, beside_bytes)
        if cache_bytes is not None:
            self._last_cache_bytes = cache_bytes
        if sample.is_mark_complete:
            known_bytes = max_known(self._mark_used_bytes, self.memory_max_bytes)
            if is_negligible(self._unsure_mark_bytes - (known_bytes or 0), mark_bytes or 0):
                self.kernel_peak_bytes = known_bytes
        self.memory_usage_peak_bytes = max_known(self.memory_usage_peak_bytes, mark_bytes)

    def _memory_weight_ns(self, step_ns: int | None) -> int:
        """The time before a reading of the memory for which it counts: at most the usual step, 0
        if unknown.
        """
        if step_ns is None or step_ns <= _REGULAR_STEP * self._nominal_step_ns:
            return step_ns or 0
        usual_ns = min((self.steps_ms.median() or 0.0) * NS_PER_MS, _MAX_STATS_PERIOD_NS)
        if step_ns <= usual_ns * (1 + RELATIVE_ERROR):
            return step_ns
        return max(round(usual_ns * (1 - RELATIVE_ERROR)), self._nominal_step_ns)

    @property
    def usual_step_ms(self) -> float | None:
        """The median of the steps between two samples, found once after each sample; None before
        the second.
        """
        if self._usual_step_samples != self.samples:
            self._usual_step_samples = self.samples
            self._usual_step_ms = self.steps_ms.median()
        return self._usual_step_ms

    @property
    def vcpu_at_last_sample(self) -> float | None:
        """The vCPU of the step that ended at the last sample; None if it is unknown."""
        return self.last_vcpu if self._last_vcpu_read_ns == self.last_read_ns else None

    @property
    def last_read_by_start_ns(self) -> int | None:
        """The time of the last sample by the wall clock as it was set at the start of the run."""
        return difference(self.last_read_ns, self._clock_shift_ns)

    def take_ended_step_ns(self) -> int:
        """The length of the step of ``last_vcpu``; 0 if no step has ended since the last call."""
        ended_ns = self._ended_step_ns
        self._ended_step_ns = 0
        return ended_ns

    def add_devices(self, readings: DeviceReadings, now_ns: int, *, around_ns: int = 0) -> None:
        """Add readings of devices at ``now_ns`` (monotonic), and ``around_ns`` before and after,
        to the time series.
        """
        if (
            self.series is not None
            and self.last_read_ns is not None
            and self.received_ns is not None
        ):
            shift_ns = self.last_read_ns - self._clock_shift_ns - self.received_ns
            at_ns = now_ns + shift_ns
            if readings.gpu_windows is not None:
                readings.gpu_windows = [
                    UseWindow(window.start_ns + shift_ns, window.end_ns + shift_ns, window.percent)
                    for window in readings.gpu_windows
                ]
            self.series.add_devices(at_ns, readings, around_ns=around_ns)

    def keep_totals_only(self) -> None:
        """Keep the totals of the run only: no time series."""
        self._series_points = 0
        self.series = None

    def end_interval(self) -> UsageWindow:
        """End the current interval; returns the usage since the last call, at first since the
        start.
        """
        interval = self._windows[-1]
        self._windows = (self.run, UsageWindow())
        return interval

    @property
    def cpu_total_ns(self) -> int | None:
        """The exact cumulative CPU time at the last sample."""
        return self._cpu_ns.total

    @property
    def cpu_seconds(self) -> float | None:
        """The CPU time so far, in seconds."""
        return quotient(self._cpu_ns.total, NS_PER_SECOND)

    @property
    def notable_bound_bytes(self) -> int | None:
        """The most that was used if open files kept what they can; None if that is hardly more."""
        if self.memory_max_bytes is None:
            return None
        unsure_bytes = self.memory_bound_bytes - self.memory_max_bytes
        return (
            self.memory_bound_bytes if is_notable(unsure_bytes, self.memory_bound_bytes) else None
        )

    def traffic_by_counter(self) -> dict[str, int | None]:
        """The counters by their names; None for a total above the integers of readers."""
        totals = {name: counter.total for name, counter in self._counters.items()}
        return {
            name: None if total is None or total > _MAX_TOTAL else total
            for name, total in totals.items()
        }

    def traffic_bytes(self) -> tuple[int, int]:
        """The bytes of the network and of block devices in both directions so far; 0 if unknown."""
        rx, tx, read, written = [counter.total or 0 for counter in self._counters.values()]
        return rx + tx, read + written


def mean_vcpu_between(before: ContainerSample, sample: ContainerSample) -> float | None:
    """The mean vCPU used between two samples; None if ``read`` did not advance, or a counter is
    unknown or reset.
    """
    step_ns = sample.read_ns - before.read_ns
    growth_ns = difference(sample.cpu_ns, before.cpu_ns)
    return quotient(growth_ns, step_ns) if step_ns > 0 and (growth_ns or 0) >= 0 else None

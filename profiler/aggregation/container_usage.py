"""The usage of one container: aggregates its samples in constant memory."""

from msgspec import Struct

from profiler.aggregation.statistics import MonotonicCounter, TimeWeightedMean, TimeWeightedStatistics
from profiler.aggregation.time_series import DeviceReadings, RunSeries
from profiler.core.json_fields import MAX_COUNT
from profiler.core.optional_math import max_known
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.sources.ecs.container_stats import ContainerSample

# A first step shorter than this fraction of the usual one is merged with the next. At the first sample the counter
# includes work of the container runtime from before the start, which would be a high rate over a short step.
_MIN_FIRST_STEP_FRACTION = 0.5
# Stats are at most 20 s old (EC2; 10 s on Fargate). A sample does not represent the memory before that, when the
# endpoint was unavailable or the monitor was not running yet.
_MAX_STATS_AGE_NS = 20 * NS_PER_SECOND
# A larger difference between a step of ``read`` and the same step on the monotonic clock means that the wall clock
# was set. This is far above the age of any stats (at most 20 s).
_CLOCK_JUMP_NS = 600 * NS_PER_SECOND
_NETWORK = ("rx", "tx")
_BLOCKS = ("read", "write")


class UsageTotals(Struct, frozen=True, kw_only=True):
    """The distributions and CPU time of one period."""

    cpu_seconds: float | None
    vcpu: TimeWeightedStatistics
    memory_bytes: TimeWeightedStatistics


class _UsageWindow:
    """CPU and memory over one period: the whole run, or the time since a checkpoint."""

    __slots__ = ("covered_ns", "cpu_ns", "memory_bytes", "vcpu")

    def __init__(self) -> None:
        self.vcpu = TimeWeightedStatistics()
        self.memory_bytes = TimeWeightedStatistics()
        self.cpu_ns = 0
        self.covered_ns = 0

    def totals(self) -> UsageTotals:
        cpu_seconds = self.cpu_ns / NS_PER_SECOND if self.covered_ns else None
        return UsageTotals(cpu_seconds=cpu_seconds, vcpu=self.vcpu, memory_bytes=self.memory_bytes)


class ContainerUsage:
    """The usage of one container, identified by its name, across restarts and changes of its Docker id.

    The vCPU of a step is the increase of ``total_usage`` divided by the increase of ``read`` between
    two consecutive samples. The first step begins at the container's start, where the counter was 0. A sample
    with an unchanged ``read`` is a duplicate. After a jump of the wall clock, the counters continue and
    this one step is left out of the rates.

    ``last_vcpu`` is the vCPU of the last known step.

    Args:
        nominal_step_ns: The sampling interval.
        series_points: Half the largest number of steps of the time series; 0 for none.
    """

    def __init__(self, nominal_step_ns: int, series_points: int = 0) -> None:
        self._nominal_step_ns = nominal_step_ns
        self._series_points = series_points
        self._clock_shift_ns = 0
        self._run = _UsageWindow()
        self._interval: _UsageWindow | None = _UsageWindow()
        self._cpu_ns = MonotonicCounter()
        self._counters = {name: MonotonicCounter() for name in (*_NETWORK, *_BLOCKS)}
        self._steps_ms = TimeWeightedStatistics()
        self._carried_ns = 0
        self._carried_cpu_ns = 0
        self._docker_id: str | None = None
        self._received_ns: int | None = None
        self.last_vcpu: float | None = None
        self._ended_step_ns = 0
        self.series: RunSeries | None = None
        self.last_read_ns: int | None = None
        self.samples = 0
        self.duplicates = 0
        self.replacements = 0
        self.memory_max_bytes: int | None = None
        self.memory_cache_bytes = TimeWeightedMean()
        self.memory_max_at_ns: int | None = None
        self.memory_usage_peak_bytes: int | None = None
        self.memory_limit_bytes: int | None = None
        self.memory_limit_hits: int | None = None
        self.max_pids: int | None = None

    def add(
        self,
        sample: ContainerSample,
        *,
        docker_id: str,
        received_ns: int,
        started_ns: int | None,
        shares_network: bool = False,
    ) -> bool:
        """Add a sample.

        Args:
            sample: The sample.
            docker_id: The container's current Docker id.
            received_ns: Monotonic time at which the sample was received.
            started_ns: The container's start; None if it is unknown, or if the counters may be older (a container
                that was restarted in place).
            shares_network: Whether the network counters are those of the task (awsvpc). They continue when
                a container is replaced.

        Returns:
            False if the sample is a duplicate.
        """
        if sample.read_ns == self.last_read_ns and docker_id == self._docker_id:
            self.duplicates += 1
            return False
        if self._docker_id not in (None, docker_id):
            self._restart_counters(shares_network=shares_network)
        if self._series_points and self.series is None:
            start_ns = sample.read_ns if started_ns is None else started_ns
            self.series = RunSeries(start_ns, self._nominal_step_ns, self._series_points)
        step_ns = self._step(sample, received_ns, started_ns)
        self._add_cpu(sample, step_ns, counts_from_start=self.last_read_ns is None and started_ns is not None)
        self._add_memory(sample, step_ns)
        for name, value in (
            ("rx", sample.network_rx_bytes),
            ("tx", sample.network_tx_bytes),
            ("read", sample.block_read_bytes),
            ("write", sample.block_write_bytes),
        ):
            if value is not None:
                self._counters[name].add(value)
        if self.last_read_ns is not None and step_ns is not None:
            self._steps_ms.add(step_ns / NS_PER_MS, 1)
        self.max_pids = max_known(self.max_pids, sample.pids)
        self.samples += 1
        self.last_read_ns = sample.read_ns
        self._received_ns = received_ns
        self._docker_id = docker_id
        return True

    def _restart_counters(self, *, shares_network: bool) -> None:
        self.replacements += 1
        self._cpu_ns.restart()
        for name, counter in self._counters.items():
            if not (shares_network and name in _NETWORK):
                counter.restart()

    def _step(self, sample: ContainerSample, received_ns: int, started_ns: int | None) -> int | None:
        """The length of the step that ends at this sample; None if it is unknown."""
        if self.last_read_ns is None or self._received_ns is None:
            first_ns = sample.read_ns - started_ns if started_ns is not None else 0
            return first_ns if first_ns > 0 else None
        step_ns = sample.read_ns - self.last_read_ns
        own_step_ns = received_ns - self._received_ns
        if abs(step_ns - own_step_ns) > _CLOCK_JUMP_NS:
            self._clock_shift_ns += step_ns - own_step_ns
            return None
        return step_ns if step_ns > 0 else None

    def _add_cpu(self, sample: ContainerSample, step_ns: int | None, *, counts_from_start: bool) -> None:
        if sample.cpu_ns is None:
            return
        growth_ns = self._cpu_ns.add(sample.cpu_ns)
        if growth_ns is None and counts_from_start:
            growth_ns = sample.cpu_ns
        if growth_ns is None or step_ns is None:
            return
        step_ns, growth_ns = step_ns + self._carried_ns, growth_ns + self._carried_cpu_ns
        if counts_from_start and step_ns < _MIN_FIRST_STEP_FRACTION * self._nominal_step_ns:
            self._carried_ns, self._carried_cpu_ns = step_ns, growth_ns
            return
        self._carried_ns = self._carried_cpu_ns = 0
        vcpu = growth_ns / step_ns
        for window in self._windows():
            window.vcpu.add(vcpu, step_ns)
            window.cpu_ns += growth_ns
            window.covered_ns += step_ns
        self.last_vcpu, self._ended_step_ns = vcpu, step_ns
        if self.series is not None:
            end_ns = sample.read_ns - self._clock_shift_ns
            self.series.add_cpu(end_ns - step_ns, end_ns, growth_ns)

    def _add_memory(self, sample: ContainerSample, step_ns: int | None) -> None:
        self.memory_usage_peak_bytes = max_known(self.memory_usage_peak_bytes, sample.memory_usage_peak_bytes)
        self.memory_limit_hits = max_known(self.memory_limit_hits, sample.memory_limit_hits)
        if sample.memory_limit_bytes is not None:
            self.memory_limit_bytes = sample.memory_limit_bytes
        if sample.memory_used_bytes is None:
            return
        if self.memory_max_bytes is None or sample.memory_used_bytes > self.memory_max_bytes:
            self.memory_max_bytes, self.memory_max_at_ns = sample.memory_used_bytes, sample.read_ns
        # A first value with an unknown step counts for one tick, so that it is not lost.
        weight_ns = self._nominal_step_ns
        if step_ns is not None:
            weight_ns = min(step_ns, max(_MAX_STATS_AGE_NS, self._nominal_step_ns))
        for window in self._windows():
            window.memory_bytes.add(sample.memory_used_bytes, weight_ns)
        if sample.memory_cache_bytes is not None:
            self.memory_cache_bytes.add(sample.memory_cache_bytes, weight_ns)
        if self.series is not None:
            held_ns = 0 if step_ns is None else weight_ns
            self.series.add_memory(sample.read_ns - self._clock_shift_ns, sample.memory_used_bytes, held_ns=held_ns)

    def take_ended_step_ns(self) -> int:
        """The length of the step that ``last_vcpu`` is about; 0 if no step has ended since the last call."""
        ended_ns, self._ended_step_ns = self._ended_step_ns, 0
        return ended_ns

    def add_devices(self, readings: DeviceReadings, now_ns: int) -> None:
        """Add readings of devices, which ended at ``now_ns`` (monotonic), to the time series."""
        if self.series is not None and self.last_read_ns is not None and self._received_ns is not None:
            at_ns = self.last_read_ns - self._clock_shift_ns + now_ns - self._received_ns
            self.series.add_devices(at_ns, readings)

    def keep_totals_only(self) -> None:
        """Keep the totals of the run only: no time series, and no interval until :meth:`end_interval` is called."""
        self._series_points, self.series, self._interval = 0, None, None

    def _windows(self) -> tuple[_UsageWindow, ...]:
        return (self._run,) if self._interval is None else (self._run, self._interval)

    @property
    def cpu_seconds(self) -> float | None:
        """The exact cumulative CPU time at the last sample."""
        total_ns = self._cpu_ns.total
        return None if total_ns is None else total_ns / NS_PER_SECOND

    @property
    def run(self) -> UsageTotals:
        """The totals since the start."""
        return self._run.totals()

    def end_interval(self) -> UsageTotals:
        """End the current interval; returns the totals since the last call."""
        totals = (self._interval or _UsageWindow()).totals()
        self._interval = _UsageWindow()
        return totals

    @property
    def network_rx_bytes(self) -> int | None:
        """Bytes received."""
        return self._total("rx")

    @property
    def network_tx_bytes(self) -> int | None:
        """Bytes sent."""
        return self._total("tx")

    @property
    def block_read_bytes(self) -> int | None:
        """Bytes read from block devices."""
        return self._total("read")

    @property
    def block_write_bytes(self) -> int | None:
        """Bytes written to block devices."""
        return self._total("write")

    def _total(self, name: str) -> int | None:
        """A counter's total; None if restarts brought it above the integers that readers of the record can hold."""
        total = self._counters[name].total
        return total if total is not None and total <= MAX_COUNT else None

    @property
    def median_step_ms(self) -> float | None:
        """The median time between samples."""
        return self._steps_ms.median()

    @property
    def max_step_ms(self) -> float | None:
        """The longest time between samples."""
        return self._steps_ms.maximum


def vcpu_between(before: ContainerSample | None, sample: ContainerSample) -> float | None:
    """The mean vCPU used between two samples.

    None if ``read`` did not advance, a counter is unknown, or the counter was reset in between.
    """
    if before is None or before.cpu_ns is None or sample.cpu_ns is None:
        return None
    step_ns, growth_ns = sample.read_ns - before.read_ns, sample.cpu_ns - before.cpu_ns
    return growth_ns / step_ns if step_ns > 0 and growth_ns >= 0 else None

"""What was read of one GPU over a period, in constant size: over a run, or since the profiler
started.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from msgspec import Struct

from profiler.aggregation.statistics import MonotonicCounter, TimeWeightedStatistics
from profiler.collectors.nvidia.nvml_calls import THROTTLE_REASONS
from profiler.collectors.nvidia.visible_gpus import ENERGY, GpuSample
from profiler.core.optional_math import first_known, quotient, rounded, sum_of_both
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.record_model import NOT_MEASURED
from profiler.record.units import MIB

_PERCENT = 100
# The fields of a sample of which the record has statistics, over the time since the reading before
# or between the samples of GPM.
_SERIES = (
    "utilization_percent",
    "memory_used_bytes",
    "power_watts",
    "temperature_celsius",
    "sm_clock_mhz",
)
_READ_VALUES = ("power_watts", "temperature_celsius", "sm_clock_mhz")
# Of a run of a second, one reading is what there is.
_MAX_UNKNOWN_NS = 2 * NS_PER_SECOND
GPM_SERIES = (
    "sm_active_percent",
    "sm_occupancy_percent",
    "tensor_active_percent",
    "dram_active_percent",
)


def gpm_values(sample: GpuSample) -> Mapping[str, Any]:
    """The values of GPM in percent, by their names."""
    return {name: getattr(sample, name) for name in GPM_SERIES}


class TimedSample(Struct, frozen=True, kw_only=True):
    """A sample that was read at ``end_ns``, and counts for the time since ``start_ns``
    (monotonic); with the driver's errors since the reading before.
    """

    sample: GpuSample
    start_ns: int
    end_ns: int
    xids: tuple[int, ...] = ()


# Copies limit a run in the time in which they take this share of what the link can move, while the
# multiprocessors do next to nothing.
_LINK_SHARE = 0.5
_IDLE_SM_PERCENT = 5
# The counters of a run are read last up to so long after its end; a monitor of an instance reads
# them once a minute.
_LAST_COUNTERS_NS = 2 * NS_PER_SECOND


class GpuPeriod:
    """Aggregates the samples of one GPU; ``link_bytes_per_second`` is of its PCIe link, one way."""

    def __init__(self, link_bytes_per_second: float | None = None) -> None:
        self._link_bytes_per_second = link_bytes_per_second
        self._copy_ns = 0
        self._copy_rate = 0.0  # the largest of a span
        self._series = {name: TimeWeightedStatistics() for name in (*_SERIES, *GPM_SERIES)}
        # The driver's counters, which begin at 0 again when the driver is loaded again.
        self._counters: defaultdict[str, MonotonicCounter] = defaultdict(MonotonicCounter)
        self._amounts: Counter[str] = Counter()
        self._spans_ns = 0  # of GPM
        # For GPUs before Volta, which have no counter of energy, and for the time before the first
        # value of the counter and after the last one.
        self._power_joules: float | None = None
        self._joules_before = 0.0
        self._joules_after = 0.0
        # The time of the energy: between values of the counter, and of the power since.
        self._counter_ns: int | None = None
        self._counted_ns = 0
        self._power_ns_before = 0
        self._power_ns_after = 0
        self._throttled_ns = dict.fromkeys(THROTTLE_REASONS.values(), 0)
        self._throttle_observed_ns = 0
        self._xids: dict[int, None] = {}
        self.unknown_utilization_ns = 0  # the time of impossible values

    @property
    def has_utilization(self) -> bool:
        return self._series["utilization_percent"].maximum is not None

    @property
    def throttled_seconds(self) -> Mapping[str, float] | None:
        if not self._throttle_observed_ns:
            return None
        throttled = self._throttled_ns.items()
        return {name: round(held_ns / NS_PER_SECOND, 6) for name, held_ns in throttled}

    @property
    def xids(self) -> tuple[int, ...]:
        """The driver's errors, each once."""
        return tuple(self._xids)

    @property
    def total_joules(self) -> float | None:
        """The energy by the driver's counter since the driver was loaded, else by the power."""
        counted_joules = quotient(self._counters[ENERGY].total, 1000)
        return _rounded_joules(first_known(counted_joules, self._power_joules))

    def add_sample(self, timed: TimedSample, *, since_ns: int = 0) -> None:
        """Add a sample, with its time from ``since_ns`` on (monotonic)."""
        sample = timed.sample
        step_ns = timed.end_ns - max(timed.start_ns, since_ns)
        # Before the first reading no time has passed: enough for statistics of it alone.
        weight_ns = max(step_ns, 1)
        gpm_ns = min(sample.gpm_ns or 0, timed.end_ns - since_ns)
        self._spans_ns += gpm_ns
        if "utilization_percent" in sample.impossible:
            self.unknown_utilization_ns += step_ns
        for name, series in self._series.items():
            value = getattr(sample, name)
            if value is not None:
                series.add_value(value, weight_ns if name in _SERIES else gpm_ns)
        is_unused = sample.processes == () and sample.memory_used_bytes == 0
        if sample.is_gpm_begun and is_unused and since_ns:
            # Nothing has run since the start of the run.
            for name in GPM_SERIES:
                self._series[name].add_value(0.0, timed.end_ns - since_ns)
        if 2 * gpm_ns >= (sample.gpm_ns or 0):
            self._amounts.update(sample.amounts)
        self._add_copies(sample, gpm_ns)
        if sample.power_watts is not None and step_ns > 0:
            joules = sample.power_watts * step_ns / NS_PER_SECOND
            self._power_joules = (self._power_joules or 0.0) + joules
            self._joules_after += joules
            self._power_ns_after += step_ns
        self._add_throttling(sample, weight_ns)
        self._add_counts(timed)

    def add_last_span(self, timed: TimedSample, since_ns: int, finished_ns: int) -> None:
        """Add GPM's span in which the run ended: what was active in it, was so before the end."""
        sample = timed.sample
        if not sample.gpm_ns:
            return
        start_ns = max(timed.end_ns - sample.gpm_ns, since_ns)
        length_ns = finished_ns - start_ns
        if length_ns <= 0:
            return
        for name in GPM_SERIES:
            value = getattr(sample, name)
            if value is not None:
                in_run = min(value * (timed.end_ns - start_ns) / length_ns, _PERCENT)
                self._series[name].add_value(in_run, length_ns)
        self._spans_ns += length_ns
        self._amounts.update(sample.amounts)
        self._add_copies(sample, length_ns)

    def _add_copies(self, sample: GpuSample, gpm_ns: int) -> None:
        """Add a span of GPM, if copies filled it."""
        if not self._link_bytes_per_second or not sample.gpm_ns or gpm_ns <= 0:
            return
        moved = max(sample.amounts.get("pcie_tx_bytes", 0), sample.amounts.get("pcie_rx_bytes", 0))
        seconds = sample.gpm_ns / NS_PER_SECOND
        if first_known(sample.sm_active_percent, _IDLE_SM_PERCENT) >= _IDLE_SM_PERCENT:
            return
        if moved / seconds >= _LINK_SHARE * self._link_bytes_per_second:
            self._copy_ns += gpm_ns
            self._copy_rate = max(self._copy_rate, moved / seconds)

    def _copy_values(self) -> Mapping[str, Any]:
        if not self._copy_ns:
            return {}
        seconds = self._copy_ns / NS_PER_SECOND
        return {
            "copy_seconds": round(seconds, 3),
            "copy_bytes_per_second": round(self._copy_rate),
            "link_bytes_per_second": round(self._link_bytes_per_second or 0),
        }

    def _add_counts(self, timed: TimedSample) -> None:
        """Add what a sample counts since earlier ones: the driver's counters and errors."""
        self._count(timed)
        self._xids.update(dict.fromkeys(timed.xids))

    def add_last_counts(self, timed: TimedSample, finished_ns: int) -> None:
        """Add what a sample counts that was read after the end of the run, as far as it is the
        run's: later, another program may be on the GPU.
        """
        if timed.end_ns - finished_ns <= _LAST_COUNTERS_NS:
            self._count(timed)
        if timed.start_ns <= finished_ns:
            self._xids.update(dict.fromkeys(timed.xids))

    def _count(self, timed: TimedSample) -> None:
        counters = timed.sample.counters
        if ENERGY in counters:
            if self._counter_ns is None:
                self._joules_before = self._joules_after
                self._power_ns_before = self._power_ns_after
            self._counted_ns += timed.end_ns - first_known(self._counter_ns, timed.end_ns)
            self._counter_ns = timed.end_ns
            self._joules_after = 0.0
            self._power_ns_after = 0
        for name, value in counters.items():
            self._counters[name].advance_to(value)

    def _add_throttling(self, sample: GpuSample, weight_ns: int) -> None:
        if sample.throttle_reasons is None:
            return
        self._throttle_observed_ns += weight_ns
        for bit, reason in THROTTLE_REASONS.items():
            if sample.throttle_reasons & bit:
                self._throttled_ns[reason] += weight_ns

    def fields_hardly_known(self, duration_ns: int) -> Mapping[str, Any]:
        """The fields of the record's entry, as absent, that are known of less than half of a run:
        of the rest nothing is known. The first readings of a short run stay.
        """
        lacking: dict[str, Any] = {}

        def is_lacking(covered_ns: int) -> bool:
            return 2 * covered_ns < duration_ns

        def is_long_lacking(covered_ns: int) -> bool:
            return is_lacking(covered_ns) and duration_ns - covered_ns > _MAX_UNKNOWN_NS

        if is_lacking(self._series["sm_active_percent"].weight_ns):
            lacking |= dict.fromkeys(GPM_SERIES, NOT_MEASURED)
        if is_lacking(self._spans_ns):
            lacking |= dict.fromkeys((*self._amounts, *self._copy_values()))
        for name in _READ_VALUES:
            if is_long_lacking(self._series[name].weight_ns):
                lacking[name] = NOT_MEASURED
        if is_long_lacking(self._throttle_observed_ns):
            lacking["throttle_reasons"] = None
        energy_ns = self._counted_ns + self._power_ns_before + self._power_ns_after
        if is_long_lacking(energy_ns):
            lacking["energy_joules"] = None
        return lacking

    def totals_by_field(self) -> Mapping[str, Any]:
        """The bytes and errors, by the record's field."""
        totals: dict[str, Any] = dict(self._amounts)
        for name, counter in self._counters.items():
            if name != ENERGY:
                totals[name] = counter.increase
        return totals

    def record_values(self) -> Mapping[str, Any]:
        """The fields of the record's entry."""
        series = self._series
        throttled_percent: dict[str, float] = {}  # of the observed time, by reasons that occurred
        for reason, held_ns in self._throttled_ns.items():
            if held_ns:
                percent = round(_PERCENT * held_ns / self._throttle_observed_ns, 3)
                throttled_percent[reason] = percent
        counted_joules = quotient(self._counters[ENERGY].increase, 1000)
        uncounted_joules = self._joules_before + self._joules_after
        joules = first_known(sum_of_both(counted_joules, uncounted_joules), self._power_joules)
        return {
            **self._copy_values(),
            "utilization_percent": series["utilization_percent"].distribution(),
            "memory_used_mb": series["memory_used_bytes"].distribution(per=MIB),
            "power_watts": series["power_watts"].distribution(),
            "energy_joules": _rounded_joules(joules),
            "temperature_celsius": series["temperature_celsius"].distribution(),
            "sm_clock_mhz": series["sm_clock_mhz"].distribution(),
            "throttle_reasons": throttled_percent if self._throttle_observed_ns else None,
            "xids": self.xids,
            **{name: series[name].distribution() for name in GPM_SERIES},
            **self.totals_by_field(),
        }


class GpuRun:
    """The samples of one GPU in a run. A sample that was read before it, or after it, has no part
    in its statistics.
    """

    def __init__(self, started_ns: int, link_bytes_per_second: float | None = None) -> None:
        self.started_ns = started_ns
        self._period = GpuPeriod(link_bytes_per_second)

    def add_old_sample(self, timed: TimedSample) -> None:
        """Add a sample that is too old to be after the end of the run."""
        if timed.end_ns > self.started_ns:
            self._period.add_sample(timed, since_ns=self.started_ns)

    def period_until(self, finished_ns: int | None, recent: Iterable[TimedSample]) -> GpuPeriod:
        """The period of the run with the ``recent`` samples, which were not added.

        What the driver counts is read last just after the end.
        """
        period = deepcopy(self._period)
        for timed in recent:
            if timed.end_ns <= self.started_ns:
                continue
            if finished_ns is None or timed.end_ns <= finished_ns:
                period.add_sample(timed, since_ns=self.started_ns)
            else:
                period.add_last_span(timed, self.started_ns, finished_ns)
                period.add_last_counts(timed, finished_ns)
        return period


def _rounded_joules(joules: float | None) -> float | None:
    return rounded(joules, 3)

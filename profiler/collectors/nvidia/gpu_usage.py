"""The usage of the GPUs so far: takes readings and keeps aggregates of constant size."""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.statistics import (
    DeviceReadings,
    MonotonicCounter,
    RecentByBatch,
    TimeWeightedStatistics,
)
from profiler.collectors.nvidia.nvml_calls import THROTTLE_REASONS
from profiler.collectors.nvidia.visible_gpus import (
    ENERGY,
    DriverReading,
    GpuFacts,
    GpuSample,
    match_uuids,
)
from profiler.core.optional_math import sum_known
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.record_model import Gpu, GpuIdle
from profiler.record.units import MIB, mebibytes

_PERCENT = 100
_SECONDS_PER_HOUR = 3600
# The fields of a sample of which the record has statistics, over the time since the reading before
# or between the samples of GPM.
_SERIES = (
    "utilization_percent",
    "memory_used_bytes",
    "power_watts",
    "temperature_celsius",
    "sm_clock_mhz",
)
_GPM_SERIES = (
    "sm_active_percent",
    "sm_occupancy_percent",
    "tensor_active_percent",
    "dram_active_percent",
)
# GPM may be read more rarely than the rest: for so long, the last values are the latest.
_MAX_GPM_AGE_NS = 30 * NS_PER_SECOND
# A run's start and end are noticed up to 10 s late, and its time is divided up to several hundred
# steps late.
_IDLE_SPANS_OF_A_GPU = 64
_IDLE_SPANS = 1024


class LatestGpu(Struct, frozen=True, kw_only=True):
    """A GPU at its last reading, and sums since the first reading.

    ``energy_joules`` is the driver's counter, else power multiplied by time. ``throttled_seconds``
    is by the reason's name, ``totals`` by the record's field.
    """

    sample: GpuSample
    energy_joules: float | None = None
    throttled_seconds: Mapping[str, float] | None = None
    idle_seconds: float | None = None
    totals: Mapping[str, int] = {}


class LiveGpus(Struct, frozen=True, kw_only=True):
    """All GPUs at the last reading; ``readings`` counts all.

    ``is_known``: they are the batch's, not only visible.
    """

    readings: int
    gpus: tuple[LatestGpu, ...]
    is_known: bool = False


class GpuIdleTime:
    """The time in which one or several GPUs were idle: its sum, and the last spans of it."""

    def __init__(self, max_spans: int) -> None:
        self._spans: deque[tuple[int, int]] = deque(maxlen=max_spans)
        self.total_ns = 0

    def add(self, start_ns: int, end_ns: int) -> None:
        """Add a span that begins at the end of the last one or later."""
        self.total_ns += end_ns - start_ns
        if self._spans and self._spans[-1][1] == start_ns:
            start_ns = self._spans.pop()[0]
        self._spans.append((start_ns, end_ns))

    def between(self, start_ns: int, end_ns: int) -> int:
        """The idle time between two moments, as far as the last spans reach back."""
        idle_ns = 0
        for first_ns, last_ns in reversed(self._spans):
            if last_ns <= start_ns:
                break
            idle_ns += max(min(last_ns, end_ns) - max(first_ns, start_ns), 0)
        return idle_ns


class GpuUsage:
    """Aggregates the readings of every GPU, by UUID."""

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._gpus: dict[str, _GpuAggregate] = {}
        self._read_ns: int | None = None
        self._lost: dict[str, str] = {}
        self._notes: dict[str, None] = {}
        self._unattributed_xids: dict[int, None] = {}
        self._present: frozenset[str] = frozenset()
        self._step_ns = 0
        self._idle: defaultdict[str, GpuIdleTime] = defaultdict(partial(GpuIdleTime, _IDLE_SPANS))
        self.readings = 0

    def add(self, reading: DriverReading, now_ns: int, wall_ns: int) -> None:
        """Add a reading made at ``now_ns`` (monotonic); ``wall_ns`` is the time in sentences
        about lost GPUs.
        """
        # A reading counts for the time since the one before, but not for a gap without readings.
        self._step_ns = 0
        if self._read_ns is not None:
            self._step_ns = min(now_ns - self._read_ns, 2 * self._interval_ns)
        for sample in reading.samples:
            if sample.facts.uuid not in self._gpus:
                self._gpus[sample.facts.uuid] = _GpuAggregate(sample.facts)
            self._gpus[sample.facts.uuid].add(sample, self._step_ns, now_ns)
        for xid in reading.xids:
            gpu = self._gpus.get(xid.uuid or "")
            if gpu is None:
                self._unattributed_xids[xid.code] = None
            else:
                gpu.xids[xid.code] = None
        for facts in reading.lost:
            sentence = (
                f"GPU {facts.index} ({facts.uuid}) was lost by its driver at {format_ms(wall_ns)}."
            )
            self._lost.setdefault(facts.uuid, sentence)
        self._notes.update(dict.fromkeys(reading.notes))
        self._present = frozenset(sample.facts.uuid for sample in reading.samples)
        self._read_ns = now_ns
        self.readings += 1

    def add_idle(self, selectors: Collection[str] | None, batch: str = "") -> None:
        """Note whether all of the GPUs were read and idle in the last reading."""
        selected = self._selected(selectors)
        if not selected or not self._step_ns or self._read_ns is None:
            return
        for gpu in selected:
            if gpu.facts.uuid not in self._present or gpu.last.utilization_percent != 0:
                return
        self._idle[batch].add(self._read_ns - self._step_ns, self._read_ns)

    def idle_ns(self, batch: str, start_ns: int, end_ns: int) -> int:
        """For how long all GPUs of the batch, if they are known, else all GPUs were idle between
        two moments.
        """
        if batch not in self._idle:
            batch = ""
        return self._idle[batch].between(start_ns, end_ns)

    def forget(self, batch: str) -> None:
        self._idle.pop(batch, None)
        for gpu in self._gpus.values():
            gpu.forget(batch)

    def begin_run(self, run: str, started_ns: int) -> None:
        """Leave out the idle time before this moment (monotonic) from the run's.

        Only the first call counts.
        """
        for gpu in self._gpus.values():
            gpu.begin_run(run, started_ns, self._interval_ns)

    def gpus(
        self,
        selectors: Collection[str] | None,
        run: str = "",
        duration_ms: float | None = None,
        finished_ns: int | None = None,
    ) -> tuple[Gpu, ...]:
        """The record's entries by index; None selects all.

        ``finished_ns`` (monotonic) is the end of the run.
        """
        return tuple(gpu.record(run, duration_ms, finished_ns) for gpu in self._selected(selectors))

    def facts(self) -> tuple[GpuFacts, ...]:
        return tuple(gpu.facts for gpu in self._gpus.values())

    def latest(self, selectors: Collection[str] | None) -> tuple[LatestGpu, ...]:
        """The selected GPUs that the last reading contained."""
        return tuple(
            gpu.latest() for gpu in self._selected(selectors) if gpu.facts.uuid in self._present
        )

    def take_readings(
        self, batch: str, selectors: Collection[str] | None, into: DeviceReadings
    ) -> None:
        """Add the readings of the selected GPUs since the batch's last call; drop those of other
        GPUs.
        """
        selected = self._selected(selectors)
        if not selected:
            return
        for gpu in self._gpus.values():
            percent = gpu.recent_percent.take(batch)
            memory_bytes = gpu.recent_memory_bytes.take(batch)
            if gpu in selected:
                into.gpu_percent.merge(percent)
                into.gpu_memory_bytes.merge(memory_bytes)
                into.gpus_memory_bytes = sum_known(into.gpus_memory_bytes, memory_bytes.maximum)

    def _selected(self, selectors: Collection[str] | None) -> list["_GpuAggregate"]:
        if selectors is None:
            selected = list(self._gpus.values())
        else:
            selected = [self._gpus[uuid] for uuid in match_uuids(selectors, self.facts())]
        return sorted(selected, key=lambda gpu: (gpu.facts.index, gpu.facts.uuid))

    def notes(self) -> tuple[str, ...]:
        """Sentences about gaps in the numbers, lost GPUs and errors of unknown GPUs."""
        notes = [*self._notes, *self._lost.values()]
        codes = ", ".join(map(str, self._unattributed_xids))
        if codes:
            notes.append(f"A GPU that could not be identified had the driver errors (Xid) {codes}.")
        return tuple(notes)


class _GpuAggregate:
    def __init__(self, facts: GpuFacts) -> None:
        self.facts = facts
        self.last = GpuSample(facts=facts)
        self._read_ns = 0
        self._gpm_read_ns = 0
        self._last_gpm: dict[str, Any] = {}
        self.xids: dict[int, None] = {}
        self.recent_percent = RecentByBatch()
        self.recent_memory_bytes = RecentByBatch()
        self._series = {name: TimeWeightedStatistics() for name in (*_SERIES, *_GPM_SERIES)}
        # The driver's counters, which begin at 0 again when the driver is loaded again.
        self._counters: defaultdict[str, MonotonicCounter] = defaultdict(MonotonicCounter)
        self._amounts: Counter[str] = Counter()
        self._idle = GpuIdleTime(_IDLE_SPANS_OF_A_GPU)
        self._idle_before: dict[str, int] = {}
        self._utilization_observed_ns = 0
        self._memory_size_bytes: int | None = None
        # For GPUs before Volta, which have no counter of energy.
        self._power_joules: float | None = None
        self._throttled_ns = dict.fromkeys(THROTTLE_REASONS.values(), 0)
        self._throttle_observed_ns = 0

    def add(self, sample: GpuSample, step_ns: int, now_ns: int) -> None:
        # Before the first reading no time has passed: enough for statistics of it alone.
        weight_ns = max(step_ns, 1)
        for name, series in self._series.items():
            value = getattr(sample, name)
            if value is not None:
                series.add(value, weight_ns if name in _SERIES else sample.gpm_ns or 0)
        if sample.gpm_ns is not None:
            self._gpm_read_ns = now_ns
            self._last_gpm = {name: getattr(sample, name) for name in _GPM_SERIES}
        self._add_counters(sample)
        if sample.utilization_percent is not None:
            self.recent_percent.add(sample.utilization_percent)
            self._utilization_observed_ns += step_ns
            if sample.utilization_percent == 0 and step_ns:
                self._idle.add(now_ns - step_ns, now_ns)
        if sample.memory_used_bytes is not None:
            self.recent_memory_bytes.add(sample.memory_used_bytes)
        if sample.power_watts is not None and step_ns:
            joules = sample.power_watts * step_ns / NS_PER_SECOND
            self._power_joules = (self._power_joules or 0.0) + joules
        self._memory_size_bytes = sample.memory_size_bytes or self._memory_size_bytes
        self._add_throttling(sample, weight_ns)
        self.last = sample
        self._read_ns = now_ns

    def _add_throttling(self, sample: GpuSample, weight_ns: int) -> None:
        if sample.throttle_reasons is None:
            return
        self._throttle_observed_ns += weight_ns
        for bit, reason in THROTTLE_REASONS.items():
            if sample.throttle_reasons & bit:
                self._throttled_ns[reason] += weight_ns

    def _add_counters(self, sample: GpuSample) -> None:
        self._amounts.update(sample.amounts)
        for name, value in sample.counters.items():
            self._counters[name].add(value)

    def begin_run(self, run: str, started_ns: int, interval_ns: int) -> None:
        # It counts as idle from the last reading to a later start.
        ahead_ns = min(max(started_ns - self._read_ns, 0), interval_ns)
        before_ns = self._idle.total_ns - self._idle.between(started_ns, self._read_ns) + ahead_ns
        self._idle_before.setdefault(run, before_ns)

    def forget(self, batch: str) -> None:
        self._idle_before.pop(batch, None)
        self.recent_percent.forget(batch)
        self.recent_memory_bytes.forget(batch)

    def _idle_seconds(
        self, run: str, duration_ms: float | None, finished_ns: int | None
    ) -> float | None:
        """The idle time of a run, at most its duration; None if utilization was read no more
        than once.
        """
        if not self._utilization_observed_ns:
            return None
        idle_ns: float = self._idle.total_ns - self._idle_before.get(run, 0)
        if finished_ns is not None:
            idle_ns -= self._idle.between(finished_ns, self._read_ns)
        if duration_ms is not None:
            idle_ns = min(idle_ns, duration_ms * NS_PER_MS)
        return round(max(idle_ns, 0) / NS_PER_SECOND, 3)

    def record(self, run: str, duration_ms: float | None, finished_ns: int | None) -> Gpu:
        series = self._series
        idle_seconds = self._idle_seconds(run, duration_ms, finished_ns)
        gpm: dict[str, Any] = {name: series[name].distribution() for name in _GPM_SERIES}
        throttled_percent: dict[str, float] = {}  # of the observed time, by reasons that occurred
        for reason, held_ns in self._throttled_ns.items():
            if held_ns:
                percent = round(_PERCENT * held_ns / self._throttle_observed_ns, 3)
                throttled_percent[reason] = percent
        idle_percent = None
        if idle_seconds is not None and duration_ms:
            idle_ms = idle_seconds * NS_PER_SECOND / NS_PER_MS
            idle_percent = round(_PERCENT * idle_ms / duration_ms, 3)
        return Gpu(
            uuid=self.facts.uuid,
            index=self.facts.index,
            name=self.facts.name,
            utilization_percent=series["utilization_percent"].distribution(),
            idle_seconds=idle_seconds,
            idle_percent=idle_percent,
            memory_used_mb=series["memory_used_bytes"].distribution(per=MIB),
            memory_size_mb=mebibytes(self._memory_size_bytes),
            power_watts=series["power_watts"].distribution(),
            energy_joules=self._joules(self._counters[ENERGY].increase),
            temperature_celsius=series["temperature_celsius"].distribution(),
            sm_clock_mhz=series["sm_clock_mhz"].distribution(),
            throttle_reasons=throttled_percent if self._throttle_observed_ns else None,
            xids=tuple(self.xids),
            **gpm,
            **self._totals(),
        )

    def _totals(self) -> Mapping[str, Any]:
        totals: dict[str, Any] = dict(self._amounts)
        for name, counter in self._counters.items():
            if name != ENERGY:
                totals[name] = counter.increase
        return totals

    def latest(self) -> LatestGpu:
        sample = self.last
        if self._read_ns - self._gpm_read_ns <= _MAX_GPM_AGE_NS:
            sample = replace(sample, **self._last_gpm)
        throttled_seconds = None
        if self._throttle_observed_ns:
            throttled = self._throttled_ns.items()
            throttled_seconds = {name: round(held / NS_PER_SECOND, 6) for name, held in throttled}
        idle_seconds = None
        if self._series["utilization_percent"].maximum is not None:
            idle_seconds = self._idle.total_ns / NS_PER_SECOND
        return LatestGpu(
            sample=sample,
            energy_joules=self._joules(self._counters[ENERGY].total),
            throttled_seconds=throttled_seconds,
            idle_seconds=idle_seconds,
            totals=self._totals(),
        )

    def _joules(self, millijoules: int | None) -> float | None:
        """The energy by the driver's counter, else by the power."""
        joules = self._power_joules
        if millijoules is not None:
            joules = millijoules / 1000
        return None if joules is None else round(joules, 3)


def gpu_idle(
    gpus: Sequence[Gpu], duration_ms: float | None, hour_usd: float | None
) -> GpuIdle | None:
    """The idle time of a run's GPUs; None if it is unknown.

    ``hour_usd`` is the price of the task in USD per hour.
    """
    percents = [gpu.idle_percent for gpu in gpus if gpu.idle_percent is not None]
    if not percents or duration_ms is None:
        return None
    percent = sum(percents) / len(percents)
    hours = duration_ms * NS_PER_MS / NS_PER_SECOND / _SECONDS_PER_HOUR
    return GpuIdle(
        percent=round(percent, 3),
        gpu_hours=round(sum(gpu.idle_seconds or 0 for gpu in gpus) / _SECONDS_PER_HOUR, 6),
        usd=None if hour_usd is None else round(percent / _PERCENT * hours * hour_usd, 8),
    )

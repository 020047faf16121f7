"""The usage of the GPUs so far: takes readings and keeps aggregates of constant size."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from profiler.aggregation.statistics import MeanAndMaximum, MonotonicCounter, TimeWeightedStatistics
from profiler.aggregation.time_series import DeviceReadings
from profiler.collectors.nvidia.gpu_ownership import match_uuids
from profiler.collectors.nvidia.gpu_reading_types import DriverReading, GpuFacts, GpuSample, Xid
from profiler.core.optional_math import sum_known
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.record.record_model import Gpu
from profiler.record.units import MIB, mebibytes

_MAX_GPUS = 64
_MAX_XIDS = 16
# A reading counts for the time since the one before, but not for a gap without readings.
_MAX_STEP_INTERVALS = 2
# No time has passed before the first reading: it weighs almost nothing, but alone it gives numbers.
_MIN_WEIGHT_NS = 1
_MICROSECOND_DIGITS = 6
_MILLIJOULES_PER_JOULE = 1000
_PERCENT = 100
# The fields of a sample of which the record has statistics.
_SERIES = ("utilization_percent", "memory_used_bytes", "power_watts", "temperature_celsius", "sm_clock_mhz")

# nvmlClocksThrottleReason*: the bits of a reduced clock. Bit 0 (idle) is not one of them.
THROTTLE_REASONS = {
    0x002: "applicationsClocksSetting",
    0x004: "swPowerCap",
    0x008: "hwSlowdown",
    0x010: "syncBoost",
    0x020: "swThermalSlowdown",
    0x040: "hwThermalSlowdown",
    0x080: "hwPowerBrakeSlowdown",
    0x100: "displayClockSetting",
}


class LatestGpu(Struct, frozen=True, kw_only=True):
    """A GPU at its last reading.

    ``energy_joules`` is a counter: the driver's own (since the driver was loaded), else power multiplied by time
    since the first reading. ``throttled_seconds`` is the observed time by the reason's name.
    """

    sample: GpuSample
    energy_joules: float | None = None
    throttled_seconds: Mapping[str, float] | None = None


class LiveGpus(Struct, frozen=True, kw_only=True):
    """All GPUs at the last reading.

    ``readings`` counts the readings so far. ``is_known`` is True if the GPUs are known to be the batch's; otherwise
    they are only visible.
    """

    readings: int
    gpus: tuple[LatestGpu, ...]
    is_known: bool = False


class GpuUsage:
    """Aggregates the readings of every GPU, by UUID."""

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._gpus: dict[str, _GpuAggregate] = {}
        self._read_ns: int | None = None
        self._lost: dict[str, str] = {}
        self._notes: dict[str, None] = {}
        self._unattributed_xids: list[int] = []
        self._present: frozenset[str] = frozenset()
        self.readings = 0

    def add(self, reading: DriverReading, now_ns: int, wall_ns: int) -> None:
        """Add a reading made at ``now_ns`` (monotonic); ``wall_ns`` is the time in sentences about lost GPUs."""
        since_ns = 0 if self._read_ns is None else now_ns - self._read_ns
        step_ns = min(since_ns, _MAX_STEP_INTERVALS * self._interval_ns)
        for sample in reading.samples:
            uuid = sample.facts.uuid
            if uuid not in self._gpus and len(self._gpus) < _MAX_GPUS:
                self._gpus[uuid] = _GpuAggregate(sample.facts)
            if uuid in self._gpus:
                self._gpus[uuid].add(sample, step_ns)
        for xid in reading.xids:
            self._note_xid(xid)
        for facts in reading.lost:
            self._lost.setdefault(facts.uuid, f"{_gpu_label(facts)} was lost by its driver at {format_ms(wall_ns)}.")
        self._notes.update(dict.fromkeys(reading.notes))
        self._present = frozenset(sample.facts.uuid for sample in reading.samples)
        self._read_ns = now_ns
        self.readings += 1

    def _note_xid(self, xid: Xid) -> None:
        """Attribute an error to its GPU or to the instances it may concern; keep those of unknown GPUs apart."""
        gpus_of_board = [gpu for gpu in self._gpus.values() if gpu.facts.physical_uuid == xid.uuid]
        affected = (
            [gpu.xids for gpu in gpus_of_board if xid.concerns(gpu.facts)]
            if gpus_of_board
            else [self._unattributed_xids]
        )
        for codes in affected:
            if xid.code not in codes and len(codes) < _MAX_XIDS:
                codes.append(xid.code)

    def gpus(self, selectors: Collection[str] | None) -> tuple[Gpu, ...]:
        """The record's entries by index: those that the selectors name (see ``match_uuids``), or all for None."""
        return tuple(gpu.record() for gpu in self._selected(selectors))

    def facts(self) -> tuple[GpuFacts, ...]:
        """All GPUs that were ever read."""
        return tuple(gpu.facts for gpu in self._gpus.values())

    def latest(self, selectors: Collection[str] | None) -> tuple[LatestGpu, ...]:
        """The GPUs of ``gpus(selectors)`` that the last reading contained, with its values."""
        return tuple(gpu.latest() for gpu in self._selected(selectors) if gpu.facts.uuid in self._present)

    def take_readings(self, selectors: Collection[str] | None, into: DeviceReadings) -> None:
        """Add the readings of the GPUs of ``gpus(selectors)`` since the last call; the others' are dropped."""
        selected = self._selected(selectors)
        for gpu in selected:
            into.gpu_percent.merge(gpu.recent_percent)
            into.gpu_memory_bytes.merge(gpu.recent_memory_bytes)
        into.gpus_memory_bytes = sum_known(*(gpu.recent_memory_bytes.maximum for gpu in selected))
        for gpu in self._gpus.values():
            gpu.recent_percent, gpu.recent_memory_bytes = MeanAndMaximum(), MeanAndMaximum()

    def _selected(self, selectors: Collection[str] | None) -> list["_GpuAggregate"]:
        selected = self._gpus.keys() if selectors is None else match_uuids(selectors, self.facts())
        return sorted((self._gpus[uuid] for uuid in selected), key=lambda gpu: (gpu.facts.index, gpu.facts.uuid))

    def notes(self) -> tuple[str, ...]:
        """Sentences about gaps in the numbers, lost GPUs and errors of unknown GPUs."""
        unattributed = ", ".join(str(code) for code in self._unattributed_xids)
        unattributed_note = (
            (f"A GPU that could not be identified had the driver errors (Xid) {unattributed}.",) if unattributed else ()
        )
        return (*self._notes, *self._lost.values(), *unattributed_note)


def _gpu_label(facts: GpuFacts) -> str:
    return f"GPU {facts.index} ({facts.uuid})"


class _GpuAggregate:
    """The aggregates of one GPU."""

    def __init__(self, facts: GpuFacts) -> None:
        self.facts = facts
        self.last = GpuSample(facts=facts)
        self.xids: list[int] = []
        self.recent_percent = MeanAndMaximum()
        self.recent_memory_bytes = MeanAndMaximum()
        self._series = {name: TimeWeightedStatistics() for name in _SERIES}
        self._memory_size_bytes: int | None = None
        self._energy_mj = _CounterIncrease()
        self._driver_energy_mj: int | None = None
        self._power_observed_ns = 0
        self._power_joules = 0.0
        self._ecc = _CounterIncrease()
        self._throttled_ns = dict.fromkeys(THROTTLE_REASONS, 0)
        self._throttle_observed_ns = 0

    def add(self, sample: GpuSample, step_ns: int) -> None:
        weight_ns = max(step_ns, _MIN_WEIGHT_NS)
        for name, series in self._series.items():
            value = getattr(sample, name)
            if value is not None:
                series.add(max(value, 0), weight_ns)
        for recent, reading in (
            (self.recent_percent, sample.utilization_percent),
            (self.recent_memory_bytes, sample.memory_used_bytes),
        ):
            if reading is not None:
                recent.add(max(reading, 0))
        if sample.power_watts is not None:
            self._power_observed_ns += step_ns
            self._power_joules += sample.power_watts * step_ns / NS_PER_SECOND
        if sample.memory_size_bytes is not None:
            self._memory_size_bytes = sample.memory_size_bytes
        self._energy_mj.add(sample.energy_millijoules)
        if sample.energy_millijoules is not None:
            self._driver_energy_mj = sample.energy_millijoules
        self._ecc.add(sample.ecc_uncorrected)
        self._add_throttle_reasons(sample.throttle_reasons, weight_ns)
        self.last = sample

    def _add_throttle_reasons(self, bits: int | None, weight_ns: int) -> None:
        if bits is None:
            return
        self._throttle_observed_ns += weight_ns
        for bit in self._throttled_ns:
            if bits & bit:
                self._throttled_ns[bit] += weight_ns

    def record(self) -> Gpu:
        series = self._series
        return Gpu(
            uuid=self.facts.uuid,
            index=self.facts.index,
            name=self.facts.name,
            utilization_percent=series["utilization_percent"].distribution(),
            memory_used_mb=series["memory_used_bytes"].distribution(per=MIB),
            memory_size_mb=mebibytes(self._memory_size_bytes),
            power_watts=series["power_watts"].distribution(),
            energy_joules=self._energy_joules(),
            temperature_celsius=series["temperature_celsius"].distribution(),
            sm_clock_mhz=series["sm_clock_mhz"].distribution(),
            throttle_reasons=self._throttle_percents(),
            xids=tuple(self.xids),
            ecc_uncorrected=self._ecc.total,
        )

    def latest(self) -> LatestGpu:
        seconds = {bit: weight_ns / NS_PER_SECOND for bit, weight_ns in self._throttled_ns.items()}
        throttled = {name: round(seconds[bit], _MICROSECOND_DIGITS) for bit, name in THROTTLE_REASONS.items()}
        return LatestGpu(
            sample=self.last,
            energy_joules=self._cumulative_joules(),
            throttled_seconds=throttled if self._throttle_observed_ns else None,
        )

    def _cumulative_joules(self) -> float | None:
        if self._driver_energy_mj is not None:
            return self._driver_energy_mj / _MILLIJOULES_PER_JOULE
        return self._power_joules if self._series["power_watts"].maximum is not None else None

    def _energy_joules(self) -> float | None:
        """The increase of the driver's counter (Volta and newer), else power by time; None after one reading."""
        if self._energy_mj.total is not None:
            return round(self._energy_mj.total / _MILLIJOULES_PER_JOULE, 3)
        return round(self._power_joules, 3) if self._power_observed_ns else None

    def _throttle_percents(self) -> dict[str, float] | None:
        """The share of the observed time by reason, in percent; only reasons that occurred."""
        if not self._throttle_observed_ns:
            return None
        return {
            name: round(_PERCENT * self._throttled_ns[bit] / self._throttle_observed_ns, 3)
            for bit, name in THROTTLE_REASONS.items()
            if self._throttled_ns[bit]
        }


class _CounterIncrease:
    """The increase of a driver counter since its first reading; a reload of the driver resets the counter to 0."""

    def __init__(self) -> None:
        self._counter = MonotonicCounter()
        self.total: int | None = None

    def add(self, value: int | None) -> None:
        if value is not None:
            self.total = sum_known(self.total, self._counter.add(value))

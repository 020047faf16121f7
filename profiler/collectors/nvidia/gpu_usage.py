"""The usage of the GPUs so far: takes readings and keeps aggregates of constant size."""

from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.statistics import DeviceReadings, RecentByBatch
from profiler.collectors.impossible_readings import impossible_warning
from profiler.collectors.nvidia.gpu_period import GpuPeriod, GpuRun, TimedSample, gpm_values
from profiler.collectors.nvidia.visible_gpus import DriverReading, GpuFacts, GpuSample, match_uuids
from profiler.core.optional_math import sum_known
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.record_model import Gpu, GpuIdle
from profiler.record.units import mebibytes

_PERCENT = 100
_SECONDS_PER_HOUR = 3600
# GPM may be read more rarely than the rest: for so long, the last values are the latest.
_MAX_GPM_AGE_NS = 30 * NS_PER_SECOND
# A run's start and end are noticed up to 10 s late: so long, its samples wait.
_NOTICE_NS = 15 * NS_PER_SECOND
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
        self._runs: dict[str, int] = {}  # their starts (monotonic)
        self._impossible = 0
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
            self._impossible += len(sample.impossible)
            if sample.facts.uuid not in self._gpus:
                self._gpus[sample.facts.uuid] = _GpuAggregate(sample.facts)
            self._gpus[sample.facts.uuid].add(sample, self._step_ns, now_ns)
        for xid in reading.xids:
            gpu = self._gpus.get(xid.uuid or "")
            if gpu is None:
                self._unattributed_xids[xid.code] = None
            else:
                gpu.add_error(xid.code, now_ns)
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
        self._runs.pop(batch, None)
        for gpu in self._gpus.values():
            gpu.forget(batch)

    def begin_run(
        self, run: str, started_ns: int, selectors: Collection[str] | None = None
    ) -> None:
        """Keep the numbers of a run on its GPUs from this moment (monotonic) on.

        Only the first moment counts. A later call adds GPUs that are selected since.
        """
        started_ns = self._runs.setdefault(run, started_ns)
        for gpu in self._selected(selectors):
            gpu.begin_run(run, started_ns, self._interval_ns)

    def has_begun(self, run: str) -> bool:
        return run in self._runs

    def gpus(
        self,
        selectors: Collection[str] | None,
        run: str = "",
        duration_ms: float | None = None,
        finished_ns: int | None = None,
    ) -> tuple[Gpu, ...]:
        """The record's entries by index; None selects all.

        ``finished_ns`` (monotonic) is the end of the run. One that was not begun has all readings.
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
        """Sentences about gaps in the numbers, lost GPUs, impossible values and errors of unknown
        GPUs.
        """
        notes = [*self._notes, *self._lost.values()]
        notes.extend(impossible_warning("The GPU driver", self._impossible))
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
        self._last_gpm: Mapping[str, Any] = {}
        self.recent_percent = RecentByBatch()
        self.recent_memory_bytes = RecentByBatch()
        self._whole = GpuPeriod()
        self._runs: dict[str, GpuRun] = {}
        self._recent: deque[TimedSample] = deque()
        self._idle = GpuIdleTime(_IDLE_SPANS_OF_A_GPU)
        self._idle_before: dict[str, int] = {}
        self._utilization_observed_ns = 0
        self._memory_size_bytes: int | None = None

    def add(self, sample: GpuSample, step_ns: int, now_ns: int) -> None:
        self._keep(TimedSample(sample=sample, start_ns=now_ns - step_ns, end_ns=now_ns))
        if sample.gpm_ns is not None:
            self._gpm_read_ns = now_ns
            self._last_gpm = gpm_values(sample)
        if sample.utilization_percent is not None:
            self.recent_percent.add(sample.utilization_percent)
            self._utilization_observed_ns += step_ns
            if sample.utilization_percent == 0 and step_ns:
                self._idle.add(now_ns - step_ns, now_ns)
        if sample.memory_used_bytes is not None:
            self.recent_memory_bytes.add(sample.memory_used_bytes)
        self._memory_size_bytes = sample.memory_size_bytes or self._memory_size_bytes
        self.last = sample
        self._read_ns = now_ns

    def add_error(self, xid: int, now_ns: int) -> None:
        """Add an error of the driver, also of a GPU that was lost."""
        nothing = GpuSample(facts=self.facts)
        self._keep(TimedSample(sample=nothing, start_ns=now_ns, end_ns=now_ns, xids=(xid,)))

    def _keep(self, timed: TimedSample) -> None:
        """Add a sample; to the runs when it is old enough."""
        self._whole.add(timed)
        self._recent.append(timed)
        while self._recent[0].end_ns < timed.end_ns - _NOTICE_NS:
            old = self._recent.popleft()
            for run in self._runs.values():
                run.add(old)

    def begin_run(self, run: str, started_ns: int, interval_ns: int) -> None:
        if run in self._runs:
            return
        self._runs[run] = GpuRun(started_ns)
        in_run = [timed.sample for timed in self._recent if timed.end_ns > started_ns]
        self.recent_percent.begin(run, [sample.utilization_percent for sample in in_run])
        self.recent_memory_bytes.begin(run, [sample.memory_used_bytes for sample in in_run])
        # It counts as idle from the last reading to a later start.
        ahead_ns = min(max(started_ns - self._read_ns, 0), interval_ns)
        before_ns = self._idle.total_ns - self._idle.between(started_ns, self._read_ns) + ahead_ns
        self._idle_before[run] = before_ns

    def forget(self, batch: str) -> None:
        self._runs.pop(batch, None)
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
        period = self._whole
        if run in self._runs:
            period = self._runs[run].until(finished_ns, self._recent)
        idle_seconds = self._idle_seconds(run, duration_ms, finished_ns)
        idle_percent = None
        if idle_seconds is not None and duration_ms:
            idle_ms = idle_seconds * NS_PER_SECOND / NS_PER_MS
            # The run may be shorter than the time of its readings.
            known_ms = max(duration_ms - period.unknown_utilization_ns / NS_PER_MS, idle_ms)
            if known_ms:
                idle_percent = round(_PERCENT * idle_ms / known_ms, 3)
        return Gpu(
            uuid=self.facts.uuid,
            index=self.facts.index,
            name=self.facts.name,
            idle_seconds=idle_seconds,
            idle_percent=idle_percent,
            memory_size_mb=mebibytes(self._memory_size_bytes),
            **period.record_values(),
        )

    def latest(self) -> LatestGpu:
        sample = self.last
        if self._read_ns - self._gpm_read_ns <= _MAX_GPM_AGE_NS:
            sample = replace(sample, **self._last_gpm)
        idle_seconds = None
        if self._whole.has_utilization:
            idle_seconds = self._idle.total_ns / NS_PER_SECOND
        return LatestGpu(
            sample=sample,
            energy_joules=self._whole.total_joules,
            throttled_seconds=self._whole.throttled_seconds,
            idle_seconds=idle_seconds,
            totals=self._whole.totals(),
        )


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

"""The usage of the GPUs so far: takes readings and keeps aggregates of constant size."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.statistics import DeviceReadings, RecentReadingsByBatch, UseWindow
from profiler.collectors.impossible_readings import impossible_warning
from profiler.collectors.nvidia.gpu_aggregates import GpuPeriod, GpuRun, TimedSample, gpm_values
from profiler.collectors.nvidia.gpu_owners import GpuOwners, NoOwners
from profiler.collectors.nvidia.gpu_record_entry import GpuInRun, RunGpu
from profiler.collectors.nvidia.recent_gpu_samples import GpuTimeline
from profiler.collectors.nvidia.run_use import GpuReading, ProcessListFacts, ProcessOnGpu
from profiler.collectors.nvidia.visible_gpus import (
    CHANGED_BYTES,
    DriverReading,
    GpuFacts,
    GpuLimits,
    GpuProcess,
    GpuSample,
    GpuSelection,
    match_uuids,
)
from profiler.core.optional_math import (
    any_known,
    first_known,
    known,
    known_values,
    product,
    rounded,
    sum_known,
)
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.device_totals import SHARED
from profiler.record.record_model import WHOLE_INSTANCE, Gpu, GpuIdle

_PERCENT = 100
_SECONDS_PER_HOUR = 3600
# GPM may be read more rarely than the rest: for so long, the last values are the latest.
_MAX_GPM_AGE_NS = 30 * NS_PER_SECOND
# A run's start and end are noticed up to 10 s late: so long, its samples wait.
_NOTICE_NS = 15 * NS_PER_SECOND


class GpuSoFar(Struct, frozen=True, kw_only=True):
    """A GPU at its last reading, and sums since the first reading.

    ``energy_joules`` is the driver's counter, else power multiplied by time. ``throttled_seconds``
    is by the reason's name, ``totals`` by the record's field; ``xids`` are the driver's
    errors. ``known_seconds`` is the time for which its work is known. ``scope`` says whose the
    values are, if not the batch's alone.
    """

    sample: GpuSample
    energy_joules: float | None = None
    throttled_seconds: Mapping[str, float] | None = None
    idle_seconds: float | None = None
    known_seconds: float | None = None
    totals: Mapping[str, int] = {}
    xids: tuple[int, ...] = ()
    scope: str | None = None


class LiveGpus(Struct, frozen=True, kw_only=True):
    """All GPUs at the last reading; ``readings`` counts all."""

    readings: int
    gpus: tuple[GpuSoFar, ...]


NO_GPUS: Final = LiveGpus(readings=0, gpus=())


class GpuUsage:
    """Aggregates the readings of every GPU, by UUID."""

    def __init__(self, interval_ns: int, owners: GpuOwners | None = None) -> None:
        self._interval_ns = interval_ns
        self._owners: GpuOwners = owners or NoOwners()
        self._lists = ProcessListFacts(self._owners.sees_all)
        self._gpus: dict[str, _GpuAggregate] = {}
        self._read_ns: int | None = None
        self._lost: dict[str, str] = {}
        self._found_again: dict[str, str] = {}
        self._notes: dict[str, None] = {}
        self._unattributed_xids: dict[int, None] = {}
        self._present: frozenset[str] = frozenset()
        self._step_ns = 0
        self._runs: dict[str, int] = {}  # their starts (monotonic)
        self._impossible = 0
        self._listed_bytes = 0
        self.is_memory_changing = False
        self.readings = 0

    def add_reading(self, reading: DriverReading, now_ns: int, wall_ns: int) -> None:
        """Add a reading made at ``now_ns`` (monotonic); ``wall_ns`` is the time in sentences
        about lost GPUs.
        """
        # A reading counts for the time since the one before, but not for a gap without readings.
        before_ns = first_known(self._read_ns, now_ns)
        self._step_ns = min(now_ns - before_ns, 2 * self._interval_ns)
        for sample in reading.samples:
            self._impossible += len(sample.impossible)
            if sample.facts.uuid not in self._gpus:
                added = _GpuAggregate(sample.facts, self._lists)
                self._gpus[sample.facts.uuid] = added
                for run, started_ns in self._runs.items():
                    self._begin((added,), run, started_ns)
            self._gpus[sample.facts.uuid].add_sample(sample, self._step_ns, now_ns)
        self._add_processes(reading.samples, now_ns)
        for xid in reading.xids:
            gpu = self._gpus.get(xid.uuid or "")
            if gpu is None:
                self._unattributed_xids[xid.code] = None
            else:
                gpu.add_error(xid.code, before_ns, now_ns)
        for facts in reading.lost:
            sentence = (
                f"GPU {facts.index} ({facts.uuid}) was lost by its driver at {format_ms(wall_ns)}."
            )
            self._lost.setdefault(facts.uuid, sentence)
            self._found_again.pop(facts.uuid, None)
        for sample in reading.samples:
            if sample.facts.uuid in self._lost:
                found = f" It answered again at {format_ms(wall_ns)}."
                self._found_again.setdefault(sample.facts.uuid, found)
        self._notes.update(dict.fromkeys(reading.notes))
        self._present = frozenset(sample.facts.uuid for sample in reading.samples)
        self._read_ns = now_ns
        self.readings += 1

    def add_quick(self, samples: Sequence[GpuSample], now_ns: int) -> None:
        """Add a reading of the processes alone, between two others."""
        self._add_processes(samples, now_ns)

    def _add_processes(self, samples: Sequence[GpuSample], now_ns: int) -> None:
        listed = [process for sample in samples for process in sample.processes or ()]
        for sample in samples:
            gpu = self._gpus.get(sample.facts.uuid)
            if gpu is not None:
                processes = known(self._with_identities, sample.processes)
                gpu.add_processes(processes, sample.memory_used_bytes, now_ns)
        if not any_known(*(sample.processes for sample in samples)):
            return
        self._owners.forget_except({process.pid for process in listed})
        listed_bytes = sum(process.memory_bytes or 0 for process in listed)
        self.is_memory_changing = abs(listed_bytes - self._listed_bytes) >= CHANGED_BYTES
        self._listed_bytes = listed_bytes

    def _with_identities(self, processes: Sequence[GpuProcess]) -> tuple[ProcessOnGpu, ...]:
        identify = self._owners.identify
        return tuple(
            ProcessOnGpu(identify(process.pid), process.memory_bytes, process.is_only_graphics)
            for process in processes
        )

    @property
    def may_match(self) -> bool:
        """Whether the next lists of processes may say whose use a GPU is, of all runs."""
        uses = [use for gpu in self._gpus.values() for use in gpu.timeline.runs.values()]
        return bool(uses) and all(use.may_match for use in uses)

    def idle_ns(
        self, batch: str, selectors: Collection[str] | None, start_ns: int, end_ns: int
    ) -> int:
        """The time in which all GPUs of the batch were idle between two recent moments."""
        idle = [
            gpu.timeline.idle_ns(start_ns, end_ns)
            for gpu in self._selected_aggregates(selectors)
            if not self._is_unused(gpu, batch)
        ]
        return min(idle, default=0)

    def _is_unused(self, gpu: "_GpuAggregate", batch: str) -> bool:
        use = gpu.timeline.runs.get(batch)
        return use is not None and use.is_unused

    def known_until_ns(self) -> int:
        """Until when the use of all GPUs is known, for which one does not wait where the driver
        does not say it, or has lost the GPU.
        """
        known_ns = (
            gpu.timeline.known_until_ns
            for uuid, gpu in self._gpus.items()
            if uuid in self._present and gpu.says_its_use
        )
        return min(known_ns, default=self._read_ns or 0)

    def forget(self, batch: str) -> None:
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
        self._begin(self._selected_aggregates(selectors), run, started_ns)

    def _begin(self, gpus: "Sequence[_GpuAggregate]", run: str, started_ns: int) -> None:
        find_owner = cache(partial(self._owners.owner_of, run))  # asked once for all GPUs
        for gpu in gpus:
            gpu.begin_run(run, started_ns)
            gpu.timeline.begin_run(run, started_ns, find_owner)

    def has_begun(self, run: str) -> bool:
        return run in self._runs

    def gpus_of_run(
        self,
        selectors: Collection[str] | None,
        run: str = "",
        duration_ms: float | None = None,
        finished_ns: int | None = None,
        mps: GpuLimits | None = None,
    ) -> tuple[RunGpu, ...]:
        """The GPUs by index; None selects all.

        ``finished_ns`` (monotonic) is the end of the run. One that was not begun has all readings.
        """
        return tuple(
            gpu.run_gpu(
                run,
                duration_ms,
                finished_ns,
                mps or GpuLimits(),
                is_lost=gpu.facts.uuid not in self._present,
            )
            for gpu in self._selected_aggregates(selectors)
        )

    def gpu_facts(self) -> tuple[GpuFacts, ...]:
        return tuple(gpu.facts for gpu in self._gpus.values())

    def latest(self, selection: GpuSelection, *, with_mps: bool) -> tuple[GpuSoFar, ...]:
        """The selected GPUs that the last reading contained, without those that are only visible,
        as long as no batch is on them.
        """
        return tuple(
            gpu.latest(is_known=selection.is_known, with_mps=with_mps)
            for gpu in self._selected_aggregates(selection.selectors)
            if gpu.facts.uuid in self._present and (selection.is_assigned or not gpu.is_unused)
        )

    def take_readings(
        self, batch: str, selectors: Collection[str] | None, into: DeviceReadings
    ) -> None:
        """Add the readings of the selected GPUs since the batch's last call; drop those of other
        GPUs.
        """
        selected = self._selected_aggregates(selectors)
        if not selected:
            return
        for gpu in self._gpus.values():
            percent = gpu.recent_percent.take_recent(batch)
            memory_bytes = gpu.recent_memory_bytes.take_recent(batch)
            windows = gpu.take_windows(batch, self._runs.get(batch, 0))
            if gpu in selected and not self._is_unused(gpu, batch):
                if windows is not None:
                    into.gpu_windows = [*(into.gpu_windows or ()), *windows]
                into.gpu_percent.merge(percent)
                into.gpu_memory_bytes.merge(memory_bytes)
                into.gpus_memory_bytes = sum_known(into.gpus_memory_bytes, memory_bytes.maximum)

    def _selected_aggregates(self, selectors: Collection[str] | None) -> list["_GpuAggregate"]:
        if selectors is None:
            selected = list(self._gpus.values())
        else:
            selected = [self._gpus[uuid] for uuid in match_uuids(selectors, self.gpu_facts())]
        return sorted(selected, key=lambda gpu: (gpu.facts.index, gpu.facts.uuid))

    def gap_and_error_sentences(self) -> tuple[str, ...]:
        """Sentences about gaps in the numbers, lost GPUs, impossible values and errors of unknown
        GPUs.
        """
        lost = (text + self._found_again.get(uuid, "") for uuid, text in self._lost.items())
        notes = [*self._notes, *lost]
        notes.extend(impossible_warning("The GPU driver", self._impossible))
        codes = ", ".join(map(str, self._unattributed_xids))
        if codes:
            notes.append(f"A GPU that could not be identified had the driver errors (Xid) {codes}.")
        return tuple(notes)


class _GpuAggregate:
    def __init__(self, facts: GpuFacts, lists: ProcessListFacts) -> None:
        self.facts = facts
        self.last = GpuSample(facts=facts)
        self._read_ns = 0
        self._looked_ns: int | None = None
        self._listed_ns: int | None = None
        self._gpm_read_ns = 0
        self._last_gpm: Mapping[str, Any] = {}
        self.recent_percent = RecentReadingsByBatch()
        self.recent_memory_bytes = RecentReadingsByBatch()
        self._whole = GpuPeriod(facts.link_bytes_per_second)
        self._runs: dict[str, GpuRun] = {}
        self._recent: deque[TimedSample] = deque()
        self.timeline = GpuTimeline(_NOTICE_NS, lists)
        self._idle_ns = 0.0
        self._known_ns = 0
        self._taken_ns: dict[str, int] = {}
        self._memory_size_bytes: int | None = None

    def add_sample(self, sample: GpuSample, step_ns: int, now_ns: int) -> None:
        self._keep_sample(TimedSample(sample=sample, start_ns=now_ns - step_ns, end_ns=now_ns))
        if sample.gpm_ns is not None:
            self._gpm_read_ns = now_ns
            self._last_gpm = gpm_values(sample)
        self._add_windows(sample, step_ns, now_ns)
        self.recent_percent.add_reading(sample.utilization_percent)
        self.recent_memory_bytes.add_reading(sample.memory_used_bytes)
        self._memory_size_bytes = sample.memory_size_bytes or self._memory_size_bytes
        self.last = sample
        self._read_ns = now_ns

    @property
    def says_its_use(self) -> bool:
        """Whether the driver says how much it works, which the first reading may not know."""
        return any_known(self.timeline.source, self.last.utilization_percent)

    def _add_windows(self, sample: GpuSample, step_ns: int, now_ns: int) -> None:
        """The work since the reading before: by the driver's samples, else by GPM, else by the
        reading.
        """
        before_ns = self.timeline.known_until_ns
        if sample.windows:
            self.timeline.add_windows(sample.windows, "driver-samples")
        elif sample.kernel_percent is not None and sample.gpm_ns:
            window = UseWindow(now_ns - sample.gpm_ns, now_ns, sample.kernel_percent)
            self.timeline.add_windows((window,), "gpm")
        elif sample.utilization_percent is not None and step_ns:
            window = UseWindow(now_ns - step_ns, now_ns, sample.utilization_percent)
            self.timeline.add_windows((window,), "once-a-second")
        self._idle_ns += self.timeline.idle_ns(before_ns, self.timeline.known_until_ns)
        self._known_ns += self.timeline.known_ns(before_ns, self.timeline.known_until_ns)

    def add_processes(
        self,
        processes: tuple[ProcessOnGpu, ...] | None,
        used_bytes: int | None,
        now_ns: int,
    ) -> None:
        """Add the list of processes, or the memory, for the time since the one before; the first
        one for the time in which the driver was not open yet.
        """
        if not any_known(processes, used_bytes):
            return
        before_ns = self._looked_ns if processes is None else self._listed_ns
        before_ns = first_known(before_ns, 0)
        self._looked_ns = now_ns
        if processes is not None:
            self._listed_ns = now_ns
        self.timeline.add_reading(
            GpuReading(
                start_ns=max(before_ns, now_ns - _NOTICE_NS),
                end_ns=now_ns,
                processes=processes,
                used_bytes=used_bytes,
            )
        )

    def add_error(self, xid: int, before_ns: int, now_ns: int) -> None:
        """Add an error of the driver since the reading before, also of a GPU that was lost."""
        nothing = GpuSample(facts=self.facts)
        self._keep_sample(
            TimedSample(sample=nothing, start_ns=before_ns, end_ns=now_ns, xids=(xid,))
        )

    def _keep_sample(self, timed: TimedSample) -> None:
        """Add a sample; to the runs when it is old enough."""
        self._whole.add_sample(timed)
        self._recent.append(timed)
        while self._recent[0].end_ns < timed.end_ns - _NOTICE_NS:
            old = self._recent.popleft()
            for run in self._runs.values():
                run.add_old_sample(old)

    def begin_run(self, run: str, started_ns: int) -> None:
        if run in self._runs:
            return
        self._runs[run] = GpuRun(started_ns, self.facts.link_bytes_per_second)
        run_gpu = [timed.sample for timed in self._recent if timed.end_ns > started_ns]
        self.recent_percent.begin_batch(run, [sample.utilization_percent for sample in run_gpu])
        self.recent_memory_bytes.begin_batch(run, [sample.memory_used_bytes for sample in run_gpu])

    def take_windows(self, batch: str, since_ns: int) -> list[UseWindow] | None:
        """The work since the batch's last call; None if it is not known without gaps."""
        if self.timeline.source != "driver-samples":
            return None
        since_ns = self._taken_ns.get(batch, since_ns)
        self._taken_ns[batch] = max(self.timeline.known_until_ns, since_ns)
        return self.timeline.windows_since(since_ns)

    def forget(self, batch: str) -> None:
        self._taken_ns.pop(batch, None)
        self._runs.pop(batch, None)
        self.timeline.runs.pop(batch, None)
        self.recent_percent.forget_batch(batch)
        self.recent_memory_bytes.forget_batch(batch)

    def run_gpu(
        self,
        run: str,
        duration_ms: float | None,
        finished_ns: int | None,
        mps: GpuLimits,
        *,
        is_lost: bool,
    ) -> RunGpu:
        period = self._whole
        if run in self._runs:
            period = self._runs[run].period_until(finished_ns, self._recent)
        use = self.timeline.use_until(run, finished_ns)
        return GpuInRun(
            facts=self.facts,
            period=period,
            use=use,
            source=self.timeline.source_of(use),
            memory_size_bytes=self._memory_size_bytes,
            mps=mps,
            duration_ms=duration_ms,
            finished_ns=finished_ns,
            lost_ns=self._read_ns if is_lost else None,
        ).record_entry()

    @property
    def is_unused(self) -> bool:
        """Whether the lists of processes show that no run has been on the GPU so far."""
        uses = self.timeline.runs.values()
        return bool(uses) and all(use.is_unused for use in uses)

    def _scope(self, *, is_known: bool, with_mps: bool) -> str | None:
        """Whose the GPU's values are, as in a record; ``is_known``: the batch's, by its id."""
        uses = self.timeline.runs.values()
        if with_mps or any(use.is_seen_shared or use.is_shared for use in uses):
            return SHARED
        is_own = is_known or any(use.is_seen for use in uses)
        return WHOLE_INSTANCE if not is_own or any(use.is_seen_unlisted for use in uses) else None

    def latest(self, *, is_known: bool, with_mps: bool) -> GpuSoFar:
        sample = self.last
        if self._read_ns - self._gpm_read_ns <= _MAX_GPM_AGE_NS:
            sample = replace(sample, **self._last_gpm)
        idle_seconds = None
        known_seconds = None
        scope = self._scope(is_known=is_known, with_mps=with_mps)
        # A sum has no mark of an estimate, nor of other programs' time.
        is_exact = self.timeline.source != "once-a-second" and scope is None
        if self._whole.has_utilization and is_exact:
            idle_seconds = self._idle_ns / NS_PER_SECOND
            known_seconds = self._known_ns / NS_PER_SECOND
        return GpuSoFar(
            sample=sample,
            energy_joules=self._whole.total_joules,
            throttled_seconds=self._whole.throttled_seconds,
            idle_seconds=idle_seconds,
            known_seconds=known_seconds,
            totals=self._whole.totals_by_field(),
            xids=self._whole.xids,
            scope=scope,
        )


def gpu_idle(
    gpus: Sequence[Gpu], duration_ms: float | None, hour_usd: float | None
) -> GpuIdle | None:
    """The idle time of a run's GPUs; None if that of one is unknown.

    ``hour_usd`` is the price of the task in USD per hour.
    """
    percents = known_values(gpu.idle_percent for gpu in gpus)
    if not percents or len(percents) < len(gpus) or duration_ms is None:
        return None
    percent = sum(percents) / len(percents)
    hours = duration_ms * NS_PER_MS / NS_PER_SECOND / _SECONDS_PER_HOUR
    phases = {}
    for name in ("before", "between", "after"):
        seconds = [getattr(gpu, f"idle_{name}_seconds") for gpu in gpus]
        if None not in seconds and duration_ms:
            mean = sum(seconds) / len(seconds)
            phases[f"{name}_percent"] = round(_PERCENT * mean * 1000 / duration_ms, 3)
    return GpuIdle(
        **phases,
        percent=round(percent, 3),
        gpu_hours=round(sum(gpu.idle_seconds or 0 for gpu in gpus) / _SECONDS_PER_HOUR, 6),
        usd=rounded(product(percent / _PERCENT * hours, hour_usd), 8),
    )

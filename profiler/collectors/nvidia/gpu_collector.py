"""Collects GPU readings in a thread and follows how the driver answers."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from profiler.aggregation.out_of_gpu_memory import evidence_of_growth
from profiler.aggregation.record_parts import RecordPart
from profiler.aggregation.statistics import DeviceReadings
from profiler.collectors.collector import COMMAND
from profiler.collectors.nvidia.gpu_owners import GpuOwners
from profiler.collectors.nvidia.gpu_record_entry import RunGpu
from profiler.collectors.nvidia.gpu_usage import GpuUsage, LiveGpus, gpu_idle
from profiler.collectors.nvidia.nvml_calls import NOT_INSTALLED
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.reading_pace import QuickReadings
from profiler.collectors.nvidia.visible_gpus import GpuLimits, GpuScope
from profiler.core.clock import Clock
from profiler.core.log import Log
from profiler.core.optional_math import first_known, known, known_values
from profiler.core.text import listed
from profiler.core.threads import PeriodicReadingThread, Waiter, failure_warnings
from profiler.core.timestamps import NEVER_NS, NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.readers import SourceHealth, Unavailable
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.hardware import UNREAD_GPU, may_lack_gpu_memory
from profiler.record.record_model import WHOLE_INSTANCE, Gpu, Record
from profiler.record.units import format_duration, format_percent

_HANG_NS = 5 * NS_PER_SECOND
# Reading a GPU's energy takes 3 to 6 ms (H100, H200; driver 580): every 60 s for each GPU that is
# 0.01 % of a core. A complete reading has it, too: at checkpoints and at the end.
COUNTER_PERIOD_NS = 60 * NS_PER_SECOND
_REQUIREMENTS = (
    "on your own machine, install NVIDIA's driver; on ECS, the monitor needs "
    "NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility in its environment."
)
_MATCHES_NONE = (
    "None of the visible GPUs is the batch's: compare TASK_PROFILER_GPU_UUIDS, or the batch's "
    "NVIDIA_VISIBLE_DEVICES, with nvidia-smi -L."
)
_UNMATCHED = (
    "The driver's list of processes cannot be matched with the batch's processes: pidMode task "
    "shows whose use it is."
)
_NOT_LISTED = (
    "The driver did not list the processes on the GPUs for the whole run: the numbers are of all "
    "programs on them."
)
_UNLISTED = (
    "{} had memory in use that belongs to no process that can be seen here (a program of another "
    "container, a desktop, or managed memory), or to one whose memory the driver does not say: "
    "use, power and energy are of all programs."
)
# One every 10 s.
_MAX_LOOKS_FOR_LIMITS = 6
_IDLE_IS_BOUNDED = "The work of {} is known for {} of the run: the idle time is a lower bound."
_USE_IS_MISSING = "The work of {} is known for {} of the run: use and idle time are missing."
_IDLE_IS_MISSING = "The work of {} is known for {} of the run: the idle time is missing."
# Only a gap that is longer leaves numbers out.
_MIN_GAP_NS = 5 * NS_PER_SECOND
_MAX_GAPS = 8
_NO_ANSWER = (
    "The GPU driver does not answer; the GPUs' last numbers, and energy since the last reading, "
    "are missing."
)


class GpuSurroundings(Struct, frozen=True, kw_only=True):
    """What is known of the runs beside the driver: whose a process is, and what MPS lets a batch
    use.

    ``is_local``: for ``run``. ``cpu_ns`` is the CPU time of the thread.
    """

    owners: GpuOwners | None = None
    limits_of: Callable[[str], GpuLimits] = lambda _: GpuLimits()
    is_local: bool = False
    cpu_ns: Callable[[], int] = time.thread_time_ns


class _Gap(Struct, frozen=True):
    """A time without readings, from a moment of the wall clock on, and why."""

    start_ns: int
    length_ns: int
    reason: str

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.length_ns


class GpuCollector:
    """Reads the GPUs at every tick, and their processes between two ticks.

    ``is_required``: warn if none is found. ``hour_usd`` is the price of the task.
    """

    child_pid = None

    def __init__(
        self,
        source: NvmlSource,
        scope: GpuScope,
        clock: Clock,
        log: Log,
        interval_ns: int,
        *,
        is_required: bool,
        hour_usd: float | None = None,
        surroundings: "GpuSurroundings | None" = None,
    ) -> None:
        found = surroundings or GpuSurroundings()
        self._is_local = found.is_local
        self._limits_of = found.limits_of
        self._limits: dict[str, GpuLimits] = {}
        self._looks_for_limits: Counter[str] = Counter()
        self.quick = QuickReadings(
            self._read_quickly, clock, found.cpu_ns, lambda: self._usage.is_memory_changing
        )
        self.name = source.name
        self._source = source
        self._scope = scope
        self._clock = clock
        self._is_required = is_required
        self._hour_usd = hour_usd
        self._usage = GpuUsage(interval_ns, found.owners)
        self._health = SourceHealth("NVML", log)
        self._log = log
        self._problem: str | None = None  # why no GPU was read
        self._unreadable_reason: str | None = None  # of the last reading, before the first success
        # When the readings ended: by the wall clock, by the monotonic one, and why.
        self._failed_ns: int | None = None
        self._ended_ns = 0
        self._failure_reason = ""
        self._gaps: deque[_Gap] = deque(maxlen=_MAX_GAPS)
        self._busy_since_ns = NEVER_NS  # the start of the call into the driver that goes on
        self._is_final_reading_missing = False
        self._lock = threading.Lock()
        self._counters_due_ns = 0
        self._reader = PeriodicReadingThread(
            "gpu",
            self.take_reading,
            source.close,
            waiter=Waiter(),
            clock=clock,
            interval_ns=interval_ns,
            between=self.quick.read_due,
        )

    @property
    def has_data(self) -> bool:
        return self._usage.readings > 0

    @property
    def unseen_reason(self) -> str | None:
        """Why no GPU was ever read; None if one was, if the records say why, or if unknown."""
        if self.has_data or self._problem is not None:
            return None
        return self._unreadable_reason

    def start(self) -> None:
        self.begin_command()
        self._reader.start()  # its thread also opens the driver

    def begin_command(self) -> None:
        """Begin the command of ``run``."""
        if self._is_local:
            with self._lock:
                self._find_limits(COMMAND)
                self._usage.begin_run(COMMAND, self._clock.monotonic_ns())

    def _find_limits(self, batch: str) -> None:
        """Look for the limits of MPS, as long as the batch's processes may come."""
        limits = self._limits.get(batch, GpuLimits())
        if limits.is_mps or self._looks_for_limits[batch] >= _MAX_LOOKS_FOR_LIMITS:
            return
        self._looks_for_limits[batch] += 1
        self._limits[batch] = self._limits_of(batch)

    @property
    def startup_error(self) -> str | None:
        return self._problem if self._is_required and not self.has_data else None

    def on_batch_started(self, container: ContainerMetadata) -> None:
        with self._lock:
            self._scope.discover_selection(container)
            self._find_limits(container.followed_id)
            self._begin_run(container.followed_id, container.started_ns)

    def _begin_run(self, batch: str, started_wall_ns: int | None) -> None:
        """Leave out what was read before the start of the batch: without one, before now."""
        started_ns = first_known(
            known(self._monotonic_ns, started_wall_ns), self._clock.monotonic_ns()
        )
        selection = self._scope.selection_for(batch, self._usage.gpu_facts())
        self._usage.begin_run(batch, started_ns, selection.selectors)

    def _monotonic_ns(self, wall_ns: int) -> int:
        return self._clock.monotonic_ns() - (self._clock.wall_ns() - wall_ns)

    def final_reading(self, max_seconds: float) -> None:
        """Take one reading with all counters; before the first one, wait for it if a GPU is
        required.
        """
        if not self._reader.is_started:
            return
        if self.has_data:
            self._is_final_reading_missing = not self._reader.final_reading(max_seconds)
            return
        if not self._is_required or self._problem is not None:
            return
        if not self._reader.wait_for_first_reading(max_seconds):
            self._report_missing(
                "TASK_PROFILER_GPU=on, but no GPU was read: the run ended before a driver answered."
            )

    def stop(self, max_seconds: float) -> None:
        """End the thread.

        A thread that hangs in the driver is abandoned and ends with the process.
        """
        # A healthy driver answers within 50 ms. Opening it may take seconds, for which a run's end
        # does not wait.
        self._reader.stop(min(0.05, max_seconds))

    def part(self, record: Record, batch: str) -> RecordPart:
        stopped = failure_warnings(self._reader.failure, "GPU values")
        if stopped and record.status == "running":
            return RecordPart(warnings=stopped)
        duration_ms = record.metrics.duration_ms
        finished_ns = known(self._monotonic_ns, record.finished_ns)
        with self._lock:
            started_wall_ns = record.started_ns
            if batch != COMMAND and started_wall_ns is not None:
                self._begin_run(batch, started_wall_ns)
            selection = self._scope.selection_for(batch, self._usage.gpu_facts())
            found = self._usage.gpus_of_run(
                selection.selectors, batch, duration_ms, finished_ns, self._limits.get(batch)
            )
        matches_none = self.has_data and bool(selection.selectors) and not found
        warnings = [
            *self._reading_warnings(matches_none=matches_none),
            *self._gaps_in(record),
            *stopped,
        ]
        if not selection.is_known:
            if any(run_gpu.has_unmatched for run_gpu in found):
                warnings.append(_UNMATCHED)
            if any(run_gpu.lacks_lists for run_gpu in found):
                warnings.append(_NOT_LISTED)
        unlisted = [str(run_gpu.gpu.index) for run_gpu in found if run_gpu.has_unlisted]
        if unlisted:
            warnings.append(_UNLISTED.format(f"GPU{'s' * (len(unlisted) > 1)} {listed(unlisted)}"))
        if not selection.is_assigned:
            # Visible GPUs are the run's if one of its processes was on them.
            found = tuple(run_gpu for run_gpu in found if run_gpu.is_own is not False)
        gpus = tuple(run_gpu.gpu for run_gpu in found)
        values: dict[str, Any] = {}
        if gpus:
            is_known = selection.is_known or all(run_gpu.is_own for run_gpu in found)
            is_known = is_known and not unlisted
            warnings.extend(_partial_warnings(gpus))
            values["gpus"] = gpus
            values["gpu_scope"] = None if is_known else WHOLE_INSTANCE
            values["gpu_idle"] = gpu_idle(gpus, duration_ms, self._hour_usd)
            values |= _gpu_memory_fields(record, found)
        return RecordPart(
            values=values, source=self.name if self.has_data else None, warnings=tuple(warnings)
        )

    def latest(self) -> LiveGpus | None:
        if self._reader.failure is not None:
            return None
        with self._lock:
            selection = self._scope.selection_for_all(self._usage.gpu_facts())
            with_mps = any(limits.is_mps for limits in self._limits.values())
            gpus = self._usage.latest(selection, with_mps=with_mps)
            readings = self._usage.readings
        return LiveGpus(readings=readings, gpus=gpus) if readings else None

    def idle_ns(self, batch: str, start_ns: int, end_ns: int) -> int:
        with self._lock:
            selection = self._scope.selection_for(batch, self._usage.gpu_facts())
            return self._usage.idle_ns(batch, selection.selectors, start_ns, end_ns)

    def known_until_ns(self) -> int | None:
        """Until when the work of the GPUs is known (monotonic); None before the first reading."""
        with self._lock:
            return self._usage.known_until_ns() if self._usage.readings else None

    def forget(self, batch: str) -> None:
        with self._lock:
            self._scope.forget(batch)
            self._usage.forget(batch)
            self._limits.pop(batch, None)
            del self._looks_for_limits[batch]

    def take_readings(self, batch: str, into: DeviceReadings) -> None:
        with self._lock:
            if batch != COMMAND and not self._usage.has_begun(batch):
                return  # the readings before its start are not its own
            selection = self._scope.selection_for(batch, self._usage.gpu_facts())
            self._usage.take_readings(batch, selection.selectors, into)

    def _reading_warnings(self, *, matches_none: bool) -> tuple[str, ...]:
        with self._lock:
            notes = self._usage.gap_and_error_sentences()
        if self._problem is not None and not self.has_data:
            return (*notes, self._problem)
        busy_ns = self._clock.monotonic_ns() - self._busy_since_ns
        is_silent = self._is_final_reading_missing or busy_ns >= _HANG_NS
        reasons: list[str] = []
        if matches_none:
            reasons.append(_MATCHES_NONE)
        if self._failed_ns is not None:
            reasons.append(
                f"NVML could not be read since {format_ms(self._failed_ns)}, and the GPUs' numbers "
                f"end there: {self._failure_reason}."
            )
        if is_silent:
            reasons.append(_NO_ANSWER)
        return (*notes, *reasons)

    def _gaps_in(self, record: Record) -> Iterator[str]:
        """Sentences about the times of the run in which NVML could not be read."""
        for gap in self._gaps:
            is_before = gap.end_ns <= first_known(record.started_ns, 0)
            if not is_before and gap.start_ns < first_known(record.finished_ns, gap.end_ns):
                length = format_duration(gap.length_ns / NS_PER_MS)
                yield (
                    f"NVML could not be read for {length} from {format_ms(gap.start_ns)} on: "
                    f"{gap.reason}."
                )

    def take_reading(self, *, is_complete: bool = False) -> bool:
        """Take one reading; False if none can succeed.

        A complete one has the slow counters, else every 60 s.
        """
        if self._source.permanently_unavailable:
            return False
        now_ns = self._clock.monotonic_ns()
        with_counters = is_complete or now_ns >= self._counters_due_ns
        self._busy_since_ns = now_ns
        try:
            reading = self._source.read_all_gpus(counters=with_counters)
        finally:
            self._busy_since_ns = NEVER_NS
        if isinstance(reading, Unavailable):
            self._on_failure(reading)
            return True
        self._health.on_success()
        self._end_gap()
        read_ns = self._clock.monotonic_ns()  # the driver may have been opened
        if with_counters:
            self._counters_due_ns = now_ns + COUNTER_PERIOD_NS
        with self._lock:
            self._usage.add_reading(reading, read_ns, self._clock.wall_ns())
        return True

    def _end_gap(self) -> None:
        if self._failed_ns is None:
            return
        length_ns = self._clock.monotonic_ns() - self._ended_ns
        if length_ns >= _MIN_GAP_NS:
            self._gaps.append(_Gap(self._failed_ns, length_ns, self._failure_reason))
        self._failed_ns = None

    def _read_quickly(self) -> None:
        """Read the processes between two ticks."""
        if not self.has_data:
            return
        with self._lock:
            with_memory = not self._usage.may_match
        now_ns = self._clock.monotonic_ns()
        self._busy_since_ns = now_ns
        try:
            samples = self._source.read_quickly(with_memory=with_memory)
        finally:
            self._busy_since_ns = NEVER_NS
        with self._lock:
            self._usage.add_quick(samples, now_ns)

    def _on_failure(self, failure: Unavailable) -> None:
        """Log the failure if a GPU was readable before or, once, if a GPU is required; else only
        the record has it.
        """
        self._unreadable_reason = failure.reason
        if self.has_data:
            self._health.on_failure(failure)
            if self._failed_ns is None:
                self._failed_ns = self._clock.wall_ns()
                self._ended_ns = self._clock.monotonic_ns()
                self._failure_reason = failure.reason
        elif self._is_required:
            self._report_missing(
                f"TASK_PROFILER_GPU=on, but no GPU can be read ({failure.reason}): {_REQUIREMENTS}"
            )
        elif not self._source.is_driver_missing:
            self._problem = f"There is a GPU that cannot be read: {failure.reason}."
            if failure.reason == NOT_INSTALLED:
                self._problem = UNREAD_GPU

    def _report_missing(self, problem: str) -> None:
        if self._problem is None:
            self._log.warning(problem)
        self._problem = problem


def _partial_warnings(gpus: Sequence[Gpu]) -> Iterator[str]:
    """Sentences about GPUs whose work is not known for the whole run: what is a lower bound, and
    what is missing.
    """
    partial = [gpu for gpu in gpus if gpu.is_use_partial]
    bounded = [gpu for gpu in partial if gpu.idle_seconds is not None]
    missing = [gpu for gpu in partial if gpu.utilization_percent.avg is None]
    # The use of a GPU that is shared has no idle time anyway.
    estimated = [
        gpu
        for gpu in partial
        if gpu.is_use_estimated and gpu not in (*bounded, *missing) and not gpu.shared
    ]
    sentences = (
        (bounded, _IDLE_IS_BOUNDED),
        (missing, _USE_IS_MISSING),
        (estimated, _IDLE_IS_MISSING),
    )
    for lacking, what in sentences:
        if lacking:
            numbers = listed(str(gpu.index) for gpu in lacking)
            percent = min(known_values(gpu.utilization_covered_percent for gpu in lacking))
            yield what.format(f"GPU{'s' * (len(lacking) > 1)} {numbers}", format_percent(percent))


def _gpu_memory_fields(record: Record, found: tuple[RunGpu, ...]) -> dict[str, Any]:
    """The verdict on the GPUs' memory, where a lack of it can be why the run failed."""
    if not may_lack_gpu_memory(record, [run_gpu.gpu for run_gpu in found]):
        return {}
    evidence = evidence_of_growth({run_gpu.gpu.uuid: run_gpu.at_limit for run_gpu in found})
    if evidence is None:
        return {}
    return {"likely_out_of_gpu_memory": True, "gpu_memory_evidence": evidence}

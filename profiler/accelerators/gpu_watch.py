"""Watches the GPUs beside the main loop, in a thread of its own.

A call into a driver that hangs cannot be cut short by anybody. Here it holds only this thread:
whoever asks waits for a bounded time and takes what was known before.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from profiler.accelerators.gpu_advice import WHOLE_INSTANCE
from profiler.accelerators.gpu_scope import GpuScope, resolve
from profiler.accelerators.gpu_silence import DriverHealth
from profiler.accelerators.gpu_usage import GpuReadings, GpuUsage
from profiler.clock import Clock, Ticker
from profiler.logs import Log
from profiler.record import Record
from profiler.sources import Unavailable
from profiler.sources.health import SourceHealth
from profiler.sources.nvml.readings import GpuReading
from profiler.sources.task_metadata import ContainerMetadata
from profiler.times import NS_PER_MS, NS_PER_SECOND

# Reading a GPU's energy takes 4 ms (H200, driver 580): at 10 s for each GPU that is 0.04 % of a core, however many.
COUNTER_PERIOD_NS = 10 * NS_PER_SECOND
# What a driver that is well answers in; opening it may take seconds, and nobody needs that at the end.
_RESPONSE_NS = 50 * NS_PER_MS
_REQUIREMENTS = (
    "on ECS the monitor needs NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility in its environment."
)
_NO_GPU_MATCHES = (
    "None of the GPUs that are visible here is the batch's: compare TASK_PROFILER_GPU_UUIDS, or the batch's "
    "NVIDIA_VISIBLE_DEVICES, with nvidia-smi -L."
)

# Hears of each reading: mean utilization in percent and bytes in use, over all GPUs.
GpuListener = Callable[[float | None, int | None], None]


class GpuSource(Protocol):
    """Reads all GPUs; called from one thread only."""

    @property
    def name(self) -> str:
        """The source's name in ``sampling.sources``."""
        ...

    @property
    def permanently_unavailable(self) -> bool:
        """Whether there is nothing to be read and never will be."""
        ...

    @property
    def is_driver_missing(self) -> bool:
        """Whether the last failure was that there is no driver: on most machines nothing to speak of."""
        ...

    def read(self, *, counters: bool) -> GpuReading | Unavailable:
        """The GPUs now; ``counters`` asks for the slow ones too."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...


class GpuCollector:
    """Reads a source on a fixed grid. ``is_required``: a GPU is expected, so its absence is worth a warning."""

    def __init__(
        self,
        source: GpuSource,
        scope: GpuScope,
        clock: Clock,
        log: Log,
        interval_ns: int,
        *,
        is_required: bool,
        listener: GpuListener | None = None,
    ) -> None:
        self.name = source.name
        self._source = source
        self._scope = scope
        self._clock = clock
        self._interval_ns = interval_ns
        self._is_required = is_required
        self._listener = listener
        self._usage = GpuUsage(interval_ns)
        self._driver_health = DriverHealth(clock)
        self._health = SourceHealth("NVML", log)
        self._log = log
        self._is_warned = False
        self._matches_none = False
        self._problem: str | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._first_reading_done = threading.Event()
        self._final_reading_done = threading.Event()
        self._stopping = False
        self._counters_due_ns = 0
        self._thread: threading.Thread | None = None
        self.child_pid: int | None = None  # the driver needs no process

    @property
    def has_data(self) -> bool:
        """Whether any GPU was read."""
        return self._usage.readings > 0

    def start(self) -> None:
        """Begin to watch; the driver is looked for in the thread."""
        self._thread = threading.Thread(target=self._run_thread, name="gpu", daemon=True)
        self._thread.start()

    @property
    def startup_error(self) -> str | None:
        """Why there is nothing although it was asked for."""
        return self._problem if self._is_required and not self.has_data else None

    def on_batch_started(self, container: ContainerMetadata) -> None:
        """See which GPUs the batch was given, as long as its processes can tell."""
        self._scope.discover(container)

    def final_reading(self, max_seconds: float) -> None:
        """One reading with all counters; skipped where there was nothing to read before, except for the first look."""
        if self._thread is None:
            return
        if not self.has_data:
            self._await_first_reading(max_seconds)
            return
        self._final_reading_done.clear()
        self._wake.set()
        self._driver_health.final_reading_done(in_time=self._final_reading_done.wait(max_seconds))

    def _await_first_reading(self, max_seconds: float) -> None:
        """A command can be over before the driver was looked for; only a GPU that was asked for is worth waiting."""
        if not self._is_required or self._problem is not None:
            return
        if not self._first_reading_done.wait(max_seconds):
            self._report_missing(
                "TASK_PROFILER_GPU=on, but no GPU was read: the driver had not answered when the run ended."
            )

    def stop(self, max_seconds: float) -> None:
        """End the thread; one that is stuck in the driver is left behind, and dies with the process."""
        if self._thread is None:
            return
        self._stopping = True
        self._wake.set()
        response_left_ns = max(_RESPONSE_NS - (self._driver_health.busy_ns() or 0), 0)
        first_seconds = min(response_left_ns / NS_PER_SECOND, max_seconds)
        self._thread.join(first_seconds)
        if self._driver_health.busy_ns() is None:
            self._thread.join(max_seconds - first_seconds)

    def add_to_record(self, record: Record) -> Record:
        """The record with ``gpus``; ``gpuScope`` where they are not known to be the batch's."""
        with self._lock:
            selection = resolve(self._scope.selection_for(record.container.name), self._usage.facts())
            gpus = self._usage.gpus(selection.selectors)
        self._matches_none = self.has_data and bool(selection.selectors) and not gpus
        if not gpus:
            return record
        return replace(record, gpus=gpus, gpu_scope=None if selection.is_known else WHOLE_INSTANCE)

    def latest(self) -> GpuReadings | None:
        """The GPUs at the last reading; None before the first."""
        with self._lock:
            selection = resolve(self._scope.selection_for_all(), self._usage.facts())
            gpus, readings = self._usage.latest(selection.selectors), self._usage.readings
        return GpuReadings(readings=readings, gpus=gpus, is_known=selection.is_known) if readings else None

    def warnings(self) -> tuple[str, ...]:
        """What the numbers lack and why."""
        with self._lock:
            notes = self._usage.notes()
        absence = None if self.has_data else self._problem
        mismatch = _NO_GPU_MATCHES if self._matches_none else None
        driver_warnings = self._driver_health.warnings() if absence is None else ()
        return (*notes, *(text for text in (absence, mismatch) if text is not None), *driver_warnings)

    def _run_thread(self) -> None:
        ticker = Ticker(self._clock.monotonic_ns(), self._interval_ns)
        while not self._stopping and not self._source.permanently_unavailable:
            is_final_reading = self._wake.is_set()
            self._wake.clear()
            self.tick(counters=is_final_reading)
            self._first_reading_done.set()
            if is_final_reading:
                self._final_reading_done.set()
            self._wake.wait(ticker.seconds_to_next(self._clock.monotonic_ns()))
        self._driver_health.call_started()
        self._source.close()
        self._driver_health.call_ended()
        self._first_reading_done.set()
        self._final_reading_done.set()

    def tick(self, *, counters: bool = False) -> None:
        """One reading; the slow counters are read every 10 s a GPU, or when ``counters`` asks for them."""
        now_ns = self._clock.monotonic_ns()
        with_counters = counters or now_ns >= self._counters_due_ns
        self._driver_health.call_started()
        reading = self._source.read(counters=with_counters)
        self._driver_health.call_ended()
        if isinstance(reading, Unavailable):
            self._failed(reading)
            return
        self._health.on_success()
        self._driver_health.on_success()
        if with_counters:
            self._counters_due_ns = now_ns + COUNTER_PERIOD_NS * max(len(reading.samples), 1)
        with self._lock:
            self._usage.add(reading, now_ns, self._clock.wall_ns())
            percent, memory_bytes = self._usage.latest_totals()
        if self._listener is not None:
            self._listener(percent, memory_bytes)

    def _failed(self, failure: Unavailable) -> None:
        """A GPU that was there before is missed aloud, one that was asked for once; else only the record says why."""
        if self.has_data:
            self._health.on_failure(failure)
            self._driver_health.on_failure(failure.reason)
            return
        if self._is_required:
            self._report_missing(f"TASK_PROFILER_GPU=on, but no GPU can be read ({failure.reason}): {_REQUIREMENTS}")
        elif not self._source.is_driver_missing:
            self._problem = f"There is a GPU that cannot be read: {failure.reason}."

    def _report_missing(self, problem: str) -> None:
        self._problem = problem
        if not self._is_warned:
            self._is_warned = True
            self._log.warning(problem)

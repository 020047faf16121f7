"""Watches the GPUs beside the main loop, in a thread of its own.

A call into a driver that hangs cannot be cut short by anybody. Here it holds only this thread:
whoever asks waits for a bounded time and takes what was known before.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from profiler.accelerators.gpu_advice import WHOLE_INSTANCE
from profiler.accelerators.gpu_scope import GpuScope, settled
from profiler.accelerators.gpu_silence import DriverSilence
from profiler.accelerators.gpu_usage import GpuReadings, GpuUsage
from profiler.clock import Clock, Grid
from profiler.logs import Log
from profiler.record import Record
from profiler.sources import Unavailable
from profiler.sources.health import Health
from profiler.sources.nvml.readings import GpuReading
from profiler.sources.task_metadata import ContainerMetadata
from profiler.times import NS_PER_MS, NS_PER_SECOND

# Reading a GPU's energy takes 4 ms (H200, driver 580): at 10 s for each GPU that is 0.04 % of a core, however many.
COUNTERS_NS = 10 * NS_PER_SECOND
# What a driver that is well answers in; opening it may take seconds, and nobody needs that at the end.
_ANSWERS_NS = 50 * NS_PER_MS
_WHAT_IT_NEEDS = (
    "on ECS the monitor needs NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility in its environment."
)
_MATCHES_NONE = (
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
    def hopeless(self) -> bool:
        """Whether there is nothing to be read and never will be."""
        ...

    @property
    def no_driver(self) -> bool:
        """Whether the last failure was that there is no driver: on most machines nothing to speak of."""
        ...

    def read(self, *, counters: bool) -> GpuReading | Unavailable:
        """The GPUs now; ``counters`` asks for the slow ones too."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...


class GpuWatch:
    """Reads a source on a fixed grid. ``asked_for``: a GPU is expected, so its absence is worth a warning."""

    def __init__(
        self,
        source: GpuSource,
        scope: GpuScope,
        clock: Clock,
        log: Log,
        interval_ns: int,
        *,
        asked_for: bool,
        listener: GpuListener | None = None,
    ) -> None:
        self.name = source.name
        self._source = source
        self._scope = scope
        self._clock = clock
        self._interval_ns = interval_ns
        self._asked_for = asked_for
        self._listener = listener
        self._usage = GpuUsage(interval_ns)
        self._silence = DriverSilence(clock)
        self._health = Health("NVML", log)
        self._log = log
        self._warned = False
        self._matches_none = False
        self._problem: str | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._looked = threading.Event()
        self._settled = threading.Event()
        self._ending = False
        self._counters_due_ns = 0
        self._thread: threading.Thread | None = None
        self.helper_pid: int | None = None  # the driver needs no process

    @property
    def has_read(self) -> bool:
        """Whether any GPU was read."""
        return self._usage.readings > 0

    def start(self) -> None:
        """Begin to watch; the driver is looked for in the thread."""
        self._thread = threading.Thread(target=self._work, name="gpu", daemon=True)
        self._thread.start()

    @property
    def complaint(self) -> str | None:
        """Why there is nothing although it was asked for."""
        return self._problem if self._asked_for and not self.has_read else None

    def batch_seen(self, container: ContainerMetadata) -> None:
        """See which GPUs the batch was given, as long as its processes can tell."""
        self._scope.look(container)

    def settle(self, at_most_seconds: float) -> None:
        """One reading with all counters; skipped where there was nothing to read before, except for the first look."""
        if self._thread is None:
            return
        if not self.has_read:
            self._await_first_look(at_most_seconds)
            return
        self._settled.clear()
        self._wake.set()
        self._silence.settled(in_time=self._settled.wait(at_most_seconds))

    def _await_first_look(self, at_most_seconds: float) -> None:
        """A command can be over before the driver was looked for; only a GPU that was asked for is worth waiting."""
        if not self._asked_for or self._problem is not None:
            return
        if not self._looked.wait(at_most_seconds):
            self._miss("TASK_PROFILER_GPU=on, but no GPU was read: the driver had not answered when the run ended.")

    def stop(self, at_most_seconds: float) -> None:
        """End the thread; one that is stuck in the driver is left behind, and dies with the process."""
        if self._thread is None:
            return
        self._ending = True
        self._wake.set()
        answers_in_ns = max(_ANSWERS_NS - (self._silence.busy_ns() or 0), 0)
        first_seconds = min(answers_in_ns / NS_PER_SECOND, at_most_seconds)
        self._thread.join(first_seconds)
        if self._silence.busy_ns() is None:
            self._thread.join(at_most_seconds - first_seconds)

    def onto(self, record: Record) -> Record:
        """The record with ``gpus``; ``gpuScope`` where they are not known to be the batch's."""
        with self._lock:
            choice = settled(self._scope.of(record.container.name), self._usage.facts())
            gpus = self._usage.gpus(choice.wanted)
        self._matches_none = self.has_read and bool(choice.wanted) and not gpus
        if not gpus:
            return record
        return replace(record, gpus=gpus, gpu_scope=None if choice.is_known else WHOLE_INSTANCE)

    def latest(self) -> GpuReadings | None:
        """The GPUs at the last reading; None before the first."""
        with self._lock:
            choice = settled(self._scope.of_all(), self._usage.facts())
            gpus, readings = self._usage.latest(choice.wanted), self._usage.readings
        return GpuReadings(readings=readings, gpus=gpus, is_known=choice.is_known) if readings else None

    def warnings(self) -> tuple[str, ...]:
        """What the numbers lack and why."""
        with self._lock:
            notes = self._usage.notes()
        absence = None if self.has_read else self._problem
        mismatch = _MATCHES_NONE if self._matches_none else None
        silence = self._silence.sentences() if absence is None else ()
        return (*notes, *(text for text in (absence, mismatch) if text is not None), *silence)

    def _work(self) -> None:
        grid = Grid(self._clock.monotonic_ns(), self._interval_ns)
        while not self._ending and not self._source.hopeless:
            is_asked = self._wake.is_set()
            self._wake.clear()
            self.tick(counters=is_asked)
            self._looked.set()
            if is_asked:
                self._settled.set()
            self._wake.wait(grid.seconds_to_next(self._clock.monotonic_ns()))
        self._silence.call_begins()
        self._source.close()
        self._silence.call_ended()
        self._looked.set()
        self._settled.set()

    def tick(self, *, counters: bool = False) -> None:
        """One reading; the slow counters are read every 10 s a GPU, or when ``counters`` asks for them."""
        now_ns = self._clock.monotonic_ns()
        with_counters = counters or now_ns >= self._counters_due_ns
        self._silence.call_begins()
        reading = self._source.read(counters=with_counters)
        self._silence.call_ended()
        if isinstance(reading, Unavailable):
            self._failed(reading)
            return
        self._health.worked()
        self._silence.worked()
        if with_counters:
            self._counters_due_ns = now_ns + COUNTERS_NS * max(len(reading.samples), 1)
        with self._lock:
            self._usage.add(reading, now_ns, self._clock.wall_ns())
            percent, memory_bytes = self._usage.now()
        if self._listener is not None:
            self._listener(percent, memory_bytes)

    def _failed(self, failure: Unavailable) -> None:
        """A GPU that was there before is missed aloud, one that was asked for once; else only the record says why."""
        if self.has_read:
            self._health.failed(failure)
            self._silence.failed(failure.reason)
            return
        if self._asked_for:
            self._miss(f"TASK_PROFILER_GPU=on, but no GPU can be read ({failure.reason}): {_WHAT_IT_NEEDS}")
        elif not self._source.no_driver:
            self._problem = f"There is a GPU that cannot be read: {failure.reason}."

    def _miss(self, problem: str) -> None:
        self._problem = problem
        if not self._warned:
            self._warned = True
            self._log.warning(problem)

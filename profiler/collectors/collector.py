"""What the monitor and ``run`` know of a collector: GPUs, Neuron devices or the batch's processes.

Each collector reads in a thread of its own (:mod:`profiler.collectors.collector`), so that a driver that hangs costs
only its own numbers. :class:`Collector` is what all collectors do. The other protocols are what some of them do in
addition; :class:`Collectors` lists who does what. A :class:`RecordContributor` adds to the records without collecting.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.time_series import DeviceReadings
from profiler.core.background import start_thread
from profiler.core.clock import Clock, Ticker
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.model import Record

if TYPE_CHECKING:
    from profiler.collectors.neuron.neuron_usage import NeuronReadings
    from profiler.collectors.nvidia.gpu_usage import GpuReadings


# A report waits at most this long for the last reading of each collector.
_FINAL_READING_SECONDS = 0.3
_STOP_SECONDS = 1.5
_MAX_REASON_CHARS = 200


class RecordContributor(Protocol):
    """Adds to the records of a batch."""

    def add_to_record(self, record: Record) -> Record:
        """Return the record with what is known so far: values, the name of the source, and warnings."""
        ...


class Collector(RecordContributor, Protocol):
    """Measures one kind of resource from ``start`` to ``stop``, and adds its numbers to the records."""

    def start(self) -> None:
        """Start measuring; returns at once."""
        ...

    def final_reading(self, max_seconds: float) -> None:
        """Take one last reading before a report is written, within ``max_seconds``."""
        ...

    def stop(self, max_seconds: float) -> None:
        """Stop measuring and end the collector's thread and child process, within ``max_seconds``."""
        ...


class BatchListener(Protocol):
    """A collector that reads something from the batch's running processes."""

    def on_batch_started(self, container: ContainerMetadata) -> None:
        """The batch container runs; called again as long as it does."""
        ...


class LiveReadings(Protocol):
    """A collector whose last reading is exported while it runs."""

    @property
    def name(self) -> str:
        """The source's name in ``sampling.sources``."""
        ...

    def latest(self) -> "GpuReadings | NeuronReadings | None":
        """Return the last reading; None before the first."""
        ...


class DeviceCollector(Protocol):
    """A collector of devices, for the time series and the intervals of the record."""

    def take_readings(self, into: DeviceReadings) -> None:
        """Add the readings of all the batch's devices since the last call."""
        ...


class RequirableCollector(Protocol):
    """A collector that the settings can require (``on``)."""

    @property
    def startup_error(self) -> str | None:
        """Why a required collector has no readings, as a sentence; None if it has some or is not required."""
        ...


class Collectors(Struct, frozen=True, kw_only=True):
    """The collectors of one run, and the protocols that each of them implements.

    ``child_pids`` return the child processes that collectors run for themselves: these are not part of what is
    measured.
    """

    all: tuple[Collector, ...] = ()
    batch_listeners: tuple[BatchListener, ...] = ()
    live: tuple[LiveReadings, ...] = ()
    devices: tuple[DeviceCollector, ...] = ()
    requirable: tuple[RequirableCollector, ...] = ()
    child_pids: tuple[Callable[[], int | None], ...] = ()


def start_collectors(collectors: Iterable[Collector]) -> None:
    """Start all collectors."""
    for collector in collectors:
        collector.start()


def final_readings(collectors: Iterable[Collector]) -> None:
    """Take one last reading of each collector before a report."""
    for collector in collectors:
        collector.final_reading(_FINAL_READING_SECONDS)


def take_readings(collectors: Iterable[DeviceCollector]) -> DeviceReadings:
    """Return the readings of all devices since the last call."""
    readings = DeviceReadings()
    for collector in collectors:
        collector.take_readings(readings)
    return readings


def stop_collectors(collectors: Iterable[Collector]) -> None:
    """Stop all collectors after the report."""
    for collector in collectors:
        collector.stop(_STOP_SECONDS)


def with_contributions(record: Record, contributors: Iterable[RecordContributor]) -> Record:
    """Return the record with the values, sources and warnings of all contributors, in their order."""
    for contributor in contributors:
        record = contributor.add_to_record(record)
    return record


def with_source(record: Record, name: str | None, warnings: Sequence[str] = ()) -> Record:
    """Return the record with one more source (None: the source had no data) and with its warnings."""
    if name is not None and record.sampling is not None:
        sources = (*record.sampling.sources, name)
        record = replace(record, sampling=replace(record.sampling, sources=sources))
    if warnings and record.monitor is not None:
        all_warnings = (*record.monitor.warnings, *warnings)
        record = replace(record, monitor=replace(record.monitor, warnings=all_warnings))
    return record


class ThreadFailure(Struct, frozen=True):
    """The error that ended a thread, and when (wall clock)."""

    at_ns: int
    reason: str

    def sentence(self, what: str) -> str:
        """A warning for the record; ``what`` the thread collected."""
        return (
            f"The collection of {what} stopped at {format_ms(self.at_ns)} because of an error in the profiler "
            f"({self.reason}): the values end there."
        )


class StoppableThread:
    """A daemon thread that is started once, asked to stop, and waited for until a deadline.

    ``failure`` is set when an error has ended the thread.

    Args:
        name: The thread's name.
        run: Runs in the thread and returns soon after ``is_stopping`` is True.
        wake: Cuts a wait of ``run`` short; called from other threads.
        clock: Stamps a failure.
    """

    def __init__(self, name: str, run: Callable[[], None], wake: Callable[[], None], clock: Clock) -> None:
        self._wake = wake
        self._run = run
        self._clock = clock
        self._thread = threading.Thread(target=self._run_to_end, name=name, daemon=True)
        self.is_started = False
        self.is_stopping = False
        self.failure: ThreadFailure | None = None

    def _run_to_end(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001  whatever it is, the other numbers go on and the record names it
            text = " ".join(f"{type(error).__name__}: {error}".split())
            self.failure = ThreadFailure(self._clock.wall_ns(), text[:_MAX_REASON_CHARS])

    def start(self) -> None:
        """Start the thread and return at once. Only the first call does anything, and only before a stop."""
        if not self.is_started and not self.is_stopping:
            self.is_started = True
            if not start_thread(self._thread):
                self.failure = ThreadFailure(self._clock.wall_ns(), "the system starts no further thread")

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return self._thread is threading.current_thread()

    def stop(self, max_seconds: float) -> bool:
        """Ask the thread to end and wait for it; returns True if it does not run any more. May be called again."""
        self.is_stopping = True
        if self.is_started:
            self._wake()
        if self._thread.is_alive():
            self._thread.join(max(max_seconds, 0))
        return not self._thread.is_alive()


class Waiter(Protocol):
    """A wait that another thread can cut short."""

    def wait(self, seconds: float) -> bool:
        """Wait until the time has passed, :meth:`wake` is called or an event occurs; returns True after an event."""
        ...

    def wake(self) -> None:
        """End the current wait, or the next one if there is none; called from other threads."""
        ...


class TimeWaiter:
    """A wait for time alone, without events."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wait(self, seconds: float) -> bool:
        """See :class:`Waiter`; always returns False."""
        self._event.wait(seconds)
        self._event.clear()
        return False

    def wake(self) -> None:
        """See :class:`Waiter`."""
        self._event.set()


class Read(Protocol):
    """Takes one reading."""

    def __call__(self, *, is_complete: bool) -> bool:
        """Take one reading; returns False if there is nothing to read and never will be."""
        ...


class PeriodicReader:
    """Takes readings in a thread on a fixed grid of the monotonic clock.

    A reading is complete (``is_complete=True``) if it was requested by :meth:`final_reading` or follows an event of
    the waiter. Other readings may skip what is expensive.

    Args:
        name: The thread's name.
        read: Takes one reading in the thread, which ends when the function returns False.
        close: Called in the thread as its last act.
        waiter: Waits between the readings.
        clock: Places the ticks.
        interval_ns: The distance of the ticks.
    """

    def __init__(
        self,
        name: str,
        read: Read,
        close: Callable[[], None],
        *,
        waiter: Waiter,
        clock: Clock,
        interval_ns: int,
    ) -> None:
        self._read = read
        self._close = close
        self._waiter = waiter
        self._clock = clock
        self._interval_ns = interval_ns
        self._thread = StoppableThread(name, self._run, waiter.wake, clock)
        self._is_final_requested = False
        self._has_ended = False
        self._first_done = threading.Event()
        self._final_done = threading.Event()

    @property
    def is_started(self) -> bool:
        """Whether :meth:`start` was called."""
        return self._thread.is_started

    @property
    def failure(self) -> ThreadFailure | None:
        """The error that ended the readings."""
        return self._thread.failure

    def start(self) -> None:
        """Start the thread and return at once."""
        self._thread.start()
        if self.failure is not None:
            self._end_waits()

    def wait_for_first_reading(self, max_seconds: float) -> bool:
        """Wait until one reading was taken or the thread has ended; returns False after the timeout."""
        return self._first_done.wait(max_seconds)

    def final_reading(self, max_seconds: float) -> bool:
        """Take one complete reading now and wait for it; returns False if it was not done in time.

        Returns True at once after the thread has ended: there is nothing to wait for.
        """
        self._final_done.clear()
        if self._has_ended:
            return True
        self._is_final_requested = True
        self._waiter.wake()
        return self._final_done.wait(max_seconds)

    def stop(self, max_seconds: float) -> bool:
        """End the thread and wait for it; returns True if it has ended. May be called again."""
        return self._thread.stop(max_seconds)

    def _run(self) -> None:
        with ExitStack() as at_end:
            at_end.callback(self._end_waits)
            at_end.callback(self._close)
            self._read_on_grid()

    def _end_waits(self) -> None:
        self._has_ended = True
        self._first_done.set()
        self._final_done.set()

    def _read_on_grid(self) -> None:
        ticker = Ticker(self._clock.monotonic_ns(), self._interval_ns)
        next_tick_ns, is_after_event = 0, False
        while not self._thread.is_stopping:
            is_final = self._is_final_requested
            if is_final:
                self._is_final_requested = False
            if not self._read(is_complete=is_final or is_after_event):
                break
            self._first_done.set()
            if is_final:
                self._final_done.set()
            now_ns = self._clock.monotonic_ns()
            if now_ns >= next_tick_ns:
                next_tick_ns = now_ns + round(ticker.seconds_to_next(now_ns) * NS_PER_SECOND)
            is_after_event = self._waiter.wait((next_tick_ns - now_ns) / NS_PER_SECOND)

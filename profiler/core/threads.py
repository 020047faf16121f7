"""Threads: readings on a grid, and the means to interrupt a wait.

All threads are daemon threads: one that hangs is abandoned. If the system starts no further thread,
for lack of memory or because a batch has used up the limit, a :class:`StoppableThread` fails.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from profiler.core.background_call import start_thread
from profiler.core.clock import Clock, Ticker
from profiler.core.timestamps import NEVER_NS, NS_PER_MS, NS_PER_SECOND, format_ms

_CLOSED = -1


class WakeEvent:
    """An event that interrupts a wait in another thread.

    ``descriptor`` is readable while the event is set, and -1 after the end. Any thread may set the
    event at any time: it may have ended with the thread that waits.
    """

    def __init__(self) -> None:
        import select  # most runs have no such event

        # Its number may be another file's after the end. A signal's handler may set the event while
        # its own thread has the lock.
        self._lock = threading.RLock()
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()  # select(2) fails for descriptors above 1023
        self._poll.register(self.descriptor, select.POLLIN)

    def fileno(self) -> int:
        return self.descriptor

    def close(self) -> None:
        """Close the descriptor, once. No thread may wait for it any more."""
        with self._lock:
            descriptor, self.descriptor = self.descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)

    def set(self) -> None:
        """End the wait in progress, or else the next one."""
        with self._lock:
            if self.descriptor != _CLOSED:
                os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        """Let the next wait last again."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def wait(self, seconds: float) -> None:
        """Wait until the timeout or until the event is set, and reset it."""
        if self._poll.poll(1000 * max(seconds, 0)):
            self.clear()


class ThreadFailure(Struct, frozen=True):
    """The error that ended a thread, and when (wall clock)."""

    at_ns: int
    reason: str

    def sentence(self, values: str) -> str:
        """A warning for the record; ``values`` are those that the thread collected."""
        return (
            f"The collection of {values} stopped at {format_ms(self.at_ns)} because of an error "
            f"in the profiler ({self.reason}): the values end there."
        )


def failure_warnings(failure: ThreadFailure | None, values: str) -> tuple[str, ...]:
    """A sentence if an error has ended the thread that collects the ``values``."""
    return () if failure is None else (failure.sentence(values),)


class StoppableThread:
    """A daemon thread, started once.

    ``run`` returns soon after ``is_stopping`` is True; ``wake`` ends a wait in it.
    """

    def __init__(
        self, name: str, run: Callable[[], None], wake: Callable[[], None], clock: Clock
    ) -> None:
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
        except Exception as error:  # noqa: BLE001  the other numbers go on; the record names it
            text = " ".join(f"{type(error).__name__}: {error}".split())
            self.failure = ThreadFailure(self._clock.wall_ns(), text[:200])

    def start(self) -> None:
        """Start the thread and return at once.

        Only the first call does anything, and only before a stop.
        """
        if not self.is_started and not self.is_stopping:
            self.is_started = True
            if not start_thread(self._thread):
                self.failure = ThreadFailure(
                    self._clock.wall_ns(), "the system starts no further thread"
                )

    def stop(self, max_seconds: float) -> bool:
        """Ask the thread to end and wait for it; returns True if it does not run any more.

        May be called again.
        """
        self.is_stopping = True
        if self.is_started:
            self._wake()
        if self._thread.is_alive():
            self._thread.join(max(max_seconds, 0))
        return not self._thread.is_alive()


class Waiter:
    """A wait for time alone. A subclass may also wait for events."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Wait until the time has passed, :meth:`wake` is called or an event occurs; returns
        True after an event.
        """
        self._event.wait(seconds)
        self._event.clear()
        return False

    def wake(self) -> None:
        """End the current wait, or else the next one; called from other threads."""
        self._event.set()


class PeriodicReadingThread(StoppableThread):
    """Takes readings in a thread on a fixed grid of the monotonic clock.

    A reading is complete (``is_complete=True``), and skips nothing expensive, if it was requested
    by :meth:`final_reading` or follows an event of the waiter. The thread ends when ``read``
    returns False. ``between`` does what is due between two readings, and returns when it is due
    again (monotonic, NEVER_NS without any).
    """

    def __init__(
        self,
        name: str,
        read: Callable[..., bool],
        close: Callable[[], None],
        *,
        waiter: Waiter,
        clock: Clock,
        interval_ns: int,
        between: Callable[[], float] = lambda: NEVER_NS,
    ) -> None:
        super().__init__(name, self._read_on_grid, waiter.wake, clock)
        self._between = between
        self._read = read
        self._close = close
        self._waiter = waiter
        self._interval_ns = interval_ns
        self._is_final_requested = False
        self._has_ended = False
        self._first_done = threading.Event()
        self._final_done = threading.Event()

    def start(self) -> None:
        super().start()
        if self.failure is not None:
            self._end_waits()

    def wait_for_first_reading(self, max_seconds: float) -> bool:
        """Wait until one reading was taken or the thread has ended; returns False after the
        timeout.
        """
        return self._first_done.wait(max_seconds)

    def final_reading(self, max_seconds: float) -> bool:
        """Take one complete reading now and wait for it; returns False if it was not done in
        time.
        """
        self._final_done.clear()
        if self._has_ended:
            return True
        self._is_final_requested = True
        self._waiter.wake()
        return self._final_done.wait(max_seconds)

    def _run_to_end(self) -> None:
        try:
            super()._run_to_end()
        finally:  # who waited finds the failure
            self._end_waits()

    def _end_waits(self) -> None:
        self._has_ended = True
        self._first_done.set()
        self._final_done.set()

    def _read_on_grid(self) -> None:
        try:
            ticker = Ticker(self._clock.monotonic_ns(), self._interval_ns)
            next_tick_ns = 0
            is_after_event = False
            while not self.is_stopping:
                is_final = self._is_final_requested
                if is_final:
                    self._is_final_requested = False
                if not self._read(is_complete=is_final or is_after_event):
                    break
                if not self._first_done.is_set():  # to set it costs as much as to read a small file
                    self._first_done.set()
                if is_final:
                    self._final_done.set()
                now_ns = self._clock.monotonic_ns()
                if now_ns >= next_tick_ns:
                    next_tick_ns = now_ns + round(ticker.seconds_to_next(now_ns) * NS_PER_SECOND)
                is_after_event = self._wait_until(next_tick_ns)
        finally:
            self._close()

    def _wait_until(self, tick_ns: int) -> bool:
        """Wait for the next reading; returns True if it follows an event."""
        while True:
            until_ns = min(self._between(), tick_ns)
            now_ns = self._clock.monotonic_ns()
            if self._waiter.wait((until_ns - now_ns) / NS_PER_SECOND):
                return True
            is_over = until_ns == tick_ns or self.is_stopping or self._is_final_requested
            # A wait that was shorter was ended by somebody who wants a reading.
            if is_over or self._clock.monotonic_ns() < until_ns - NS_PER_MS:
                return False

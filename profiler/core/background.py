"""Work in other threads: calls with a deadline, and the means to interrupt a wait.

:func:`run_with_timeout` starts a call and waits for it. :class:`BackgroundCall` starts a call and delivers its result
later. Both use daemon threads: a call that hangs is abandoned and does not keep the process alive. :class:`WakeEvent`
interrupts a wait for file descriptors from another thread.

The system may start no further thread, for lack of memory or because a batch has used up the limit. What has to be done
is then done in the caller's thread: see :func:`start_thread`.
"""

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from profiler.core.clock import Clock
from profiler.core.timestamps import NS_PER_SECOND

_T = TypeVar("_T")


def start_thread(thread: threading.Thread) -> bool:
    """Start a thread; returns False if the system starts no further one."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def run_with_timeout(seconds: float, function: Callable[[], _T]) -> _T | None:
    """Call ``function`` in a daemon thread and wait at most ``seconds`` for it.

    Returns:
        The function's result, or None if it took longer.

    Raises:
        BaseException: what the function raised in time.
    """
    results: list[_T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001  raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=work, name="call-with-timeout", daemon=True)
    if start_thread(thread):
        thread.join(max(seconds, 0))
    else:
        work()
    if errors:
        raise errors[0]
    return results[0] if results else None


class BackgroundCall(Generic[_T]):
    """A call in a daemon thread that starts at once; its result counts only within ``seconds`` of the start."""

    def __init__(self, function: Callable[[], _T | None], clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._deadline_ns = clock.monotonic_ns() + round(seconds * NS_PER_SECOND)
        self._results: list[_T | None] = []
        self._thread = threading.Thread(
            target=lambda: self._results.append(function()), name="background-call", daemon=True
        )
        if not start_thread(self._thread):
            self._results.append(function())

    @property
    def is_over(self) -> bool:
        """Whether the function has returned, or the deadline has passed."""
        return not self._thread.is_alive() or self._clock.monotonic_ns() >= self._deadline_ns

    def result(self) -> _T | None:
        """Wait until the deadline; returns the function's result, or None if there is none by then."""
        if self._thread.is_alive():
            left_ns = self._deadline_ns - self._clock.monotonic_ns()
            self._thread.join(max(left_ns, 0) / NS_PER_SECOND)
        return self.result_so_far()

    def result_so_far(self) -> _T | None:
        """Return the function's result without waiting; None while the function runs."""
        return self._results[0] if self._results else None


class WakeEvent:
    """An event that interrupts a wait in another thread. ``descriptor`` is readable while the event is set."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()  # select(2) fails for descriptors above 1023
        self._poll.register(self.descriptor, select.POLLIN)

    def close(self) -> None:
        """Close the descriptor. No thread may wait for it any more."""
        os.close(self.descriptor)

    def set(self) -> None:
        """End the wait in progress, or else the next one."""
        os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        """Reset the event, so that the next wait lasts."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def wait(self, seconds: float) -> None:
        """Wait until the timeout or until the event is set, and reset it."""
        if self._poll.poll(1000 * max(seconds, 0)):
            self.clear()

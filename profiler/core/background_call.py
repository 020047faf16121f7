"""Calls in threads, with a deadline.

All threads are daemon threads: one that hangs is abandoned. If the system starts no further thread,
for lack of memory or because a batch has used up the limit, a call is made in the caller's thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from profiler.core.clock import Clock
from profiler.core.timestamps import NS_PER_SECOND

_T = TypeVar("_T")
_LOOK_SECONDS = 0.05
_MIN_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 60.0


def start_thread(thread: threading.Thread) -> bool:
    """Start a thread; returns False if the system starts no further one."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def run_with_timeout(
    seconds: float,
    function: Callable[[], _T],
    *,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> _T | None:
    """The result of ``function`` in a daemon thread; None after ``seconds``, or if interrupted.

    Raises its errors.
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
        for _ in range(math.ceil(seconds / _LOOK_SECONDS)):
            if not thread.is_alive() or is_interrupted():
                break
            thread.join(_LOOK_SECONDS)
    else:
        work()
    if errors:
        raise errors[0]
    return results[0] if results else None


class NoCall(Generic[_T]):
    """A call that was not made: it has no result."""

    was_made = False

    @property
    def is_running(self) -> bool:
        """Whether there may be a result later."""
        return False

    def result(self) -> _T | None:
        """Wait until the deadline; returns the function's result, or None without a result by
        then.
        """
        return None

    def result_so_far(self) -> _T | None:
        """Return the function's result without waiting; None while the function runs."""
        return None


class BackgroundCall(NoCall[_T]):
    """A call in a daemon thread that starts at once; its result counts only within ``seconds``
    of the start.
    """

    was_made = True

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

    @property
    def is_running(self) -> bool:
        return not self._results

    def result(self) -> _T | None:
        if self._thread.is_alive():
            left_ns = self._deadline_ns - self._clock.monotonic_ns()
            self._thread.join(max(left_ns, 0) / NS_PER_SECOND)
        return self.result_so_far()

    def result_so_far(self) -> _T | None:
        return self._results[0] if self._results else None


class RepeatedCall(BackgroundCall[_T]):
    """A call that its thread repeats until there is a result, after pauses of a second to a minute.

    If the system starts no further thread, the call is made once.
    """

    def __init__(self, function: Callable[[], _T | None], clock: Clock, seconds: float) -> None:
        def repeat() -> _T | None:
            pause_seconds = _MIN_PAUSE_SECONDS
            result = function()
            while result is None and threading.current_thread() is self._thread:
                clock.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)
                result = function()
            return result

        super().__init__(repeat, clock, seconds)

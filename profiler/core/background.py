"""Calls in daemon threads that are bounded in time.

:func:`run_with_timeout` waits for one call. :class:`BackgroundCall` starts a call now and takes its result later. A
call that hangs is abandoned and cannot keep the process alive.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from profiler.core.clock import Clock
from profiler.core.timestamps import NS_PER_SECOND

_T = TypeVar("_T")


def run_with_timeout(seconds: float, function: Callable[[], _T]) -> _T | None:
    """The function's result, or None if it took longer.

    The function runs in a daemon thread: one that hangs is left behind and cannot keep the
    process alive. An exception of the function is raised here.
    """
    results: list[_T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001  handed to the caller, whatever it is
            errors.append(error)

    thread = threading.Thread(target=work, name="bounded-call", daemon=True)
    thread.start()
    thread.join(max(seconds, 0))
    if errors:
        raise errors[0]
    return results[0] if results else None


_Answer = TypeVar("_Answer")


class BackgroundCall(Generic[_Answer]):
    """Runs a function in a daemon thread; its answer counts only within ``seconds`` of the start."""

    def __init__(self, function: Callable[[], _Answer | None], clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._deadline_ns = clock.monotonic_ns() + round(seconds * NS_PER_SECOND)
        self._results: list[_Answer | None] = []
        self._thread = threading.Thread(target=lambda: self._results.append(function()), name="beside", daemon=True)
        self._thread.start()

    def result(self) -> _Answer | None:
        """What the function returned; None if it returned nothing in time."""
        left_ns = self._deadline_ns - self._clock.monotonic_ns()
        self._thread.join(max(left_ns, 0) / NS_PER_SECOND)
        return self._results[0] if self._results else None

"""Something asked for beside the main work: started at once, waited for only so long."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from profiler.clock import Clock
from profiler.times import NS_PER_SECOND

_T = TypeVar("_T")


class BackgroundCall(Generic[_T]):
    """Runs a function in a daemon thread; its answer counts only within ``seconds`` of the start."""

    def __init__(self, function: Callable[[], _T | None], clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._deadline_ns = clock.monotonic_ns() + round(seconds * NS_PER_SECOND)
        self._results: list[_T | None] = []
        self._thread = threading.Thread(target=lambda: self._results.append(function()), name="beside", daemon=True)
        self._thread.start()

    def result(self) -> _T | None:
        """What the function returned; None if it returned nothing in time."""
        left_ns = self._deadline_ns - self._clock.monotonic_ns()
        self._thread.join(max(left_ns, 0) / NS_PER_SECOND)
        return self._results[0] if self._results else None

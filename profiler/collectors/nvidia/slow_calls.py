"""How often a call of the driver is repeated that may be slow: others wait for its lock."""

from collections import deque

from profiler.core.timestamps import NS_PER_MS

# A call whose last times have a larger median is repeated after so many times the median.
_SLOW_NS = NS_PER_MS
_PAUSES = 2000
_TIMED_CALLS = 5


class SlowCall:
    """The last times of one call. A single slow one, as the first or one that waits for another
    program's call, changes nothing.
    """

    def __init__(self) -> None:
        self._took_ns: deque[int] = deque(maxlen=_TIMED_CALLS)
        self._due_ns = 0

    def is_due(self, now_ns: int) -> bool:
        return now_ns >= self._due_ns

    def add(self, began_ns: int, ended_ns: int) -> None:
        """Add a call."""
        self._took_ns.append(ended_ns - began_ns)
        usual_ns = sorted(self._took_ns)[len(self._took_ns) // 2]
        if usual_ns > _SLOW_NS and len(self._took_ns) == _TIMED_CALLS:
            self._due_ns = began_ns + _PAUSES * usual_ns

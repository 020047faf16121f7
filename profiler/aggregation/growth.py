"""Finds a quantity that grows towards its limit, in constant memory.

Growth is the rise of the lowest values over the last quarter of the run. The lowest values of a garbage collector's
sawtooth do not rise. The growth must continue in all parts of the last 15 minutes, and exceed all earlier values. A
step up, a plateau, and a quantity that was as high before do not count.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from math import inf, isfinite

from msgspec import Struct

from profiler.core.timestamps import NS_PER_SECOND

MIN_USED = 0.7
MINUTES_LEFT = 15.0
MIN_RUN_NS = 20 * 60 * NS_PER_SECOND
_NS_PER_MINUTE = 60 * NS_PER_SECOND
_STEPS = 128
_FIRST_STEP_NS = 10 * NS_PER_SECOND
_RECENT_STEP_NS = 15 * NS_PER_SECOND
_RECENT_STEPS = 60
_PARTS = 4
# Each part grows by at least this share of the mean growth of the parts.
_MIN_PART = 0.3
# How far above everything before the quarter the lowest recent value is, as a share of the size.
_NEW_HIGH = 0.01


class Growth(Struct, frozen=True):
    """The growth of the last quarter of the run, which began at ``since_ns``."""

    since_ns: int
    used: float
    size: float
    per_minute: float
    minutes_left: float


class GrowthToLimit:
    """Follows one quantity from the start of the run on."""

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self._step_ns = _FIRST_STEP_NS
        self._lows = array("d")
        self._highs = array("d")
        self._recent: deque[tuple[int, float]] = deque(maxlen=_RECENT_STEPS)
        self._next_check_ns = started_ns + MIN_RUN_NS

    def add(self, at_ns: int, used: float, size: float | None) -> Growth | None:
        """Add a reading; returns the growth if it reaches the size soon."""
        index = max(at_ns - self._started_ns, 0) // self._step_ns
        while index >= _STEPS:  # merge the steps in pairs
            self._step_ns *= 2
            for values, pick in ((self._lows, min), (self._highs, max)):
                values[:] = array("d", [pick(values[place : place + 2]) for place in range(0, len(values), 2)])
            index = max(at_ns - self._started_ns, 0) // self._step_ns
        lows, highs = self._lows, self._highs
        if index >= len(lows):
            lows.extend((inf,) * (index + 1 - len(lows)))
            highs.extend((-inf,) * (index + 1 - len(highs)))
        lows[index] = min(lows[index], used)
        highs[index] = max(highs[index], used)
        step = at_ns // _RECENT_STEP_NS
        if not self._recent or self._recent[-1][0] != step:
            self._recent.append((step, used))
        elif used < self._recent[-1][1]:
            self._recent[-1] = (step, used)
        if not size or used < MIN_USED * size or at_ns < self._next_check_ns:
            return None
        self._next_check_ns = at_ns + _RECENT_STEP_NS
        return self._find(at_ns, used, size)

    def _find(self, at_ns: int, used: float, size: float) -> Growth | None:
        quarter_ns = (at_ns - self._started_ns) // 4
        first = len(self._lows) - max(round(quarter_ns / self._step_ns), _PARTS)
        since_ns = self._started_ns + first * self._step_ns
        last = at_ns // _RECENT_STEP_NS
        recent_count = min(_RECENT_STEPS, quarter_ns // _RECENT_STEP_NS)
        recent_first = last + 1 - recent_count
        recent = dict(self._recent)
        values = [recent.get(step, inf) for step in range(recent_first, last + 1)]
        bounds = [part * len(values) // _PARTS for part in range(_PARTS + 1)]
        recent_lows = [min(values[first:end], default=inf) for first, end in pairwise(bounds)]
        rise_ns = at_ns - since_ns - recent_count * _RECENT_STEP_NS // _PARTS  # up to the last part
        per_minute = min(
            (recent_lows[-1] - min(self._lows[first:])) * _NS_PER_MINUTE / rise_ns,
            _growth((*recent_lows, used), at_ns - recent_first * _RECENT_STEP_NS),
        )
        before = max(self._highs[:first])
        if per_minute <= 0 or not isfinite(before) or recent_lows[-1] < before + _NEW_HIGH * size:
            return None
        minutes_left = max(size - used, 0) / per_minute
        if minutes_left > MINUTES_LEFT:
            return None
        return Growth(since_ns, used, size, per_minute, minutes_left)


def _growth(levels: Sequence[float], length_ns: int) -> float:
    """The growth per minute over the levels of the parts' starts and the end; 0 if a part shrinks or is unknown."""
    if not all(map(isfinite, levels)):
        return 0
    steps = [after - before for before, after in pairwise(levels)]
    mean = sum(steps) / len(steps)
    return sum(steps) * _NS_PER_MINUTE / length_ns if mean > 0 and min(steps) >= _MIN_PART * mean else 0

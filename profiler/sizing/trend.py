"""Whether a quantity grows from run to run, and how fast. Pure.

The slope is the median of the slopes between all pairs of runs (Theil, 1950; Sen, JASA 63, 1968),
which a few odd runs do not move; growth counts when most pairs agree (Kendall's tau).
"""

from collections.abc import Sequence
from itertools import combinations

from msgspec import Struct

_MIN_RUNS = 8
_MIN_TAU = 0.5
_MIN_GROWTH = 0.05
# All pairs of these; older runs say less about where it goes.
_MAX_RUNS = 200


class Growth(Struct, frozen=True, kw_only=True):
    """So much more with each run; ``now`` is where the line is at the last one."""

    per_run: float
    now: float

    def runs_until(self, limit: float) -> int | None:
        """After how many more runs the limit is passed; None if it is passed already."""
        return None if self.now > limit else int((limit - self.now) // self.per_run) + 1


def growth(values: Sequence[float]) -> Growth | None:
    """The growth over runs in the order of time; None if there is none that can be told from chance."""
    recent = values[-_MAX_RUNS:]
    count = len(recent)
    if count < _MIN_RUNS:
        return None
    pairs = list(combinations(range(count), 2))
    rising = sum(1 for a, b in pairs if recent[b] > recent[a])
    falling = sum(1 for a, b in pairs if recent[b] < recent[a])
    if (rising - falling) / len(pairs) < _MIN_TAU:
        return None
    slope = _median([(recent[b] - recent[a]) / (b - a) for a, b in pairs])
    level = _median([value - slope * place for place, value in enumerate(recent)])
    now = level + slope * (count - 1)
    if slope <= 0 or slope * (count - 1) < _MIN_GROWTH * now:
        return None
    return Growth(per_run=slope, now=now)


def _median(values: Sequence[float]) -> float:
    """Without the statistics module, which costs the monitor a megabyte."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

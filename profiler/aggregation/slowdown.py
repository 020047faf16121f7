"""How much longer the same work would have taken with fewer vCPUs, from the vCPUs that it used over time.

The formulas are those of docs/right-size.md. They give two bounds: ``min`` for work that is spread evenly within each
step, ``max`` for work that comes in bursts and does not overlap with waiting.
"""

import math
from collections.abc import Mapping

from msgspec import Struct

# The sizes, in vCPU, for which the record gives bounds: those of Fargate.
VCPU_SIZES = (0.25, 0.5, 1, 2, 4, 8, 16)
# A task uses all of a size from this share of it on, and exceeds it above the inverse margin.
_REACHED = 0.95
_EXCEEDED = 1.05
# A level of parallelism counts if it was reached for this share of the time.
_MIN_TIME_SHARE = 0.05
# A slowdown up to this factor counts as none.
_NO_SLOWDOWN = 1.001
_DIGITS = 3
# More levels of parallelism than any machine has; what is above counts as the highest.
_MAX_LEVEL = 4096


class SlowdownBounds(Struct, frozen=True, kw_only=True):
    """The factor by which the time would have grown: at least ``min``, at most ``max``."""

    min: float
    max: float


class CpuDemand:
    """Aggregates of the vCPUs that a task used, of constant size.

    A step is the vCPUs in use by all containers of the task, and how long.
    """

    def __init__(self) -> None:
        self._time_ns = 0
        self._cpu_ns = 0.0
        self._saturated_ns = 0
        self._has_size = False
        self._stretched_ns = dict.fromkeys(VCPU_SIZES, 0.0)
        self._max_vcpu = 0.0
        self._level_ns: dict[int, int] = {}

    def add(self, vcpu_used: float, held_ns: int, *, vcpu_size: float | None) -> None:
        """Count ``vcpu_used`` (0 or more) for ``held_ns`` nanoseconds, in a task of ``vcpu_size``."""
        if held_ns <= 0:
            return
        self._time_ns += held_ns
        self._cpu_ns += vcpu_used * held_ns
        self._max_vcpu = max(self._max_vcpu, vcpu_used)
        if vcpu_size:
            self._has_size = True
            self._saturated_ns += held_ns if vcpu_used >= _REACHED * vcpu_size else 0
        for size in VCPU_SIZES:
            self._stretched_ns[size] += held_ns * max(1.0, vcpu_used / size)
        level = min(int(vcpu_used / _REACHED), _MAX_LEVEL)
        self._level_ns[level] = self._level_ns.get(level, 0) + held_ns

    @property
    def saturated_percent(self) -> float | None:
        """The share of the time in which the task used at least 95 % of its vCPUs; None if the size is unknown."""
        if not self._time_ns or not self._has_size:
            return None
        return 100 * self._saturated_ns / self._time_ns

    def slowdown(self, *, vcpu_size: float | None, max_threads: int | None) -> Mapping[float, SlowdownBounds] | None:
        """The bounds for each size that would have been slower; None if no CPU was measured.

        Args:
            vcpu_size: The task's size, the most that it could use; None if unknown.
            max_threads: The most threads that were seen in the task; None if unknown.
        """
        if not self._time_ns:
            return None
        parallelism = self._parallelism(vcpu_size, max_threads)
        mean_vcpu = self._cpu_ns / self._time_ns
        bounds = {}
        for size in VCPU_SIZES:
            least = self._stretched_ns[size] / self._time_ns
            most = least
            if size < parallelism:
                most = max(least, 1 + mean_vcpu * (1 / size - 1 / parallelism))
            if most > _NO_SLOWDOWN:
                bounds[size] = SlowdownBounds(min=round(least, _DIGITS), max=round(most, _DIGITS))
        return bounds

    def _parallelism(self, vcpu_size: float | None, max_threads: int | None) -> float:
        """The number of vCPUs that the task used when it computed: p of the formulas."""
        limits = [float(limit) for limit in (vcpu_size, max_threads) if limit]
        level = self._sustained_level()
        wanted = float(level) if level is not None else (vcpu_size or max(self._max_vcpu, 1.0))
        return min([wanted, *limits])

    def _sustained_level(self) -> int | None:
        """The smallest whole number that was never exceeded, if it was reached for 5 % of the time.

        A larger number was reached for less time, so none qualifies if this one does not.
        """
        level = max(1, math.ceil(self._max_vcpu / _EXCEEDED))
        reached_ns = sum(held_ns for reached, held_ns in self._level_ns.items() if reached >= level)
        return level if reached_ns >= _MIN_TIME_SHARE * self._time_ns else None

"""How much longer the same work would have taken with fewer vCPUs: docs/measured-values.md has the
formulas of both bounds.
"""

import math
from collections.abc import Mapping

from profiler.core.ecs_terms import VCPU_SIZES
from profiler.record.mention_limits import SATURATED_SHARE
from profiler.record.record_model import SlowdownBounds

# A task uses all of a size from SATURATED_SHARE of it on, and exceeds it above the inverse margin.
_EXCEEDED = 1.05
# A level of parallelism counts if it was reached for this share of the time.
_MIN_TIME_SHARE = 0.05
# A slowdown up to this factor counts as none.
_NO_SLOWDOWN = 1.001
_DIGITS = 3


class CpuDemand:
    """The vCPUs that all containers of a task used, in constant memory, and how often they
    filled each size.
    """

    def __init__(self, vcpu_size: float | None = None) -> None:
        self._time_ns = 0
        self._cpu_ns = 0.0
        # In ascending order. The sizes of Fargate are always followed, so that the task's size can
        # also be found later.
        sizes = {*VCPU_SIZES, vcpu_size or VCPU_SIZES[0]}
        self._saturated_ns: dict[float, int] = dict.fromkeys(sorted(sizes), 0)
        # By how much each step would have been longer.
        self._longer_ns = dict.fromkeys(VCPU_SIZES, 0.0)
        self._max_vcpu = 0.0
        self._level_ns: dict[int, int] = {}

    def add_step(self, vcpu_used: float, held_ns: int) -> None:
        """Add a step: the vCPUs that all containers of the task used in it."""
        if held_ns <= 0:
            return
        self._time_ns += held_ns
        self._cpu_ns += vcpu_used * held_ns
        self._max_vcpu = max(self._max_vcpu, vcpu_used)
        for size in self._saturated_ns:
            if vcpu_used < SATURATED_SHARE * size:
                break
            self._saturated_ns[size] += held_ns
        for size in VCPU_SIZES:
            if vcpu_used <= size:
                break
            self._longer_ns[size] += held_ns * (vcpu_used / size - 1)
        level = int(vcpu_used / SATURATED_SHARE)
        self._level_ns[level] = self._level_ns.get(level, 0) + held_ns

    def saturated_percent(self, vcpu_size: float | None) -> float | None:
        """The share of the time with 95 % of the vCPUs in use; None if unknown, and for a size
        not followed.
        """
        saturated_ns = self._saturated_ns.get(vcpu_size) if vcpu_size else None
        if not self._time_ns or saturated_ns is None:
            return None
        return round(100 * saturated_ns / self._time_ns, _DIGITS)

    def slowdown_by_vcpu(
        self, *, vcpu_size: float | None, max_threads: int | None
    ) -> Mapping[float, SlowdownBounds] | None:
        """The bounds for each size that would have been slower than the task's; None if no CPU
        was measured.
        """
        if not self._time_ns:
            return None
        # The number of vCPUs that the task used when it computed, p of the formulas: the smallest
        # whole number that was never exceeded, if that was reached for 5 % of the time. A larger
        # number was reached for less time, so none qualifies if this one does not.
        level = max(1, math.ceil(self._max_vcpu / _EXCEEDED))
        reached_ns = sum(held_ns for reached, held_ns in self._level_ns.items() if reached >= level)
        parallelism = vcpu_size or max(self._max_vcpu, 1.0)
        if reached_ns >= _MIN_TIME_SHARE * self._time_ns:
            parallelism = float(level)
        for limit in (vcpu_size, max_threads):
            if limit:
                parallelism = min(parallelism, float(limit))
        mean_vcpu = self._cpu_ns / self._time_ns
        bounds = {}
        for size in VCPU_SIZES:
            least = 1 + self._longer_ns[size] / self._time_ns
            if size < parallelism:
                most = max(least, 1 + mean_vcpu * (1 / size - 1 / parallelism))
            else:
                most = least
            if most > _NO_SLOWDOWN:
                bounds[size] = SlowdownBounds(min=round(least, _DIGITS), max=round(most, _DIGITS))
        return bounds

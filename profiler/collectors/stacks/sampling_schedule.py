"""When to take samples: the contract's rates as upper bounds, stretched so that the CPU time stays within a budget."""

from profiler.core.timestamps import NS_PER_SECOND
from profiler.settings import StacksMode

FAST_NS = NS_PER_SECOND
SLOW_NS = 10 * NS_PER_SECOND
_FIRST_NS = NS_PER_SECOND // 5  # until then, an interpreter is still starting
_FAST_AT_START_NS = 60 * NS_PER_SECOND
# Of one core: all samples of a run, from this duration on.
_MAX_SHARE = 0.003
_MIN_RUN_NS = 600 * NS_PER_SECOND
# Of one core, while samples are taken at the fast and at the slow rate. This leaves some of the budget for moments.
_FAST_SHARE, _SLOW_SHARE = 0.018, 0.001


class SamplingSchedule:
    """Decides when the next sample is due. All times are of the monotonic clock."""

    def __init__(self, mode: StacksMode, started_ns: int) -> None:
        self._is_always_on = mode == "on"
        self._started_ns = started_ns
        self._last_ns: int | None = None
        self._last_cost_ns = 0
        self.spent_ns = 0

    def next_ns(self, now_ns: int, *, is_moment: bool) -> int | None:
        """When the next sample is due, which may be in the past; None: only in a moment."""
        if not (is_moment or self._is_always_on):
            return None
        if self._last_ns is None:
            return self._started_ns + _FIRST_NS
        is_fast = is_moment or now_ns - self._started_ns < _FAST_AT_START_NS
        period_ns, share = (FAST_NS, _FAST_SHARE) if is_fast else (SLOW_NS, _SLOW_SHARE)
        due_ns = self._last_ns + max(period_ns, round(self._last_cost_ns / share))
        return max(due_ns, self._affordable_ns())

    def add(self, at_ns: int, cost_ns: int) -> None:
        """A sample was taken at a time, for this CPU time."""
        self._last_ns = at_ns
        self._last_cost_ns = cost_ns
        self.spent_ns += cost_ns

    def _affordable_ns(self) -> int:
        """When the budget has room for one more sample like the last one."""
        needed_ns = self.spent_ns + self._last_cost_ns
        if needed_ns <= _MAX_SHARE * _MIN_RUN_NS:
            return self._started_ns
        return self._started_ns + round(needed_ns / _MAX_SHARE)

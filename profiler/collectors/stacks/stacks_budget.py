"""The CPU time that the call stacks of a run may take: on average a share of one core, over ten
minutes at least.
"""

from msgspec import Struct

from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND

_MAX_SHARE = 0.003
_MIN_RUN_NS = 600 * NS_PER_SECOND
# What no sample shows: other threads load the modules at the start, look for moments, and write the
# stacks at the end.
_OTHERS_NS = 200 * NS_PER_MS
# On a busy machine, a sample may take this many times the CPU time that was expected.
_MAX_TIMES = 2


class StacksBudget(Struct):
    """The budget of a run that began at ``_started_ns`` (monotonic). So far the samples have taken
    ``spent_ns``, with the programs that take them; the last one took ``last_cost_ns``, 0 if it was
    the first: it includes the start of these programs, and says nothing of the next.
    """

    _started_ns: int
    spent_ns: int = 0
    last_cost_ns: int = 0

    def set_spent(self, spent_ns: int) -> None:
        """Note what was spent until after a sample."""
        self.last_cost_ns = spent_ns - self.spent_ns if self.spent_ns else 0
        self.spent_ns = spent_ns

    @property
    def is_half_spent(self) -> bool:
        """Whether half of what a run of ten minutes may take is spent."""
        return 2 * self.spent_ns > _MAX_SHARE * _MIN_RUN_NS

    def affordable_ns(self, cost_ns: int) -> int:
        """From when on there is enough for a sample that is expected to take this CPU time."""
        needed_ns = _OTHERS_NS + self.spent_ns + _MAX_TIMES * cost_ns
        if needed_ns <= _MAX_SHARE * _MIN_RUN_NS:
            return self._started_ns
        return self._started_ns + round(needed_ns / _MAX_SHARE)

    def share_left(self, now_ns: int) -> float:
        """The share of a core that the samples may take from now on: until ten minutes are over,
        what is left of the budget lasts, so that the end has samples as the begin has.
        """
        left_ns = _MIN_RUN_NS - (now_ns - self._started_ns)
        if left_ns <= 0:
            return _MAX_SHARE
        unspent_ns = _MAX_SHARE * _MIN_RUN_NS - _OTHERS_NS - self.spent_ns
        return min(max(unspent_ns, 0) / left_ns, _MAX_SHARE)

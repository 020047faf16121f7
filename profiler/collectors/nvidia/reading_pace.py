"""How often the driver is asked: a call less often if it is slow, as others wait for its lock, the
processes between two ticks within a budget of CPU time, and what failed after growing pauses.
"""

from collections import deque
from collections.abc import Callable

from profiler.core.clock import Clock, CpuBudget
from profiler.core.timestamps import NEVER_NS, NS_PER_MS, NS_PER_SECOND

# A call whose last times have a median above _SLOW_NS is repeated after _PAUSES times that median.
_SLOW_NS = NS_PER_MS
_PAUSES = 2000
_TIMED_CALLS = 5
# The processes and their memory are read ten times a second as long as that costs less than this
# share of a core, after 50 ms of CPU time at the start.
_PERIOD_NS = 100 * NS_PER_MS
_SHARE = 0.0004
_ADVANCE_NS = 150 * NS_PER_MS  # a third of it at the start
_MAX_DEBT_NS = 125 * NS_PER_SECOND  # 50 ms of CPU time
_MAX_RETRY_PAUSE_NS = 30 * NS_PER_SECOND


class SlowCall:
    """The last times of one call. A single slow one, as the first or one that waits for another
    program's call, changes nothing.
    """

    def __init__(self) -> None:
        self._took_ns: deque[int] = deque(maxlen=_TIMED_CALLS)
        self._due_ns = 0

    def is_due(self, now_ns: int) -> bool:
        return now_ns >= self._due_ns

    def add_call(self, began_ns: int, ended_ns: int) -> None:
        """Add a call."""
        self._took_ns.append(ended_ns - began_ns)
        usual_ns = sorted(self._took_ns)[len(self._took_ns) // 2]
        if usual_ns > _SLOW_NS and len(self._took_ns) == _TIMED_CALLS:
            self._due_ns = began_ns + _PAUSES * usual_ns


class RetryPauses:
    """When something is tried again. Each pause is twice the one before, at most half a minute. The
    first one after trouble is short, unless there was trouble within the last half minute, too.
    """

    def __init__(self, first_ns: int = 0) -> None:
        self._first_ns = first_ns
        self._pause_ns = _MAX_RETRY_PAUSE_NS
        self._due_ns = 0
        self._steady_ns = 0  # from then on, there was no trouble for long

    def is_due(self, now_ns: int) -> bool:
        return now_ns >= self._due_ns

    def wait_longest(self, now_ns: int) -> None:
        """Try again after the longest pause."""
        self._due_ns = now_ns + _MAX_RETRY_PAUSE_NS

    def wait_longer(self, now_ns: int) -> None:
        """Try again after a pause twice as long as the one before."""
        longer_ns = max(2 * self._pause_ns, NS_PER_SECOND)  # also after none at all
        self._pause_ns = min(longer_ns, _MAX_RETRY_PAUSE_NS)
        self._due_ns = now_ns + self._pause_ns

    def wait_after_trouble(self, now_ns: int, *, is_longer_each_time: bool) -> None:
        """Try again after the first pause; if trouble comes again and again, after the pause of the
        last time, or a longer one.
        """
        if now_ns >= self._steady_ns:
            self._pause_ns = self._first_ns
            self._due_ns = now_ns + self._pause_ns
        elif is_longer_each_time:
            self.wait_longer(now_ns)
        else:
            self._due_ns = now_ns + self._pause_ns
        self._steady_ns = self._due_ns + _MAX_RETRY_PAUSE_NS


class QuickReadings:
    """When the processes are read. While their memory changes, the budget may be overdrawn by 50 ms
    of CPU time.

    The cost is the CPU time of the thread, the wake included: ``cpu_ns`` returns it.
    """

    def __init__(
        self,
        read: Callable[[], None],
        clock: Clock,
        cpu_ns: Callable[[], int],
        is_changing: Callable[[], bool],
    ) -> None:
        self._read = read
        self._clock = clock
        self._cpu_ns = cpu_ns
        self._is_changing = is_changing
        self._budget = CpuBudget(_SHARE, _ADVANCE_NS)
        self._before_ns: int | None = None
        self._due_ns = NEVER_NS

    def read_due(self) -> int:
        """Read if a reading is due; returns when the next one is."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._due_ns:
            self.read()
        due_ns = self.next_ns(self._clock.monotonic_ns())
        self._due_ns = due_ns
        return due_ns

    def next_ns(self, now_ns: int) -> int:
        """When the next reading is due, after a reading that ends now."""
        self._before_ns = self._cpu_ns()
        next_ns = now_ns + _PERIOD_NS
        due_ns = self._budget.next_ns(next_ns)
        if self._is_changing():
            return max(next_ns, due_ns - _MAX_DEBT_NS)
        return due_ns

    def read(self) -> None:
        now_ns = self._clock.monotonic_ns()
        before_ns = self._before_ns
        self._read()
        if before_ns is not None:
            debt_ns = round(_SHARE * (self._budget.next_ns(now_ns) - now_ns))
            self._budget.add_cost(self._cpu_ns() - before_ns + debt_ns, now_ns)

"""When a command is sampled: at each tick of the interval, and in between as long as that is fine and cheap.

The steps are 20 ms in the first 2 s, then 1 % of the time that has passed, until they are as long as the interval. A
step is longer if the profiler has used more of a CPU than its share; then only quick readings continue. The ticks are
always sampled, at any cost.
"""

from typing import Literal

from profiler.core.clock import Ticker
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND

# A "quick" reading has only the memory and the CPU time. A "full" one has all values that a tick reads.
Reading = Literal["quick", "full", "tick"]

FINEST_NS = 20 * NS_PER_MS
_FINEST_FULL_NS = 250 * NS_PER_MS
# A step is at most this fraction of the time that has passed.
_STEP_DIVISOR, _FULL_STEP_DIVISOR = 100, 8
# The share of a core, in percent, and the CPU time that may be used in advance. A thread that writes down the run so
# far adds up to 1 ms a second, and the end of a run with 20 processes 1 to 2 ms: together they are 1 % of the first 3
# s.
_CPU_PERCENT, _ADVANCE_NS = 0.7, 3 * NS_PER_MS
# The share for quick readings after the profiler has exceeded its own: a long pause would miss short spikes.
_QUICK_PERCENT = 0.15


class SamplingPace:
    """Determines the time and the kind of each reading of one run.

    ``started_ns`` is the start of the command (monotonic), ``cpu_ns`` the CPU time that the sampling thread had used.
    """

    def __init__(self, started_ns: int, interval_ns: int, cpu_ns: int) -> None:
        self._started_ns = started_ns
        self._interval_ns = interval_ns
        self._cpu_ns = cpu_ns
        self._ticker = Ticker(started_ns, interval_ns)
        self._tick_ns: int | None = None
        self._full_ns = started_ns
        self._affordable_ns = started_ns
        self._before_quick_ns: int | None = None
        self._quick_step_ns: int | None = None

    @property
    def missed(self) -> int:
        """How many ticks passed while the profiler was busy."""
        return self._ticker.missed

    def leave_out(self, cpu_ns: int) -> None:
        """Count CPU time as part of the start-up: modules that are imported with the first readings."""
        self._cpu_ns += cpu_ns

    def next_ns(self, now_ns: int, cpu_ns: int) -> int:
        """The time of the next reading; ``cpu_ns`` is the CPU time that the sampling thread has used so far."""
        if self._tick_ns is None:
            self._tick_ns = now_ns + round(self._ticker.seconds_to_next(now_ns) * NS_PER_SECOND)
        step_ns = max(FINEST_NS, (now_ns - self._started_ns) // _STEP_DIVISOR)
        if self._before_quick_ns is not None:
            quick_step_ns = round((cpu_ns - self._before_quick_ns) * 100 / _QUICK_PERCENT)
            # A new process costs more, once.
            self._quick_step_ns = min(quick_step_ns, self._quick_step_ns or quick_step_ns)
        self._before_quick_ns = cpu_ns
        self._affordable_ns = self._started_ns + round((cpu_ns - self._cpu_ns - _ADVANCE_NS) * 100 / _CPU_PERCENT)
        due_ns = max(now_ns + step_ns, self._affordable_ns)
        if self._quick_step_ns is not None:
            due_ns = min(due_ns, now_ns + max(step_ns, self._quick_step_ns))
        # Just before a tick, a reading adds nothing to it.
        return due_ns if due_ns + step_ns // 2 < self._tick_ns else self._tick_ns

    def begin(self, now_ns: int) -> Reading:
        """The kind of the reading that is due now."""
        is_tick = self._tick_ns is not None and now_ns >= self._tick_ns
        full_step_ns = max(_FINEST_FULL_NS, (now_ns - self._started_ns) // _FULL_STEP_DIVISOR)
        if not is_tick and (now_ns - self._full_ns < full_step_ns or now_ns < self._affordable_ns):
            return "quick"
        self._full_ns, self._before_quick_ns = now_ns, None
        if not is_tick:
            return "full"
        self._tick_ns = None
        return "tick"

"""When the next reading of a run is due, and what it reads."""

from typing import Literal

from profiler.core.clock import Ticker
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND

# A "quick" reading has only the memory and the CPU time. A "full" one has all values that a tick
# reads.
Reading = Literal["quick", "full", "tick"]
FINEST_NS = 20 * NS_PER_MS
_FINEST_FULL_NS = 250 * NS_PER_MS
# A step is at most this fraction of the time that has passed.
_STEP_DIVISOR = 100
_FULL_STEP_DIVISOR = 8
# The share of a core, in percent, and the CPU time that may be used in advance. A thread that
# writes down the run so far adds up to 1 ms a second, and the end of a run with 20 processes 1 to 2
# ms: together they are 1 % of the first 3 s.
_CPU_PERCENT = 0.7
_ADVANCE_NS = 3 * NS_PER_MS
# The share for quick readings after the profiler has exceeded its own: a long pause would miss
# short spikes.
_QUICK_PERCENT = 0.15
# What ticks may use of the share in advance, and their share for a shorter interval: the user asked
# for more.
_FINE_TICK_PERCENT = 2.2
_USUAL_INTERVAL_NS = NS_PER_SECOND
_TICK_ADVANCE_NS = 30 * NS_PER_MS


class SamplingPace:
    """Determines the time and the kind of each reading of one run: each tick, and in between if
    that is fine and cheap.

    The steps are 20 ms in the first 2 s, then 1 % of the time that has passed, until they are as
    long as the interval. A step is longer if the profiler has used more of a CPU than its share;
    then only quick readings continue. Ticks may use more of the share in advance, beyond which they
    are left out (``missed_ticks``). ``cpu_ns``: the thread's CPU time until the start.
    """

    def __init__(self, started_ns: int, interval_ns: int, cpu_ns: int) -> None:
        self._started_ns = started_ns
        self._interval_ns = interval_ns
        self._cpu_ns = cpu_ns
        self._ticker = Ticker(started_ns, interval_ns)
        self._tick_ns: int | None = None
        self._full_ns = started_ns
        self._affordable_ns = started_ns
        self._ticks = 0
        self._left_out = 0
        self._before_quick_ns: int | None = None
        self._quick_step_ns: int | None = None

    @property
    def missed_ticks(self) -> int:
        """How many ticks passed while the profiler was busy, or would have cost too much."""
        return self._ticker.missed

    @property
    def kept_interval_ns(self) -> int:
        """The interval, or the mean time between two ticks if the others would have cost too
        much.
        """
        return (
            self._interval_ns * (self._ticks + self._left_out) // max(self._ticks, 1)
            or self._interval_ns
        )

    def leave_out(self, cpu_ns: int) -> None:
        """Leave CPU time out of account: imports with the first readings, and the reading of
        pages.
        """
        self._cpu_ns += cpu_ns

    def next_ns(self, now_ns: int, cpu_ns: int) -> int:
        """The time of the next reading; ``cpu_ns`` is the CPU time that the sampling thread has
        used so far.
        """
        used_ns = cpu_ns - self._cpu_ns
        if self._tick_ns is None:
            if self._interval_ns >= _USUAL_INTERVAL_NS:
                percent = _CPU_PERCENT
            else:
                percent = _FINE_TICK_PERCENT
            affordable_ns = self._started_ns + round((used_ns - _TICK_ADVANCE_NS) * 100 / percent)
            from_ns = max(now_ns, affordable_ns)
            before, after = (
                (at_ns - self._started_ns) // self._interval_ns for at_ns in (now_ns, from_ns)
            )
            self._left_out += after - before
            self._tick_ns = from_ns + round(self._ticker.seconds_to_next(from_ns) * NS_PER_SECOND)
        step_ns = max(FINEST_NS, (now_ns - self._started_ns) // _STEP_DIVISOR)
        if self._before_quick_ns is not None:
            quick_step_ns = round((cpu_ns - self._before_quick_ns) * 100 / _QUICK_PERCENT)
            # A new process costs more, once.
            self._quick_step_ns = min(quick_step_ns, self._quick_step_ns or quick_step_ns)
        self._before_quick_ns = cpu_ns
        self._affordable_ns = self._started_ns + round((used_ns - _ADVANCE_NS) * 100 / _CPU_PERCENT)
        due_ns = max(now_ns + step_ns, self._affordable_ns)
        if self._quick_step_ns is not None:
            due_ns = min(due_ns, now_ns + max(step_ns, self._quick_step_ns))
        if due_ns + step_ns // 2 < self._tick_ns:
            return due_ns
        return self._tick_ns  # just before it, a reading adds nothing to it

    def begin_reading(self, now_ns: int) -> Reading:
        """What to read now: ``tick``: all, for a sample; ``full``: all; ``quick``: the memory."""
        is_tick = self._tick_ns is not None and now_ns >= self._tick_ns
        full_step_ns = max(_FINEST_FULL_NS, (now_ns - self._started_ns) // _FULL_STEP_DIVISOR)
        if not is_tick and (now_ns - self._full_ns < full_step_ns or now_ns < self._affordable_ns):
            return "quick"
        self._full_ns = now_ns
        self._before_quick_ns = None
        if not is_tick:
            return "full"
        self._tick_ns = None
        self._ticks += 1
        return "tick"

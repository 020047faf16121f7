"""Time: the clock that is passed in everywhere, and what is built on it."""

import time
from typing import Protocol

from msgspec import Struct

from profiler.core.timestamps import NS_PER_SECOND


class Clock(Protocol):
    """Monotonic time for durations, wall-clock time for timestamps only."""

    def monotonic_ns(self) -> int: ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970; may jump."""

    def sleep(self, seconds: float) -> None: ...


class StopRequest(Protocol):
    """A request to stop, which also interrupts any wait."""

    @property
    def requested_ns(self) -> int | None:
        """Monotonic time of the first request; None before it."""

    def wait(self, seconds: float) -> bool:
        """Wait until the timeout or a stop request; returns True if a stop was requested."""


def wall_ahead_ns() -> int:
    """The wall clock's lead over the monotonic one."""
    return time.time_ns() - time.monotonic_ns()


class SystemClock:
    """The clocks of the operating system."""

    # Python's own function: a tick of the monitor asks ten times.
    monotonic_ns = staticmethod(time.monotonic_ns)

    def wall_ns(self) -> int:
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Ticker(Struct):
    """Ticks at multiples of the interval after the start.

    ``missed`` counts those that passed unused.
    """

    _start_ns: int
    _interval_ns: int
    _last_tick: int = 0
    missed: int = 0

    def seconds_to_next(self, now_ns: int) -> float:
        """Advance to the first tick after ``now_ns``; returns the seconds until then."""
        passed = (now_ns - self._start_ns) // self._interval_ns
        following = max(passed, self._last_tick) + 1
        self.missed += following - self._last_tick - 1
        self._last_tick = following
        return (self._start_ns + following * self._interval_ns - now_ns) / NS_PER_SECOND


class CpuBudget(Struct):
    """Limits repeated work to a share of the time: after work of cost c, it pauses for c ÷
    ``max_share``.

    At most ``advance_ns`` accrue, a third at the start. Work that is not urgent leaves enough for
    one like the last.
    """

    _max_share: float
    _advance_ns: int = 0
    _due_ns: int | None = None
    _last_cost_ns: int = 0

    def allows(self, now_ns: int, *, is_urgent: bool = True) -> bool:
        """Whether work may begin now."""
        return self._unspent_ns(now_ns) >= (0 if is_urgent else self._last_cost_ns)

    def next_ns(self, now_ns: int) -> int:
        """When work may begin next."""
        return now_ns if self._due_ns is None else max(self._due_ns, now_ns)

    def add_cost(self, cost_ns: int, now_ns: int) -> None:
        """Add work that began at ``now_ns``."""
        self._due_ns = now_ns + round(
            (cost_ns - max(self._unspent_ns(now_ns), 0)) / self._max_share
        )
        self._last_cost_ns = cost_ns

    def _unspent_ns(self, now_ns: int) -> float:
        if self._due_ns is None:
            return self._advance_ns / 3
        return min((now_ns - self._due_ns) * self._max_share, self._advance_ns)


class ClockJumpDetector(Struct):
    """Detects that the wall clock was set.

    ``_offset_ns`` is what the wall clock was ahead of the monotonic clock at the last check.
    ``jumped_ns`` is the sum of all jumps; negative: it was set back. While the machine is
    suspended, it goes on, and the monotonic clock does not.
    """

    _clock: Clock
    _offset_ns: int | None = None
    jumped_ns: int = 0

    def check(self) -> int:
        """The jump since the last check in nanoseconds, 0 if there was none."""
        before_ns = self._clock.monotonic_ns()
        wall_ns = self._clock.wall_ns()
        # If the process was suspended between the readings of both clocks, they cannot be compared.
        if self._clock.monotonic_ns() - before_ns > NS_PER_SECOND:
            return 0
        offset_ns = wall_ns - before_ns
        if self._offset_ns is None:
            moved_ns = 0
        else:
            moved_ns = offset_ns - self._offset_ns
        self._offset_ns = offset_ns
        # A clock that NTP slews drifts by far less between two checks.
        if abs(moved_ns) < 5 * NS_PER_SECOND:
            return 0
        self.jumped_ns += moved_ns
        return moved_ns

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence if the wall clock was set until the last check."""
        if not self.jumped_ns:
            return ()
        direction = "back"
        cause = ""
        if self.jumped_ns > 0:
            direction = "forward"
            cause = ", or the machine was suspended"
        return (
            (
                f"The wall clock was set {direction} by {abs(self.jumped_ns) / NS_PER_SECOND:.0f} "
                f"s during the run{cause}: the time from startedAt to finishedAt differs by that "
                "much from durationMs, which is right."
            ),
        )

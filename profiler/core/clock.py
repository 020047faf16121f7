"""Time as the profiler sees it.

A clock is passed in everywhere. A :class:`Ticker` places ticks on a fixed grid of the monotonic clock. A
:class:`ClockJumpDetector` notices changes of the wall clock. A :class:`DutyCycle` limits expensive work to a share of
the time.
"""

import time
from typing import Protocol

from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND


class Clock(Protocol):
    """Monotonic time measures, wall time only stamps."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of a clock that never jumps."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970; may jump."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass; nothing cuts this short."""
        ...


class StopRequest(Protocol):
    """The request to end, which also cuts any wait short."""

    @property
    def requested_ns(self) -> int | None:
        """When the end was first asked for, by the monotonic clock; None: it was not."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the end is asked for; says whether it was."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic_ns(self) -> int:
        """``CLOCK_MONOTONIC``."""
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        """``CLOCK_REALTIME``."""
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        """``time.sleep``."""
        time.sleep(seconds)


class Ticker:
    """Ticks at fixed distances from the start, so that lateness does not accumulate."""

    def __init__(self, start_ns: int, interval_ns: int) -> None:
        self._start_ns = start_ns
        self._interval_ns = interval_ns
        self._last_tick = 0
        self.missed = 0

    def seconds_to_next(self, now_ns: int) -> float:
        """Move on to the first tick after ``now_ns``; ticks that already passed count as missed."""
        passed = (now_ns - self._start_ns) // self._interval_ns
        following = max(passed, self._last_tick) + 1
        self.missed += following - self._last_tick - 1
        self._last_tick = following
        return (self._start_ns + following * self._interval_ns - now_ns) / NS_PER_SECOND


def milliseconds(duration_ns: int) -> int:
    """Whole milliseconds, rounded to the nearest."""
    return (duration_ns + NS_PER_MS // 2) // NS_PER_MS


class DutyCycle:
    """Allows work again when what it took the last time is no more than a share of the time since then."""

    def __init__(self, share: float) -> None:
        self._max_share = share
        self._due_ns = 0

    def is_due(self, now_ns: int) -> bool:
        """Whether it is time."""
        return now_ns >= self._due_ns

    def add_cost(self, cost_ns: int, now_ns: int) -> None:
        """The work took ``cost_ns`` and is done now."""
        self._due_ns = now_ns + round(cost_ns / self._max_share)


# Clocks that are steered drift by far less between two looks.
_MIN_JUMP_NS = 5 * NS_PER_SECOND
# The two clocks are read one after the other; if the process stood still in between, nothing is known.
_MAX_READ_NS = NS_PER_SECOND


class ClockJumpDetector:
    """Compares the clocks at each look. ``jumped_ns`` is the sum of all jumps, negative if it went back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ns: int | None = None
        self.jumped_ns = 0

    def check(self) -> int:
        """The jump since the last look in nanoseconds, 0 if there was none."""
        before_ns = self._clock.monotonic_ns()
        wall_ns = self._clock.wall_ns()
        if self._clock.monotonic_ns() - before_ns > _MAX_READ_NS:
            return 0
        offset_ns = wall_ns - before_ns
        moved_ns = 0 if self._offset_ns is None else offset_ns - self._offset_ns
        self._offset_ns = offset_ns
        if abs(moved_ns) < _MIN_JUMP_NS:
            return 0
        self.jumped_ns += moved_ns
        return moved_ns

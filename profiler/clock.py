"""Time as the profiler sees it: a clock that is passed in, and a fixed grid of ticks."""

import time
from typing import Protocol

from profiler.times import NS_PER_MS, NS_PER_SECOND


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

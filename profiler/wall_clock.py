"""Notices that somebody set the wall clock, by the clock that never jumps."""

from profiler.clock import Clock
from profiler.times import NS_PER_SECOND

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

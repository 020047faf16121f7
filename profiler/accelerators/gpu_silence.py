"""Since when the driver tells nothing: a call does not come back, or every one fails.

The thread that calls the driver says what it does; whoever writes a report asks for the sentences.
"""

from profiler.clock import Clock
from profiler.times import NS_PER_SECOND, format_ms

_HANG_THRESHOLD_NS = 5 * NS_PER_SECOND
_FINAL_READING_MISSING = (
    "The GPU driver did not answer when the batch had ended; the GPUs' last numbers, and energy since the last look, "
    "are missing."
)


class DriverHealth:
    """What is known of the calls into one driver."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy_since_ns: int | None = None
        self._read_error: str | None = None
        self._is_final_reading_missing = False

    def call_started(self) -> None:
        """The thread is in the driver from now on."""
        self._busy_since_ns = self._clock.monotonic_ns()

    def call_ended(self) -> None:
        """It is back."""
        self._busy_since_ns = None

    def on_success(self) -> None:
        """The driver gave numbers."""
        self._read_error = None

    def on_failure(self, reason: str) -> None:
        """It gave none, though it had before; the first reason in a row stays."""
        if self._read_error is None:
            since = format_ms(self._clock.wall_ns())
            self._read_error = f"NVML could not be read since {since}, and the GPUs' numbers end there: {reason}."

    def final_reading_done(self, *, in_time: bool) -> None:
        """A last reading was asked for, and came in time or did not."""
        self._is_final_reading_missing = not in_time

    def busy_ns(self) -> int | None:
        """For how long a call has been under way; None if there is none."""
        since_ns = self._busy_since_ns
        return None if since_ns is None else self._clock.monotonic_ns() - since_ns

    def warnings(self) -> tuple[str, ...]:
        """What a reader of the numbers has to know."""
        hanging_ns = self.busy_ns() or 0
        no_answer = _FINAL_READING_MISSING if self._is_final_reading_missing else None
        if hanging_ns >= _HANG_THRESHOLD_NS:
            seconds = hanging_ns // NS_PER_SECOND
            no_answer = f"The GPU driver has not answered for {seconds} s; the GPUs' numbers end there."
        return tuple(text for text in (self._read_error, no_answer) if text is not None)

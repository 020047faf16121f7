"""Since when the driver tells nothing: a call does not come back, or every one fails.

The thread that calls the driver says what it does; whoever writes a report asks for the sentences.
"""

from profiler.clock import Clock
from profiler.times import NS_PER_SECOND, format_ms

_HANGS_NS = 5 * NS_PER_SECOND
_LAST_IS_MISSING = (
    "The GPU driver did not answer when the batch had ended; the GPUs' last numbers, and energy since the last look, "
    "are missing."
)


class DriverSilence:
    """What is known of the calls into one driver."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy_since_ns: int | None = None
        self._unreadable: str | None = None
        self._end_is_missing = False

    def call_begins(self) -> None:
        """The thread is in the driver from now on."""
        self._busy_since_ns = self._clock.monotonic_ns()

    def call_ended(self) -> None:
        """It is back."""
        self._busy_since_ns = None

    def worked(self) -> None:
        """The driver gave numbers."""
        self._unreadable = None

    def failed(self, reason: str) -> None:
        """It gave none, though it had before; the first reason in a row stays."""
        if self._unreadable is None:
            since = format_ms(self._clock.wall_ns())
            self._unreadable = f"NVML could not be read since {since}, and the GPUs' numbers end there: {reason}."

    def settled(self, *, in_time: bool) -> None:
        """A last reading was asked for, and came in time or did not."""
        self._end_is_missing = not in_time

    def busy_ns(self) -> int | None:
        """For how long a call has been under way; None if there is none."""
        since_ns = self._busy_since_ns
        return None if since_ns is None else self._clock.monotonic_ns() - since_ns

    def sentences(self) -> tuple[str, ...]:
        """What a reader of the numbers has to know."""
        hanging_ns = self.busy_ns() or 0
        silent = _LAST_IS_MISSING if self._end_is_missing else None
        if hanging_ns >= _HANGS_NS:
            seconds = hanging_ns // NS_PER_SECOND
            silent = f"The GPU driver has not answered for {seconds} s; the GPUs' numbers end there."
        return tuple(text for text in (self._unreadable, silent) if text is not None)

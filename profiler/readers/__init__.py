"""Sources of readings. One that fails returns :class:`Unavailable` and never raises."""

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from profiler.core.log import Log


class Unavailable(Struct, frozen=True):
    """No reading this time, and why.

    ``timed_out``: to be read less often. ``is_gone``: it does not exist any more.
    """

    reason: str
    timed_out: bool = False
    is_gone: bool = False


_LONG_OUTAGE = 10  # failures


class SourceHealth:
    """Logs when a source begins to fail and when it recovers, for which it needs more and more
    reads in a row.

    Of a source that fails and recovers repeatedly, the outages 1, 2, 4, 8 and so on are logged,
    with their number, and each long one.
    """

    def __init__(self, source: str, log: "Log") -> None:
        self._source = source
        self._log = log
        self._is_failing = False
        self._is_logged = False
        self._outages = 0
        self._failures_since_change = 0
        self._successes_in_a_row = 0
        self._successes_to_recover = 1
        self.last_reason: str | None = None
        self.failures = 0

    def on_failure(self, failure: Unavailable) -> None:
        self.failures += 1
        self._failures_since_change += 1
        self._successes_in_a_row = 0
        self.last_reason = failure.reason[:300]
        if not self._is_failing:
            self._is_failing = True
            self._outages += 1
        is_power_of_two = self._outages & (self._outages - 1) == 0
        is_long = self._failures_since_change >= _LONG_OUTAGE
        if (is_power_of_two or is_long) and not self._is_logged:
            self._is_logged = True
            number = {"outage": self._outages} if self._outages > 1 else {}
            self._log.warning(
                f"{self._source} cannot be read and is tried again",
                reason=self.last_reason,
                **number,
            )

    def on_success(self) -> None:
        if not self._is_failing:
            return
        self._successes_in_a_row += 1
        if self._successes_in_a_row >= self._successes_to_recover:
            if self._is_logged:
                self._log.info(
                    f"{self._source} can be read again", failures=self._failures_since_change
                )
            self._is_logged = False
            self._is_failing = False
            self._failures_since_change = 0
            self._successes_to_recover = min(2 * self._successes_to_recover, 64)

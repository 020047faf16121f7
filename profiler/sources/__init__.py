"""Sources of readings: the task metadata endpoint, control groups, processes and the machine.

A source that fails returns :class:`Unavailable` with a reason and never raises. :class:`SourceHealth` counts the
failures of one source and logs each change of its state once.
"""

from msgspec import Struct

from profiler.core.log import Log

_MAX_REASON_CHARS = 300


class Unavailable(Struct, frozen=True):
    """No reading this time, with the reason in a few words.

    ``timed_out`` marks timeouts, after which the source is read less often. Failures of one ``kind`` are logged as one,
    although their reasons differ in a detail, such as the position of the first wrong byte.
    """

    reason: str
    timed_out: bool = False
    kind: str | None = None


class SourceHealth:
    """The state of one source.

    It is logged when the source begins to fail, when it fails for another reason, and when it recovers.
    """

    def __init__(self, source: str, log: Log) -> None:
        self._source = source
        self._log = log
        self._failure: str | None = None
        self._failures_since_change = 0
        self.failures = 0

    def on_failure(self, failure: Unavailable) -> None:
        """Record a read that failed."""
        self.failures += 1
        self._failures_since_change += 1
        reason = failure.reason[:_MAX_REASON_CHARS]
        kind = failure.kind or reason
        if kind != self._failure:
            self._failure = kind
            self._failures_since_change = 1
            self._log.warning(f"{self._source} cannot be read and is tried again", reason=reason)

    def on_success(self) -> None:
        """Record a read that succeeded."""
        if self._failure is not None:
            self._log.info(f"{self._source} can be read again", failures=self._failures_since_change)
            self._failure = None
            self._failures_since_change = 0

"""How a source is doing: failures are counted, and told once per change of state."""

from profiler.logs import Log
from profiler.sources import Unavailable

_MAX_REASON_CHARS = 300


class SourceHealth:
    """Follows one source.

    A failing source is logged when it begins to fail, when it fails for another reason, and when
    it is back.
    """

    def __init__(self, source: str, log: Log) -> None:
        self._source = source
        self._log = log
        self._reason: str | None = None
        self._failures_since_change = 0
        self.failures = 0

    def on_failure(self, failure: Unavailable) -> None:
        """One read failed."""
        self.failures += 1
        self._failures_since_change += 1
        reason = failure.reason[:_MAX_REASON_CHARS]
        if reason != self._reason:
            self._reason = reason
            self._failures_since_change = 1
            self._log.warning(f"{self._source} cannot be read and is tried again", reason=reason)

    def on_success(self) -> None:
        """One read gave a reading."""
        if self._reason is not None:
            self._log.info(f"{self._source} can be read again", failures=self._failures_since_change)
            self._reason = None
            self._failures_since_change = 0

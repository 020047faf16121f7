"""The tags of the task, for ``record.tags``.

One request to the metadata endpoint, in a thread of its own: the endpoint asks the ECS API for the tags and may take
seconds to answer. Neither the sampling nor the report waits for it.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from profiler.collectors.base import with_source
from profiler.core.background import BackgroundCall
from profiler.core.clock import Clock
from profiler.record.model import Record
from profiler.sources import Unavailable

_RUNNING = "running"
_NOT_ANSWERED = "/taskWithTags had not answered when the run ended"


class TagCollector:
    """Reads the tags once, and adds them to the records, or the reason why they are missing.

    Args:
        fetch: Reads the tags; called in a thread that is abandoned if the call does not return.
        clock: The clock of the thread.
    """

    def __init__(self, fetch: Callable[[], Mapping[str, str] | Unavailable], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._call: BackgroundCall[Mapping[str, str] | Unavailable] | None = None

    def start(self) -> None:
        """Send the request. Only the first call does."""
        if self._call is None:
            self._call = BackgroundCall(self._fetch, self._clock, 0)

    def final_reading(self, max_seconds: float) -> None:
        """Do nothing: tags are read once, and the report does not wait for them."""

    def stop(self, max_seconds: float) -> None:
        """Do nothing: a request in progress does not keep the process alive."""

    def add_to_record(self, record: Record) -> Record:
        """Return the record with the tags, or with a warning. A checkpoint without an answer yet has neither."""
        found = None if self._call is None else self._call.result_so_far()
        if found is None:
            reason = None if record.status == _RUNNING else _NOT_ANSWERED
        elif isinstance(found, Unavailable):
            reason = found.reason
        else:
            return replace(record, tags=found or None)
        return record if reason is None else with_source(record, None, (f"The task's tags are missing: {reason}.",))

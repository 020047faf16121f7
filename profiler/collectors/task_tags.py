"""The tags of the task, for ``record.tags``.

One request to the metadata endpoint, in a separate thread: the endpoint asks the ECS API for the tags and may take
seconds to answer. Neither the sampling nor the report waits for it.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from profiler.collectors.collector import Collector, with_source
from profiler.core.threads import BackgroundCall
from profiler.readers import Unavailable
from profiler.record.record_model import Record

_RUNNING = "running"
_NOT_ANSWERED = "/taskWithTags had not answered when the run ended"


class TaskTags(Collector):
    """Adds the tags to the records, or the reason why they are missing. The request was sent at the monitor's start."""

    def __init__(self, request: BackgroundCall[Mapping[str, str] | Unavailable]) -> None:
        self._request = request

    def add_to_record(self, record: Record) -> Record:
        """Return the record with the tags, or with a warning. A checkpoint without an answer yet has neither."""
        answer = self._request.result_so_far()
        if answer is None:
            reason = None if record.status == _RUNNING else _NOT_ANSWERED
        elif isinstance(answer, Unavailable):
            reason = answer.reason
        else:
            return replace(record, tags=answer or None)
        return record if reason is None else with_source(record, None, (f"The task's tags are missing: {reason}.",))

"""The records of a Kinesis data stream that receives CloudWatch Logs subscriptions.

Each record's data is a subscription payload. All records of an invocation share their bulk requests. The answer lists
the records to deliver again: Lambda repeats the lowest one and all after it, which is safe: documents are upserts.

A record that can never be decoded is kept in the failure store, so that it does not stop its shard. Without a failure
store, only the answer can keep it from being lost: the event source mapping repeats it up to its limits and then sends
its position to the failure destination. The other records of the invocation are indexed in both cases.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from profiler.core.json_fields import text
from profiler.forwarder.delivery_errors import ForwarderError, PayloadError, attempt, raise_errors
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.search_cluster.document_delivery import DeliverDocuments, Failure, KeepFailures
from profiler.forwarder.subscription import Counts, LineForwarder, decode_data
from profiler.forwarder.task_notices import TaskNotices


class StreamResult(Struct, frozen=True, kw_only=True):
    """The result of an invocation for its records."""

    counts: Counts
    repeated: tuple[str, ...] = ()

    def as_response(self) -> Mapping[str, object]:
        """The partial batch response: the sequence numbers of the records to deliver again."""
        return {"batchItemFailures": [{"itemIdentifier": number} for number in self.repeated]}


def is_stream_event(event: object) -> bool:
    """Whether a Lambda event comes from a stream, not from a subscription."""
    return isinstance(event, Mapping) and "Records" in event


def forward_records(
    event: Mapping[str, Any],
    settings: ForwarderSettings,
    deliver: DeliverDocuments,
    keep_failures: KeepFailures,
    warn: Callable[[str], None],
    *,
    notices: TaskNotices | None = None,
) -> StreamResult:
    """Index the lines of all records, then send the notices among them.

    A record with a notice that a channel did not accept is delivered again. If the search cluster or the failure store
    did not accept everything, DeliveryError is raised, and Lambda repeats all records.
    """
    lines = LineForwarder(settings, deliver, keep_failures, notices)
    repeated: list[str] = []
    errors: list[ForwarderError] = []
    counts = attempt(lambda: _index(event["Records"], lines, repeated, settings, warn), errors)
    channel_errors: list[ForwarderError] = []
    if notices is not None:
        repeated += notices.announce(channel_errors)
    if counts is None:
        raise_errors([*errors, *channel_errors])
    for error in channel_errors:
        warn(f"A notification was not sent; its record is delivered again while the notification is new: {error}")
    return StreamResult(counts=counts or Counts(), repeated=tuple(dict.fromkeys(repeated)))


def _index(
    records: Sequence[Mapping[str, Any]],
    lines: LineForwarder,
    repeated: list[str],
    settings: ForwarderSettings,
    warn: Callable[[str], None],
) -> Counts:
    """Index the lines of all records. Those to deliver again are added to ``repeated``."""
    if not all("kinesis" in record for record in records):
        raise PayloadError(
            "The event's records do not come from a Kinesis data stream: correct the function's trigger."
        )
    for record in records:
        number = record["kinesis"]["sequenceNumber"]
        data = text(record["kinesis"].get("data")) or ""
        try:
            items = decode_data(data)
        except PayloadError as error:
            if settings.failed_items_queue_url is None:
                warn(f"Record {number} of the stream cannot be decoded and is reported as failed: {error}")
                repeated.append(number)
            else:
                # Where the record is and its data, which a message to the failure queue may cut.
                names = ("eventID", "eventSourceARN")
                place = {**{name: record.get(name) for name in names}, "sequenceNumber": number}
                lines.keep(Failure({**place, "data": record["kinesis"].get("data")}, str(error)))
            continue
        for item in items:
            lines.add(item, number)
    return lines.finish()

"""The batch's ordinary log lines as documents, so that the whole log stands next to its report."""

from datetime import UTC, datetime

from forwarder.documents import Document
from forwarder.payload import LogEvent, Payload

_STREAM_PARTS = 3  # PREFIX/CONTAINER/TASK-ID; the prefix may hold slashes itself
_MS_PER_SECOND = 1000
_LATEST_MS = 253_402_300_799_000  # the last second of year 9999


def log_line_document(payload: Payload, event: LogEvent, *, prefix: str) -> Document:
    """The document of one line; its id is the log event's, so that a repeated delivery is the same."""
    seconds, rest_ms = divmod(min(max(event.timestamp, 0), _LATEST_MS), _MS_PER_SECOND)
    moment = datetime.fromtimestamp(seconds, UTC)
    fields: dict[str, object] = {
        "@timestamp": f"{moment:%Y-%m-%dT%H:%M:%S}.{rest_ms:03d}Z",
        "message": event.message,
        "event": {"kind": "event", "dataset": "task.log"},
        "cloud": {"provider": "aws"},
        "aws": {"cloudwatch": {"log_group": payload.log_group, "log_stream": payload.log_stream}},
    }
    parts = payload.log_stream.split("/")
    if len(parts) >= _STREAM_PARTS:
        fields["task"] = {"id": parts[-1]}
        fields["container"] = {"name": parts[-2]}
    return Document(index=f"{prefix}-logs-{moment:%Y.%m}", id=str(event.id), fields=fields)

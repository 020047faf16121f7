"""One CloudWatch Logs subscription payload: decode it, classify its lines, deliver the documents to the cluster."""

import base64
import binascii
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from forwarder.documents import Document, report_document
from forwarder.errors import PayloadError
from forwarder.lines import InvalidReport, read_line
from forwarder.search.delivery import DeliveryResult, DocumentWriter, Failure, FailureStore
from forwarder.settings import ForwarderSettings
from profiler.core.timestamps import format_datetime

MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # zlib detects which of the two formats it is
_CONTROL_MESSAGE = "CONTROL_MESSAGE"
_STREAM_PARTS = 3  # PREFIX/CONTAINER/TASK-ID; the prefix may contain slashes
_US_PER_MS = 1000
_MS_PER_SECOND = 1000
_MAX_TIMESTAMP_MS = 253_402_300_799_000  # the last second of year 9999


class LogEvent(Struct, frozen=True):
    """One line. ``timestamp`` is in milliseconds since 1970; ``id`` is text on AWS and a number on emulators."""

    id: str | int = ""
    timestamp: int = 0
    message: str = ""


class Payload(Struct, frozen=True, rename="camel"):
    """The lines of one log stream."""

    message_type: str = ""
    log_group: str = ""
    log_stream: str = ""
    log_events: tuple[LogEvent, ...] = ()

    @property
    def lines(self) -> tuple[LogEvent, ...]:
        """The stream's lines. A control message, CloudWatch's health check, has no lines of the stream."""
        return () if self.message_type == _CONTROL_MESSAGE else self.log_events


class Counts(Struct, frozen=True, kw_only=True):
    """How many lines of a payload were indexed, were skipped, and can never be indexed."""

    indexed: int = 0
    skipped: int = 0
    failed: int = 0

    def as_response(self) -> Mapping[str, int]:
        """Return the response of ``forward_logs``."""
        return {"indexed": self.indexed, "skipped": self.skipped, "failed": self.failed}


class ClassifiedLines(Struct, frozen=True, kw_only=True):
    """The lines of a payload: documents to index, the number of skipped lines, and invalid reports."""

    documents: list[Document]
    skipped: int
    failures: list[Failure]


def forward(payload: Payload, settings: ForwarderSettings, writer: DocumentWriter, store: FailureStore) -> Counts:
    """Index the lines of a payload. What can never be indexed goes to the failure store.

    Raises:
        DeliveryError: the cluster or the failure store did not accept everything. Delivering the same payload again
            is safe: the documents have the same ids.
    """
    lines = classify_lines(payload, settings)
    delivered = writer.deliver(lines.documents) if lines.documents else DeliveryResult(indexed=0)
    failures = [*lines.failures, *delivered.rejected]
    if failures:
        store.keep(failures)
    return Counts(indexed=delivered.indexed, skipped=lines.skipped, failed=len(failures))


def classify_lines(payload: Payload, settings: ForwarderSettings) -> ClassifiedLines:
    """Make a document of each report, and of each other line with ``FORWARD_LOG_LINES``."""
    documents: list[Document] = []
    failures: list[Failure] = []
    skipped = 0
    for event in payload.lines:
        document = _document(payload, event, settings)
        if isinstance(document, Document):
            documents.append(document)
        elif document is None:
            skipped += 1
        else:
            failures.append(Failure(event.message, document.reason))
    return ClassifiedLines(documents=documents, skipped=skipped, failures=failures)


def _document(payload: Payload, event: LogEvent, settings: ForwarderSettings) -> Document | InvalidReport | None:
    report = read_line(event.message)
    if report is None:
        if not settings.forward_log_lines or event.id == "":
            return None
        return log_line_document(payload, event, prefix=settings.index_prefix)
    if isinstance(report, InvalidReport):
        return report
    return report_document(report, event.message, prefix=settings.index_prefix)


def log_line_document(payload: Payload, event: LogEvent, *, prefix: str) -> Document:
    """Return the document of one ordinary line.

    Its id is the id of the log event, so that a repeated delivery writes the same document.
    """
    seconds, rest_ms = divmod(min(max(event.timestamp, 0), _MAX_TIMESTAMP_MS), _MS_PER_SECOND)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ms * _US_PER_MS)
    fields: dict[str, object] = {
        "@timestamp": format_datetime(moment),
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


def decode_payload(event: object) -> Payload:
    """Decode the Lambda event of a subscription.

    Raises:
        PayloadError: the event is not from a subscription, is damaged, or is larger than 64 MiB unpacked.
    """
    compressed = _compressed(event)
    decompressor = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        document = decompressor.decompress(compressed, MAX_PAYLOAD_BYTES + 1)
    except zlib.error as error:
        raise PayloadError(
            f"The event's data is neither gzip nor zlib ({error}): send it from a subscription."
        ) from error
    if len(document) > MAX_PAYLOAD_BYTES:
        raise PayloadError(f"The event's data unpacks to more than {MAX_PAYLOAD_BYTES} bytes and is not read.")
    if not decompressor.eof:
        raise PayloadError("The event's data is incomplete: send it again.")
    try:
        return msgspec.json.decode(document, type=Payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(f"The event's data is not a CloudWatch Logs document: {error}.") from error


def _compressed(event: object) -> bytes:
    logs = event.get("awslogs") if isinstance(event, Mapping) else None
    data = logs.get("data") if isinstance(logs, Mapping) else None
    if not isinstance(data, str):
        raise PayloadError("The event has no awslogs.data: invoke this function from a CloudWatch Logs subscription.")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PayloadError(f"The event's awslogs.data is not base64 ({error}).") from error

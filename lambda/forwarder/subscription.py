"""One CloudWatch Logs subscription payload: decoded, its lines sorted, its documents sent to the cluster."""

import base64
import binascii
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

import msgspec
from msgspec import Struct

from forwarder.documents import Document, report_document
from forwarder.errors import PayloadError
from forwarder.lines import InvalidReport, read_line
from forwarder.search.delivery import DeliveryResult, Failure, FailureStore
from forwarder.settings import ForwarderSettings

MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # gzip and zlib alike
_CONTROL_MESSAGE = "CONTROL_MESSAGE"


class LogEvent(Struct, frozen=True):
    """One line; ``timestamp`` in milliseconds since 1970, ``id`` text on AWS and a number on emulators."""

    id: str | int = ""
    timestamp: int = 0
    message: str = ""


class Payload(Struct, frozen=True, rename="camel"):
    """The lines of one stream. A control message (a health check) has none of interest."""

    message_type: str = ""
    log_group: str = ""
    log_stream: str = ""
    log_events: tuple[LogEvent, ...] = ()

    @property
    def lines(self) -> tuple[LogEvent, ...]:
        """The stream's lines; none for a control message."""
        return () if self.message_type == _CONTROL_MESSAGE else self.log_events


def decode_payload(event: object) -> Payload:
    """Read a Lambda event of a subscription.

    Raises PayloadError if it is none, is broken, or unpacks to more than 64 MiB.
    """
    compressed = _compressed(event)
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        document = unpacker.decompress(compressed, MAX_PAYLOAD_BYTES + 1)
    except zlib.error as error:
        raise PayloadError(
            f"The event's data is neither gzip nor zlib ({error}): send it from a subscription."
        ) from error
    if len(document) > MAX_PAYLOAD_BYTES:
        raise PayloadError(f"The event's data unpacks to more than {MAX_PAYLOAD_BYTES} bytes and is not read.")
    if not unpacker.eof:
        raise PayloadError("The event's data is cut short: send it again.")
    try:
        return msgspec.json.decode(document, type=Payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(f"The event's data is no CloudWatch Logs document: {error}.") from error


def _compressed(event: object) -> bytes:
    logs = event.get("awslogs") if isinstance(event, Mapping) else None
    data = logs.get("data") if isinstance(logs, Mapping) else None
    if not isinstance(data, str):
        raise PayloadError("The event holds no awslogs.data: invoke this function from a CloudWatch Logs subscription.")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PayloadError(f"The event's awslogs.data is not base64 ({error}).") from error


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


class DocumentWriter(Protocol):
    """Brings documents to the cluster."""

    def deliver(self, documents: list[Document]) -> DeliveryResult:
        """See forwarder.search.delivery."""
        ...


class Counts(Struct, frozen=True, kw_only=True):
    """What became of the lines of a payload."""

    indexed: int = 0
    skipped: int = 0
    failed: int = 0

    def as_response(self) -> Mapping[str, int]:
        """What ``forward_logs`` returns."""
        return {"indexed": self.indexed, "skipped": self.skipped, "failed": self.failed}


class ClassifiedLines(Struct, frozen=True, kw_only=True):
    """A payload's lines: what to index, what is of no interest, what is broken."""

    documents: list[Document]
    skipped: int
    failures: list[Failure]


def classify_lines(payload: Payload, settings: ForwarderSettings) -> ClassifiedLines:
    """Make a document of each report, and of each other line if these are wanted."""
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


def forward(payload: Payload, settings: ForwarderSettings, delivery: DocumentWriter, store: FailureStore) -> Counts:
    """Index a payload's lines; what can never be indexed goes to the failure store.

    Raises DeliveryError if the cluster or the failure store does not take what it should: the
    same payload may come again, and nothing is counted twice then.
    """
    lines = classify_lines(payload, settings)
    delivered = delivery.deliver(lines.documents) if lines.documents else DeliveryResult(indexed=0)
    failures = [*lines.failures, *delivered.rejected]
    if failures:
        store.keep(failures)
    return Counts(indexed=delivered.indexed, skipped=lines.skipped, failed=len(failures))


def _document(payload: Payload, event: LogEvent, settings: ForwarderSettings) -> Document | InvalidReport | None:
    report = read_line(event.message)
    if report is None:
        if not settings.forward_log_lines or event.id == "":
            return None
        return log_line_document(payload, event, prefix=settings.index_prefix)
    if isinstance(report, InvalidReport):
        return report
    return report_document(report, event.message, prefix=settings.index_prefix)

"""One subscription payload, from its lines to the cluster."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from forwarder.delivery import DeliveryResult
from forwarder.documents import Document, report_document
from forwarder.failures import Failure, FailureStore
from forwarder.lines import InvalidReport, read_line
from forwarder.log_lines import log_line_document
from forwarder.payload import LogEvent, Payload
from forwarder.settings import ForwarderSettings


class DocumentWriter(Protocol):
    """Brings documents to the cluster."""

    def deliver(self, documents: list[Document]) -> DeliveryResult:
        """See forwarder.delivery."""
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

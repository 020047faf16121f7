"""Delivers documents to the search cluster within the remaining time of an invocation."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from forwarder.delivery_errors import DeliveryError, SearchClusterError
from forwarder.documents import Document
from forwarder.invocation_time import RetryBackoff, TimeBudget
from forwarder.search_cluster.failure_store import Failure, divide
from forwarder.search_cluster.interface import ItemResult, SearchCluster

# The largest bulk request. AWS's smallest instances accept 10 MiB; a batch is halved if the cluster refuses it.
MAX_DOCUMENTS_PER_REQUEST = 1000
MAX_REQUEST_BYTES = 5 * 1024 * 1024

_MAX_REQUEST_SECONDS = 30.0
_INITIAL_BACKOFF_SECONDS = 0.2
_MAX_BACKOFF_SECONDS = 5.0
_NO_REASON = "without a reason"


class DeliveryResult(Struct, frozen=True, kw_only=True):
    """The number of indexed documents, and the documents that the cluster will never accept."""

    indexed: int
    rejected: tuple[Failure, ...] = ()


# Writes all documents. Raises DeliveryError if some were not written and a later attempt can succeed.
DeliverDocuments = Callable[[Sequence[Document]], DeliveryResult]


def deliver(
    cluster: SearchCluster, budget: TimeBudget, jitter: Callable[[], float], documents: Sequence[Document]
) -> DeliveryResult:
    """Write all documents to the search cluster.

    Args:
        cluster: the search cluster.
        budget: the time for all requests and retries.
        jitter: returns a number from 0 to 1, which spreads the pauses between retries.
        documents: the documents to write.

    Raises:
        DeliveryError: some documents were not written, and a later attempt can succeed.
    """
    backoff = RetryBackoff(
        budget,
        jitter,
        initial_seconds=_INITIAL_BACKOFF_SECONDS,
        max_seconds=_MAX_BACKOFF_SECONDS,
        max_request_seconds=_MAX_REQUEST_SECONDS,
    )
    indexed = 0
    rejected: list[Failure] = []
    fault: str | None = None
    pending = _batches(documents, rejected)
    while pending:
        batch = pending.pop()
        try:
            results = cluster.bulk(batch, _request_timeout_seconds(backoff))
        except SearchClusterError as error:
            if error.is_too_large:
                pending += _split(batch, rejected, str(error))
                continue
            if not error.is_retryable:
                raise
            _wait(backoff, str(error))
            pending.append(batch)
            continue
        fault = fault or next((result.reason or _NO_REASON for result in results if result.is_index_fault), None)
        rejected += _rejected(batch, results)
        existing = _documents_to_complete(batch, results)
        retried = _documents_to_retry(batch, results)
        indexed += sum(not result.is_failed for result in results) - len(existing)
        pending += [existing] if existing else []
        if retried:
            _wait(backoff, next(result.reason or "" for result in results if result.is_retryable))
            pending.append(retried)
        else:
            backoff.reset()
    if fault is not None:
        raise DeliveryError(
            f"The search cluster did not accept some documents ({fault}); the others are written: give the "
            "forwarder's user the privileges index and auto_configure on the indices, and remove the block, "
            "limit or fault that the cluster names."
        )
    return DeliveryResult(indexed=indexed, rejected=tuple(rejected))


def _batches(documents: Sequence[Document], rejected: list[Failure]) -> list[list[Document]]:
    """Divide the documents into as few requests as their sizes allow.

    A document that is not valid as JSON is added to ``rejected``.
    """
    sized: list[tuple[Document, int]] = []
    for document in documents:
        try:
            size = len(msgspec.json.encode((document.id, document.fields, document.upsert)))
        except (OverflowError, UnicodeEncodeError) as error:
            rejected.append(Failure(_as_json(document), f"The document cannot be written as JSON: {error}"))
        else:
            sized.append((document, size))
    return list(divide(sized, max_items=MAX_DOCUMENTS_PER_REQUEST, max_bytes=MAX_REQUEST_BYTES))


def _request_timeout_seconds(backoff: RetryBackoff) -> float:
    seconds = backoff.request_timeout_seconds()
    if seconds is None:
        raise DeliveryError(
            "The invocation ran out of time before all documents were written: raise the function's timeout."
        )
    return seconds


def _wait(backoff: RetryBackoff, reason: str) -> None:
    if not backoff.wait():
        raise DeliveryError(f"The cluster accepted no documents before the invocation ran out of time: {reason}")


def _split(batch: list[Document], rejected: list[Failure], reason: str) -> list[list[Document]]:
    """Split a batch that is too large into two; a single document that is too large is added to ``rejected``."""
    if len(batch) == 1:
        rejected.append(Failure(_as_json(batch[0]), reason))
        return []
    middle = len(batch) // 2
    return [batch[middle:], batch[:middle]]


def _rejected(batch: list[Document], results: list[ItemResult]) -> list[Failure]:
    """Return the documents that the cluster will never accept."""
    return [
        Failure(_as_json(document), result.reason or f"HTTP {result.status}")
        for document, result in zip(batch, results, strict=True)
        if result.is_poison
    ]


def _documents_to_complete(batch: list[Document], results: list[ItemResult]) -> list[Document]:
    """Return the reports whose run has a document already, which was not changed, each with that document."""
    return [
        replace(document, stored=result.stored)
        for document, result in zip(batch, results, strict=True)
        if document.is_report and document.stored is None and result.stored is not None
    ]


def _documents_to_retry(batch: list[Document], results: list[ItemResult]) -> list[Document]:
    """Return the documents to write again; a report whose document was changed meanwhile reads it again."""
    return [
        replace(document, stored=None) if result.is_conflict else document
        for document, result in zip(batch, results, strict=True)
        if result.is_retryable
    ]


def _as_json(document: Document) -> dict[str, object]:
    return {"index": document.index, "id": document.id, "fields": document.initial_fields}

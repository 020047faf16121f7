"""Delivers documents to the cluster within the remaining time of an invocation. Refused documents go to a queue."""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from forwarder.delivery_errors import ClusterError, DeliveryError
from forwarder.documents import Document
from forwarder.invocation import RetryBackoff, TimeBudget
from forwarder.search_cluster.bulk_client import Cluster, ItemResult

# The largest bulk request. AWS's smallest instances accept 10 MiB; a batch is halved if the cluster refuses it.
MAX_DOCUMENTS_PER_REQUEST = 1000
MAX_REQUEST_BYTES = 5 * 1024 * 1024
_T = TypeVar("_T")

# A queue may accept 1 MiB, but those that were made before 2025 accept 256 KiB.
MAX_MESSAGE_BYTES = 256 * 1024
# Of one SendMessageBatch: messages, and bytes of all of them.
_MAX_BATCH_MESSAGES, _MAX_BATCH_BYTES = 10, 1024 * 1024
_MAX_REQUEST_SECONDS = 30.0
_INITIAL_BACKOFF_SECONDS = 0.2
_MAX_BACKOFF_SECONDS = 5.0
_MAX_REASON_LENGTH = 1000
_NO_REASON = "without a reason"
MAX_LOGGED_REASON_LENGTH = 300
# Also in a line that is cut, or is not valid JSON.
_TASK_ID = re.compile(r'"taskId"\s*:\s*"([^"\\]{1,100})"')
# SQS refuses a message with U+FFFE or U+FFFF: see the API reference of SendMessage.
_SQS_ESCAPES = ((b"\xef\xbf\xbe", b"\\ufffe"), (b"\xef\xbf\xbf", b"\\uffff"))


class Failure(Struct, frozen=True):
    """A document, or a line that should become one, and why it cannot be indexed."""

    document: object
    reason: str

    @property
    def task_id(self) -> str | None:
        """The task that the document, or the text of the line, is about; None if it does not name one."""
        if isinstance(self.document, str):
            named = _TASK_ID.search(self.document)
            return None if named is None else named.group(1)
        identity = self.document.get("id") if isinstance(self.document, dict) else None
        return identity.partition("/")[0] if isinstance(identity, str) and "/" in identity else None


class DeliveryResult(Struct, frozen=True, kw_only=True):
    """The number of indexed documents, and the documents that the cluster will never accept."""

    indexed: int
    rejected: tuple[Failure, ...] = ()


class DocumentWriter(Protocol):
    """Writes documents to the cluster."""

    def deliver(self, documents: list[Document]) -> DeliveryResult:
        """Write all documents. Raises DeliveryError if some were not written and a later attempt can succeed."""
        ...


class FailureStore(Protocol):
    """Keeps what cannot be indexed."""

    def keep(self, failures: list[Failure]) -> None:
        """Keep all failures. Raises DeliveryError if one was not kept."""
        ...


class Sqs(Protocol):
    """The one method of boto3's SQS client that is used."""

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> Mapping[str, Any]:  # noqa: N803  the names in the API
        """https://docs.aws.amazon.com/goto/WebAPI/sqs-2012-11-05/SendMessageBatch ."""
        ...


class Delivery:
    """Delivers documents to one cluster.

    Args:
        cluster: the cluster.
        budget: the time for all requests and retries.
        jitter: returns a number from 0 to 1, which spreads the pauses between retries.
    """

    def __init__(self, cluster: Cluster, budget: TimeBudget, jitter: Callable[[], float]) -> None:
        self._cluster = cluster
        self._budget = budget
        self._jitter = jitter

    def deliver(self, documents: Sequence[Document]) -> DeliveryResult:
        """Write all documents. Raises DeliveryError if some were not written and a later attempt can succeed."""
        backoff = RetryBackoff(
            self._budget,
            self._jitter,
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
                results = self._cluster.bulk(batch, _request_timeout_seconds(backoff))
            except ClusterError as error:
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
                f"The index or the cluster did not take some documents, the others are written ({fault}): give the "
                "forwarder's user the privileges index and auto_configure on the indices, and remove the block, the "
                "limit or the fault that the cluster names."
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
    return list(_divide(sized, max_items=MAX_DOCUMENTS_PER_REQUEST, max_bytes=MAX_REQUEST_BYTES))


def _divide(sized: Iterable[tuple[_T, int]], *, max_items: int, max_bytes: int) -> Iterator[list[_T]]:
    """Divide items, each with its size, into batches within both limits. A larger item is alone in its batch."""
    batch: list[_T] = []
    batch_bytes = 0
    for item, size in sized:
        if batch and (len(batch) == max_items or batch_bytes + size > max_bytes):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(item)
        batch_bytes += size
    if batch:
        yield batch


def _request_timeout_seconds(backoff: RetryBackoff) -> float:
    seconds = backoff.request_timeout_seconds()
    if seconds is None:
        raise DeliveryError(
            "The invocation's time was used up before all documents were written: raise the function's timeout."
        )
    return seconds


def _wait(backoff: RetryBackoff, reason: str) -> None:
    if not backoff.wait():
        raise DeliveryError(f"The cluster accepted no documents until the end of the invocation's time: {reason}")


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


class SqsFailureStore:
    """An SQS queue. Each message is truncated to the size that SQS accepts."""

    def __init__(self, queue_url: str, sqs: Sqs) -> None:
        self._queue_url = queue_url
        self._sqs = sqs

    def keep(self, failures: list[Failure]) -> None:
        """Send one message for each failure, ten at a time. Raises DeliveryError."""
        from botocore.exceptions import BotoCoreError, ClientError  # in Lambda's runtime

        for bodies in _message_batches(failures):
            entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
            try:
                answer = self._sqs.send_message_batch(QueueUrl=self._queue_url, Entries=entries)
            except (BotoCoreError, ClientError) as error:
                raise self._error(type(error).__name__) from error
            if answer.get("Failed"):
                raise self._error(str(answer["Failed"][0].get("Code")))

    def _error(self, code: str) -> DeliveryError:
        return DeliveryError(
            f"The failure queue did not accept a message ({code}): "
            "check FAILED_ITEMS_QUEUE_URL and that the function's role may send to it."
        )


def _message_batches(failures: Iterable[Failure]) -> Iterator[list[str]]:
    """Yield the bodies of messages that one request may contain together."""
    bodies = map(message_body, failures)
    return _divide(
        ((body, len(body.encode())) for body in bodies), max_items=_MAX_BATCH_MESSAGES, max_bytes=_MAX_BATCH_BYTES
    )


class LogFailureStore:
    """Without a queue, the log names the task and the reason of each document that cannot be indexed."""

    def __init__(self, log: Callable[[Mapping[str, object]], None]) -> None:
        self._log = log

    def keep(self, failures: list[Failure]) -> None:
        """Log one line for each failure, without the document's content."""
        for failure in failures:
            line = {"level": "error", "event": "A document cannot be indexed.", "task": failure.task_id}
            self._log({**line, "reason": failure.reason[:MAX_LOGGED_REASON_LENGTH]})


def message_body(failure: Failure) -> str:
    """Return ``{"document": …, "reason": …}`` of at most 256 KB; a larger document becomes truncated text."""
    body = _encode(failure)
    return (body if len(body) <= MAX_MESSAGE_BYTES else _truncated_body(failure)).decode()


def _encode(failure: Failure) -> bytes:
    """Encode as JSON, with escapes for the characters that SQS refuses."""
    body = _json({"document": failure.document, "reason": failure.reason})
    return reduce(lambda body, pair: body.replace(*pair), _SQS_ESCAPES, body)


def _json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (OverflowError, UnicodeEncodeError):
        # The standard library writes numbers of any length, and escapes lone surrogates.
        return json.dumps(value, separators=(",", ":")).encode()


def _truncated_body(failure: Failure) -> bytes:
    """Encode as much of the document as fits; a character takes one to six bytes in JSON, so the length is searched."""
    text = failure.document if isinstance(failure.document, str) else _json(failure.document).decode()
    reason = f"{failure.reason[:_MAX_REASON_LENGTH]} (the document is truncated)"

    def body(length: int) -> bytes:
        return _encode(Failure(text[:length], reason))

    lengths = range(min(len(text), MAX_MESSAGE_BYTES) + 1)
    return body(bisect_right(lengths, MAX_MESSAGE_BYTES, key=lambda length: len(body(length))) - 1)

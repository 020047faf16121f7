"""Sends documents to the cluster within the remaining time of an invocation; refused ones go to a queue."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Protocol

import msgspec
from msgspec import Struct

from forwarder.documents import Document
from forwarder.errors import ClusterError, DeliveryError
from forwarder.invocation import RESERVED_SECONDS, TimeBudget
from forwarder.search.cluster import Cluster, ItemResult

MAX_MESSAGE_BYTES = 256 * 1024
_MAX_REASON_LENGTH = 1000
# SQS takes characters up to U+FFFD and from U+10000: the API reference of SendMessage.
_ESCAPED = ((b"\xef\xbf\xbe", b"\\ufffe"), (b"\xef\xbf\xbf", b"\\uffff"))


class Failure(Struct, frozen=True):
    """A document, or the line it was to become, and why it is not in the cluster."""

    document: object
    reason: str


class FailureStore(Protocol):
    """Keeps what could not be indexed."""

    def keep(self, failures: list[Failure]) -> None:
        """Keep them all. Raises DeliveryError if that fails."""
        ...


class Sqs(Protocol):
    """The one call of boto3's SQS client that is made."""

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> object:  # noqa: N803  boto3 takes the names of the API
        """https://docs.aws.amazon.com/goto/WebAPI/sqs-2012-11-05/SendMessage ."""
        ...


class SqsFailureStore:
    """An SQS queue; messages are cut to what SQS takes."""

    def __init__(self, queue_url: str, sqs: Sqs) -> None:
        self._queue_url = queue_url
        self._sqs = sqs

    def keep(self, failures: list[Failure]) -> None:
        """One message each."""
        from botocore.exceptions import BotoCoreError, ClientError  # in Lambda's runtime

        for failure in failures:
            try:
                self._sqs.send_message(QueueUrl=self._queue_url, MessageBody=message_body(failure))
            except (BotoCoreError, ClientError) as error:
                raise DeliveryError(
                    f"The failure queue takes no message ({type(error).__name__}): "
                    "check FAILED_ITEMS_QUEUE_URL and that the function's role may send to it."
                ) from error


class NoFailureStore:
    """Without a queue, a document that cannot be indexed is only counted and logged."""

    def keep(self, failures: list[Failure]) -> None:
        """Nothing is kept."""


def message_body(failure: Failure) -> str:
    """``{"document": …, "reason": …}``, at most 256 KB; a document that is larger goes as cut text."""
    body = _encoded(failure)
    return (body if len(body) <= MAX_MESSAGE_BYTES else _truncated(failure)).decode()


def _encoded(failure: Failure) -> bytes:
    """As JSON, in which those characters are escaped that SQS refuses a message for."""
    return reduce(lambda body, pair: body.replace(*pair), _ESCAPED, msgspec.json.encode(failure))


def _truncated(failure: Failure) -> bytes:
    """With as much of the document as fits: what a character takes in JSON is from one byte to six."""
    text = failure.document if isinstance(failure.document, str) else msgspec.json.encode(failure.document).decode()
    reason = f"{failure.reason[:_MAX_REASON_LENGTH]} (the document is cut)"

    def body(length: int) -> bytes:
        return _encoded(Failure(text[:length], reason))

    lengths = range(min(len(text), MAX_MESSAGE_BYTES) + 1)
    return body(bisect_right(lengths, MAX_MESSAGE_BYTES, key=lambda length: len(body(length))) - 1)


# One request holds so many documents at most; halved where the cluster finds it too large.
MAX_DOCUMENTS_PER_REQUEST = 500
_MIN_REQUEST_SECONDS = 1.0
_MAX_REQUEST_SECONDS = 30.0
_INITIAL_BACKOFF_SECONDS = 0.2
_MAX_BACKOFF_SECONDS = 5.0
_NO_REASON = "without a reason"


class DeliveryResult(Struct, frozen=True, kw_only=True):
    """How many documents arrived, and those that never will."""

    indexed: int
    rejected: tuple[Failure, ...] = ()


class Delivery:
    """Delivers to one cluster. ``jitter`` gives a number from 0 to 1 that spreads the pauses."""

    def __init__(self, cluster: Cluster, time: TimeBudget, jitter: Callable[[], float]) -> None:
        self._cluster = cluster
        self._time = time
        self._jitter = jitter

    def deliver(self, documents: Sequence[Document]) -> DeliveryResult:
        """Write all documents. Raises DeliveryError if some may still arrive, but not in this invocation."""
        indexed = 0
        rejected: list[Failure] = []
        forbidden: str | None = None
        starts = range(0, len(documents), MAX_DOCUMENTS_PER_REQUEST)
        waiting = [list(documents[start : start + MAX_DOCUMENTS_PER_REQUEST]) for start in starts]
        attempts = 0
        while waiting:
            batch = waiting.pop()
            try:
                results = self._cluster.bulk(batch, self._request_seconds())
            except ClusterError as error:
                if error.too_large:
                    waiting += _split(batch, rejected, str(error))
                    continue
                if not error.retryable:
                    raise
                attempts += 1
                self._back_off(attempts, str(error))
                waiting.append(batch)
                continue
            forbidden = forbidden or next((result.reason or _NO_REASON for result in results if result.forbidden), None)
            again = _partition(batch, results, rejected)
            indexed += sum(not result.failed for result in results)
            if again:
                attempts += 1
                self._back_off(attempts, next(result.reason or "" for result in results if result.retryable))
                waiting.append(again)
            else:
                attempts = 0
        if forbidden is not None:
            raise DeliveryError(
                f"The cluster forbids writing some documents, the others are written ({forbidden}): give the "
                "forwarder's user the privileges index and auto_configure on the indices, or remove the block on them."
            )
        return DeliveryResult(indexed=indexed, rejected=tuple(rejected))

    def _request_seconds(self) -> float:
        left = self._time.remaining_seconds() - RESERVED_SECONDS
        if left < _MIN_REQUEST_SECONDS:
            raise DeliveryError(
                "The invocation's time is up before all documents were written: raise the function's timeout."
            )
        return min(left, _MAX_REQUEST_SECONDS)

    def _back_off(self, attempts: int, reason: str) -> None:
        """Wait longer each time; give up when there would be no time for another request."""
        longest = min(_INITIAL_BACKOFF_SECONDS * 2.0 ** min(attempts, 10), _MAX_BACKOFF_SECONDS)
        pause = longest * (0.5 + self._jitter() / 2)
        if self._time.remaining_seconds() - RESERVED_SECONDS - pause < _MIN_REQUEST_SECONDS:
            raise DeliveryError(f"The cluster took no documents to the end of the invocation's time: {reason}")
        self._time.sleep(pause)


def _split(batch: list[Document], rejected: list[Failure], reason: str) -> list[list[Document]]:
    """Two smaller batches; a single document that is too large is rejected."""
    if len(batch) == 1:
        rejected.append(Failure(_as_json(batch[0]), reason))
        return []
    middle = len(batch) // 2
    return [batch[middle:], batch[:middle]]


def _partition(batch: list[Document], results: list[ItemResult], rejected: list[Failure]) -> list[Document]:
    """Put aside what the cluster will never take; returns what is to be tried again."""
    again: list[Document] = []
    for document, result in zip(batch, results, strict=True):
        if result.failed and result.retryable:
            again.append(document)
        elif result.failed and not result.forbidden:
            rejected.append(Failure(_as_json(document), result.reason or f"HTTP {result.status}"))
    return again


def _as_json(document: Document) -> dict[str, object]:
    return {"index": document.index, "id": document.id, "fields": document.initial_fields}

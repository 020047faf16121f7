"""Brings documents into the cluster within the time an invocation has left.

What may pass (429, 502, 503, 504, no connection, a conflict) is tried again with growing pauses;
a request that is too large is halved; a document that the cluster will never take is handed to
the caller with the reason; a cluster that stays down, or forbids the index, is an error, so that Lambda tries the whole
event again and then keeps it in the dead-letter queue. Documents have ids of their own: writing
one twice is writing it once.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from forwarder.cluster import Cluster, ItemResult
from forwarder.documents import Document
from forwarder.errors import ClusterError, DeliveryError
from forwarder.failures import Failure

# One request holds so many documents at most; halved where the cluster finds it too large.
MAX_DOCUMENTS_PER_REQUEST = 500
# Left at the end of an invocation for the failure store and the answer.
RESERVED_SECONDS = 3.0
_MIN_REQUEST_SECONDS = 1.0
_MAX_REQUEST_SECONDS = 30.0
_INITIAL_BACKOFF_SECONDS = 0.2
_MAX_BACKOFF_SECONDS = 5.0
_NO_REASON = "without a reason"


class TimeBudget(Protocol):
    """The invocation's time."""

    def remaining_seconds(self) -> float:
        """What is left of it."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


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

"""Delivers documents to the search cluster, and keeps those that it can never index."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.core.bounded_batches import batches, divide
from profiler.core.completeness import WHOLE, Completeness, Gap, joined_completeness
from profiler.core.redaction import redact_line
from profiler.forwarder.document_updates import (
    Document,
    ReportDocument,
    StoredRun,
    may_leave_out_field,
)
from profiler.forwarder.invocation import (
    DeliveryError,
    InvocationTime,
    RetryBackoff,
    SearchClusterError,
)
from profiler.forwarder.search_cluster.bulk_client import ItemResult, SearchCluster
from profiler.forwarder.search_cluster.refusal_remedies import remedy_sentence

# A queue may accept 1 MiB, but those that were made before 2025 accept 256 KiB.
MAX_MESSAGE_BYTES = 256 * 1024
# The limits of one SendMessageBatch: messages, and bytes of all of them.
_MAX_BATCH_MESSAGES = 10
_MAX_BATCH_BYTES = 1024 * 1024
# This also matches in a line that is cut, or is not valid JSON.
_TASK_ID = re.compile(r'"taskId"\s*:\s*"([^"\\]{1,100})"')
# TASK-ID/CONTAINER, and what follows it.
_RUN_ID = re.compile(r"([^/]+)/")
# A character takes at most twelve bytes in JSON.
_MAX_TRUNCATED_LENGTH = 20_000
# The largest bulk request. AWS's smallest instances accept 10 MiB; a batch is halved if the cluster
# refuses it.
MAX_DOCUMENTS_PER_REQUEST = 1000
MAX_REQUEST_BYTES = 5 * 1024 * 1024
_MAX_REQUEST_SECONDS = 30.0
_MAX_SEARCH_SECONDS = 3.0
# A new version has few new fields. An index that lacks more has not our mapping.
_MAX_LEFT_OUT = 8
# Of a run in one request: a report, and the event of its task.
_WRITERS_AT_ONCE = 2


class FailedItem(Struct, frozen=True):
    """A document, or a line that should become one, and why it cannot be indexed."""

    document: object
    reason: str

    @property
    def task_id(self) -> str | None:
        if isinstance(self.document, str):
            match = _TASK_ID.search(self.document)
            return match.group(1) if match else None
        document_id = None
        if isinstance(self.document, dict):
            document_id = self.document.get("id")
        if not isinstance(document_id, str):
            return None
        match = _RUN_ID.match(document_id)
        return match.group(1) if match else None


# Keeps all failures. Raises DeliveryError if one was not kept.
KeepFailures = Callable[[Sequence[FailedItem]], None]


# Boto3 has no types.
def send_failures(queue_url: str, sqs: Any, failures: Sequence[FailedItem]) -> None:  # noqa: ANN401
    """Send a message for each failure to an SQS queue, truncated to the size that it accepts.

    Raises DeliveryError.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # in Lambda's runtime

    sized = ((body, len(body)) for body in map(message_body, failures))
    for bodies in divide(sized, max_items=_MAX_BATCH_MESSAGES, max_bytes=_MAX_BATCH_BYTES):
        entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
        try:
            failed = sqs.send_message_batch(QueueUrl=queue_url, Entries=entries).get("Failed")
            code = failed and failed[0].get("Code")
        except (BotoCoreError, ClientError) as error:
            code = type(error).__name__
        if code:
            raise DeliveryError(
                f"The failure queue did not accept a message ({code}): "
                "check FAILED_ITEMS_QUEUE_URL and that the function's role may send to it."
            )


def log_failures(
    log: Callable[[Mapping[str, object]], None], failures: Sequence[FailedItem]
) -> None:
    """Log one line for each failure: the task and the reason, which may quote a field's value."""
    for failure in failures:
        line = {"level": "error", "event": "A document cannot be indexed.", "task": failure.task_id}
        log({**line, "reason": redact_line(failure.reason)[:300]})


def message_body(failure: FailedItem) -> str:
    """``{"document": …, "reason": …}`` in ASCII, at most 256 KB; of a larger document, the
    beginning as text.
    """
    body = _compact_json({"document": failure.document, "reason": failure.reason})
    if len(body) <= MAX_MESSAGE_BYTES:
        return body
    if isinstance(failure.document, str):
        text = failure.document
    else:
        text = _compact_json(failure.document)
    reason = f"{failure.reason[:1000]} (the document is truncated)"
    return _compact_json({"document": text[:_MAX_TRUNCATED_LENGTH], "reason": reason})


def _compact_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


class DeliveryResult(Struct, frozen=True, kw_only=True):
    """The number of indexed documents, and the documents that the cluster will never accept.

    ``dropped``: the number of documents of each index that an ingest pipeline of the cluster has
    dropped. ``left_out``: the fields of each index that it did not take. ``completeness``: whether
    the runs' documents were looked for in all of their indices.
    """

    indexed: int
    rejected: tuple[FailedItem, ...] = ()
    dropped: Mapping[str, int] = {}
    left_out: Mapping[str, Sequence[str]] = {}
    completeness: Completeness = WHOLE


NOT_DELIVERED: Final = DeliveryResult(indexed=0)
DeliverDocuments = Callable[[Sequence[Document]], DeliveryResult]


def deliver_documents(
    cluster: SearchCluster,
    budget: InvocationTime,
    documents: Sequence[Document],
    arrived_at: str | None = None,
) -> DeliveryResult:
    """Write all documents. ``arrived_at`` is the time, which new documents of runs keep.

    Raises DeliveryError if some were not written, and a later attempt can succeed.
    """
    backoff = RetryBackoff(
        budget, initial_seconds=0.2, max_seconds=5.0, max_request_seconds=_MAX_REQUEST_SECONDS
    )
    placed, completeness = _move_to_existing_indices(cluster, backoff, documents)
    if arrived_at:
        placed = [document.with_arrival_time(arrived_at) for document in placed]
    delivery = _Delivery(cluster, backoff, pending=_divide_into_requests(placed))
    while delivery.pending:
        delivery.write_next_batch()
    if delivery.fault:
        raise delivery.fault.delivery_error
    return DeliveryResult(
        indexed=delivery.indexed,
        rejected=tuple(delivery.rejected),
        dropped=delivery.dropped,
        left_out=delivery.left_out,
        completeness=completeness,
    )


def _divide_into_requests(documents: Sequence[Document]) -> list[list[Document]]:
    """The documents of each bulk request, the first one last."""
    requests: list[list[Document]] = []
    for turn in reversed(_divide_into_turns(documents)):
        sized = ((document, sum(map(len, document.bulk_lines))) for document in turn)
        requests += divide(sized, max_items=MAX_DOCUMENTS_PER_REQUEST, max_bytes=MAX_REQUEST_BYTES)
    return requests


def _divide_into_turns(documents: Sequence[Document]) -> list[list[Document]]:
    """The documents in as many turns as some run has writers, but for a report and its event: of
    writers at once, all but one fail, and wait for another attempt. Any number of log streams can
    speak of one run.
    """
    turns: list[list[Document]] = [[]]
    writers: Counter[tuple[str, str]] = Counter()
    for document in documents:
        place = document.index, document.id
        writers[place] += 1
        turn = max(0, writers[place] - _WRITERS_AT_ONCE)
        if turn == len(turns):
            turns.append([])
        turns[turn].append(document)
    return turns


def _move_to_existing_indices(
    cluster: SearchCluster, backoff: RetryBackoff, documents: Sequence[Document]
) -> tuple[Sequence[Document], Completeness]:
    """The documents, each run's in the index that already has it, and what was not searched.

    A report names its start, and with it its index: one with a false start, or of another month
    than ECS's, would be a second document of its run. Without an answer, nothing is moved, and
    everything is written: a run with two documents is not lost.
    """
    of_search: dict[str, list[str]] = {}
    for document in documents:
        if document.searched:
            of_search.setdefault(document.searched, []).append(document.id)
    places: dict[str, str] = {}
    parts: list[Completeness] = []
    for searched, ids in of_search.items():
        for part in batches(ids, MAX_DOCUMENTS_PER_REQUEST):
            timeout_seconds = min(backoff.next_request_timeout_seconds() or 0, _MAX_SEARCH_SECONDS)
            if timeout_seconds <= 0:
                continue
            try:
                found, completeness = cluster.indices_of_runs(searched, part, timeout_seconds)
            except SearchClusterError as error:
                completeness = Completeness((Gap(place=searched, reason=str(error)),))
            else:
                places.update(found)
            parts.append(completeness)
    placed: list[Document] = []
    for document in documents:
        index = document.index
        if document.searched:
            index = places.setdefault(document.id, index)
        placed.append(document if index == document.index else replace(document, index=index))
    return placed, joined_completeness(parts)


def _wait_or_raise(backoff: RetryBackoff, reason: str) -> None:
    if not backoff.wait():
        raise DeliveryError(
            f"The cluster accepted no documents before the invocation ran out of time: {reason}"
        )


class _IndexFault(Struct, frozen=True, kw_only=True):
    """A result that is a fault of an index or the cluster, and the index."""

    result: ItemResult
    index: str

    @property
    def delivery_error(self) -> DeliveryError:
        return DeliveryError(
            f"The search cluster did not accept some documents of {self.index} "
            f"({redact_line(self.result.reason or 'without a reason')}); the others are written. "
            f"{remedy_sentence(self.result, self.index)}"
        )


class _Delivery(Struct):
    """A delivery so far; see :class:`DeliveryResult`.

    ``pending``: the documents of each request to come, the next one last. ``fault``: the first one.
    """

    cluster: SearchCluster
    backoff: RetryBackoff
    pending: list[list[Document]]
    indexed: int = 0
    rejected: list[FailedItem] = []
    dropped: Counter[str] = field(default_factory=Counter)
    left_out: dict[str, list[str]] = {}
    fault: _IndexFault | None = None

    def write_next_batch(self) -> None:
        """Make the next request. Raises DeliveryError without time for it or for a repetition, and
        SearchClusterError.
        """
        batch = [_without_refused_fields(each, self.left_out) for each in self.pending.pop()]
        timeout_seconds = self.backoff.next_request_timeout_seconds()
        if timeout_seconds is None:
            raise DeliveryError(
                "The invocation ran out of time before all documents were written: raise the "
                "function's timeout."
            )
        try:
            results = self.cluster.write_documents(batch, timeout_seconds)
        except SearchClusterError as error:
            if error.status == 413:  # noqa: PLR2004  Content Too Large
                self._split_batch(batch, str(error))
                return
            if not error.is_retryable:
                raise
            _wait_or_raise(self.backoff, str(error))
            self.pending.append(batch)
            return
        retried = self._take_results(batch, results)
        if not retried:
            self.backoff.reset()
            return
        reason = next(result.reason or "" for result in results if result.is_retryable)
        _wait_or_raise(self.backoff, reason)
        self.pending.insert(0, retried)  # the last one: others need not wait for it

    def _split_batch(self, batch: list[Document], reason: str) -> None:
        """Write a batch that is too large in two; a single document that is too large is
        rejected.
        """
        if len(batch) == 1:
            self.rejected.append(FailedItem(_document_as_json(batch[0]), reason))
            return
        middle = len(batch) // 2
        self.pending += [batch[middle:], batch[:middle]]

    def _take_results(self, batch: list[Document], results: list[ItemResult]) -> list[Document]:
        """Count what was done. Returns the documents to write again after a while; those that can
        be completed at once are the next request.
        """
        retried: list[Document] = []
        completed: list[Document] = []
        working = _working_indices(batch, results)
        for document, result in zip(batch, results, strict=True):
            if result.is_refused_for_good(is_index_working=document.index in working):
                reason = result.reason or f"HTTP {result.status}"
                self.rejected.append(FailedItem(_document_as_json(document), reason))
            elif result.is_retryable:
                retried.append(replace(document, stored=None))
            elif self._can_write_without_field(result.unknown_field, document):
                completed.append(document)
            elif result.is_failed:
                self.fault = self.fault or _IndexFault(result=result, index=document.index)
            elif result.is_dropped:
                self.dropped[document.index] += 1
            else:
                completed += self._count_or_complete(document, result.stored)
        if completed:
            self.pending.append(completed)
        return retried

    def _count_or_complete(
        self, document: Document, stored: StoredRun | None
    ) -> tuple[Document, ...]:
        """Count a document that the cluster has. Returns the one that completes it, if any."""
        if stored is None or document.stored is not None:
            self.indexed += 1
        elif document.has_more_to_write(stored):
            return (replace(document, stored=stored),)
        elif not isinstance(document, ReportDocument):
            self.indexed += 1
        # Else a report that does not count, because its stream is another task's.
        return ()

    def _can_write_without_field(self, name: str | None, document: Document) -> bool:
        """Whether the document can be written without a field that its index does not have: a run
        is not lost because ``kibana import`` was not run after an update.
        """
        if name is None or name in document.left_out:
            return False
        names = self.left_out.setdefault(document.index, [])
        if name not in names and may_leave_out_field(name) and len(names) < _MAX_LEFT_OUT:
            names.append(name)
        return name in names


def _working_indices(batch: list[Document], results: list[ItemResult]) -> set[str]:
    """The indices that took, or judged, some document of the batch."""
    judged = zip(batch, results, strict=True)
    return {document.index for document, result in judged if result.is_of_working_index}


def _without_refused_fields(document: Document, left_out: Mapping[str, Sequence[str]]) -> Document:
    """The document without the fields that its index has refused in this delivery."""
    fields = tuple(left_out.get(document.index, ()))
    return replace(document, left_out=fields) if fields != document.left_out else document


def _document_as_json(document: Document) -> dict[str, object]:
    return {"index": document.index, "id": document.id, "fields": document.initial_fields}

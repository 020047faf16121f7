"""Keeps documents that can never be indexed: in a queue, or as task ids and reasons in the log."""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from forwarder.delivery_errors import DeliveryError

_T = TypeVar("_T")
# A queue may accept 1 MiB, but those that were made before 2025 accept 256 KiB.
MAX_MESSAGE_BYTES = 256 * 1024
# The limits of one SendMessageBatch: messages, and bytes of all of them.
_MAX_BATCH_MESSAGES, _MAX_BATCH_BYTES = 10, 1024 * 1024
_MAX_REASON_LENGTH = 1000
_MAX_LOGGED_REASON_LENGTH = 300
_MAX_LOGGED_REASONS = 10
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
        """The id of the task in the document or line; None without one."""
        if isinstance(self.document, str):
            match = _TASK_ID.search(self.document)
            return None if match is None else match.group(1)
        document_id = self.document.get("id") if isinstance(self.document, dict) else None
        return document_id.partition("/")[0] if isinstance(document_id, str) and "/" in document_id else None


# Keeps all failures. Raises DeliveryError if one was not kept.
KeepFailures = Callable[[Sequence[Failure]], None]


def divide(sized: Iterable[tuple[_T, int]], *, max_items: int, max_bytes: int) -> Iterator[list[_T]]:
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


def send_failures(queue_url: str, sqs: Any, failures: Sequence[Failure]) -> None:  # noqa: ANN401  boto3 has no types
    """Send one message for each failure to an SQS queue, truncated to the size that SQS accepts.

    Raises:
        DeliveryError: the queue did not accept a message.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # in Lambda's runtime

    for bodies in _message_batches(failures):
        entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
        try:
            response = sqs.send_message_batch(QueueUrl=queue_url, Entries=entries)
        except (BotoCoreError, ClientError) as error:
            raise _queue_error(type(error).__name__) from error
        if response.get("Failed"):
            raise _queue_error(str(response["Failed"][0].get("Code")))


def _queue_error(code: str) -> DeliveryError:
    return DeliveryError(
        f"The failure queue did not accept a message ({code}): "
        "check FAILED_ITEMS_QUEUE_URL and that the function's role may send to it."
    )


def _message_batches(failures: Iterable[Failure]) -> Iterator[list[str]]:
    """Yield the bodies of messages that one request may contain together."""
    bodies = map(message_body, failures)
    return divide(
        ((body, len(body.encode())) for body in bodies), max_items=_MAX_BATCH_MESSAGES, max_bytes=_MAX_BATCH_BYTES
    )


def log_failures(log: Callable[[Mapping[str, object]], None], failures: Sequence[Failure]) -> None:
    """Log one line for each failure: the task and the reason, without the document's content."""
    for failure in failures:
        line = {"level": "error", "event": "A document cannot be indexed.", "task": failure.task_id}
        log({**line, "reason": failure.reason[:_MAX_LOGGED_REASON_LENGTH]})


def log_failure_count(log: Callable[[Mapping[str, object]], None], failures: Sequence[Failure]) -> None:
    """Log the number of failures and their reasons, without the content of the documents."""
    reasons = sorted({failure.reason[:_MAX_LOGGED_REASON_LENGTH] for failure in failures})
    line = {"level": "error", "event": "Documents cannot be indexed.", "count": len(failures)}
    log({**line, "reasons": reasons[:_MAX_LOGGED_REASONS]})


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

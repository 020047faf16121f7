"""Where documents go that the cluster will never take: an SQS queue, with the reason beside each."""

from bisect import bisect_right
from functools import reduce
from typing import Protocol

import msgspec
from msgspec import Struct

from forwarder.errors import DeliveryError

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
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415  in Lambda's runtime

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

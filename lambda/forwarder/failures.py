"""Where documents go that the cluster will never take: an SQS queue, with the reason beside each."""

from typing import Protocol

import msgspec
from msgspec import Struct

from forwarder.errors import DeliveryError

LARGEST_MESSAGE_BYTES = 256 * 1024
# JSON may write one byte of text as six (\u0000); and there are the names around it.
_WORST_GROWTH = 6
_ROOM_FOR_THE_REST = 4096


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
    body = msgspec.json.encode(failure)
    if len(body) > LARGEST_MESSAGE_BYTES:
        text = failure.document if isinstance(failure.document, str) else msgspec.json.encode(failure.document).decode()
        kept = text[: (LARGEST_MESSAGE_BYTES - _ROOM_FOR_THE_REST) // _WORST_GROWTH]
        body = msgspec.json.encode(Failure(kept, f"{failure.reason[:1000]} (the document is cut)"))
    return body.decode()

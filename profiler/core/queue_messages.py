"""Messages of an SQS queue that are read while they stay in it; a read hides them, or each could
return the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct, field

from profiler.core.aws_clients import AwsClient
from profiler.core.aws_lost_answers import has_lost_attempt
from profiler.core.bounded_batches import batches

MESSAGES_PER_CALL = 10
# The template's queues keep a message so long: the most that SQS allows.
KEPT_SECONDS = 14 * 24 * 3600
# Lambda tries an event for so long, before its message is put into a queue.
TRIED_SECONDS = 6 * 3600
# A long poll asks all servers of the queue. A short one asks a few, and may find nothing in a queue
# with messages.
LONG_POLL_SECONDS = 1


class HiddenMessages(Struct):
    """Reads a queue, and knows the messages that it has hidden; ``was_lost``: but for those of a
    read that boto3 repeated without an answer.
    """

    sqs: AwsClient
    url: str
    was_lost: bool = False
    _receipts: dict[str, str] = field(default_factory=dict)

    def receive(self, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401  boto3's own
        """Read up to ten messages that are visible; none: no message is."""
        answer = self.sqs.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=MESSAGES_PER_CALL,
            WaitTimeSeconds=LONG_POLL_SECONDS,
            **options,
        )
        self.was_lost |= has_lost_attempt(answer)
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        self._receipts |= {message["MessageId"]: message["ReceiptHandle"] for message in messages}
        return messages

    def delete(self, message: dict[str, Any]) -> None:
        self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        del self._receipts[message["MessageId"]]

    def show(self) -> None:
        """Make all messages visible that are not deleted.

        SQS's response names those that are visible already.
        """
        entries = [
            {"Id": str(number), "ReceiptHandle": receipt, "VisibilityTimeout": 0}
            for number, receipt in enumerate(self._receipts.values())
        ]
        for part in batches(entries, MESSAGES_PER_CALL):
            self.sqs.change_message_visibility_batch(QueueUrl=self.url, Entries=part)


@contextmanager
def hidden_messages(sqs: AwsClient, url: str) -> Iterator[HiddenMessages]:
    """Read a queue.

    Afterwards, what was not deleted is visible at once; if that fails, when its timeout ends.
    """
    messages = HiddenMessages(sqs, url)
    try:
        yield messages
    finally:
        messages.show()

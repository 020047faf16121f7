"""Send the events in a dead-letter queue to their Lambda function again.

    QUEUE=URL FUNCTION=NAME python tools/redrive.py

The tool deletes an event from the queue after Lambda has accepted it. Both functions are idempotent, so a repeated
event does no harm.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError


class Sqs(Protocol):
    """The part of boto3's SQS client that this tool uses."""

    def receive_message(self, **arguments: object) -> Mapping[str, Any]:
        """https://docs.aws.amazon.com/goto/WebAPI/sqs-2012-11-05/ReceiveMessage ."""
        ...

    def delete_message(self, **arguments: object) -> object:
        """https://docs.aws.amazon.com/goto/WebAPI/sqs-2012-11-05/DeleteMessage ."""
        ...


class Lambda(Protocol):
    """The part of boto3's Lambda client that this tool uses."""

    def invoke(self, **arguments: object) -> object:
        """https://docs.aws.amazon.com/goto/WebAPI/lambda-2015-03-31/Invoke ."""
        ...


def redrive(
    sqs: Sqs, lambda_client: Lambda, queue_url: str, function_name: str, *, now_ms: float, wait_seconds: int = 1
) -> int:
    """Send all events again that were in the queue at ``now_ms``. Returns their number.

    Newer events stay in the queue: they may be events that this tool has sent and that failed again after three
    attempts. The visibility timeout hides them from this loop.
    """
    sent = 0
    request = {"QueueUrl": queue_url, "MaxNumberOfMessages": 10, "AttributeNames": ["SentTimestamp"]}
    while messages := sqs.receive_message(**request, WaitTimeSeconds=wait_seconds).get("Messages"):
        for message in messages:
            if float(message["Attributes"]["SentTimestamp"]) <= now_ms:
                event = json.dumps(event_in(message["Body"]))
                lambda_client.invoke(FunctionName=function_name, InvocationType="Event", Payload=event)
                sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
                sent += 1
    return sent


def event_in(body: str) -> object:
    """Extract the event from a message.

    Lambda wraps it in a record with the error (``requestPayload``). EventBridge sends the event itself.
    """
    document: Any = json.loads(body)
    is_record = isinstance(document, dict) and "requestPayload" in document and "requestContext" in document
    return document["requestPayload"] if is_record else document


def main(environment: Mapping[str, str]) -> None:
    """Send the events again. Exits with an error message if a setting is missing or AWS rejects a request."""
    queue_url, function_name = environment.get("QUEUE", ""), environment.get("FUNCTION", "")
    if not queue_url or not function_name:
        sys.exit("No queue or no function: make redrive QUEUE=URL FUNCTION=NAME, both are outputs of the stack.")
    import boto3

    try:
        sent = redrive(boto3.client("sqs"), boto3.client("lambda"), queue_url, function_name, now_ms=time.time() * 1000)
    except (BotoCoreError, ClientError) as error:
        sys.exit(f"The events could not be sent again ({error}): unsent events are still in the queue.")
    print(f"{sent} events sent to {function_name} again.")


if __name__ == "__main__":
    main(os.environ)

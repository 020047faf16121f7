"""Sends the events in a dead-letter queue to their function again.

    QUEUE=URL FUNCTION=NAME python tools/redrive.py

An event leaves the queue when Lambda has taken it. Both functions may see an event twice without harm.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError


class Sqs(Protocol):
    """What is used of boto3's SQS client."""

    def receive_message(self, **arguments: object) -> Mapping[str, Any]:
        """https://docs.aws.amazon.com/goto/WebAPI/sqs-2012-11-05/ReceiveMessage ."""
        ...

    def delete_message(self, **arguments: object) -> object:
        """https://docs.aws.amazon.com/goto/WebAPI/sqs-2012-11-05/DeleteMessage ."""
        ...


class Lambda(Protocol):
    """What is used of boto3's Lambda client."""

    def invoke(self, **arguments: object) -> object:
        """https://docs.aws.amazon.com/goto/WebAPI/lambda-2015-03-31/Invoke ."""
        ...


def redrive(sqs: Sqs, functions: Lambda, queue: str, function: str, *, now_ms: float, wait_seconds: int = 1) -> int:
    """How many of the events that were there at ``now_ms`` were sent again.

    Younger ones are left: they may be the same, back after three tries. The visibility timeout hides them meanwhile.
    """
    sent = 0
    wanted = {"QueueUrl": queue, "MaxNumberOfMessages": 10, "AttributeNames": ["SentTimestamp"]}
    while messages := sqs.receive_message(**wanted, WaitTimeSeconds=wait_seconds).get("Messages"):
        for message in messages:
            if float(message["Attributes"]["SentTimestamp"]) <= now_ms:
                event = json.dumps(event_in(message["Body"]))
                functions.invoke(FunctionName=function, InvocationType="Event", Payload=event)
                sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
                sent += 1
    return sent


def event_in(body: str) -> Any:  # noqa: ANN401  any JSON
    """The event of a message: Lambda puts it beside the error (``requestPayload``), EventBridge sends it alone."""
    document = json.loads(body)
    is_record = isinstance(document, dict) and "requestPayload" in document and "requestContext" in document
    return document["requestPayload"] if is_record else document


def main(environment: Mapping[str, str]) -> None:
    """Exits with a sentence if something is missing or refused."""
    queue, function = environment.get("QUEUE", ""), environment.get("FUNCTION", "")
    if not queue or not function:
        sys.exit("No queue or no function: make redrive QUEUE=URL FUNCTION=NAME, both are outputs of the stack.")
    import boto3  # noqa: PLC0415  when it is clear that there is work for it

    try:
        sent = redrive(boto3.client("sqs"), boto3.client("lambda"), queue, function, now_ms=time.time() * 1000)
    except (BotoCoreError, ClientError) as error:
        sys.exit(f"The events could not be sent again ({error}): what was not sent is still in the queue.")
    print(f"{sent} events sent to {function} again.")


if __name__ == "__main__":
    main(os.environ)

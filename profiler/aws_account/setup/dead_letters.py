"""Sends the events in a dead-letter queue to their Lambda function again.

An event is deleted from the queue after Lambda has accepted it. The functions are idempotent, so a repeated event does
no harm. Of the records of a data stream, Lambda puts only the position into the queue: ``replay`` sends them.
"""

import json
from collections.abc import Mapping
from typing import Any

from profiler.aws_account.aws_errors import OpenClient
from profiler.core.aws_clients import AwsClient
from profiler.core.queue_messages import hidden_messages


def redrive(open_client: OpenClient, queue_url: str, function_name: str, *, now_ms: float) -> tuple[int, list[str]]:
    """Send all events again that were in the queue at ``now_ms``: newer ones may have failed again meanwhile.

    Returns the number of events that were sent, and a sentence for each message without one. Raises ClientError.
    """
    sent = 0
    refused: dict[str, str] = {}
    with hidden_messages(open_client("sqs"), queue_url) as queue:
        while messages := queue.receive(AttributeNames=["SentTimestamp"]):
            for message in messages:
                number = message["MessageId"]
                if float(message["Attributes"]["SentTimestamp"]) > now_ms or number in refused:
                    continue
                try:
                    event = _event_in(message["Body"])
                except (ValueError, TypeError, RecursionError):
                    refused[number] = f"The message {number} is not an event of Lambda."
                    continue
                if event is None:
                    where = f"The message {number} is about records of a data stream"
                    refused[number] = f"{where}: run task-profiler replay on their log groups."
                    continue
                payload = json.dumps(event)
                open_client("lambda").invoke(FunctionName=function_name, InvocationType="Event", Payload=payload)
                queue.delete(message)
                sent += 1
    return sent, [*refused.values()]


def count_events(sqs: AwsClient, queue_url: str) -> int:
    """About how many events are in the queue."""
    attribute = "ApproximateNumberOfMessages"
    return int(sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=[attribute])["Attributes"][attribute])


def _event_in(body: str) -> object:
    """The event of a message, which Lambda wraps; None: records of a data stream. Raises ValueError or TypeError."""
    document: Any = json.loads(body)
    if not isinstance(document, Mapping):
        raise TypeError(body)
    if "KinesisBatchInfo" in document:
        return None
    return document["requestPayload"] if {"requestPayload", "requestContext"} <= document.keys() else document

"""Sends the events in a dead-letter queue to their Lambda function again.

For records of a data stream, Lambda puts only their position into the queue. They are read from the stream, which
keeps them for 24 hours, and each is sent as the event of a subscription, which contains the same data.

An event is deleted from the queue after Lambda has accepted it. The functions are idempotent, so a repeated event does
no harm. An event above 1 MB, such as a large record of a data stream, which ends after 24 hours, is invoked
synchronously (6 MB). What Lambda does not accept stays in the queue, and the other events follow.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from profiler.aws_account.aws_errors import OpenClient
from profiler.core.aws_clients import AwsClient, error_status
from profiler.core.queue_messages import hidden_messages

# Lambda has several error codes for a large payload (RequestEntityTooLargeException, RequestTooLargeException), with
# one status.
_TOO_LARGE_STATUS = 413
_NO_POSITION = frozenset({"ResourceNotFoundException", "InvalidArgumentException"})


class RecordsMissingError(Exception):
    """The data stream has lost records: their 24 hours are over, or the stream was deleted."""


def redrive(open_client: OpenClient, queue_url: str, function_name: str, *, now_ms: float) -> tuple[int, list[str]]:
    """Send all events again that were in the queue at ``now_ms``.

    Newer events stay in the queue: they may have been sent by this loop, and have failed again after three attempts.
    The visibility timeout hides them from it. Returns the number of events that were sent, and a sentence for each one
    that Lambda did not accept. Raises ClientError if later events would fail, too.
    """
    sent = 0
    refused: dict[str, list[str]] = {}
    with hidden_messages(open_client("sqs"), queue_url) as queue:
        while messages := queue.receive(AttributeNames=["SentTimestamp"]):
            for message in messages:
                number = message["MessageId"]
                if float(message["Attributes"]["SentTimestamp"]) > now_ms or number in refused:
                    continue
                accepted, reasons = _send_events(message, open_client, function_name)
                sent += accepted
                if reasons:
                    refused[number] = reasons
                else:
                    queue.delete(message)
    return sent, [reason for reasons in refused.values() for reason in reasons]


def count_events(sqs: AwsClient, queue_url: str) -> int:
    """About how many events are in the queue."""
    attribute = "ApproximateNumberOfMessages"
    return int(sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=[attribute])["Attributes"][attribute])


def _send_events(message: Mapping[str, Any], open_client: OpenClient, function_name: str) -> tuple[int, list[str]]:
    """Send the events of a message. Returns their number, and why others were not sent."""
    number = message["MessageId"]
    sent, reasons = 0, []
    try:
        events = [*events_in(message["Body"], open_client("kinesis"))]
    except (ValueError, KeyError, RecursionError):
        return 0, [f"The message {number} is not an event of Lambda."]
    except RecordsMissingError:
        missing = f"The records of the message {number} are not all in the stream any more"
        return 0, [f"{missing}: run task-profiler replay on their log groups."]
    for name, event in events:
        reason = _send(open_client("lambda"), function_name, json.dumps(event))
        if reason is None:
            sent += 1
        else:
            reasons.append(f"{name or f'The event of message {number}'} was not sent: {reason}.")
    return sent, reasons


def _send(lambda_client: AwsClient, function_name: str, payload: str) -> str | None:
    """Send one event. Returns why Lambda did not accept it."""
    from botocore.exceptions import ClientError  # slow to import

    for kind in ("Event", "RequestResponse"):
        try:
            answer = lambda_client.invoke(FunctionName=function_name, InvocationType=kind, Payload=payload)
        except ClientError as error:
            if error_status(error) != _TOO_LARGE_STATUS:
                raise
        else:
            return "the function failed, see its log" if answer.get("FunctionError") else None
    return f"its {len(payload)} bytes are more than Lambda accepts"


def events_in(body: str, kinesis: AwsClient) -> Iterator[tuple[str, object]]:
    """Yield the events of a message, each with its name: one event, or a range of a data stream.

    Raises RecordsMissingError, and ValueError or KeyError if the message is something else.
    """
    document: Any = json.loads(body)
    batch = document.get("KinesisBatchInfo") if isinstance(document, dict) else None
    if not isinstance(batch, dict):
        # Lambda wraps the event in a record with the error. EventBridge sends the event itself.
        is_record = isinstance(document, dict) and "requestPayload" in document and "requestContext" in document
        yield "", document["requestPayload"] if is_record else document
        return
    records = [*records_in(batch, kinesis)]
    if not records or records[0][0] != batch["startSequenceNumber"]:  # Kinesis begins with the oldest one
        raise RecordsMissingError
    for number, data in records:
        name = f"Record {number} of {batch['streamArn']}, shard {batch['shardId']},"
        yield name, {"awslogs": {"data": base64.b64encode(data).decode()}}


def records_in(batch: Mapping[str, Any], kinesis: AwsClient) -> Iterator[tuple[str, bytes]]:
    """Yield sequence number and data of the records from the first to the last one of a batch."""
    from botocore.exceptions import ClientError  # slow to import

    last = int(batch["endSequenceNumber"])
    try:
        iterator = kinesis.get_shard_iterator(
            StreamARN=batch["streamArn"],
            ShardId=batch["shardId"],
            ShardIteratorType="AT_SEQUENCE_NUMBER",
            StartingSequenceNumber=batch["startSequenceNumber"],
        )["ShardIterator"]
    except ClientError as error:
        if error.response["Error"]["Code"] not in _NO_POSITION:
            raise
        raise RecordsMissingError from error
    while iterator is not None:
        answer = kinesis.get_records(StreamARN=batch["streamArn"], ShardIterator=iterator)
        for record in answer["Records"]:
            number = int(record["SequenceNumber"])
            if number <= last:
                yield record["SequenceNumber"], record["Data"]
            if number >= last:
                return
        iterator = answer.get("NextShardIterator") if answer["Records"] or answer.get("MillisBehindLatest") else None

"""Payloads of CloudWatch Logs: subscriptions, streams, and the lines in them."""

import base64
import gzip
import json
import time
from contextlib import suppress
from typing import Any

TASK_ID = "158d1c8083dd49d6b527399fd6414f5c"
WRITTEN_MS = 1772359203000  # the time of REPORT
DOCUMENT = {
    "messageType": "DATA_MESSAGE",
    "owner": "111122223333",
    "logGroup": "/ecs/jobs",
    "logStream": f"ecs/batch/{TASK_ID}",
    "subscriptionFilters": ["task-profiler"],
    "logEvents": [
        {"id": "1", "timestamp": 1772359202500, "message": "hello", "extractedFields": {"a": "b"}}
    ],
    "policyLevel": "ACCOUNT_LEVEL_POLICY",
}
STREAM = "arn:aws:kinesis:eu-west-1:111122223333:stream/reports"
REPORT = {
    "time": "2026-03-01T10:00:03Z",
    "type": "task.report",
    "record": {"taskId": TASK_ID, "container": {"name": "batch"}, "status": "success"},
}


def put_lines(logs: Any, group: str, stream: str, *lines: str) -> None:
    """Into a log stream, which is created if there is none."""
    with suppress(logs.exceptions.ResourceAlreadyExistsException):
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
    events = [{"timestamp": time.time_ns() // 10**6, "message": line} for line in lines]
    logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)


def packed(data: bytes) -> dict[str, Any]:
    return {"awslogs": {"data": base64.b64encode(data).decode()}}


def packed_data(document: object) -> str:
    return base64.b64encode(gzip.compress(json.dumps(document).encode(), mtime=0)).decode()


def event(document: object, compress: Any = gzip.compress) -> dict[str, Any]:
    return packed(compress(json.dumps(document).encode()))


def subscription_event(*messages: str, timestamp_ms: int = WRITTEN_MS) -> dict[str, Any]:
    events = [
        {"id": str(number), "timestamp": timestamp_ms, "message": text}
        for number, text in enumerate(messages)
    ]
    return event({**DOCUMENT, "logEvents": events})


def record(number: int, data: object) -> dict[str, Any]:
    """A record as Lambda delivers it, without the members that the forwarder does not read."""
    return {
        "kinesis": {"sequenceNumber": str(number), "data": data},
        "eventID": f"shardId-000000000000:{number}",
        "eventSource": "aws:kinesis",
        "eventSourceARN": STREAM,
    }

"""Sends the reports of a log group, or the events in a dead-letter queue, through the
forwarder's functions again.

The functions are idempotent, so a repeated event does no harm.
"""

import base64
import gzip
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.registered_definitions import read_items
from profiler.core.aws_clients import AwsClient
from profiler.core.bounded_batches import divide
from profiler.core.commands_to_copy import command_line
from profiler.core.ecs_terms import REPLAY_FILTER
from profiler.core.errors import TaskProfilerError
from profiler.core.files import write_atomically
from profiler.core.json_levels import within_levels
from profiler.core.queue_messages import hidden_messages

# Not "task.*": the line of call stacks may have 200 KB, and the service returns at most 1 MB at a
# time.
_FILTER_PATTERN = (
    '{ $.type = "task.report" || $.type = "task.checkpoint" || $.type = "task.notice" }'
)
WINDOW_MS = 6 * 60 * 60 * 1000
# Well below the limit of a Lambda call, even if the payload does not compress.
MAX_PAYLOAD_BYTES = 1024 * 1024
_EVENT_OVERHEAD_BYTES = 200
_CONCURRENT_CALLS = 4
_TYPE_MARKERS = ('"task.report"', '"task.checkpoint"', '"task.notice"')

_Event = Mapping[str, Any]  # of FilterLogEvents
# The numbers of events that were read, of documents indexed and failed, and of untrusted lines.
ReplayCounts: TypeAlias = Counter[Literal["read", "indexed", "failed", "untrusted"]]


class ReplayProgressFile(Struct, frozen=True):
    """The progress of a replay, stored after each window.

    A later replay of another time replaces it.
    """

    path: Path
    start_ms: int

    def resume_ms(self) -> int:
        """Return the time to start from: ``start_ms``, or the point at which an earlier replay
        of this time stopped.
        """
        try:
            start_ms, done_until_ms = msgspec.json.decode(
                self.path.read_bytes(), type=tuple[int, int]
            )
        except (OSError, msgspec.DecodeError):
            return self.start_ms
        return done_until_ms if start_ms <= self.start_ms <= done_until_ms else self.start_ms

    def save_progress(self, done_until_ms: int) -> None:
        write_atomically(self.path, msgspec.json.encode((self.start_ms, done_until_ms)))

    def remove_file(self) -> None:
        self.path.unlink(missing_ok=True)


def read_reports(client: AwsClient, group: str, start_ms: int, end_ms: int) -> Iterator[_Event]:
    """Yield a log group's reports from ``start_ms`` to before ``end_ms``.

    ``endTime`` of the service is inclusive.
    """
    events = read_items(
        client,
        "filter_log_events",
        "events",
        logGroupName=group,
        startTime=start_ms,
        endTime=end_ms - 1,
        filterPattern=_FILTER_PATTERN,
    )
    for event in events:
        # An implementation of CloudWatch Logs may ignore the filter pattern.
        if any(marker in event["message"] for marker in _TYPE_MARKERS):
            yield event


def replay_reports(
    client: AwsClient,
    group: str,
    owner: str,
    forward: Callable[[Mapping[str, object]], ReplayCounts] | None,
    on_window: Callable[[int, ReplayCounts], None],
    *,
    start_ms: int,
    end_ms: int,
) -> ReplayCounts:
    """Forward the reports of a log group of the account ``owner`` from ``start_ms`` to before
    ``end_ms`` (since 1970).

    ``forward`` None: the reports are only counted. ``on_window`` gets the end of each window in
    milliseconds, and the counts since the start. Raises TaskProfilerError at the first window that
    cannot be forwarded.
    """
    total: ReplayCounts = Counter()
    with ThreadPoolExecutor(max_workers=_CONCURRENT_CALLS, thread_name_prefix="replay") as pool:
        for window_start_ms in range(start_ms, end_ms, WINDOW_MS):
            window_end_ms = min(window_start_ms + WINDOW_MS, end_ms)
            reports = list(read_reports(client, group, window_start_ms, window_end_ms))
            total["read"] += len(reports)
            if forward is not None:
                events = (
                    build_subscription_event(payload, group, owner)
                    for payload in split_into_payloads(reports)
                )
                for counts in pool.map(forward, events):
                    total += counts
            on_window(window_end_ms, total)
    return total


def call_forwarder(
    client: AwsClient, function_name: str, event: Mapping[str, object]
) -> ReplayCounts:
    """Call the function, and wait for its response, which has the counts.

    Raises TaskProfilerError if it fails.
    """
    response = client.invoke(FunctionName=function_name, Payload=msgspec.json.encode(event))
    return parse_response(response["Payload"].read(), response.get("FunctionError"))


def split_into_payloads(events: Iterable[_Event]) -> Iterator[list[_Event]]:
    """Group the events by stream, in the order of time, into lists that fit into one call."""
    streams: dict[str, list[_Event]] = {}
    for event in sorted(events, key=itemgetter("timestamp")):
        streams.setdefault(event["logStreamName"], []).append(event)
    for stream in streams.values():
        sized = (
            (event, len(event["message"].encode()) + _EVENT_OVERHEAD_BYTES) for event in stream
        )
        yield from divide(sized, max_bytes=MAX_PAYLOAD_BYTES)


def build_subscription_event(events: Sequence[_Event], group: str, owner: str) -> dict[str, object]:
    """Build the event that a CloudWatch Logs subscription sends."""
    document = {
        "messageType": "DATA_MESSAGE",
        "owner": owner,
        "logGroup": group,
        "logStream": events[0]["logStreamName"],
        "subscriptionFilters": [REPLAY_FILTER],
        "logEvents": [
            {"id": event["eventId"], "timestamp": event["timestamp"], "message": event["message"]}
            for event in events
        ],
    }
    data = gzip.compress(msgspec.json.encode(document), compresslevel=6)
    return {"awslogs": {"data": base64.b64encode(data).decode()}}


def parse_response(payload: bytes, function_error: str | None) -> ReplayCounts:
    """Read the counts of the function's response.

    Raises TaskProfilerError if it failed or is not the forwarder.
    """
    if function_error:
        said = (
            msgspec.json.decode(payload, type=dict[str, object]).get("errorMessage")
            or function_error
        )
        raise TaskProfilerError(
            f"The function failed ({said}): read its log, then run replay again."
        )
    try:
        counts = msgspec.json.decode(payload, type=dict[str, int])
        return Counter(
            {
                "indexed": counts["indexed"],
                "failed": counts["failed"],
                "untrusted": counts.get("untrusted", 0),
            }
        )
    except (msgspec.DecodeError, KeyError) as error:
        raise TaskProfilerError(
            "The function does not respond like the forwarder: check --function."
        ) from error


class RedriveProgress(Struct, kw_only=True):
    """The number of events that were sent so far, a sentence about each message that was not, by
    its id, and one about an answer that was lost; "": none was.
    """

    sent: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    loss: str = ""


def redrive_events(
    open_client: OpenClient,
    queue_url: str,
    function_name: str,
    done: RedriveProgress,
    *,
    now_ms: float,
    check_stop: Callable[[], object] = lambda: None,
) -> None:
    """Send all events again that were in the queue at ``now_ms``: newer ones may have failed
    again meanwhile.

    An event is deleted from the queue after Lambda has accepted it. Of the records of a data
    stream, Lambda puts only the position into the queue: ``replay`` sends them. ``done`` counts
    what was sent, also if it ends early. ``check_stop`` is called between events, and ends it by an
    exception. Raises ClientError.
    """
    refused = done.refused
    with hidden_messages(open_client("sqs"), queue_url) as queue:
        while messages := queue.receive(AttributeNames=["SentTimestamp"]):
            for message in messages:
                check_stop()
                number = message["MessageId"]
                if float(message["Attributes"]["SentTimestamp"]) > now_ms or number in refused:
                    continue
                try:
                    event = _event_of_message(message["Body"])
                except _NotReplayableError as reason:
                    refused[number] = f"The message {number} {reason}. It is still in the queue."
                    continue
                open_client("lambda").invoke(
                    FunctionName=function_name, InvocationType="Event", Payload=json.dumps(event)
                )
                done.sent += 1
                queue.delete(message)
    if queue.was_lost:
        done.loss = (
            "An answer of SQS was lost: the messages in it are hidden for a time, and are still in "
            "the queue."
        )


class QueueState(Struct, frozen=True, kw_only=True):
    """About how many messages a queue has that can be read, and that are hidden because somebody
    has read them; and for how long a read hides them.
    """

    visible: int
    hidden: int
    hidden_minutes: int


def queue_state(sqs: AwsClient, queue_url: str) -> QueueState:
    """The state of a queue. Raises the errors of boto3."""
    names = (
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "VisibilityTimeout",
    )
    answer = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=[*names])["Attributes"]
    visible, hidden, seconds = (int(answer.get(name, 0)) for name in names)
    return QueueState(visible=visible, hidden=hidden, hidden_minutes=math.ceil(seconds / 60))


def count_messages(sqs: AwsClient, queue_url: str) -> int:
    """About how many messages of the queue can be read. Raises the errors of boto3."""
    return queue_state(sqs, queue_url).visible


class _NotReplayableError(Exception):
    """A message that is not sent again. Its text is why, after the words for the message."""


def _event_of_message(body: str) -> object:
    """The event of a message, which Lambda wraps. Raises _NotReplayableError."""
    try:
        document: Any = json.loads(within_levels(body))
    except (ValueError, TypeError) as error:
        raise _NotReplayableError("is not an event of Lambda") from error
    if not isinstance(document, Mapping):
        raise _NotReplayableError("is not an event of Lambda")
    event: object = document
    if {"requestPayload", "requestContext"} <= document.keys():
        event = document["requestPayload"]
    if "KinesisBatchInfo" in document or event is None:
        raise _NotReplayableError(
            f"is about records of a data stream: run {command_line('replay')} on their log groups"
        )
    return event

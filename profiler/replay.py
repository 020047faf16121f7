"""Back-fill: the reports found in a log group, sent through the forwarder function again.

The log group is read in windows of time, oldest first. Each window's reports are packed the way a
subscription packs them, one log stream a payload, and the function is called with them. When a
window is through, the time is remembered, so that a broken replay goes on where it was. Writing a
report twice is writing it once, so nothing is lost or doubled if it was not remembered.
"""

import base64
import gzip
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec
from msgspec import Struct

from profiler.errors import TaskProfilerError

FILTER_PATTERN = '{ $.type = "task.*" }'
WINDOW_MS = 6 * 60 * 60 * 1000
# Well below what a Lambda call takes, also when it does not compress.
MAX_PAYLOAD_BYTES = 1024 * 1024
_EVENT_OVERHEAD_BYTES = 200
_TYPE_MARKERS = ('"task.report"', '"task.checkpoint"')


class LogEvent(Struct, frozen=True, kw_only=True):
    """A line of the log group."""

    stream: str
    id: str
    timestamp_ms: int
    message: str


class ReplayCounts(Struct, frozen=True, kw_only=True):
    """What became of the lines so far."""

    found: int = 0
    indexed: int = 0
    skipped: int = 0
    failed: int = 0

    def plus(self, other: "ReplayCounts") -> "ReplayCounts":
        """Both together."""
        return ReplayCounts(
            found=self.found + other.found,
            indexed=self.indexed + other.indexed,
            skipped=self.skipped + other.skipped,
            failed=self.failed + other.failed,
        )


class LogSource(Protocol):
    """The log group."""

    def between(self, start_ms: int, end_ms: int) -> Iterable[LogEvent]:
        """The lines from ``start_ms`` to before ``end_ms`` that match the filter pattern."""
        ...


class Forwarder(Protocol):
    """The forwarder."""

    def invoke(self, event: Mapping[str, object]) -> ReplayCounts:
        """Forward one payload. Raises TaskProfilerError if the function fails."""
        ...


class Progress(Protocol):
    """Hears how far the replay has come, and remembers it."""

    def window_done(self, done_until_ms: int, counts: ReplayCounts) -> None:
        """All before ``done_until_ms`` has been forwarded."""
        ...


def replay(
    lines: LogSource,
    function: Forwarder | None,
    progress: Progress,
    *,
    group: str,
    start_ms: int,
    end_ms: int,
    concurrency: int,
) -> ReplayCounts:
    """Forward everything from ``start_ms`` to before ``end_ms``; without a function only count.

    Raises TaskProfilerError at the first window that cannot be forwarded; what came before stays
    remembered.
    """
    total = ReplayCounts()
    with ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix="replay") as pool:
        for window_start_ms in range(start_ms, end_ms, WINDOW_MS):
            window_end_ms = min(window_start_ms + WINDOW_MS, end_ms)
            events = [event for event in lines.between(window_start_ms, window_end_ms) if _is_report(event)]
            total = total.plus(ReplayCounts(found=len(events)))
            if function is not None:
                for counts in pool.map(
                    function.invoke,
                    (build_subscription_event(payload, group) for payload in split_into_payloads(events)),
                ):
                    total = total.plus(counts)
            progress.window_done(window_end_ms, total)
    return total


def split_into_payloads(events: Iterable[LogEvent]) -> Iterator[list[LogEvent]]:
    """The events by stream, in the order of time, in lists that fit into one call."""
    streams: dict[str, list[LogEvent]] = {}
    for event in sorted(events, key=lambda event: event.timestamp_ms):
        streams.setdefault(event.stream, []).append(event)
    for stream in streams.values():
        batch: list[LogEvent] = []
        size_bytes = 0
        for event in stream:
            event_bytes = len(event.message.encode()) + _EVENT_OVERHEAD_BYTES
            if batch and size_bytes + event_bytes > MAX_PAYLOAD_BYTES:
                yield batch
                batch, size_bytes = [], 0
            batch.append(event)
            size_bytes += event_bytes
        yield batch


def build_subscription_event(events: list[LogEvent], group: str) -> dict[str, object]:
    """The event that a CloudWatch Logs subscription would have sent."""
    document = {
        "messageType": "DATA_MESSAGE",
        "owner": "task-profiler replay",
        "logGroup": group,
        "logStream": events[0].stream,
        "subscriptionFilters": ["task-profiler replay"],
        "logEvents": [{"id": event.id, "timestamp": event.timestamp_ms, "message": event.message} for event in events],
    }
    data = gzip.compress(msgspec.json.encode(document), compresslevel=6)
    return {"awslogs": {"data": base64.b64encode(data).decode()}}


def parse_response(payload: bytes, function_error: str | None) -> ReplayCounts:
    """The counts in a function's answer. Raises TaskProfilerError if it failed or answers something else."""
    try:
        answer = msgspec.json.decode(payload) if payload else None
    except (msgspec.DecodeError, RecursionError):
        answer = None
    if function_error is not None:
        message = answer.get("errorMessage") if isinstance(answer, dict) else None
        raise TaskProfilerError(
            f"The function failed ({message or function_error}): look into its log, then run replay again."
        )
    try:
        counts = msgspec.convert(answer, dict[str, int])
        return ReplayCounts(indexed=counts["indexed"], skipped=counts["skipped"], failed=counts["failed"])
    except (msgspec.ValidationError, KeyError) as error:
        raise TaskProfilerError("The function does not answer like the forwarder: check --function.") from error


def _is_report(event: LogEvent) -> bool:
    """Filter patterns are CloudWatch's; what comes back is looked at once more."""
    return any(mark in event.message for mark in _TYPE_MARKERS)

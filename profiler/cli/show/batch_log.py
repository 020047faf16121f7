"""The batch's own log lines at the moments of a run, from its log stream in CloudWatch Logs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

from msgspec import Struct

from profiler.cli.styled_text import EMPTY, INDENT, Line, Span, line
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.past_runs.moments import Moment, elapsed
from profiler.past_runs.runtime_memory_errors import out_of_memory_message
from profiler.record.record_model import Record

# The report, the call stacks and the notices are in the same stream.
_OWN_LINES = '"type":"task.report"', '"type":"task.stacks"', '"type":"task.notice"'
_MS_PER_SECOND = 1000
# A stack trace follows the message of most runtimes.
_SEARCHED_LINES = 200


# GetLogEvents of boto3's client.
GetLogEvents = Callable[..., Mapping[str, Any]]


class _Place(Struct, frozen=True, kw_only=True):
    title: str
    until_ms: int
    min_lines: int = 0


def log_lines(
    get_log_events: GetLogEvents, record: Record, moments: Sequence[Moment], count: int, zone: tzinfo | None
) -> Iterator[Line]:
    """The last ``count`` lines before each moment, and before the end. A line is shown once.

    At the end, the last message of a runtime that ran out of memory, if one of these lines, or of the last lines
    before the end, is one.

    Raises TaskProfilerError if the run has no log stream.
    """
    if record.log_group is None or record.log_stream is None:
        raise TaskProfilerError("The record names no log stream: --logs needs a batch that logs with awslogs.")
    yield line(Span(f"{record.log_group} {record.log_stream}", "bold"))
    shown: set[str] = set()
    read: list[str] = []
    for place in _places(record, moments):
        response = get_log_events(
            logGroupName=record.log_group,
            logStreamName=record.log_stream,
            endTime=place.until_ms + 1,
            limit=max(count + len(_OWN_LINES), place.min_lines),
            startFromHead=False,
        )
        events = [event for event in response["events"] if not any(own in event["message"] for own in _OWN_LINES)]
        read += [event["message"] for event in events]
        events = events[-count:]
        yield EMPTY
        yield line(Span(f"{INDENT}{place.title}", "dim"), "" if events else "  no lines before it")
        for event in events:
            text = event["message"].rstrip("\n")
            key = f"{event['timestamp']} {text}"
            if key not in shown:
                shown.add(key)
                at = datetime.fromtimestamp(event["timestamp"] / _MS_PER_SECOND).astimezone(zone)
                yield line(INDENT, Span(f"{at:%H:%M:%S} ", "dim"), text)
    message = out_of_memory_message(read)
    if message is not None:
        yield EMPTY
        yield line(Span("The program reported that it ran out of memory: ", "warning"), message)


def _places(record: Record, moments: Sequence[Moment]) -> Iterator[_Place]:
    started_ns = parse_ns(record.started_at)
    if started_ns is not None:
        for moment in moments:
            title = f"before {elapsed(moment.start_ms)}: {moment.text}"
            yield _Place(title=title, until_ms=started_ns // NS_PER_MS + round(moment.start_ms))
    finished_ns = parse_ns(record.finished_at)
    if finished_ns is not None:
        until_ms = finished_ns // NS_PER_MS + _MS_PER_SECOND
        yield _Place(title="before the end", until_ms=until_ms, min_lines=_SEARCHED_LINES)

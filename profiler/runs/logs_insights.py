"""Record lines from CloudWatch Logs Insights, for users without a cluster.

A query scans all lines of the log groups in its time range, and returns at most 10,000 lines: the newest.
https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_StartQuery.html
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, json

from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError

MAX_LINES = 10_000
_POLL_SECONDS = 1.0
# Insights itself ends a query after an hour.
_TIMEOUT_SECONDS = 3600
_UNFINISHED = frozenset({"Scheduled", "Running"})
_COMPLETE = "Complete"
_PATTERN_CHARACTERS = frozenset("*?[")


class LogsClient(Protocol):
    """The methods of boto3's client for CloudWatch Logs that are used here."""

    def start_query(self, **parameters: Any) -> Mapping[str, Any]:  # noqa: ANN401  boto3's own
        """StartQuery."""
        ...

    def get_query_results(self, **parameters: Any) -> Mapping[str, Any]:  # noqa: ANN401  boto3's own
        """GetQueryResults."""
        ...

    def stop_query(self, **parameters: Any) -> Mapping[str, Any]:  # noqa: ANN401  boto3's own
        """StopQuery."""
        ...


class TimeRange(Struct, frozen=True, kw_only=True):
    """Start and end in milliseconds since 1970."""

    start_ms: int
    end_ms: int


def query_text(families: Sequence[str]) -> str:
    """Build the query for the final reports of families. It does not filter by shell patterns: filter its result."""
    conditions = ['type = "task.report"']
    if families and not any(_PATTERN_CHARACTERS & set(family) for family in families):
        listed = ", ".join(json.encode(family).decode() for family in families)
        conditions.append(f"record.family in [{listed}]")
    parts = ("fields @message", f"filter {' and '.join(conditions)}", "sort @timestamp desc", f"limit {MAX_LINES}")
    return "\n| ".join(parts)


def find_lines(
    client: LogsClient, clock: Clock, groups: Sequence[str], span: TimeRange, families: Sequence[str]
) -> list[bytes]:
    """Query the lines, newest first.

    Raises TaskProfilerError if the query fails. Errors of the client are not caught.
    """
    query = client.start_query(
        logGroupNames=list(groups),
        startTime=span.start_ms // 1000,
        endTime=-(-span.end_ms // 1000),
        queryString=query_text(families),
        limit=MAX_LINES,
    )["queryId"]
    try:
        response = _wait_for_results(client, clock, query)
    except KeyboardInterrupt:
        client.stop_query(queryId=query)
        raise
    return [line for row in response.get("results", ()) if (line := _message(row)) is not None]


def _wait_for_results(client: LogsClient, clock: Clock, query: str) -> Mapping[str, Any]:
    for _ in range(round(_TIMEOUT_SECONDS / _POLL_SECONDS)):
        response = client.get_query_results(queryId=query)
        status = response.get("status")
        if status == _COMPLETE:
            return response
        if status not in _UNFINISHED:
            raise TaskProfilerError(f"CloudWatch Logs Insights ended the query as {status!r}: use a later --since.")
        clock.sleep(_POLL_SECONDS)
    raise TaskProfilerError("CloudWatch Logs Insights did not complete the query in an hour: use a later --since.")


def _message(row: Sequence[Mapping[str, str]]) -> bytes | None:
    for field in row:
        if field.get("field") == "@message":
            return field.get("value", "").encode()
    return None

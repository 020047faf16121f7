"""Finds a run's numbers in CloudWatch Logs: the report, else the last checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError
from msgspec import Struct

from forwarder.invocation import TimeBudget
from forwarder.lines import read_line
from forwarder.task.containers import LogStream
from profiler.record.model import Report

_NEWEST_LINES = 200

Warn = Callable[[str], None]


class EcsDefinitions:
    """``ecs:DescribeTaskDefinition``."""

    def __init__(self, client: Any, warn: Warn) -> None:  # noqa: ANN401  boto3 makes its clients at run time
        self._client = client
        self._warn = warn

    def describe(self, arn: str) -> Mapping[str, object] | None:
        """The task definition; None if it cannot be read."""
        try:
            answer: Mapping[str, object] = self._client.describe_task_definition(taskDefinition=arn)["taskDefinition"]
        except (ClientError, BotoCoreError) as error:
            self._warn(f"The task definition cannot be read ({_code(error)}): allow ecs:DescribeTaskDefinition.")
            return None
        return answer


class CloudWatchTail:
    """``logs:GetLogEvents``. ``client_of`` makes the client of a region."""

    def __init__(self, client_of: Callable[[str | None], Any], warn: Warn) -> None:
        self._client_of = client_of
        self._warn = warn

    def newest(self, place: LogStream) -> Sequence[str]:
        """The last lines of the stream, oldest first."""
        try:
            answer = self._client_of(place.region).get_log_events(
                logGroupName=place.group, logStreamName=place.stream, limit=_NEWEST_LINES, startFromHead=False
            )
        except (ClientError, BotoCoreError) as error:
            if _code(error) != "ResourceNotFoundException":
                self._warn(f"Log group {place.group} cannot be read ({_code(error)}): allow logs:GetLogEvents.")
            return ()
        return [str(event["message"]) for event in answer["events"]]


def _code(error: ClientError | BotoCoreError) -> str:
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "unknown"))
    return type(error).__name__


RESERVED_SECONDS = 10.0
_POLL_SECONDS = 2.0
_REPORT, _CHECKPOINT = "task.report", "task.checkpoint"


class LogTail(Protocol):
    """The newest lines of a stream."""

    def newest(self, place: LogStream) -> Sequence[str]:
        """Oldest first; empty if there is no such stream or it may not be read."""
        ...


class FoundReport(Struct, frozen=True):
    """A report or checkpoint and its line."""

    report: Report
    text: str

    @property
    def is_final(self) -> bool:
        """Whether it is the report of the whole run."""
        return self.report.type == _REPORT


class ReportFinder:
    """Looks for one container's run in one task's streams."""

    def __init__(self, tail: LogTail, time: TimeBudget, task_id: str, container: str | None) -> None:
        self._tail = tail
        self._time = time
        self._task_id = task_id
        self._container = container

    def find(self, batch: LogStream | None, monitor: LogStream | None, wait_seconds: float) -> FoundReport | None:
        """The best there is, waiting so long for the report, but not into the last 10 s of the invocation."""
        waited = 0.0
        while True:
            report = self._last(batch, _REPORT) or self._last(monitor, _REPORT)
            if report is not None:
                return report
            pause = min(_POLL_SECONDS, wait_seconds - waited)
            if pause <= 0 or self._time.remaining_seconds() - pause < RESERVED_SECONDS:
                return self._last(monitor, _CHECKPOINT)
            self._time.sleep(pause)
            waited += pause

    def _last(self, place: LogStream | None, kind: str) -> FoundReport | None:
        if place is None:
            return None
        for text in reversed(self._tail.newest(place)):
            report = read_line(text)
            if isinstance(report, Report) and report.type == kind and self._is_ours(report):
                return FoundReport(report, text)
        return None

    def _is_ours(self, report: Report) -> bool:
        record = report.record
        return record.task_id == self._task_id and self._container in (None, record.container.name)

"""Finds the report of a run in CloudWatch Logs; without one, the last checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from forwarder.invocation import TimeBudget, sleep_before_deadline
from forwarder.lines import read_line
from forwarder.task.containers import LogStream
from profiler.record.model import Report

# Kept at the end of an invocation for the index and the notice.
RESERVED_SECONDS = 10.0
_POLL_SECONDS = 2.0
_NEWEST_LINES = 200
_REPORT, _CHECKPOINT = "task.report", "task.checkpoint"

Warn = Callable[[str], None]


class LogTail(Protocol):
    """Reads the newest lines of a log stream."""

    def newest(self, stream: LogStream) -> Sequence[str]:
        """Return the lines, oldest first; none if the stream does not exist or cannot be read."""
        ...


class FoundReport(Struct, frozen=True):
    """A report or checkpoint, and its line."""

    report: Report
    text: str

    @property
    def is_final(self) -> bool:
        """Whether it is the report of the whole run, not a checkpoint."""
        return self.report.type == _REPORT


class ReportFinder:
    """Finds the report of one task's run. ``container`` is the batch's name, None if it is unknown."""

    def __init__(self, tail: LogTail, budget: TimeBudget, task_id: str, container: str | None) -> None:
        self._tail = tail
        self._budget = budget
        self._task_id = task_id
        self._container = container

    def find(self, batch: LogStream | None, monitor: LogStream | None, wait_seconds: float) -> FoundReport | None:
        """Return the report, from the batch's or the monitor's log stream; else the last checkpoint.

        Waits up to ``wait_seconds`` for the report, but not into the last 10 seconds of the invocation.
        """
        waited_seconds = 0.0
        while True:
            report = self._last(batch, _REPORT) or self._last(monitor, _REPORT)
            if report is not None:
                return report
            pause_seconds = min(_POLL_SECONDS, wait_seconds - waited_seconds)
            if pause_seconds <= 0 or not sleep_before_deadline(
                self._budget, pause_seconds, reserved_seconds=RESERVED_SECONDS
            ):
                return self._last(monitor, _CHECKPOINT)
            waited_seconds += pause_seconds

    def _last(self, stream: LogStream | None, report_type: str) -> FoundReport | None:
        if stream is None:
            return None
        for text in reversed(self._tail.newest(stream)):
            report = read_line(text)
            if isinstance(report, Report) and report.type == report_type and self._is_of_this_run(report):
                return FoundReport(report, text)
        return None

    def _is_of_this_run(self, report: Report) -> bool:
        record = report.record
        return record.task_id == self._task_id and self._container in (None, record.container.name)


class EcsDefinitions:
    """Reads task definitions with ``ecs:DescribeTaskDefinition``."""

    def __init__(self, client: Any, warn: Warn) -> None:  # noqa: ANN401  boto3 creates the classes of its clients at run time
        self._client = client
        self._warn = warn

    def describe(self, arn: str) -> Mapping[str, object] | None:
        """Return the task definition; None, with a warning, if it cannot be read."""
        from botocore.exceptions import BotoCoreError, ClientError  # slow to import, and forward_logs does not need it

        try:
            response = self._client.describe_task_definition(taskDefinition=arn)
        except (ClientError, BotoCoreError) as error:
            self._warn(f"The task definition cannot be read ({_code(error)}): allow ecs:DescribeTaskDefinition.")
            return None
        definition: Mapping[str, object] = response["taskDefinition"]
        return definition


class CloudWatchTail:
    """Reads log streams with ``logs:GetLogEvents``. ``client_for`` returns the client of a region."""

    def __init__(self, client_for: Callable[[str | None], Any], warn: Warn) -> None:
        self._client_for = client_for
        self._warn = warn

    def newest(self, stream: LogStream) -> Sequence[str]:
        """See ``LogTail``. A log group that cannot be read is logged as a warning."""
        from botocore.exceptions import BotoCoreError, ClientError  # as above

        try:
            response = self._client_for(stream.region).get_log_events(
                logGroupName=stream.group, logStreamName=stream.stream, limit=_NEWEST_LINES, startFromHead=False
            )
        except (ClientError, BotoCoreError) as error:
            if _code(error) != "ResourceNotFoundException":
                self._warn(f"Log group {stream.group} cannot be read ({_code(error)}): allow logs:GetLogEvents.")
            return ()
        return [str(event["message"]) for event in response["events"]]


def _code(error: Exception) -> str:
    """Return the error code in the response of AWS; without a response, the name of botocore's error."""
    response = getattr(error, "response", None)
    if response is None:
        return type(error).__name__
    return str(response.get("Error", {}).get("Code", "unknown"))

"""Finds the report of a run in the cluster or in CloudWatch Logs; without one, the last checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from forwarder.errors import ForwarderError
from forwarder.invocation import TimeBudget, sleep_before_deadline
from forwarder.lines import read_line
from forwarder.task.containers import LogStream
from profiler.record.model import Report

# Kept at the end of an invocation for the index and the notice.
WAIT_RESERVED_SECONDS = 10.0
_POLL_SECONDS = 2.0
_NEWEST_LINES = 200
# The report as one line of text, which a batch that is wrapped by ``run`` can print.
_TEXT_REPORT = "REPORT TaskId: "
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


# Looks for the report of one run in the cluster; raises ForwarderError.
IndexedReport = Callable[[], FoundReport | None]


class ReportFinder:
    """Finds the report of one task's run. ``container`` is the batch's name, None if it is unknown."""

    def __init__(self, tail: LogTail, budget: TimeBudget, task_id: str, container: str | None) -> None:
        self._tail = tail
        self._budget = budget
        self._task_id = task_id
        self._container = container

    def find(
        self,
        batch: LogStream | None,
        monitor: LogStream | None,
        wait_seconds: float,
        *,
        indexed: IndexedReport | None = None,
    ) -> FoundReport | None:
        """Return the report from the cluster, else from the batch's or the monitor's stream; else the last checkpoint.

        The cluster is asked again for up to ``wait_seconds``, then the streams are read. Without a cluster, or with
        one that does not answer, the streams are read again for that time. The wait ends 10 seconds before the
        invocation.

        Args:
            batch: the batch's log stream; None if it is unknown.
            monitor: the monitor's log stream; None if it is unknown.
            wait_seconds: how long to wait for the report.
            indexed: asks the cluster once; None without a cluster.
        """
        wait = _Wait(self._budget, wait_seconds)
        while indexed is not None:
            try:
                report = indexed()
            except ForwarderError:
                break  # writing to the cluster names what is wrong
            if report is not None:
                return report
            if not wait.pause():
                break
        while True:
            report = self._last(batch, _REPORT) or self._last(monitor, _REPORT)
            if report is not None:
                return report
            if not wait.pause():
                return self._last(monitor, _CHECKPOINT)

    def last_lines(self, stream: LogStream | None, count: int) -> tuple[str, ...]:
        """Return the newest lines of a stream without those of Task Profiler, the newest one last."""
        if stream is None or count < 1:
            return ()
        own = (text for text in self._tail.newest(stream) if not _is_of_profiler(text))
        return tuple(own)[-count:]

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


class _Wait:
    """Pauses between attempts, until the time for all of them is used up."""

    def __init__(self, budget: TimeBudget, seconds: float) -> None:
        self._budget = budget
        self._left_seconds = seconds

    def pause(self) -> bool:
        """Wait before another attempt. Returns False, without waiting, if the time does not suffice."""
        seconds = min(_POLL_SECONDS, self._left_seconds)
        if seconds <= 0 or not sleep_before_deadline(self._budget, seconds, reserved_seconds=WAIT_RESERVED_SECONDS):
            return False
        self._left_seconds -= seconds
        return True


def _is_of_profiler(text: str) -> bool:
    return text.startswith(_TEXT_REPORT) or read_line(text) is not None


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

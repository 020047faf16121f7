"""Reads what ``task_stopped`` has printed of ended runs from its log group, within the time of an
invocation.

CloudWatch Logs answers a page of at most 1 MB, the oldest lines first, and allows an account few
calls a second, which cannot be raised
(https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html,
https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/cloudwatch_limits_cwl.html). So the lines
of a large account can take longer than an invocation has: what was not read in time is left to the
next message.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.core.aws_clients import AwsClient
from profiler.core.aws_error_codes import error_code, may_succeed_later
from profiler.core.json_fields import decoded_or_none
from profiler.core.text import words_if_known
from profiler.core.timestamps import NS_PER_DAY, NS_PER_HOUR, NS_PER_MS, parse_ns
from profiler.forwarder.invocation import DeliveryError, InvocationTime, ReadError, RetryBackoff
from profiler.forwarder.night_period import MIN_PERIOD_NS, NightPeriod
from profiler.forwarder.notifications.event_details import (
    LINE_TYPE,
    REPEATED_TYPE,
    EndedLine,
    RepeatedAttemptLine,
)
from profiler.record.line_trust import is_lambda_stream

_DECODER = msgspec.json.Decoder(EndedLine)
_REPEATED = msgspec.json.Decoder(RepeatedAttemptLine)
_ALL = f'$.type = "{LINE_TYPE}" || $.type = "{REPEATED_TYPE}"'
_MAX_NAMED_TASKS = 16  # in a filter pattern, which has at most 1,024 characters
# Lambda repeats an invocation for six hours, and a queue keeps an event for two weeks.
_REPEATED_NS = 6 * NS_PER_HOUR
_REDRIVEN_NS = 15 * NS_PER_DAY
_FIRST_PAUSE_SECONDS = 0.5  # half of it
_MAX_PAUSE_SECONDS = 3.0


class PrintedRuns(Struct, frozen=True, kw_only=True):
    """What ``task_stopped`` has printed: runs with the times of their lines, in the order of
    writing, and the number of the last attempt of each job after which there is another one.

    ``read_until_ns``: there was no time to read what was written from then on; None: there was.
    ``unproven``: the tasks that ended before the period, and whose earlier lines there was no time
    to look for.
    """

    runs: Sequence[tuple[EndedLine, int]] = ()
    repeated: Mapping[str, int] = {}
    read_until_ns: int | None = None
    unproven: frozenset[str] = frozenset()
    last_error: str = ""  # of CloudWatch Logs, when the time was up

    def read_part_of(self, period: NightPeriod) -> NightPeriod:
        """The part of the period that was read. Raises DeliveryError if that is none."""
        if self.read_until_ns is None or self.read_until_ns >= period.end_ns:
            return period
        if self.read_until_ns < period.start_ns + MIN_PERIOD_NS:
            why = words_if_known(" (CloudWatch Logs: {})", self.last_error or None)
            raise DeliveryError(
                f"The invocation ran out of time before the lines of task_stopped were read{why}: "
                "the next one begins anew. If it does not end either, raise TimeoutSeconds."
            )
        return replace(period, end_ns=self.read_until_ns)


def runs_of_ended_lines(lines: Iterable[tuple[int, str]]) -> PrintedRuns:
    """What the lines say, each with the time in milliseconds at which it was written."""
    reading = _LineCollector()
    for written_ms, line in lines:
        reading.add(written_ms, line)
    return reading.printed_runs()


class _LineCollector(Struct):
    """The lines so far. Their texts are not kept: a large account has hundreds of megabytes."""

    runs: list[tuple[EndedLine, int]] = []
    repeated: dict[str, int] = {}

    def add(self, written_ms: int, line: str) -> EndedLine | None:
        """The run of the line, if it is one's."""
        run = decoded_or_none(_DECODER.decode, line)
        if run is not None:
            self.runs.append((run, written_ms * NS_PER_MS))
            return run
        again = decoded_or_none(_REPEATED.decode, line)
        if again is not None:
            self.repeated[again.job_id] = max(self.repeated.get(again.job_id, 0), again.attempt)
        return None

    def printed_runs(self, **more: Any) -> PrintedRuns:  # noqa: ANN401  fields of PrintedRuns
        in_order = sorted(self.runs, key=lambda run: run[1])
        return PrintedRuns(runs=in_order, repeated=self.repeated, **more)


class _NoTimeError(Exception):
    """The time is up before all pages were read. ``cause``: the last call's error, "" without."""

    def __init__(self, cause: str = "") -> None:
        super().__init__(cause)
        self.cause = cause


def _log_filter_pattern(tasks: Collection[str]) -> str:
    """The condition of the lines of these tasks, else of all lines."""
    named = [f'$.taskId = "{task}"' for task in sorted(tasks)]
    # Another name, such as a test event's, cannot be in a pattern.
    can_be_named = all(task.replace("-", "").isalnum() for task in tasks)
    if not can_be_named or len(named) > _MAX_NAMED_TASKS:
        return _ALL
    return f'$.type = "{LINE_TYPE}" && ({" || ".join(named)})'


def _earliest_end_ns(run: EndedLine, from_ns: int) -> int:
    """When the task ended; of one that never started, how early its line may have come."""
    return parse_ns(run.finished_at) or from_ns - _REPEATED_NS - _REDRIVEN_NS


class EndedLineReader(Struct, frozen=True, kw_only=True):
    """The log group of ``task_stopped``, and the time for reading it."""

    client: AwsClient
    group: str
    budget: InvocationTime

    def read_printed_runs(self, period: NightPeriod) -> PrintedRuns:
        """The runs that may be in the period.

        A line may repeat an earlier one, because its event was sent again: so lines from before the
        period are read, too, back to the end of each run that a line of the period names. The
        period comes first: in a large account there may be time for nothing else. Lines in streams
        that are not the function's do not count. Raises ReadError.
        """
        from_ns = period.known_from_ns
        reading = _LineCollector()
        earlier_ends: dict[str, int] = {}  # by task, of those that ended before the period
        read_ns = from_ns
        try:
            for written_ms, line in self._read_lines(_ALL, from_ns):
                read_ns = written_ms * NS_PER_MS
                run = reading.add(written_ms, line)
                if run is not None and (ended_ns := _earliest_end_ns(run, from_ns)) < from_ns:
                    earlier_ends[run.task_id] = ended_ns
        except _NoTimeError as error:
            return reading.printed_runs(
                read_until_ns=read_ns, unproven=frozenset(earlier_ends), last_error=error.cause
            )
        try:
            for written_ms, line in self._read_hours_before(from_ns):
                reading.add(written_ms, line)
            before_ns = from_ns - _REPEATED_NS
            earlier_ends = {
                task: ended_ns for task, ended_ns in earlier_ends.items() if ended_ns < before_ns
            }
            for written_ms, line in self._read_lines_of_tasks(earlier_ends, before_ns):
                reading.add(written_ms, line)
        except _NoTimeError:
            return reading.printed_runs(unproven=frozenset(earlier_ends))
        return reading.printed_runs()

    def _read_hours_before(self, from_ns: int) -> Iterator[tuple[int, str]]:
        """All lines of the hours in which most repeated events came first."""
        end_ms = from_ns // NS_PER_MS - 1
        return self._read_lines(_ALL, from_ns - _REPEATED_NS, endTime=end_ms)

    def _read_lines_of_tasks(
        self, ends: Mapping[str, int], before_ns: int
    ) -> Iterator[tuple[int, str]]:
        """The lines from the earliest of the tasks' ends on."""
        if not ends:
            return iter(())
        pattern = _log_filter_pattern(ends)
        return self._read_lines(pattern, min(ends.values()), endTime=before_ns // NS_PER_MS)

    def _read_lines(self, condition: str, start_ns: int, **until: int) -> Iterator[tuple[int, str]]:
        """``until``: a bound of the call, ``endTime`` in milliseconds. Raises _NoTimeError,
        ReadError.
        """
        asked: dict[str, Any] = {
            "logGroupName": self.group,
            "startTime": start_ns // NS_PER_MS,
            "filterPattern": f"{{ {condition} }}",
            **until,
        }
        while True:
            page = self._read_page(asked)
            for event in page.get("events", ()):
                if is_lambda_stream(self.group, event["logStreamName"]):
                    yield event["timestamp"], event["message"]
            token = page.get("nextToken")
            if not token:
                return
            asked["nextToken"] = token

    def _read_page(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """A page, which is asked for again while the error may pass."""
        from botocore.exceptions import BotoCoreError, ClientError  # slow to import

        retry = RetryBackoff(self.budget, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, math.inf)
        cause = ""
        while self.budget.remaining_seconds() > 0:
            try:
                page: Mapping[str, Any] = self.client.filter_log_events(**asked)
            except (ClientError, BotoCoreError) as error:
                cause = error_code(error)
                if not may_succeed_later(error):
                    raise self._read_error(error) from error
                if not retry.wait():
                    break
            else:
                return page
        raise _NoTimeError(cause)

    def _read_error(self, error: Exception) -> ReadError:
        return ReadError(
            f"The log group {self.group} of task_stopped cannot be read ({error_code(error)}): "
            "check that the function's role has the permission logs:FilterLogEvents on it."
        )

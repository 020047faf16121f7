"""The runs in log groups of CloudWatch Logs, read by FilterLogEvents, which has no limit on the
number of lines.

A line is never older than the start of its run. The groups are read from now back to the past, one
stretch of time after the other: whoever needs only the newest runs stops early.
https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from profiler.core.text import first_names
from profiler.core.timestamps import MS_PER_DAY, NS_PER_MS, parse_ns
from profiler.record.activity_model import StacksLine
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.record.record_model import CHECKPOINT, Report
from profiler.record.units import format_count
from profiler.runs.past_runs.run_source import (
    OpenProgress,
    PastRun,
    RunFilter,
    RunLine,
    RunSource,
    group_lines,
    matching_runs,
    newest_first,
    no_progress,
    run_key,
    run_line,
    stacks_of,
)
from profiler.runs.past_runs.schedule_notices import NOTICE_MARKER, read_notices, select_notices

DEFAULT_DAYS = 30
# The line of call stacks is written after the end of the batch, by the same clock, and uploaded
# with the report.
_BEFORE_END_MS, _AFTER_REPORT_MS = 10_000, 60_000
_MAX_PATTERN_LENGTH = 1024
# Of a run without a report, the first checkpoint is enough to find it: a night of runs has hundreds
# of thousands. Runs whose checkpoints are further apart are not found.
_FIRST_CHECKPOINTS = f'$.type = "{CHECKPOINT}" && $.record.metrics.durationMs < 120000'

# Yields the pages of FilterLogEvents for the parameters that boto3 takes.
ReadPages = Callable[..., Iterator[Mapping[str, Any]]]


class LogGroupRuns(RunSource):
    """The runs whose reports are in the log groups, with the notices about schedules."""

    remedy = (
        "use an earlier --since, or name the batches' log group, where the monitor writes its "
        "reports"
    )
    reads_families = False  # weeks of logs

    def __init__(
        self,
        read_pages: ReadPages,
        groups: Sequence[str],
        now_ns: int,
        open_progress: OpenProgress = no_progress,
    ) -> None:
        self._notices: list[ScheduleNoticeLine] = []
        self._read_pages = read_pages
        self._groups = groups
        self._now_ns, self._now_ms = now_ns, now_ns // NS_PER_MS
        self._open_progress = open_progress
        self._unreadable = 0
        self._limit: str | None = None
        self.place = first_names(groups)

    @property
    def notes(self) -> Sequence[str]:
        lines = (
            f"{self.place}: skipped {format_count(self._unreadable, 'report')} that could not be "
            "read."
        )
        return tuple(note for note in (self._limit, lines if self._unreadable else None) if note)

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        """Yield the matching runs; without a time to start from, those of the last 30 days."""
        if selection.since_ns is None:
            start_ms = self._now_ms - DEFAULT_DAYS * MS_PER_DAY
            self._limit = (
                f"{self.place}: only the last {DEFAULT_DAYS} days were read: use --since TIME to "
                "read further back."
            )
        else:
            start_ms = selection.since_ns // NS_PER_MS
        pending: list[PastRun] = []
        seen: set[tuple[str, str, str]] = set()
        # CloudWatch accepts lines up to two hours ahead of its clock. The first stretch is short,
        # because most questions are about the last night.
        end_ms, length_ms = self._now_ms + 2 * 3_600_000, MS_PER_DAY
        with self._open_progress() as show:
            while end_ms > start_ms:
                begin_ms = max(end_ms - length_ms, start_ms)
                pending += self._stretch(begin_ms, end_ms, selection, seen)
                show(len(seen), (self._now_ms - begin_ms) / max(self._now_ms - start_ms, 1))
                # A run in an older stretch ended before begin_ms, so it also started before it.
                is_last = begin_ms == start_ms
                yield from newest_first(
                    run for run in pending if is_last or run.started_ns >= begin_ms * NS_PER_MS
                )
                pending = [run for run in pending if run.started_ns < begin_ms * NS_PER_MS]
                end_ms, length_ms = begin_ms, length_ms * 4

    def schedule_notices(self, selection: RunFilter) -> Sequence[ScheduleNoticeLine]:
        return select_notices(self._notices, selection)

    def stacks(self, report: Report) -> StacksLine | None:
        """The call stacks in the run's log stream, read around the end of the run; of several,
        the last ones.
        """
        record = report.record
        places: list[dict[str, object]] = [{"logGroupName": group} for group in self._groups]
        if record.log_group in self._groups and record.log_stream is not None:
            # The stacks are in the monitor's stream if the monitor prints the report: see
            # TASK_PROFILER_REPORT_STREAM.
            places.insert(
                0, {"logGroupName": record.log_group, "logStreamNames": [record.log_stream]}
            )
        return next(filter(None, (self._last_stacks(report, place) for place in places)), None)

    def _last_stacks(self, report: Report, place: Mapping[str, object]) -> StacksLine | None:
        record = report.record
        ends_ns = [
            end_ns
            for end_ns in map(parse_ns, (record.finished_at, report.time))
            if end_ns is not None
        ]
        if not ends_ns:
            return None
        of_task = f' && $.taskId = "{record.task_id}"' if _is_simple(record.task_id) else ""
        pages = self._read_pages(
            startTime=max(min(ends_ns) // NS_PER_MS - _BEFORE_END_MS, 0),
            endTime=max(ends_ns) // NS_PER_MS + _AFTER_REPORT_MS,
            filterPattern=f'{{ $.type = "task.stacks"{of_task} }}',
            **place,
        )
        messages = [event["message"] for page in pages for event in page["events"]]
        return stacks_of(
            report, (message.encode(errors="replace") for message in reversed(messages))
        )

    def _stretch(
        self, start_ms: int, end_ms: int, selection: RunFilter, seen: set[tuple[str, str, str]]
    ) -> Iterator[PastRun]:
        window = {
            "startTime": start_ms,
            "endTime": end_ms - 1,
            "filterPattern": filter_pattern(selection),
        }
        lines, places = list[RunLine](), dict[tuple[str, str, str], Mapping[str, object]]()
        for group in self._groups:
            for line, stream in self._lines(selection, logGroupName=group, **window):
                lines.append(line)
                places[run_key(line.head)] = {"logGroupName": group, "logStreamNames": [stream]}
        new = [group for group in group_lines(lines) if run_key(group[0].head) not in seen]
        seen |= {run_key(group[0].head) for group in new}
        for run in self._matching(new, selection):
            if run.report.type != CHECKPOINT or selection.run is not None:
                yield run
            # Where the report belongs to a group that is not read, nothing is known about it.
            elif run.report.record.log_group in (None, *self._groups):
                yield from self._with_checkpoints(run, places[run_key(run.report)], selection)

    def _with_checkpoints(
        self, run: PastRun, place: Mapping[str, object], selection: RunFilter
    ) -> Iterator[PastRun]:
        """The run without a report, with all its checkpoints, unless the last of them does not
        match.
        """
        key, start_ms = run_key(run.report), run.started_ns // NS_PER_MS
        lines = self._lines(
            selection, startTime=start_ms, filterPattern=f'{{ $.type = "{CHECKPOINT}" }}', **place
        )
        yield from self._matching(
            group_lines(line for line, _ in lines if run_key(line.head) == key), selection
        )

    def _matching(
        self, groups: Sequence[Sequence[RunLine]], selection: RunFilter
    ) -> Iterator[PastRun]:
        invalid: list[int] = []
        yield from matching_runs(groups, selection, invalid.append, self._now_ns)
        self._unreadable += len(invalid)

    def _lines(
        self, selection: RunFilter, **parameters: object
    ) -> Iterator[tuple[RunLine, object]]:
        for page in self._read_pages(**parameters):
            for event in page["events"]:
                line = self._line(event["message"], selection)
                if line is not None:
                    yield line, event.get("logStreamName")

    def _line(self, message: str, selection: RunFilter) -> RunLine | None:
        """Decode a line. An implementation of CloudWatch Logs may ignore the filter pattern."""
        is_wanted = '"task.report"' in message or (
            selection.reads_checkpoints and f'"{CHECKPOINT}"' in message
        )
        if not is_wanted or not message.lstrip().startswith("{"):
            self._notices += read_notices([message])
            return None
        line = run_line(message.strip().encode(errors="replace"))
        self._unreadable += line is None
        return line


def filter_pattern(selection: RunFilter) -> str:
    """The pattern for the matching runs, all notices, and more: the shell's wildcards other than
    ``*`` are left out.
    """
    conditions = ['$.type = "task.report"']
    if selection.reads_checkpoints:
        conditions = [
            f"({conditions[0]} || ({_FIRST_CHECKPOINTS}))"
            if selection.run is None
            else '$.type = "task.*"'
        ]
    for field, values in (
        ("family", selection.families),
        ("cluster", selection.clusters),
        ("accountId", tuple(filter(None, selection.accounts))),
        ("region", tuple(filter(None, selection.regions))),
    ):
        if values and all(map(_is_simple, values)):
            conditions.append(_any_of(f'$.record.{field} = "{value}"' for value in values))
    for name, value in selection.tags:
        if re.fullmatch(r"\w+", name, re.ASCII) and _is_simple(value):
            conditions.append(f'$.record.tags.{name} = "{value}"')
    if selection.statuses and "unknown" not in selection.statuses:
        conditions.append(_any_of(f'$.record.status = "{status}"' for status in selection.statuses))
    if selection.run is not None and _is_simple(selection.run):
        beginning = selection.run.partition("/")[0].rstrip("*")
        conditions.append(
            _any_of((f'$.record.taskId = "{beginning}*"', f'$.record.family = "{selection.run}"'))
        )
    patterns = [
        f"{{ ({wanted}) || ($.type = {NOTICE_MARKER}) }}"
        for wanted in (" && ".join(conditions), conditions[0])
    ]
    return next(pattern for pattern in patterns if len(pattern) <= _MAX_PATTERN_LENGTH)


def _any_of(conditions: Iterable[str]) -> str:
    listed = list(conditions)
    return listed[0] if len(listed) == 1 else f"({' || '.join(listed)})"


def _is_simple(text: str) -> bool:
    """Whether CloudWatch reads the text as the shell does: its only wildcard is ``*``."""
    return bool(text) and not any(
        character in '?["\\' or not character.isprintable() for character in text
    )

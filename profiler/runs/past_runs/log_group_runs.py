"""The runs in log groups of CloudWatch Logs, read by FilterLogEvents, which has no limit on the
number of lines.

A line counts if its log stream is its task's: see ``profiler.record.line_trust``. A container of a
task has one run, whose last line counts, as in the search cluster.

A line is never older than the start of its run. The groups are read from now back to the past, one
stretch of time after the other: whoever needs only the newest runs stops early.
https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import LogTarget
from profiler.core.errors import TaskProfilerError
from profiler.core.text import first_names
from profiler.core.timestamps import MS_PER_DAY, NS_PER_MS, parse_ns
from profiler.record.activity_model import StacksLine, decode_stacks
from profiler.record.line_trust import AccountTrust, claim_of_head, claim_of_stacks
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.record.record_model import CHECKPOINT, Report, ReportHead
from profiler.record.units import format_count
from profiler.runs.past_runs.line_index import KeptLines
from profiler.runs.past_runs.run_source import (
    OpenProgress,
    PastRun,
    RunFilter,
    RunLine,
    RunSource,
    matching_runs,
    no_progress,
    run_line,
    start_ns,
)
from profiler.runs.past_runs.schedule_notices import NOTICE_MARKER, read_notices, select_notices

DEFAULT_DAYS = 30
# The line of call stacks is written after the end of the batch, by the same clock, and uploaded
# with the report.
_BEFORE_END_MS = 10_000
_AFTER_REPORT_MS = 60_000
_MAX_PATTERN_LENGTH = 1024
# Of a run without a report, the first checkpoint is enough to find it: a night of runs has hundreds
# of thousands. Runs whose checkpoints are further apart are not found.
_FIRST_CHECKPOINTS = f'$.type = "{CHECKPOINT}" && $.record.metrics.durationMs < 120000'

# Yields the pages of FilterLogEvents for the parameters that boto3 takes.
ReadPages = Callable[..., Iterator[Mapping[str, Any]]]


# Task and container: the identity of a run in CloudWatch Logs. Its start is the line's own word.
_RunKey = tuple[str, str]
OnUnread = Callable[[str, TaskProfilerError], object]
"""Gets a log group that cannot be read, and why."""


class MissingLogGroupError(TaskProfilerError):
    """A log group does not exist, so it has no run."""


class _FoundLine(Struct, frozen=True, kw_only=True):
    """What decides about a line, which itself is kept by its number: weeks have gigabytes.

    ``timestamp_ms`` is CloudWatch's.
    """

    number: int
    key: _RunKey
    start_ns: int
    timestamp_ms: int
    is_report: bool
    is_confirmed: bool
    place: LogTarget

    @property
    def precedence(self) -> tuple[bool, bool, int]:
        """The line with the highest one counts: a batch can choose every time in its lines, but
        the monitor's report comes after the batch's end.
        """
        return self.is_confirmed, self.is_report, self.timestamp_ms


class LogGroupRuns(RunSource):
    """The runs whose reports are in the log groups, with the notices about schedules.

    A group that cannot be read is left out, and ``on_unread`` gets it; the last group's error is
    raised. ``unread_groups`` has the groups left out, ``groups`` the others.
    """

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
        trust: AccountTrust = AccountTrust(),  # noqa: B008  it is frozen
        *,
        on_unread: OnUnread | None = None,
    ) -> None:
        self._trust = trust
        self._notices: list[ScheduleNoticeLine] = []
        self._read_pages = read_pages
        self._groups = list(groups)
        self._on_unread = on_unread
        self.unread_groups: frozenset[str] = frozenset()
        self._missing: list[str] = []
        self._now_ns = now_ns
        self._now_ms = now_ns // NS_PER_MS
        self._open_progress = open_progress
        self._unreadable = 0
        self._untrusted = 0
        self._invalid_times = 0
        self._limit: str | None = None
        self.place = first_names(groups)

    @property
    def notes(self) -> Sequence[str]:
        skipped = (
            (self._unreadable, "that could not be read"),
            (self._invalid_times, "whose times differ from CloudWatch's"),
            (self._untrusted, "not of their log stream's task"),
        )
        notes = [
            f"{self.place}: skipped {format_count(count, 'report')} {which}."
            for count, which in skipped
            if count
        ]
        if self._missing:
            notes.append(f"No run is read from {first_names(self._missing)}: no such log group.")
        return tuple(notes) if self._limit is None else (self._limit, *notes)

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        """Yield the matching runs; without a time to start from, those of the last 30 days."""
        if selection.since_ns is not None:
            yield from self._runs_since(selection.since_ns // NS_PER_MS, selection)
            return
        count = 0
        for run in self._runs_since(self._now_ms - DEFAULT_DAYS * MS_PER_DAY, selection):
            count += 1
            yield run
        # Whoever stops early has what was wanted. The reader of one run wants no older one.
        if selection.run is None or count == 0:
            self._limit = (
                f"{self.place}: only the last {DEFAULT_DAYS} days were read: use --since TIME to "
                "read further back."
            )

    def _runs_since(self, start_ms: int, selection: RunFilter) -> Iterator[PastRun]:
        kept = KeptLines()
        pending: list[list[_FoundLine]] = []
        seen: dict[_RunKey, bool] = {}
        # CloudWatch accepts lines up to two hours ahead of its clock. The first stretch is short,
        # because most questions are about the last night.
        end_ms = self._now_ms + 2 * 3_600_000
        length_ms = MS_PER_DAY
        with self._open_progress() as show:
            while end_ms > start_ms:
                begin_ms = max(end_ms - length_ms, start_ms)
                pending += self._stretch(begin_ms, end_ms, selection, seen, kept)
                show(len(seen), (self._now_ms - begin_ms) / max(self._now_ms - start_ms, 1))
                # A run in an older stretch ended before begin_ms, so it also started before it.
                is_last = begin_ms == start_ms
                begin_ns = 0 if is_last else begin_ms * NS_PER_MS
                pending.sort(key=_start_of, reverse=True)
                for lines in pending:
                    if _start_of(lines) >= begin_ns:
                        yield from self._run_of(lines, selection, kept)
                pending = [lines for lines in pending if _start_of(lines) < begin_ns]
                end_ms = begin_ms
                length_ms = length_ms * 4

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
        group = str(place["logGroupName"])
        found: StacksLine | None = None
        for page in pages:
            for event in page["events"]:
                stacks = self._stacks_in(event, group)
                if stacks is not None and (stacks.task_id, stacks.container) == (
                    record.task_id,
                    record.container.name,
                ):
                    found = stacks
        return found

    def _stacks_in(self, event: Mapping[str, Any], group: str) -> StacksLine | None:
        """The call stacks in a line, if its log stream is their task's."""
        stacks = decode_stacks(event["message"].encode(errors="replace"))
        if stacks is None:
            return None
        trust = self._trust.of_stream(group, event["logStreamName"])
        verdict = trust.judge(claim_of_stacks(stacks), event["timestamp"])
        return stacks if verdict.counts else None

    def _stretch(
        self,
        start_ms: int,
        end_ms: int,
        selection: RunFilter,
        seen: dict[_RunKey, bool],
        kept: KeptLines,
    ) -> Sequence[list[_FoundLine]]:
        """The lines in this time by their runs. ``seen``: the runs with newer lines, and whether
        one of those is confirmed; an unconfirmed line never replaces or hides a confirmed one.
        """
        window = {
            "startTime": start_ms,
            "endTime": end_ms - 1,
            "filterPattern": filter_pattern(selection),
        }
        new: list[_FoundLine] = []
        for group in tuple(self._groups):
            try:
                for found in self._lines(selection, kept, logGroupName=group, **window):
                    is_older = found.key in seen and seen[found.key] >= found.is_confirmed
                    if not is_older:
                        new.append(found)
            except TaskProfilerError as error:
                self._leave_out(group, error)
        groups = self._by_run(new)
        for lines in groups:
            seen[lines[0].key] = lines[0].is_confirmed
        return groups

    def _leave_out(self, group: str, error: TaskProfilerError) -> None:
        """Go on without a group. Raises its error if it is the last one."""
        if self._on_unread is None or self._groups == [group]:
            raise error
        self._groups.remove(group)
        if isinstance(error, MissingLogGroupError):
            self._missing.append(group)
        else:
            self.unread_groups |= {group}
            self._on_unread(group, error)

    def _run_of(
        self, lines: Sequence[_FoundLine], selection: RunFilter, kept: KeptLines
    ) -> Iterator[PastRun]:
        """The run of these lines, if it matches."""
        for run in self._matching([lines], selection, kept):
            if run.report.type != CHECKPOINT or selection.run is not None:
                yield run
            # Where the report belongs to a group that is not read, nothing is known about it.
            elif run.report.record.log_group in (None, *self._groups):
                yield from self._with_checkpoints(run, selection)

    def _by_run(self, lines: Iterable[_FoundLine]) -> list[list[_FoundLine]]:
        """The lines of each run. In a group, the first line counts: the last report, else the last
        checkpoint.
        """
        by_run: dict[_RunKey, list[_FoundLine]] = {}
        for found in lines:
            by_run.setdefault(found.key, []).append(found)
        groups: list[list[_FoundLine]] = []
        for of_run in by_run.values():
            of_run.sort(key=lambda found: found.precedence, reverse=True)
            # Who may not speak for the run may not add to it, either.
            place = of_run[0].place
            trusted = [found for found in of_run if found.is_confirmed or found.place == place]
            self._untrusted += len(of_run) - len(trusted)
            groups.append(trusted)
        return groups

    def _with_checkpoints(self, run: PastRun, selection: RunFilter) -> Iterator[PastRun]:
        """The run without a report, with all its checkpoints, unless the last of them does not
        match.
        """
        if run.place is None:
            return
        key = _key(run.report)
        kept = KeptLines()
        lines = self._lines(
            selection,
            kept,
            logGroupName=run.place.group,
            logStreamNames=[run.place.stream],
            startTime=run.started_ns // NS_PER_MS,
            filterPattern=f'{{ $.type = "{CHECKPOINT}" }}',
        )
        of_run = [found for found in lines if found.key == key]
        yield from self._matching(self._by_run(of_run), selection, kept)

    def _matching(
        self, groups: Iterable[Sequence[_FoundLine]], selection: RunFilter, kept: KeptLines
    ) -> Iterator[PastRun]:
        def read(found: _FoundLine) -> RunLine | None:
            line = run_line(kept.read(found.number))
            if line is None:
                return None
            return replace(line, is_confirmed=found.is_confirmed, place=found.place)

        invalid: list[int] = []
        read_groups = ([*filter(None, map(read, lines))] for lines in groups)
        yield from matching_runs(read_groups, selection, invalid.append, self._now_ns)
        self._unreadable += len(invalid)

    def _lines(
        self,
        selection: RunFilter,
        kept: KeptLines,
        **parameters: Any,  # noqa: ANN401  boto3's own
    ) -> Iterator[_FoundLine]:
        for page in self._read_pages(**parameters):
            for event in page["events"]:
                found = self._line(event, str(parameters["logGroupName"]), selection, kept)
                if found is not None:
                    yield found

    def _line(
        self, event: Mapping[str, Any], group: str, selection: RunFilter, kept: KeptLines
    ) -> _FoundLine | None:
        """Judge a line, and keep it. An implementation of CloudWatch Logs may ignore the filter
        pattern.
        """
        message = event["message"]
        place = LogTarget(group=group, stream=event["logStreamName"])
        trust = self._trust.of_stream(group, place.stream)
        is_wanted = '"task.report"' in message or (
            selection.reads_checkpoints and f'"{CHECKPOINT}"' in message
        )
        if not is_wanted or not message.lstrip().startswith("{"):
            # watch_schedules writes them, which is no task.
            if not (trust.task or trust.is_container_id):
                self._notices += read_notices([message])
            return None
        content = message.strip().encode(errors="replace")
        line = run_line(content)
        if line is None:
            self._unreadable += trust.speaks_for_tasks
            self._untrusted += not trust.speaks_for_tasks
            return None
        verdict = trust.judge(claim_of_head(line.head), event["timestamp"])
        if not verdict.counts:
            self._untrusted += verdict.untrusted is not None
            self._invalid_times += verdict.invalid is not None
            return None
        return _FoundLine(
            number=kept.add(content),
            key=_key(line.head),
            start_ns=start_ns(line.head),
            timestamp_ms=event["timestamp"],
            is_report=line.head.type != CHECKPOINT,
            is_confirmed=verdict.is_confirmed and self._trust.account_id is not None,
            place=place,
        )


def _start_of(lines: Sequence[_FoundLine]) -> int:
    return lines[0].start_ns


def _key(report: Report | ReportHead) -> _RunKey:
    return report.record.task_id, report.record.container.name


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

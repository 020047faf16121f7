"""The runs in log groups of CloudWatch Logs, read by FilterLogEvents, which has no limit on the
number of lines.

A line counts if its log stream is its task's: see ``profiler.record.line_trust``. A container of a
task has one run, whose last line counts, as in the search cluster.

A line is never older than the start of its run. The groups are read from now back to the past, one
stretch of time after the other: whoever needs only the newest runs stops early.
https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.completeness import Completeness, Gap
from profiler.core.ecs_terms import LogTarget
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import first_known, first_of
from profiler.core.text import first_names
from profiler.core.timestamps import MS_PER_DAY, MS_PER_HOUR, NS_PER_MS
from profiler.record.batch_job import WHOLE_NUMBERS, may_begin_job_id
from profiler.record.line_trust import (
    AccountTrust,
    Voucher,
    claim_of_head,
    claim_of_stacks,
    does_run_count,
    task_of_stream,
)
from profiler.record.model_base import json_name
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.record.record_model import CHECKPOINT, Report
from profiler.record.report_head import ReportHead
from profiler.record.run_labels import BATCH_PREFIX
from profiler.record.stacks_line import StacksLine, decode_stacks_line
from profiler.record.units import format_count
from profiler.runs.past_runs.line_index import LineFile
from profiler.runs.past_runs.log_places import ANY_PLACE, AnyLogPlace
from profiler.runs.past_runs.past_run import PastRun, report_start_ns
from profiler.runs.past_runs.record_lines import (
    RunLine,
    matching_runs,
    other_schema_versions,
    read_run_line,
    schema_remarks,
)
from profiler.runs.past_runs.run_source import (
    OpenProgress,
    RunFilter,
    RunSource,
    are_stacks_of_run,
    no_progress,
    uncounted_note,
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
_ContainerKey = tuple[str, str]
OnUnread = Callable[[str, TaskProfilerError], object]
"""Gets a log group that cannot be read, and why."""


class LogRetention(Protocol):
    """Since when log groups have lines."""

    @property
    def sentences(self) -> Sequence[str]:
        """What the groups lack of the times for which they were read."""

    def groups_lacking(self, groups: Sequence[str], since_ns: int) -> frozenset[str]:
        """The groups that are known not to reach back to a time."""


class UnknownRetention(LogRetention):
    """Nothing is known of the groups."""

    @property
    def sentences(self) -> Sequence[str]:
        return ()

    def groups_lacking(
        self,
        groups: Sequence[str],  # noqa: ARG002
        since_ns: int,  # noqa: ARG002
    ) -> frozenset[str]:
        return frozenset()


class MissingLogGroupError(TaskProfilerError):
    """A log group does not exist, so it has no run. ``told`` is the error for people, which is made
    when it is needed: it may list the groups.
    """

    def __init__(self, sentence: str, told: Callable[[], TaskProfilerError]) -> None:
        super().__init__(sentence)
        self.told = told


class _FoundLine(Struct, frozen=True, kw_only=True):
    """What decides about a line, which itself is kept by its number: weeks have gigabytes.

    ``timestamp_ms`` is CloudWatch's.
    """

    number: int
    key: _ContainerKey
    start_ns: int
    timestamp_ms: int
    is_report: bool
    is_confirmed: bool
    counts: bool
    voucher: Voucher | None
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
    raised, unless there are others elsewhere (``raises_last``). A run that is in none of the
    ``places`` does not count. They are read for a list of runs, and
    where only those that count are wanted. ``kept`` is asked about the beginning of what was
    read.
    """

    raises_last = True
    places: AnyLogPlace = ANY_PLACE
    kept: LogRetention = UnknownRetention()

    remedy = (
        "use an earlier --since, or name the batches' log group, where the monitor writes its "
        "reports"
    )

    def __init__(
        self,
        read_pages: ReadPages,
        groups: Sequence[str],
        now_ns: int,
        open_progress: OpenProgress = no_progress,
        trust: AccountTrust = AccountTrust(),  # noqa: B008  it is frozen
        *,
        stream_prefix: str = "",
        since_ms: int | None = None,
        on_unread: OnUnread | None = None,
    ) -> None:
        self._trust = trust
        self._on_unread = on_unread
        self._gaps: list[Gap] = []
        self._missing: list[str] = []
        self._stream_prefix = stream_prefix
        self._has_default = since_ms is None
        # Without a time to start from.
        self._default_since_ms = first_known(
            since_ms, now_ns // NS_PER_MS - DEFAULT_DAYS * MS_PER_DAY
        )
        # Where the first reading began: a run's family is read as far back as the run.
        self._first_since_ms: int | None = None
        self._notices: list[ScheduleNoticeLine] = []
        self._read_pages = read_pages
        self._groups = list(groups)
        self._now_ns = now_ns
        self._now_ms = now_ns // NS_PER_MS
        self._open_progress = open_progress
        self._uncounted: set[_ContainerKey] = set()
        self._unreadable = 0
        self._other_schemas: Counter[str] = Counter()
        self._untrusted = 0
        # Why runs are not confirmed that would be.
        self._unvouched = ""
        self._invalid_times = 0
        self._limit = ""
        self.place = first_names(groups)

    @property
    def remarks(self) -> Sequence[str]:
        notes = [*filter(None, (self._unvouched, *self.kept.sentences, self._limit))]
        notes += schema_remarks(self.place, self._other_schemas)
        skipped = (
            (self._unreadable, "that could not be read"),
            (self._invalid_times, "whose times differ from CloudWatch's"),
            (self._untrusted, "not of their log stream's task"),
        )
        for count, which in skipped:
            if count:
                notes.append(f"{self.place}: skipped {format_count(count, 'report')} {which}.")
        if self._uncounted:
            notes.append(uncounted_note(self.place, len(self._uncounted)))
        if self._missing:
            notes.append(f"No run is read from {first_names(self._missing)}: no such log group.")
        return tuple(notes)

    @property
    def completeness(self) -> Completeness:
        """What the runs lack: without a known account, no run is confirmed."""
        if not self._unvouched:
            return Completeness(tuple(self._gaps))
        return Completeness((*self._gaps, Gap(place=self.place)))

    def add_gap(self, gap: Gap) -> None:
        """The groups are known to lack something."""
        self._gaps.append(gap)

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        """Yield the matching runs; without a time to start from, those of the last 30 days."""
        count = 0
        start_ms = self._start_ms(selection)
        for run in self._runs_since(start_ms, selection):
            count += 1
            yield run
        # Whoever stops early has what was wanted. The reader of one run wants no older one.
        has_all = selection.run and count > 0
        if has_all:
            return
        lacking = self.kept.groups_lacking(self._groups, start_ms * NS_PER_MS)
        has_default = selection.since_ns is None and self._has_default
        # An earlier time helps only where a group has more.
        if has_default and not lacking.issuperset(self._groups):
            self._limit = (
                f"{self.place}: only the last {DEFAULT_DAYS} days were read: use --since TIME to "
                "read further back."
            )

    def _runs_since(self, start_ms: int, selection: RunFilter) -> Iterator[PastRun]:
        kept = LineFile()
        pending: list[list[_FoundLine]] = []
        seen: dict[_ContainerKey, bool] = {}
        # CloudWatch accepts lines up to two hours ahead of its clock. The first stretch is short,
        # because most questions are about the last night.
        end_ms = self._now_ms + 2 * MS_PER_HOUR
        length_ms = MS_PER_DAY
        with self._open_progress() as show:
            while end_ms > start_ms:
                begin_ms = max(end_ms - length_ms, start_ms)
                pending += self._lines_of_time(begin_ms, end_ms, selection, seen, kept)
                show(len(seen), (self._now_ms - begin_ms) / max(self._now_ms - start_ms, 1))
                # A run in an older stretch ended before begin_ms, so it also started before it.
                is_last = begin_ms == start_ms
                begin_ns = 0 if is_last else begin_ms * NS_PER_MS
                pending.sort(key=_start_of_lines, reverse=True)
                for lines in pending:
                    if _start_of_lines(lines) >= begin_ns:
                        yield from self._run_of_lines(lines, selection, kept)
                pending = [lines for lines in pending if _start_of_lines(lines) < begin_ns]
                end_ms = begin_ms
                length_ms *= 4

    def _start_ms(self, selection: RunFilter) -> int:
        if selection.since_ns is not None:
            start_ms = selection.since_ns // NS_PER_MS
        else:
            start_ms = self._default_since_ms
        if self._first_since_ms is None:
            self._first_since_ms = start_ms
        return start_ms

    def family_source(self, run: PastRun) -> RunSource:
        """The group of the run's line, and the streams with the same prefix; a container's id is
        the name of a stream without one.
        """
        place = run.place
        record = run.record
        if place is None and record.log_group is not None:
            place = LogTarget(group=record.log_group, stream=record.log_stream or "")
        if place is None or place.group not in self._groups:
            return self
        prefix = ""
        task = task_of_stream(place.stream)
        if task is not None:
            prefix = place.stream.removesuffix(f"{task.container}/{task.task_id}")
        source = LogGroupRuns(
            self._read_pages,
            (place.group,),
            self._now_ns,
            self._open_progress,
            self._trust,
            stream_prefix=prefix,
            since_ms=self._first_since_ms,
        )
        source.places = self.places
        source.kept = self.kept
        return source

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
        return first_of(self._newest_stacks(report, place) for place in places)

    def _newest_stacks(self, report: Report, place: Mapping[str, object]) -> StacksLine | None:
        record = report.record
        report_ns = report.time_ns
        end_ns = record.finished_ns or report_ns
        if end_ns is None:
            return None
        report_ns = report_ns or end_ns
        pattern = '$.type = "task.stacks"'
        if _is_understood_pattern(record.task_id):
            pattern += f' && $.taskId = "{record.task_id}"'
        pages = self._read_pages(
            startTime=max(min(end_ns, report_ns) // NS_PER_MS - _BEFORE_END_MS, 0),
            endTime=max(end_ns, report_ns) // NS_PER_MS + _AFTER_REPORT_MS,
            filterPattern=f"{{ {pattern} }}",
            **place,
        )
        group = str(place["logGroupName"])
        last_stacks: StacksLine | None = None
        for page in pages:
            for event in page["events"]:
                stacks = self._stacks_in_line(event, group)
                if stacks is not None and are_stacks_of_run(stacks, record):
                    last_stacks = stacks
        return last_stacks

    def _stacks_in_line(self, event: Mapping[str, Any], group: str) -> StacksLine | None:
        """The call stacks in a line, if its log stream is their task's."""
        stacks = decode_stacks_line(event["message"].encode(errors="replace"))
        if stacks is None:
            return None
        trust = self._trust.trust_in_stream(group, event["logStreamName"])
        verdict = trust.judge_line(claim_of_stacks(stacks), event["timestamp"])
        return stacks if verdict.counts else None

    def _lines_of_time(
        self,
        start_ms: int,
        end_ms: int,
        selection: RunFilter,
        seen: dict[_ContainerKey, bool],
        kept: LineFile,
    ) -> Sequence[list[_FoundLine]]:
        """The lines in this time by their runs. ``seen``: the runs with newer lines, and whether
        one of those is confirmed; an unconfirmed line never replaces or hides a confirmed one.
        """
        window: dict[str, object] = {
            "startTime": start_ms,
            "endTime": end_ms - 1,
            "filterPattern": filter_pattern(selection),
        }
        if self._stream_prefix:
            window["logStreamNamePrefix"] = self._stream_prefix
        new_lines: list[_FoundLine] = []
        for group in tuple(self._groups):
            try:
                for line in self._judge_lines(selection, kept, logGroupName=group, **window):
                    is_older = line.key in seen and seen[line.key] >= line.is_confirmed
                    if not is_older:
                        new_lines.append(line)
            except TaskProfilerError as error:
                self._leave_out_group(group, error)
        runs = self._lines_by_run(new_lines)
        for lines in runs:
            seen[lines[0].key] = lines[0].is_confirmed
        return runs

    def _leave_out_group(self, group: str, error: TaskProfilerError) -> None:
        """Go on without a group. Raises its error if it is the last one."""
        is_last = self._groups == [group]
        if self._on_unread is None or (is_last and self.raises_last):
            if isinstance(error, MissingLogGroupError):
                raise error.told() from error
            raise error
        self._groups.remove(group)
        if isinstance(error, MissingLogGroupError):
            self._missing.append(group)
        else:
            self._gaps.append(Gap(place=group, group=(self._trust.region, group)))
            self._on_unread(group, error)

    def _run_of_lines(
        self, lines: Sequence[_FoundLine], selection: RunFilter, kept: LineFile
    ) -> Iterator[PastRun]:
        """The run of these lines, if it matches."""
        # ``taskdef resize`` asks for neither: it has places of its own.
        is_judged = selection.only_counting or selection.reads_checkpoints
        places = self.places if is_judged else ANY_PLACE
        for matching in self._matching_runs([lines], selection, kept):
            run = matching
            if run.counts and not places.is_in_its_place(run):
                run = replace(run, counts=False)
            if selection.only_counting and not run.counts:
                self._uncounted.add(lines[0].key)
                continue
            if run.report.type != CHECKPOINT or selection.run:
                yield run
            # Where the report belongs to a group that is not read, nothing is known about it.
            elif run.record.log_group in (None, *self._groups):
                yield from self._with_checkpoints(run, selection)

    def _lines_by_run(self, lines: Iterable[_FoundLine]) -> list[list[_FoundLine]]:
        """The lines of each run. In a group, the first line counts: the last report, else the last
        checkpoint.
        """
        by_run: dict[_ContainerKey, list[_FoundLine]] = {}
        for line in lines:
            by_run.setdefault(line.key, []).append(line)
        trusted_by_run: list[list[_FoundLine]] = []
        for of_run in by_run.values():
            of_run.sort(key=lambda line: line.precedence, reverse=True)
            # Who may not speak for the run may not add to it, either.
            place = of_run[0].place
            trusted = [line for line in of_run if line.is_confirmed or line.place == place]
            self._untrusted += len(of_run) - len(trusted)
            trusted_by_run.append(trusted)
        return trusted_by_run

    def _with_checkpoints(self, run: PastRun, selection: RunFilter) -> Iterator[PastRun]:
        """The run without a report, with all its checkpoints, unless the last of them does not
        match.
        """
        if run.place is None:
            return
        key = _container_key(run.report)
        kept = LineFile()
        lines = self._judge_lines(
            selection,
            kept,
            logGroupName=run.place.group,
            logStreamNames=[run.place.stream],
            startTime=run.started_ns // NS_PER_MS,
            filterPattern=f'{{ $.type = "{CHECKPOINT}" }}',
        )
        of_run = [line for line in lines if line.key == key]
        yield from self._matching_runs(self._lines_by_run(of_run), selection, kept)

    def _matching_runs(
        self, groups: Iterable[Sequence[_FoundLine]], selection: RunFilter, kept: LineFile
    ) -> Iterator[PastRun]:
        invalid: list[int] = []
        read_groups = (_read_lines(lines, kept) for lines in groups)
        yield from matching_runs(read_groups, selection, invalid.append, self._now_ns)
        self._unreadable += len(invalid)

    def _judge_lines(
        self,
        selection: RunFilter,
        kept: LineFile,
        **parameters: Any,  # noqa: ANN401  boto3's own
    ) -> Iterator[_FoundLine]:
        group = str(parameters["logGroupName"])
        for page in self._read_pages(**parameters):
            for event in page["events"]:
                line = self._judge_line(event, group, selection, kept)
                if line is not None:
                    yield line

    def _judge_line(
        self, event: Mapping[str, Any], group: str, selection: RunFilter, kept: LineFile
    ) -> _FoundLine | None:
        """Judge a line, and keep it. An implementation of CloudWatch Logs may ignore the filter
        pattern.
        """
        message = event["message"]
        place = LogTarget(group=group, stream=event["logStreamName"], region=self._trust.region)
        trust = self._trust.trust_in_stream(group, place.stream)
        is_wanted = '"task.report"' in message or (
            selection.reads_checkpoints and f'"{CHECKPOINT}"' in message
        )
        if not is_wanted or not message.lstrip().startswith("{"):
            notices = [*read_notices([message])]
            if trust.speaks_for_schedules:
                self._notices += notices
            else:
                self._untrusted += len(notices)
            return None
        content = message.strip().encode(errors="replace")
        line = read_run_line(content)
        if line is None:
            if trust.speaks_for_tasks:
                self._unreadable += 1
            else:
                self._untrusted += 1
            return None
        claim = claim_of_head(line.head)
        verdict = trust.judge_line(claim, event["timestamp"])
        if self._trust.is_decided_by_monitors(trust, group, verdict):
            self._trust = self._trust.trust_with_monitors(group)
            trust = self._trust.trust_in_stream(group, place.stream)
            verdict = trust.judge_line(claim, event["timestamp"])
        if not verdict.counts:
            if verdict.untrusted:
                self._untrusted += 1
            if verdict.invalid:
                self._invalid_times += 1
            return None
        self._other_schemas.update(other_schema_versions(line.head))
        if verdict.is_confirmed and self._trust.account_id is None:
            self._unvouched = self._trust.problem
        return _FoundLine(
            number=kept.add_line(content),
            key=_container_key(line.head),
            start_ns=report_start_ns(line.head),
            timestamp_ms=event["timestamp"],
            is_report=line.head.type != CHECKPOINT,
            is_confirmed=(verdict.is_confirmed and self._trust.account_id is not None),
            counts=does_run_count(verdict.voucher),
            voucher=verdict.voucher,
            place=place,
        )


def _read_lines(lines: Iterable[_FoundLine], kept: LineFile) -> list[RunLine]:
    """The lines with their heads decoded again."""
    run_lines: list[RunLine] = []
    for found_line in lines:
        line = read_run_line(kept.read_line(found_line.number))
        if line is not None:
            run_lines.append(
                replace(
                    line,
                    is_confirmed=found_line.is_confirmed,
                    counts=found_line.counts,
                    voucher=found_line.voucher,
                    place=found_line.place,
                )
            )
    return run_lines


def _start_of_lines(lines: Sequence[_FoundLine]) -> int:
    return lines[0].start_ns


def _container_key(report: Report | ReportHead) -> _ContainerKey:
    return report.record.task_id, report.record.container.name


def filter_pattern(selection: RunFilter) -> str:
    """The pattern for the matching runs, all notices, and more: the shell's wildcards other than
    ``*`` are left out.
    """
    types = _type_condition(selection)
    conditions = [types]
    for field, values in (
        ("family", selection.families),
        ("cluster", selection.clusters),
        ("accountId", tuple(filter(None, selection.accounts))),
        ("region", tuple(filter(None, selection.regions))),
    ):
        if values and all(map(_is_understood_pattern, values)):
            conditions.append(_any_condition([f'$.record.{field} = "{value}"' for value in values]))
    conditions += _tag_and_job_conditions(selection)
    if selection.statuses and "unknown" not in selection.statuses:
        statuses = [f'$.record.status = "{status}"' for status in selection.statuses]
        conditions.append(_any_condition(statuses))
    if _is_understood_pattern(selection.run):
        task_id = selection.run.partition("/")[0].rstrip("*")
        names = [f'$.record.taskId = "{task_id}*"']
        if may_begin_job_id(selection.run):
            names.append(f'$.record.batch.jobId = "{selection.run}*"')
        names.append(f'$.record.family = "{selection.run}"')
        conditions.append(_any_condition(names))
    pattern = _condition_or_notices(" && ".join(conditions))
    if len(pattern) > _MAX_PATTERN_LENGTH:
        return _condition_or_notices(types)
    return pattern


def _tag_and_job_conditions(selection: RunFilter) -> Iterator[str]:
    """The conditions on tags and on jobs of AWS Batch, as far as CloudWatch can name them."""
    for name, value in selection.tags:
        if re.fullmatch(r"\w+", name, re.ASCII) and _is_understood_pattern(value):
            yield f'$.record.tags.{name} = "{value}"'
    for name, value in selection.labels:
        job_field = name.removeprefix(BATCH_PREFIX)
        if job_field != name and job_field not in WHOLE_NUMBERS and _is_understood_pattern(value):
            yield f'$.record.batch.{json_name(job_field)} = "{value}"'


def _type_condition(selection: RunFilter) -> str:
    reports = '$.type = "task.report"'
    if not selection.reads_checkpoints:
        return reports
    if selection.run:
        return '$.type = "task.*"'
    return f"({reports} || ({_FIRST_CHECKPOINTS}))"


def _condition_or_notices(condition: str) -> str:
    return f"{{ ({condition}) || ($.type = {NOTICE_MARKER}) }}"


def _any_condition(conditions: Sequence[str]) -> str:
    if len(conditions) == 1:
        return conditions[0]
    return f"({' || '.join(conditions)})"


def _is_understood_pattern(text: str) -> bool:
    """Whether CloudWatch reads the text as the shell does: its only wildcard is ``*``."""
    return bool(text) and not any(
        character in '?["\\' or not character.isprintable() for character in text
    )

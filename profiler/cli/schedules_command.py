"""``task-profiler schedules``: what should have run, what came of it, and what is due next."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.account_schedules import AccountSchedules
from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.missed_reasons import MissedReasons
from profiler.aws_account.started_tasks import read_clusters
from profiler.cli.options import SourceOptions, past_run_options
from profiler.cli.printing import UNKNOWN, warn, write_out
from profiler.cli.styled_text import EMPTY, Column, Line, Span, table, table_width, wrapped, write_lines
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_past_runs import open_source
from profiler.core.clock import Clock, SystemClock
from profiler.core.ecs_terms import arn_part, cluster_name
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.past_runs.usual_times import UsualDuration, UsualDurations
from profiler.record.family_identity import FamilyKey
from profiler.record.units import format_count, format_duration
from profiler.schedules.due_outcomes import CHANGED, JudgedSchedule, as_refused, judge_last
from profiler.schedules.due_times import next_due
from profiler.schedules.overlap_ahead import overlap_ahead
from profiler.schedules.schedule_model import DueOutcome, DueTime, Schedule
from profiler.schedules.task_matching import family_of_schedule

_GRACE_NS = 15 * 60 * NS_PER_SECOND  # as SCHEDULE_GRACE_MINUTES of the forwarder
_USUAL_NS = 14 * 86_400 * NS_PER_SECOND
_REGION_PART, _ACCOUNT_PART = 3, 4
_MAX_PROBLEMS = 3
_GAP = 2
# A program that reads the sentences gets every line whole.
_PIPE_COLUMNS = 10_000
# In the order of the rows.
_STYLES: Mapping[DueOutcome, str] = {
    "missed": "red",
    "refused": "red",
    "late": "yellow",
    "overlapped": "yellow",
    "unknown": "yellow",
    "due": "",
    "running": "cyan",
    "ran": "green",
    "none": "",
    "disabled": "dim",
}
_ORDER = {outcome: place for place, outcome in enumerate(_STYLES)}
_COLUMNS = (
    Column("Expression", folds=True),
    Column("Last due", folds=True),
    Column("Outcome"),
    Column("Next due", folds=True),
    Column("Usual", is_right=True),
)


class ScheduleRow(Struct, frozen=True, kw_only=True):
    """A schedule, what became of its last due time, and what is ahead."""

    schedule: Schedule
    outcome: DueOutcome
    reason: str | None = None
    last_ns: int | None = None
    next_ns: int | None = None
    usual_ms: float | None = None
    overlap: str | None = None

    @property
    def title(self) -> str:
        """Its name, with its group unless that is the default one."""
        group = "" if self.schedule.group == "default" else f"{self.schedule.group}/"
        return group + self.schedule.name

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return cluster_name(self.schedule.cluster_arn) or UNKNOWN

    def as_json(self) -> dict[str, Any]:
        """The row as a JSON object."""
        schedule = self.schedule
        return {
            "name": schedule.name,
            "kind": schedule.kind,
            "expression": schedule.expression,
            "timeZone": schedule.time_zone,
            "cluster": self.cluster,
            "family": family_of_schedule(schedule),
            "lastDue": _iso(self.last_ns),
            "outcome": self.outcome,
            "reason": self.reason,
            "nextDue": _iso(self.next_ns),
            "usualDurationMs": None if self.usual_ms is None else round(self.usual_ms),
            "overlap": self.overlap,
        }


@click.command("schedules", epilog="Example: task-profiler schedules --cluster jobs --log-group /ecs/jobs")
@click.option("--cluster", "cluster", metavar="NAME", help="Only schedules that start tasks in this ECS cluster.")
@click.option("--json", "as_lines", is_flag=True, help="Print one JSON object per schedule instead of a table.")
@past_run_options
def command(*, cluster: str | None, as_lines: bool, **past_runs: Any) -> None:  # noqa: ANN401  the values of options
    """List the schedules that start ECS tasks, and what became of them.

    These are the schedules of EventBridge Scheduler and the rules of EventBridge in one Region. The usual duration
    needs past runs: --elasticsearch, --log-group or --from.
    """
    options, clock = SourceOptions(**past_runs), SystemClock()
    open_client = open_clients(options.region, options.profile)
    judged = _judged(open_client, cluster, clock)
    usual = _usual_durations(options, [one.schedule for one in judged], clock)
    now_ns = clock.wall_ns()
    rows = sorted((_row(one, usual.of(_family_key(one.schedule)), now_ns) for one in judged), key=_order)
    if as_lines:
        write_out(b"".join(msgspec.json.encode(row.as_json()) + b"\n" for row in rows))
    else:
        write_lines(table_lines(rows, table_width()), os.environ)


def _judged(open_client: OpenClient, cluster: str | None, clock: Clock) -> list[JudgedSchedule]:
    found = AccountSchedules(open_client("events"), open_client("scheduler")).read()
    if found.problems and not found.schedules:
        raise TaskProfilerError(found.problems[0])
    for problem in found.problems[:_MAX_PROBLEMS]:
        warn(problem)
    if found.problems[_MAX_PROBLEMS:]:
        warn(f"{format_count(len(found.problems) - _MAX_PROBLEMS, 'more schedule')} could not be read.")
    schedules = [one for one in found.schedules if cluster in (None, cluster_name(one.cluster_arn), one.cluster_arn)]
    if not schedules:
        where = "" if cluster is None else f" in the cluster {cluster}"
        check = "--region and --profile" if cluster is None else "--cluster, --region and --profile"
        raise TaskProfilerError(f"No schedule and no rule of EventBridge starts an ECS task{where}: check {check}.")
    now_ns = clock.wall_ns()
    clusters = read_clusters(open_client("ecs"), {schedule.cluster_arn for schedule in schedules}, now_ns)
    warned: set[str] = set()
    reasons = MissedReasons(
        lambda: open_client("cloudtrail"), lambda: open_client("sqs"), pause=clock.sleep, warn=warned.add
    )
    judged = judge_last(schedules, clusters, now_ns=now_ns, grace_ns=_GRACE_NS)
    explained = [_with_reason(one, reasons, now_ns) for one in judged]
    for problem in sorted(warned):
        warn(problem)
    return explained


def _with_reason(judged: JudgedSchedule, reasons: MissedReasons, now_ns: int) -> JudgedSchedule:
    """Add AWS's reason to a missed due time."""

    def explained(due: DueTime) -> DueTime:
        if due.outcome != "missed":
            return due
        if reasons.was_changed(judged.schedule, due.due_ns, now_ns):
            return replace(due, outcome="unknown", reason=CHANGED)
        return as_refused(due, reasons.find(judged.schedule, due.due_ns))

    return replace(judged, due_times=tuple(map(explained, judged.due_times)))


def _usual_durations(options: SourceOptions, schedules: Iterable[Schedule], clock: Clock) -> UsualDurations:
    """The usual durations of the schedules' families, if a source of past runs is given."""
    is_given = options.source is not None or options.url is not None or bool(options.groups)
    since_ns = clock.wall_ns() - _USUAL_NS
    usual = UsualDurations((lambda: open_source(options, os.environ, clock)) if is_given else None, since_ns)
    try:
        usual.read(map(_family_key, schedules))
    except TaskProfilerError as error:
        warn(f"The usual durations are unknown. {error}")
    return usual


def _family_key(schedule: Schedule) -> FamilyKey:
    account, region = (arn_part(schedule.cluster_arn, part) for part in (_ACCOUNT_PART, _REGION_PART))
    return FamilyKey(family_of_schedule(schedule), account, region)


def _row(judged: JudgedSchedule, usual: UsualDuration | None, now_ns: int) -> ScheduleRow:
    schedule = judged.schedule
    last = judged.due_times[-1] if judged.due_times else None
    nothing: DueOutcome = "none" if schedule.is_enabled else "disabled"
    row = ScheduleRow(
        schedule=schedule,
        outcome=nothing if last is None else last.outcome,
        reason=None if last is None else last.reason,
        last_ns=None if last is None else last.due_ns,
        usual_ms=None if usual is None else usual.median_ms,
    )
    if judged.problem is not None:
        return replace(row, outcome="unknown", reason=judged.problem)
    if not schedule.is_enabled:
        return row
    overlap = None if usual is None else overlap_ahead(schedule, now_ns, usual.median_ms, usual.p95_ms)
    return replace(row, next_ns=next_due(schedule, now_ns), overlap=overlap)


def _order(row: ScheduleRow) -> tuple[int, str, str]:
    return _ORDER[row.outcome], row.title, row.cluster


def table_lines(rows: Sequence[ScheduleRow], width: int | None) -> Iterator[Line]:
    """One row per schedule, then a sentence for each that needs one."""
    has_clusters = len({row.schedule.cluster_arn for row in rows}) > 1
    columns = (Column("Schedule", folds=True), *([Column("Cluster", folds=True)] if has_clusters else ()), *_COLUMNS)
    cells = ((row.title, *([row.cluster] if has_clusters else ()), *_cells(row)) for row in rows)
    yield from table(columns, cells, gap=_GAP, width=width)
    sentences = [f"{row.title}: {part}" for row in rows for part in (row.reason, row.overlap) if part is not None]
    if sentences:
        yield EMPTY
    for sentence in sentences:
        yield from wrapped(sentence.rstrip(".") + ".", width or _PIPE_COLUMNS, first="- ")


def _cells(row: ScheduleRow) -> tuple[str | Span, ...]:
    usual = UNKNOWN if row.usual_ms is None else format_duration(row.usual_ms)
    return (
        f"{row.schedule.expression} {row.schedule.time_zone}",
        _local_time(row.last_ns),
        Span(row.outcome, _STYLES[row.outcome]),
        _local_time(row.next_ns),
        usual if row.overlap is None else Span(usual, "yellow"),
    )


def _local_time(moment_ns: int | None) -> str:
    if moment_ns is None:
        return UNKNOWN
    return f"{datetime.fromtimestamp(moment_ns // NS_PER_SECOND).astimezone():%Y-%m-%d %H:%M}"


def _iso(moment_ns: int | None) -> str | None:
    return None if moment_ns is None else format_ms(moment_ns)

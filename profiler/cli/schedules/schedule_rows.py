"""The rows of ``task-profiler schedules``: as a table, and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.cli.printing import UNKNOWN
from profiler.cli.styled_text import EMPTY, Column, Line, Span, table, wrapped
from profiler.core.ecs_terms import cluster_name
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.past_runs.usual_times import UsualDuration
from profiler.record.units import format_duration
from profiler.schedules.due_outcomes import JudgedSchedule
from profiler.schedules.due_times import next_due
from profiler.schedules.overlap_ahead import overlap_ahead
from profiler.schedules.schedule_model import DueOutcome, Schedule
from profiler.schedules.task_matching import family_of_schedule

_GAP = 2
_MAX_TITLES = 3
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


def schedule_row(judged: JudgedSchedule, usual: UsualDuration | None, now_ns: int) -> ScheduleRow:
    """The row of a schedule whose last due time was judged."""
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


def order_of(row: ScheduleRow) -> tuple[int, str, str]:
    """The place of a row: what needs attention comes first."""
    return _ORDER[row.outcome], row.title, row.cluster


def table_lines(rows: Sequence[ScheduleRow], width: int | None) -> Iterator[Line]:
    """One row per schedule, then the sentences about them."""
    has_clusters = len({row.schedule.cluster_arn for row in rows}) > 1
    has_usual = any(row.usual_ms is not None for row in rows)
    columns = (
        Column("Schedule", folds=True),
        *([Column("Cluster", folds=True)] if has_clusters else ()),
        *_COLUMNS,
        *([Column("Usual", is_right=True)] if has_usual else ()),
    )
    cells = (
        (row.title, *([row.cluster] if has_clusters else ()), *_cells(row), *([_usual(row)] if has_usual else ()))
        for row in rows
    )
    yield from table(columns, cells, gap=_GAP, width=width)
    titles: dict[str, list[str]] = {}
    for row in rows:
        for sentence in filter(None, (row.reason, row.overlap)):
            titles.setdefault(sentence, []).append(row.title)
    if titles:
        yield EMPTY
    for sentence, concerned in titles.items():
        more = f" and {len(concerned) - _MAX_TITLES} more" if len(concerned) > _MAX_TITLES else ""
        text = f"{', '.join(concerned[:_MAX_TITLES])}{more}: {sentence.rstrip('.')}."
        yield from wrapped(text, width or _PIPE_COLUMNS, first="- ")


def _cells(row: ScheduleRow) -> tuple[str | Span, ...]:
    return (
        f"{row.schedule.expression} {row.schedule.time_zone}",
        _local_time(row.last_ns),
        Span(row.outcome, _STYLES[row.outcome]),
        _local_time(row.next_ns),
    )


def _usual(row: ScheduleRow) -> Span:
    return Span(
        UNKNOWN if row.usual_ms is None else format_duration(row.usual_ms), "" if row.overlap is None else "yellow"
    )


def _local_time(moment_ns: int | None) -> str:
    if moment_ns is None:
        return UNKNOWN
    return f"{datetime.fromtimestamp(moment_ns // NS_PER_SECOND).astimezone():%Y-%m-%d %H:%M}"


def _iso(moment_ns: int | None) -> str | None:
    return None if moment_ns is None else format_ms(moment_ns)

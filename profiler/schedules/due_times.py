"""When the runs of a schedule are due: ``cron(…)``, ``rate(…)`` and ``at(…)``, in the schedule's time zone.

A local time that the clock skips is never due, and one that it repeats is due once, the first time. The functions do
not look at whether a schedule is enabled. A flexible time window begins at each due time.
https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import count, islice, pairwise, takewhile
from zoneinfo import ZoneInfo

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.record.units import format_duration
from profiler.schedules.cron_fields import FIRST_YEAR, LAST_YEAR, CronFields, parse_cron
from profiler.schedules.schedule_model import Schedule

_NS_PER_US = 1000
_NS_PER_MINUTE = 60 * NS_PER_SECOND
_UNIT_NS = {"minute": _NS_PER_MINUTE, "hour": 60 * _NS_PER_MINUTE, "day": 24 * 60 * _NS_PER_MINUTE}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END_NS = int(datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC).timestamp()) * NS_PER_SECOND
_MAX_DUE_TIMES = 50
_AHEAD_NS = 366 * 86_400 * NS_PER_SECOND


class ScheduleExpressionError(TaskProfilerError):
    """The expression or the time zone of a schedule cannot be read."""


class _Rate(Struct, frozen=True):
    period_ns: int


class _Once(Struct, frozen=True):
    """``at(…)``: a single local time."""

    local: datetime

    def ascending(self, since: datetime) -> Iterator[datetime]:
        return iter([self.local] if self.local >= since else [])

    def descending(self, until: datetime) -> Iterator[datetime]:
        return iter([self.local] if self.local <= until else [])


def due_times(schedule: Schedule, since_ns: int, until_ns: int) -> Iterator[int]:
    """The due times from ``since_ns`` on and before ``until_ns``, ascending.

    Raises:
        ScheduleExpressionError: The expression or the time zone cannot be read.
    """
    expression = _read_expression(schedule.kind, schedule.expression)
    zone = _read_zone(schedule.time_zone)
    begin_ns, end_ns = _life(schedule, expression)
    since_ns = max(since_ns, begin_ns)
    until_ns = min(until_ns, end_ns + 1)
    if isinstance(expression, _Rate):
        anchor_ns = _anchor_ns(schedule)
        if anchor_ns is None:
            return iter(())
        first_ns = since_ns + (anchor_ns - since_ns) % expression.period_ns
        times: Iterable[int] = count(first_ns, expression.period_ns)
    else:
        instants = _instants(expression.ascending(_local(since_ns, zone)), zone)
        times = (due_ns for due_ns in instants if due_ns >= since_ns)
    return takewhile(lambda due_ns: due_ns < until_ns, times)


def next_due(schedule: Schedule, after_ns: int) -> int | None:
    """The first due time after ``after_ns``; errors as in due_times."""
    return next(due_times(schedule, after_ns + 1, _END_NS), None)


def last_due(schedule: Schedule, until_ns: int) -> int | None:
    """The last due time up to ``until_ns``, inclusive; errors as in due_times."""
    expression = _read_expression(schedule.kind, schedule.expression)
    zone = _read_zone(schedule.time_zone)
    begin_ns, end_ns = _life(schedule, expression)
    until_ns = min(until_ns, end_ns)
    if until_ns < begin_ns:
        return None
    due_ns: int | None
    if isinstance(expression, _Rate):
        anchor_ns = _anchor_ns(schedule)
        due_ns = None if anchor_ns is None else until_ns - (until_ns - anchor_ns) % expression.period_ns
    else:
        instants = _instants(expression.descending(_latest_local(until_ns, zone)), zone)
        due_ns = next((due_ns for due_ns in instants if due_ns <= until_ns), None)
    return due_ns if due_ns is not None and due_ns >= begin_ns else None


def are_times_known(schedule: Schedule) -> bool:
    """Return False for a rate of which AWS returns neither a start nor a creation; errors as in due_times."""
    is_rate = isinstance(_read_expression(schedule.kind, schedule.expression), _Rate)
    return not is_rate or _anchor_ns(schedule) is not None


def _anchor_ns(schedule: Schedule) -> int | None:
    """The time from which a rate counts."""
    return schedule.created_ns if schedule.starts_ns is None else schedule.starts_ns


def _life(schedule: Schedule, expression: CronFields | _Rate | _Once) -> tuple[int, int]:
    """The first and the last moment of a schedule. AWS ignores the start and end dates of an ``at``."""
    begin_ns = max(schedule.created_ns or 0, 0)
    if isinstance(expression, _Once):
        return begin_ns, _END_NS
    return max(begin_ns, schedule.starts_ns or 0), _END_NS if schedule.ends_ns is None else schedule.ends_ns


def _local(moment_ns: int, zone: tzinfo) -> datetime:
    """The local time without its zone, but with its fold."""
    moment = _EPOCH + timedelta(microseconds=min(max(moment_ns, 0), _END_NS) // _NS_PER_US)
    return moment.astimezone(zone).replace(tzinfo=None)


def _latest_local(moment_ns: int, zone: tzinfo) -> datetime:
    """The latest local time that the clock has shown. While it repeats an hour, that is the end of the hour."""
    local = _local(moment_ns, zone)
    if not local.fold:
        return local
    first, second = (local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    return local + (first - second)


def _instants(locals_: Iterable[datetime], zone: tzinfo) -> Iterator[int]:
    """When the clock shows local times for the first time, without those that it skips."""
    for local in locals_:
        moment = local.replace(tzinfo=zone).astimezone(UTC)
        if moment.astimezone(zone).replace(tzinfo=None) == local:
            yield (moment - _EPOCH) // timedelta(microseconds=1) * _NS_PER_US


@lru_cache(maxsize=1024)
def _read_expression(kind: str, expression: str) -> CronFields | _Rate | _Once:
    try:
        return _parse(kind, expression)
    except ValueError as error:
        raise ScheduleExpressionError(f"The schedule expression '{expression}' cannot be read: {error}") from error


def _parse(kind: str, expression: str) -> CronFields | _Rate | _Once:
    found = re.fullmatch(r"\s*(cron|rate|at)\(([^()]*)\)\s*", expression)
    if not found:
        raise ValueError("it is not cron(…), rate(…) or at(…)")
    name, inner = found.groups()
    if name == "cron":
        return parse_cron(inner)
    return _parse_rate(inner, kind) if name == "rate" else _parse_at(inner, kind)


def _parse_rate(text: str, kind: str) -> _Rate:
    found = re.fullmatch(r"\s*([0-9]{1,9})\s+(minute|hour|day)(s?)\s*", text)
    if not found or int(found[1]) == 0:
        raise ValueError("a rate is a positive number with minutes, hours or days")
    value = int(found[1])
    # Rules are strict. The documentation of EventBridge Scheduler lists both forms for every value.
    if kind == "rule" and (value == 1) == bool(found[3]):
        raise ValueError(f"{value} needs '{found[2]}{'' if value == 1 else 's'}'")
    return _Rate(value * _UNIT_NS[found[2]])


def _parse_at(text: str, kind: str) -> _Once:
    if kind == "rule":
        raise ValueError("rules have no at(…)")
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}", text.strip()):
        raise ValueError("its time is not yyyy-mm-ddThh:mm:ss")
    local = datetime.fromisoformat(text.strip())
    if not FIRST_YEAR <= local.year <= LAST_YEAR:
        raise ValueError(f"its year is not one of {FIRST_YEAR}-{LAST_YEAR}")
    return _Once(local)


@lru_cache(maxsize=1024)
def _read_zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError) as error:
        raise ScheduleExpressionError(
            f"The time zone '{name}' is unknown here: correct it, or install Python's package tzdata"
        ) from error


def overlap_ahead(schedule: Schedule, now_ns: int, median_ms: float, p95_ms: float) -> str | None:
    """A clause such as ``takes 1h 10m, due every 1h 00m``; None if the next runs will probably not overlap.

    Args:
        schedule: The schedule.
        now_ns: The time from which on its due times count.
        median_ms: The median of the durations of past successes.
        p95_ms: Their 95th percentile.

    Raises:
        ScheduleExpressionError: The expression or the time zone cannot be read.
    """
    dues = islice(due_times(schedule, now_ns, now_ns + _AHEAD_NS), _MAX_DUE_TIMES)
    gaps_ms = [(later_ns - due_ns) / NS_PER_MS for due_ns, later_ns in pairwise(dues)]
    if not gaps_ms or p95_ms <= min(gaps_ms):
        return None
    shortest_ms = min(gaps_ms)
    takes = "takes" if median_ms > shortest_ms else "takes up to"
    due = "due every" if shortest_ms == max(gaps_ms) else "due again after"
    duration_ms = median_ms if median_ms > shortest_ms else p95_ms
    return f"{takes} {format_duration(duration_ms)}, {due} {format_duration(shortest_ms)}"

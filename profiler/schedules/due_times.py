"""When the runs of a schedule are due: ``cron(…)``, ``rate(…)`` and ``at(…)``, in the schedule's
time zone.

A local time that the clock skips is never due, and one that it repeats is due once, the first time.
The libraries on PyPI lack ``LW``, a step of years or a lone ``L`` among the days of the week, and
none knows time zones. https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html
https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-scheduled-rule-pattern.html
"""

import calendar
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from heapq import merge
from itertools import count, islice, pairwise, product, takewhile
from typing import NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import first_known
from profiler.core.timestamps import (
    DAYS_PER_MONTH,
    NS_PER_DAY,
    NS_PER_HOUR,
    NS_PER_MINUTE,
    NS_PER_MS,
    NS_PER_SECOND,
    NS_PER_US,
)
from profiler.record.units import format_duration
from profiler.schedules.schedule_model import Schedule

_FIRST_YEAR = 1970
_LAST_YEAR = 2199
_UNIT_NS = {"minute": NS_PER_MINUTE, "hour": NS_PER_HOUR, "day": NS_PER_DAY}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_END_NS = int(datetime(_LAST_YEAR + 1, 1, 1, tzinfo=UTC).timestamp()) * NS_PER_SECOND
_MAX_DUE_TIMES = 50
_AHEAD_NS = 366 * NS_PER_DAY
_HOURS_A_DAY = 24
# A schedule that is due more often in 40 days is looked at for these days, not for a year.
_MAX_GAPS = 4_000
_GAPS_AHEAD_NS = 40 * NS_PER_DAY
# Of a schedule that is due more often, four weeks are enough to count.
_OFTEN_A_DAY = 8
_MINUTE = timedelta(minutes=1)
_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONDAY_TO_FRIDAY = range(2, 7)

_DayRule = Callable[[int, int], Iterator[int]]
"""The days that it names in a month of a year."""


class _Cron(Struct, frozen=True):
    """The meaning of a cron expression; its numbers ascend.

    The days of a month are the union of ``day_rules``.
    """

    minutes_of_day: tuple[int, ...]
    months: tuple[int, ...]
    years: tuple[int, ...]
    day_rules: tuple[_DayRule, ...]

    def minutes_since(self, since: datetime) -> Iterator[datetime]:
        """The minutes from a local time on."""
        for year in self.years[bisect_left(self.years, since.year) :]:
            for month in self.months:
                if (year, month) < (since.year, since.month):
                    continue
                days: set[int] = set()
                for rule in self.day_rules:
                    days.update(rule(year, month))
                for day in sorted(days):
                    # Local times have no zone here.
                    midnight = datetime(year, month, day)  # noqa: DTZ001
                    first = bisect_left(self.minutes_of_day, (since - midnight) / _MINUTE)
                    for minutes in self.minutes_of_day[first:]:
                        yield midnight + minutes * _MINUTE


def _parse_cron(text: str) -> _Cron:
    """Read the six fields, which AWS has accepted. Raises ValueError if they are something else."""
    minutes, hours, days_of_month, months, days_of_week, years = text.upper().split()
    if days_of_week == "?":
        rules = [_day_of_month_rule(part) for part in days_of_month.split(",")]
    else:
        rules = [_day_of_week_rule(part) for part in days_of_week.split(",")]
    hour_and_minute = product(_field_values(hours, 0, 23), _field_values(minutes, 0, 59))
    return _Cron(
        tuple(hour * 60 + minute for hour, minute in hour_and_minute),
        _field_values(months, 1, 12, _MONTH_NAMES),
        _field_values(years, _FIRST_YEAR, _LAST_YEAR),
        tuple(rules),
    )


def _field_values(text: str, first: int, last: int, names: Sequence[str] = ()) -> tuple[int, ...]:
    """The values of a list of ``*``, ``4``, ``4-6``, ``4/2``, ``*/2`` or ``4-6/2``."""
    for number, name in enumerate(names, first):
        text = text.replace(name, str(number))
    count = last - first + 1
    values: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(?:\*|([0-9]{1,4})(?:-([0-9]{1,4}))?)(?:/([0-9]{1,4}))?", part)
        if not match:
            raise ValueError(part)
        begin_text, end_text, step_text = match.groups()
        begin = int(begin_text or first)
        if end_text:
            end = int(end_text)
        elif begin_text and not step_text:
            end = begin
        else:
            end = last
        if not (first <= begin <= last and first <= end <= last):
            raise ValueError(part)
        # FRI-MON and 22-2 go on after the end of the week or of the day.
        for step in range(0, (end - begin) % count + 1, int(step_text or 1)):
            values.add(first + (begin - first + step) % count)
    return tuple(sorted(values))


def _day_of_month_rule(text: str) -> _DayRule:
    if match := re.fullmatch(r"L(?:-([0-9]{1,2}))?", text):
        before = int(match[1] or 0)
        return lambda year, month: _day_before_month_end(year, month, before)
    if match := re.fullmatch(r"(\w+)W", text, re.ASCII):
        fixed = None
        if match[1] != "L":
            fixed = _field_values(match[1], 1, 31)[0]
        return lambda year, month: _nearest_weekday(
            year, month, fixed or _days_in_month(year, month)
        )
    days = _field_values(text, 1, 31)
    return lambda year, month: (day for day in days if day <= _days_in_month(year, month))


def _day_before_month_end(year: int, month: int, days: int) -> Iterator[int]:
    """The day so many days before the last day of the month."""
    day = _days_in_month(year, month) - days
    if day > 0:
        yield day


def _day_of_week_rule(text: str) -> _DayRule:
    if text == "L":
        text = "SAT"
    if match := re.fullmatch(r"(\w+)#([1-5])|(\w+)L", text, re.ASCII):
        weekday_text, number, last_text = match.groups()
        (weekday,) = _field_values(last_text or weekday_text, 1, 7, _WEEKDAY_NAMES)
        index = int(number) - 1 if number else -1
        return lambda year, month: iter(_days_on_weekdays(year, month, (weekday,))[index:][:1])
    weekdays = _field_values(text, 1, 7, _WEEKDAY_NAMES)
    return lambda year, month: iter(_days_on_weekdays(year, month, weekdays))


def _days_in_month(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1]


def _days_on_weekdays(year: int, month: int, weekdays: Sequence[int]) -> list[int]:
    """The days of a month on these weekdays in AWS's numbers, of which 1 is Sunday."""
    first = date(year, month, 1).isoweekday()
    return [
        day
        for day in range(1, _days_in_month(year, month) + 1)
        if (first + day - 1) % 7 + 1 in weekdays
    ]


def _nearest_weekday(year: int, month: int, day: int) -> Iterator[int]:
    """The day from Monday to Friday that is nearest to a day, in the same month."""
    if day <= _days_in_month(year, month):
        yield min(
            _days_on_weekdays(year, month, _MONDAY_TO_FRIDAY), key=lambda other: abs(other - day)
        )


class ScheduleExpressionError(TaskProfilerError):
    """The expression or the time zone of a schedule cannot be read."""


_Expression: TypeAlias = _Cron | int | datetime
"""``cron(…)``, the period of a ``rate(…)`` in nanoseconds, or the local time of an ``at(…)``."""


def due_times(schedule: Schedule, since_ns: int, until_ns: int) -> Iterator[int]:
    """The due times from ``since_ns`` on and before ``until_ns``, ascending.

    Raises ScheduleExpressionError.
    """
    expression = _read_expression(schedule.expression)
    zone = read_zone(schedule.time_zone)
    begin_ns, end_ns = _first_and_last_moment(schedule, expression)
    since_ns = max(since_ns, begin_ns)
    until_ns = min(until_ns, end_ns + 1)
    if isinstance(expression, int):
        anchor_ns = _anchor_ns(schedule)
        if anchor_ns is None:
            return iter(())
        times: Iterable[int] = count(since_ns + (anchor_ns - since_ns) % expression, expression)
    else:
        since = _local_time(since_ns, zone)
        locals_: Iterable[datetime]
        if isinstance(expression, _Cron):
            locals_ = expression.minutes_since(since)
        else:
            locals_ = (expression,)
        times = (due_ns for due_ns in _utc_ns_of_local_times(locals_, zone) if due_ns >= since_ns)
    return takewhile(lambda due_ns: due_ns < until_ns, times)


def next_due(schedule: Schedule, after_ns: int) -> int | None:
    """The first due time after ``after_ns``; errors as in due_times."""
    return next(due_times(schedule, after_ns + 1, _END_NS), None)


def may_start_again(schedule: Schedule, now_ns: int) -> bool:
    """Whether a schedule may start a task after ``now_ns``: not if it is disabled, or over."""
    return schedule.is_enabled and not is_over(schedule, now_ns)


def is_over(schedule: Schedule, now_ns: int) -> bool:
    """Whether a schedule would not be due after ``now_ns`` even if it is enabled."""
    try:
        return has_known_anchor(schedule) and next_due(schedule, now_ns) is None
    except ScheduleExpressionError:
        return False


def last_due(schedule: Schedule, until_ns: int) -> int | None:
    """The last due time up to ``until_ns``, inclusive; errors as in due_times."""
    begin_ns, end_ns = _first_and_last_moment(schedule, _read_expression(schedule.expression))
    end_ns = min(until_ns, end_ns) + 1
    span_ns = _UNIT_NS["hour"]
    while end_ns > begin_ns:  # each stretch of time is longer than the one after it
        start_ns = max(end_ns - span_ns, begin_ns)
        last = deque(due_times(schedule, start_ns, end_ns), maxlen=1)
        if last:
            return last[0]
        end_ns = start_ns
        span_ns = min(span_ns * 8, _AHEAD_NS)
    return None


def has_known_anchor(schedule: Schedule) -> bool:
    """Return False for a rate of which AWS returns neither a start nor a creation; errors as in
    due_times.
    """
    is_rate = isinstance(_read_expression(schedule.expression), int)
    return not is_rate or _anchor_ns(schedule) is not None


def _anchor_ns(schedule: Schedule) -> int | None:
    """The time from which a rate counts."""
    return first_known(schedule.starts_ns, schedule.created_ns)


def _first_and_last_moment(schedule: Schedule, expression: _Expression) -> tuple[int, int]:
    """The first and the last moment of a schedule.

    AWS ignores the start and end dates of an ``at``.
    """
    begin_ns = max(schedule.created_ns or 0, 0)
    if isinstance(expression, datetime):
        return begin_ns, _END_NS
    return max(begin_ns, schedule.starts_ns or 0), first_known(schedule.ends_ns, _END_NS)


def _local_time(moment_ns: int, zone: tzinfo) -> datetime:
    moment = _EPOCH + timedelta(microseconds=min(max(moment_ns, 0), _END_NS) // NS_PER_US)
    return moment.astimezone(zone).replace(tzinfo=None)


def _utc_ns_of_local_times(locals_: Iterable[datetime], zone: tzinfo) -> Iterator[int]:
    """When the clock shows local times for the first time, without those that it skips."""
    for local in locals_:
        moment = local.replace(tzinfo=zone).astimezone(UTC)
        # UTC skips no time.
        if zone is UTC or moment.astimezone(zone).replace(tzinfo=None) == local:
            yield (moment - _EPOCH) // _MICROSECOND * NS_PER_US


def check_expression(expression: str) -> None:
    """Raise ScheduleExpressionError for an expression that cannot be read."""
    _read_expression(expression)


@lru_cache(maxsize=1024)
def _read_expression(expression: str) -> _Expression:
    try:
        match = re.fullmatch(r"\s*(cron|rate|at)\(([^()]*)\)\s*", expression)
        name = ""
        inner = ""
        if match:
            name, inner = match.groups()
        if name == "cron":
            return _parse_cron(inner)
        if name == "at":
            # A local time.
            return datetime.strptime(inner.strip(), "%Y-%m-%dT%H:%M:%S")  # noqa: DTZ007
        value, unit = inner.split()
        return int(value) * _UNIT_NS[unit.removesuffix("s")]
    except (ValueError, KeyError) as error:
        raise ScheduleExpressionError(
            f"The schedule expression '{expression}' cannot be read."
        ) from error


@lru_cache(maxsize=1024)
def read_zone(name: str) -> tzinfo:
    """The time zone of a name such as Europe/Berlin. Raises ScheduleExpressionError."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError) as error:
        raise ScheduleExpressionError(
            f"The time zone '{name}' is unknown here: correct it, or install Python's package "
            "tzdata."
        ) from error


def shortest_gaps_ms(schedules: Sequence[Schedule], now_ns: int) -> dict[int, float]:
    """The shortest time from a due time to the next one in the year ahead, of schedules that start
    one family, by the hour of the day in UTC in which the earlier run may start.

    An hour in which none may start is missing, and so is everything without two due times.
    Schedules that are due at the same moment overlap by intention. The earlier run may start at the
    end of its flexible window, an hour later, because a start takes time, and where clocks change
    an hour earlier; the later one may start at its due time. An expression that cannot be read, and
    the phase of a rate without a beginning, count as unknown.
    """
    gaps_ns: dict[int, int] = {}
    starts: list[Iterator[_DueStart]] = []
    for schedule in schedules:
        try:
            if has_known_anchor(schedule):
                starts.append(_starts_ahead(schedule, now_ns))
                continue
            placed = _starts_ahead(replace(schedule, created_ns=now_ns), now_ns)
        except ScheduleExpressionError:
            continue
        of_rate: dict[int, int] = {}
        _add_gaps(of_rate, islice(placed, 2))
        for gap_ns in of_rate.values():
            for hour in range(_HOURS_A_DAY):
                gaps_ns[hour] = min(gaps_ns.get(hour, gap_ns), gap_ns)
    _add_gaps(gaps_ns, merge(*starts))
    return {hour: gap_ns / NS_PER_MS for hour, gap_ns in gaps_ns.items()}


class _DueStart(NamedTuple):
    """A due time, the end of its flexible window, and the hours in which its run may start."""

    due_ns: int
    last_ns: int
    hours: range


def _starts_ahead(schedule: Schedule, now_ns: int) -> Iterator[_DueStart]:
    """The starts of the year ahead. Of a schedule that is due many times an hour, those of 40 days
    and of the days around changes of the clock, which repeat.

    Raises ScheduleExpressionError.
    """
    zone = read_zone(schedule.time_zone)
    first_days = list(islice(due_times(schedule, now_ns, now_ns + _GAPS_AHEAD_NS), _MAX_GAPS))
    stretches = [(now_ns, now_ns + _AHEAD_NS)]
    if len(first_days) == _MAX_GAPS:
        stretches = [(now_ns, now_ns + _GAPS_AHEAD_NS), *_clock_changes(zone, now_ns)]
    return _due_starts(schedule, stretches, hours_before=zone is not UTC)


def _due_starts(
    schedule: Schedule, stretches: Iterable[tuple[int, int]], *, hours_before: bool
) -> Iterator[_DueStart]:
    window_ns = schedule.window_minutes * NS_PER_MINUTE
    for since_ns, until_ns in stretches:
        for due_ns in due_times(schedule, since_ns, until_ns):
            last_ns = due_ns + window_ns
            hours = range(due_ns // NS_PER_HOUR - hours_before, last_ns // NS_PER_HOUR + 2)
            yield _DueStart(due_ns, last_ns, hours)


def _clock_changes(zone: tzinfo, now_ns: int) -> Iterator[tuple[int, int]]:
    """The days around each change of the clock after the next 40 days, within a year."""
    start_ns = now_ns + _GAPS_AHEAD_NS
    end_ns = start_ns
    offset = _utc_offset(start_ns, zone)
    for day_ns in range(start_ns, now_ns + _AHEAD_NS, NS_PER_DAY):
        if _utc_offset(day_ns, zone) != offset:
            offset = _utc_offset(day_ns, zone)
            yield max(day_ns - 2 * NS_PER_DAY, end_ns), day_ns + NS_PER_DAY
            end_ns = day_ns + NS_PER_DAY


def _utc_offset(moment_ns: int, zone: tzinfo) -> timedelta:
    return _local_time(moment_ns, zone) - _local_time(moment_ns, UTC)


def _add_gaps(gaps_ns: dict[int, int], starts: Iterable[_DueStart]) -> None:
    """Add the shortest gaps by the hours of the day."""
    for start, later in pairwise(starts):
        if later.due_ns <= start.due_ns:
            continue
        gap_ns = max(later.due_ns - start.last_ns, 0)
        for hour in start.hours[:_HOURS_A_DAY]:
            hour_of_day = hour % _HOURS_A_DAY
            known_ns = gaps_ns.get(hour_of_day)
            if known_ns is None or gap_ns < known_ns:
                gaps_ns[hour_of_day] = gap_ns


def tasks_a_month(schedules: Sequence[Schedule], now_ns: int) -> float | None:
    """The mean number of tasks that schedules start in a month; None if nothing is due.

    What happens once, an ``at(…)``, is no rate, and an expression that cannot be read is unknown.
    """
    total = 0.0
    for schedule in schedules:
        with suppress(ScheduleExpressionError):
            total += _tasks_a_day(schedule, now_ns) * schedule.task_count
    return total * DAYS_PER_MONTH or None


def _tasks_a_day(schedule: Schedule, now_ns: int) -> float:
    """Counted in four weeks, or in a year if the schedule is not due every hour."""
    if isinstance(_read_expression(schedule.expression), datetime):
        return 0
    known = schedule if has_known_anchor(schedule) else replace(schedule, created_ns=now_ns)
    for days in (28, 364):
        due = sum(1 for _ in due_times(known, now_ns, now_ns + days * NS_PER_DAY))
        if due > days * _OFTEN_A_DAY:
            break
    return due / days


def overlap_clause(schedule: Schedule, now_ns: int, median_ms: float, p95_ms: float) -> str | None:
    """A clause such as ``takes 1h 10m, due every 1h 00m``; None if the next runs will probably
    not overlap.
    """
    dues = islice(due_times(schedule, now_ns, now_ns + _AHEAD_NS), _MAX_DUE_TIMES)
    gaps_ms = [(later_ns - due_ns) / NS_PER_MS for due_ns, later_ns in pairwise(dues)]
    if not gaps_ms or p95_ms <= min(gaps_ms):
        return None
    shortest_ms = min(gaps_ms)
    takes = f"takes up to {format_duration(p95_ms)}"
    if median_ms > shortest_ms:
        takes = f"takes {format_duration(median_ms)}"
    due = "due every" if shortest_ms == max(gaps_ms) else "due again after"
    return f"{takes}, {due} {format_duration(shortest_ms)}"

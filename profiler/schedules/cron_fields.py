"""AWS's cron expressions: ``minutes hours day-of-month month day-of-week year``, and the days that they name.

The libraries on PyPI do not cover the dialect: they lack ``LW``, a step of years or a lone ``L`` among the days of the
week, and none knows time zones.
https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-scheduled-rule-pattern.html
"""

import calendar
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import product

from msgspec import Struct

FIRST_YEAR, LAST_YEAR = 1970, 2199
_MINUTE = timedelta(minutes=1)
_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SATURDAY = 7
_MONDAY_TO_FRIDAY = range(2, 7)

DayRule = Callable[[int, int], Iterator[int]]
"""The days that it names in a month of a year."""


class CronFields(Struct, frozen=True):
    """The meaning of a cron expression; its numbers ascend. The days of a month are the union of ``day_rules``."""

    minutes_of_day: tuple[int, ...]
    months: tuple[int, ...]
    years: tuple[int, ...]
    day_rules: tuple[DayRule, ...]

    def ascending(self, since: datetime) -> Iterator[datetime]:
        """The minutes from a local time on."""
        for year in self.years[bisect_left(self.years, since.year) :]:
            for month in self.months:
                if (year, month) < (since.year, since.month):
                    continue
                for day in sorted({day for rule in self.day_rules for day in rule(year, month)}):
                    midnight = datetime(year, month, day)  # noqa: DTZ001 - local times have no zone here
                    first = bisect_left(self.minutes_of_day, (since - midnight) / _MINUTE)
                    yield from (midnight + minutes * _MINUTE for minutes in self.minutes_of_day[first:])


def parse_cron(text: str) -> CronFields:
    """Read the six fields, which AWS has accepted. Raises ValueError if they are something else."""
    minutes, hours, days_of_month, months, days_of_week, years = text.upper().split()
    if days_of_week == "?":
        rules = [_day_of_month(part) for part in days_of_month.split(",")]
    else:
        rules = [_day_of_week(part) for part in days_of_week.split(",")]
    hour_and_minute = product(_values(hours, 0, 23), _values(minutes, 0, 59))
    return CronFields(
        tuple(hour * 60 + minute for hour, minute in hour_and_minute),
        _values(months, 1, 12, _MONTH_NAMES),
        _values(years, FIRST_YEAR, LAST_YEAR),
        tuple(rules),
    )


def _values(text: str, first: int, last: int, names: Sequence[str] = ()) -> tuple[int, ...]:
    parts = (_part_values(part, first, last, names) for part in text.split(","))
    return tuple(sorted({value for values in parts for value in values}))


def _part_values(text: str, first: int, last: int, names: Sequence[str]) -> Iterator[int]:
    """The values of ``*``, ``4``, ``4-6``, ``4/2``, ``*/2`` or ``4-6/2``."""
    found = re.fullmatch(r"(?:\*|(\w+)(?:-(\w+))?)(?:/([0-9]{1,4}))?", text, re.ASCII)
    if not found:
        raise ValueError(text)
    begin_text, end_text, step_text = found.groups()

    def number(value: str) -> int:
        given = first + names.index(value) if value in names else int(value)
        if not first <= given <= last:
            raise ValueError(text)
        return given

    begin = first if begin_text is None else number(begin_text)
    end = number(end_text) if end_text else begin if begin_text is not None and step_text is None else last
    step = int(step_text or 1)
    count = last - first + 1
    # FRI-MON and 22-2 go on after the end of the week or of the day.
    length = end - begin if end >= begin else end - begin + count
    return (first + (begin - first + offset) % count for offset in range(0, length + 1, step))


def _day_of_month(text: str) -> DayRule:
    if found := re.fullmatch(r"L(?:-([0-9]{1,2}))?", text):
        before = int(found[1] or 0)
        return lambda year, month: (day for day in (_length(year, month) - before,) if day > 0)
    if text == "LW":
        return lambda year, month: _nearest_weekday(year, month, _length(year, month))
    if found := re.fullmatch(r"(\w+)W", text, re.ASCII):
        (day,) = _values(found[1], 1, 31)
        return lambda year, month: _nearest_weekday(year, month, day)
    days = _values(text, 1, 31)
    return lambda year, month: (day for day in days if day <= _length(year, month))


def _day_of_week(text: str) -> DayRule:
    if text == "L":
        text = "SAT"
    if found := re.fullmatch(r"(\w+)#([1-5])|(\w+)L", text, re.ASCII):
        weekday_text, number, last_text = found.groups()
        (weekday,) = _values(last_text or weekday_text, 1, 7, _WEEKDAY_NAMES)
        index = int(number) - 1 if number else -1
        return lambda year, month: iter(_on_weekdays(year, month, (weekday,))[index:][:1])
    weekdays = _values(text, 1, 7, _WEEKDAY_NAMES)
    return lambda year, month: iter(_on_weekdays(year, month, weekdays))


def _length(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1]


def _weekday(year: int, month: int, day: int) -> int:
    """AWS's number of a weekday: 1 is Sunday."""
    return date(year, month, day).isoweekday() % 7 + 1


def _on_weekdays(year: int, month: int, weekdays: tuple[int, ...]) -> list[int]:
    first = _weekday(year, month, 1)
    return [day for day in range(1, _length(year, month) + 1) if (first + day - 2) % 7 + 1 in weekdays]


def _nearest_weekday(year: int, month: int, day: int) -> Iterator[int]:
    """The day from Monday to Friday that is nearest to a day, in the same month."""
    length = _length(year, month)
    if day > length:
        return
    near = (day, day - 1, day + 1) if _weekday(year, month, day) == _SATURDAY else (day, day + 1, day - 1)
    yield next(
        other
        for other in (*near, day + 2, day - 2)
        if 1 <= other <= length and _weekday(year, month, other) in _MONDAY_TO_FRIDAY
    )

"""Which minutes AWS's expressions name, minute by minute: slow, and without any code of
profiler/schedules.

The clock of a time zone is walked through in UTC. A local minute counts when the clock shows it for
the first time.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


def shown_minutes(
    zone: str, since: datetime, until: datetime
) -> Iterator[tuple[datetime, datetime]]:
    """Each minute of UTC in which a clock shows a local minute for the first time, with that
    local minute.
    """
    clock = ZoneInfo(zone)
    shown: set[datetime] = set()
    moment = since - 2 * DAY
    while moment < until:
        local = moment.astimezone(clock).replace(tzinfo=None, fold=0)
        if local not in shown:
            shown.add(local)
            if moment >= since:
                yield moment, local
        moment += MINUTE


def cron_times(expression: str, zone: str, since: datetime, until: datetime) -> list[datetime]:
    """The due times of a cron expression, from ``since`` on and before ``until``, both on a
    whole minute.
    """
    return [
        moment
        for moment, local in shown_minutes(zone, since, until)
        if names_minute(expression, local)
    ]


def names_minute(expression: str, local: datetime) -> bool:
    """Whether a cron expression names a local minute."""
    return (local.hour, local.minute) in times_of_day(expression) and names_date(
        expression, local.date()
    )


@cache
def times_of_day(expression: str) -> frozenset[tuple[int, int]]:
    minutes, hours, *_ = _fields(expression)
    return frozenset(
        (hour, minute)
        for hour in range(24)
        for minute in range(60)
        if _names(hours, hour, 0, 23) and _names(minutes, minute, 0, 59)
    )


@cache
def names_date(expression: str, day: date) -> bool:
    """Whether a cron expression names a date."""
    _, _, days_of_month, months, days_of_week, years = _fields(expression)
    if not (_names(years, day.year, 1970, 2199) and _names(months, day.month, 1, 12, MONTHS)):
        return False
    if days_of_month == "?":
        return any(_names_weekday(part, day) for part in days_of_week.split(","))
    return any(_names_day(part, day) for part in days_of_month.split(","))


def _fields(expression: str) -> list[str]:
    return expression.removeprefix("cron(").removesuffix(")").upper().split()


def _names(field: str, value: int, lowest: int, highest: int, words: tuple[str, ...] = ()) -> bool:
    """Count through the values of each part of a list, from its first to its last one."""
    for number, word in enumerate(words, lowest):
        field = field.replace(word, str(number))
    for part in field.split(","):
        values, _, step = part.partition("/")
        first, _, last = values.partition("-")
        counted = lowest if first == "*" else int(first)
        end = int(last) if last else highest if step or first == "*" else counted
        place = 0
        while True:
            if counted == value and place % int(step or 1) == 0:
                return True
            if counted == end:
                break
            counted = lowest if counted == highest else counted + 1
            place += 1
    return False


def _month(day: date) -> list[date]:
    first = day.replace(day=1)
    return [
        first + number * DAY for number in range(31) if (first + number * DAY).month == day.month
    ]


def _names_day(part: str, day: date) -> bool:
    month = _month(day)
    if part.endswith("W"):
        wanted = month[-1].day if part == "LW" else int(part[:-1])
        working = [other for other in month if other.strftime("%u") not in "67"]
        return wanted <= len(month) and day == min(
            working, key=lambda other: abs(other.day - wanted)
        )
    if part.startswith("L"):
        return day + int(part[2:] or 0) * DAY == month[-1]
    return _names(part, day.day, 1, 31)


def _names_weekday(part: str, day: date) -> bool:
    same = [other for other in _month(day) if other.weekday() == day.weekday()]
    number = int(day.strftime("%w")) + 1
    if part == "L":
        return number == 7
    if part.endswith("L"):
        return _names(part[:-1], number, 1, 7, WEEKDAYS) and day == same[-1]
    weekday, _, place = part.partition("#")
    return _names(weekday, number, 1, 7, WEEKDAYS) and (
        not place or same.index(day) + 1 == int(place)
    )


def rate_times(
    anchor: datetime, period: timedelta, since: datetime, until: datetime
) -> list[datetime]:
    """The due times of a rate, counted one after the other."""
    times = (anchor + number * period for number in range(max((until - anchor) // period, 0) + 1))
    return [moment for moment in times if since <= moment < until]


def at_times(local: datetime, zone: str, since: datetime, until: datetime) -> list[datetime]:
    """The due time of an ``at``, if it lies in the time given."""
    seconds = timedelta(seconds=local.second)
    shown = shown_minutes(zone, since - MINUTE, until)
    times = [moment + seconds for moment, minute in shown if minute + seconds == local]
    return [moment for moment in times if since <= moment < until]


def in_ns(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)

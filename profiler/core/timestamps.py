"""Points in time: text at the edges of the program, integer nanoseconds since 1970 or UTC
``datetime`` inside.
"""

import math
import re
import time
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache

NS_PER_US = 1000
NS_PER_MS = 1_000_000
NS_PER_SECOND = 1_000_000_000
NS_PER_MINUTE = 60 * NS_PER_SECOND
NS_PER_HOUR = 60 * NS_PER_MINUTE
NS_PER_DAY = 86_400 * NS_PER_SECOND
MS_PER_SECOND = 1000
MS_PER_MINUTE = 60 * MS_PER_SECOND
MS_PER_HOUR = 60 * MS_PER_MINUTE
MS_PER_DAY = 86_400_000
DAYS_PER_MONTH = 365.25 / 12
# The time of what has not happened yet, before all others, and of what is not due, behind them.
LONG_AGO_NS = -math.inf
NEVER_NS = math.inf

# What the time zone database calls a time without an offset.
_NAMES_AT_UTC = ("UTC", "GMT", "WET", "+00", "-00")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US_PER_MS = 1000
_MAX_MS = (datetime(2201, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_MIN_YEAR = 1970
_MAX_YEAR = 2200
_MINUTE_FORM = "0000-00-00T00:00"
_MINUTE_LENGTH = len(_MINUTE_FORM)
_AS_FORM = str.maketrans("123456789", "000000000")
_MAX_FRACTION_DIGITS = 18
_OWN_FORMAT = r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d\.\d{3}Z"
_RFC3339 = r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,18}))?([Zz]|[+-]\d\d:\d\d)"


def parse_ns(text: object) -> int | None:
    """Parse an RFC 3339 time of 1970 to 2200, with up to 9 fractional digits; else None:
    Docker's "never" is year 1.
    """
    return _parsed_ns(text) if isinstance(text, str) else None


@cache
def _rfc3339() -> re.Pattern[str]:
    return re.compile(_RFC3339, re.ASCII)


# Readers ask for the times of one run several times in a row.
@lru_cache(maxsize=64)
def _parsed_ns(text: str) -> int | None:
    minute_ns = _minute_ns(text[:_MINUTE_LENGTH])
    if minute_ns is not None:
        within_ns = _within_minute_ns(text[_MINUTE_LENGTH:])
        if within_ns is not None:
            return minute_ns + within_ns
    return _any_form_ns(text)


# The monitor parses the times of all containers each second, for which the pattern and the calendar
# took a tenth of its CPU time.
@lru_cache(maxsize=8)
def _minute_ns(text: str) -> int | None:
    """The start of a minute in UTC, as ``2026-11-20T06:00``; None for another form, and for 1970's
    first minute, which begins at 0.
    """
    if (
        len(text) != _MINUTE_LENGTH
        or not text.isascii()
        or text.translate(_AS_FORM) != _MINUTE_FORM
    ):
        return None
    return _whole_seconds(f"{text}:00+00:00") * NS_PER_SECOND or None


def _within_minute_ns(text: str) -> int | None:
    """The rest of a time in UTC, as ``:59.999999999Z``; None for another form."""
    seconds = text[1:3]
    fraction = text[4:-1]
    is_usual = text[:1] == ":" and text[3:4] == "." and text[-1:] == "Z"
    if not (is_usual and text.isascii() and seconds.isdigit() and fraction.isdigit()):
        return None
    if len(fraction) > _MAX_FRACTION_DIGITS or seconds >= "60":
        return None
    return int(seconds) * NS_PER_SECOND + int(fraction.ljust(9, "0")[:9])


def _any_form_ns(text: str) -> int | None:
    match = _rfc3339().fullmatch(text)
    if not match:
        return None
    seconds_text, fraction, offset = match.groups()
    whole_seconds = _whole_seconds(seconds_text + ("+00:00" if offset in "Zz" else offset))
    if whole_seconds <= 0:
        return None
    return whole_seconds * NS_PER_SECOND + int((fraction or "0").ljust(9, "0")[:9])


# The containers of a task are read within one second.
@lru_cache(maxsize=8)
def _whole_seconds(text: str) -> int:
    return int((parse_datetime(text) or _EPOCH).timestamp())


def span_ms(start_ns: int | None, end_ns: int | None) -> int | None:
    """The milliseconds between two times; None if one is unknown or the end is before the start."""
    if start_ns is None or end_ns is None or end_ns < start_ns:
        return None
    return (end_ns - start_ns) // NS_PER_MS


def json_moment_ns(value: object) -> int | None:
    """A time in the JSON of AWS: RFC 3339, or seconds since 1970, to the millisecond."""
    if isinstance(value, int | float):
        return round(value * (NS_PER_SECOND // NS_PER_MS)) * NS_PER_MS
    return parse_ns(value)


# The forwarder asks for the times of one line several times in a row.
@lru_cache(maxsize=64)
def parse_datetime(text: str | None) -> datetime | None:
    """Parse an ISO 8601 time with a zone into UTC; None if it is not one, or is outside the
    years 1970 to 2200.
    """
    try:
        moment = datetime.fromisoformat(text or "")
        if moment.tzinfo is None:
            return None
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if _MIN_YEAR <= moment.year <= _MAX_YEAR else None


def instant_of_local(local: datetime) -> datetime:
    """When this machine's clock shows a local time for the first time; if it skips that time,
    the end of the gap.
    """
    from bisect import bisect_left  # only for schedules, and every command imports this module

    first, second = (
        datetime.fromtimestamp(local.replace(fold=fold).timestamp(), UTC) for fold in (0, 1)
    )
    if first <= second:
        return first
    before = _local_datetime(second).utcoffset()
    ends = range(int(second.timestamp()), int(first.timestamp()))
    seconds = bisect_left(
        ends,
        1,
        key=lambda at: _local_datetime(datetime.fromtimestamp(at, UTC)).utcoffset() != before,
    )
    return second.replace(microsecond=0) + timedelta(seconds=seconds)


def local_time(moment_ns: int) -> datetime:
    """The time of this machine, in whole seconds."""
    return _local_datetime(datetime.fromtimestamp(moment_ns // NS_PER_SECOND, UTC))


def _local_datetime(moment: datetime) -> datetime:
    """The moment in this machine's zone; in UTC if its ``TZ`` is a day or more from that, or no
    zone: the C library then calls UTC by the beginning of what it does not know.
    """
    try:
        local = moment.astimezone()
    except ValueError:
        return moment
    return local if local.utcoffset() or local.tzname() in _NAMES_AT_UTC else moment


def format_local(moment_ns: int | None) -> str | None:
    """Format as ``2026-11-20 06:00``, the time of this machine; None if it is unknown."""
    if moment_ns is None:
        return None
    return f"{local_time(moment_ns):%Y-%m-%d %H:%M}"


def with_local_times(text: str) -> str:
    """A sentence with the time of this machine for each time of a record."""

    def local(time_text: re.Match[str]) -> str:
        return format_local(parse_ns(time_text[0])) or time_text[0]

    return re.sub(_RFC3339, local, text, flags=re.ASCII)


def local_zone() -> str:
    """The name of this machine's time zone, to print once with local times: ``UTC``,
    ``PST/PDT``.
    """
    is_at_utc = not (time.timezone or time.daylight)
    is_unknown = is_at_utc and time.tzname[0] not in _NAMES_AT_UTC
    if is_unknown or abs(time.timezone) * NS_PER_SECOND >= NS_PER_DAY:  # see _local_datetime
        return "UTC"
    return "/".join(dict.fromkeys(time.tzname if time.daylight else time.tzname[:1]))


def datetime_of_ms(moment_ms: int | None) -> datetime | None:
    """The time of milliseconds since 1970; None for one after the year 2200, and for none."""
    if moment_ms is None or not 0 <= moment_ms < _MAX_MS:
        return None
    return _EPOCH + timedelta(milliseconds=moment_ms)


def subtract_ms(moment: datetime | None, milliseconds: float | None) -> datetime | None:
    """Subtract milliseconds; return ``moment`` unchanged if it is unknown, or if the result is
    before the year 1970.
    """
    if moment is None:
        return None
    earlier = moment - timedelta(milliseconds=milliseconds or 0)
    return earlier if earlier.year >= _MIN_YEAR else moment


def format_ms(moment_ns: int) -> str:
    """Format nanoseconds since 1970 as RFC 3339 in UTC with milliseconds, as Lambda prints
    ``time``.
    """
    seconds, rest_ns = divmod(moment_ns, NS_PER_SECOND)
    moment = datetime.fromtimestamp(seconds, UTC)
    return format_datetime(moment.replace(microsecond=rest_ns // NS_PER_MS * _US_PER_MS))


def nanoseconds_of(moment: datetime) -> int:
    """Nanoseconds since 1970 of a UTC time, to the microsecond."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * NS_PER_US


def formatted_datetime(text: str | None) -> str | None:
    """The time in a text as ``format_datetime`` has it; None if it is no possible time."""
    moment = parse_datetime(text)
    if moment is None or text is None:
        return None
    # The monitor's times are: to format one takes ten times as long.
    return text if _own_format().fullmatch(text) else format_datetime(moment)


@cache
def _own_format() -> re.Pattern[str]:
    return re.compile(_OWN_FORMAT, re.ASCII)


def format_datetime(moment: datetime) -> str:
    """Format a UTC time as RFC 3339 with milliseconds."""
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"

"""Numbers of foreign JSON within what they can be; anything else is None.

The limits are far above any real reading. They keep sums over a long run within what a record can
hold, whatever was printed.
"""

from collections.abc import Iterable
from typing import TypeGuard

from profiler.sources.json_fields import Json, count
from profiler.times import NS_PER_SECOND

MAX_BYTES = 2**50
MAX_EVENTS = 10**12  # in one period
MAX_SECONDS = 86_400


def bounded_count(limit: int, value: Json) -> int | None:
    """A whole number from 0 to ``limit``."""
    number = count(value)
    return number if number is not None and number <= limit else None


def bounded_sum(limit: int, values: Iterable[Json]) -> int | None:
    """The sum of those that are whole numbers from 0 to ``limit``; None if none is."""
    total: int | None = None
    for value in values:
        # A large report has 5,000 of these, nearly all plain: asking that first halves the time.
        number = value if type(value) is int and 0 <= value <= limit else bounded_count(limit, value)
        if number is not None:
            total = (total or 0) + number
    return total


def percent(value: Json) -> float | None:
    """A number, brought within 0 to 100: a share of a period that was measured a little short."""
    return float(min(max(value, 0), 100)) if _is_number(value) else None


def seconds(value: Json) -> float | None:
    """A number of seconds from 0 to a day."""
    return float(value) if _is_number(value) and 0 <= value <= MAX_SECONDS else None


def nanoseconds(value: Json) -> int | None:
    """Seconds, in whole nanoseconds."""
    known = seconds(value)
    return None if known is None else round(known * NS_PER_SECOND)


def _is_number(value: Json) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)

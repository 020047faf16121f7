"""Values that may be unknown (None): a function of any number of values ignores the unknown ones,
and returns None without any; one of two values needs both.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar, cast

_Number = TypeVar("_Number", int, float)
_Value = TypeVar("_Value")
_Key = TypeVar("_Key")
_Other = TypeVar("_Other")
_Result = TypeVar("_Result")


def known(convert: Callable[[_Value], _Result], value: _Value | None) -> _Result | None:
    """Convert a value; None if it is unknown."""
    return None if value is None else convert(value)


def known_values(values: Iterable[_Value | None]) -> tuple[_Value, ...]:
    """The values that are known."""
    return tuple(value for value in values if value is not None)


def first_of(values: Iterable[_Value | None]) -> _Value | None:
    """The first value that is known, if any; those behind it are not asked for."""
    for value in values:
        if value is not None:
            return value
    return None


def any_known(*values: object) -> bool:
    """Whether one of the values is known."""
    return values.count(None) < len(values)


def known_members(members: Mapping[_Key, _Value | None]) -> dict[_Key, _Value]:
    """The members whose values are known."""
    return {key: value for key, value in members.items() if value is not None}


def first_known(value: _Value | None, other: _Other) -> _Value | _Other:
    """Return the value; the other one if it is unknown."""
    return other if value is None else value


def max_known(*values: _Number | None) -> _Number | None:
    """Return the largest of the known values, if any."""
    largest: _Number | None = None
    for value in values:
        if value is not None and (largest is None or value > largest):
            largest = value
    return largest


def min_known(*values: _Number | None) -> _Number | None:
    """Return the smallest of the known values, if any."""
    return min(known_values(values), default=None)


def sum_known(*values: _Number | None) -> _Number | None:
    """Return the sum of the known values, if any."""
    total: _Number | None = None
    for value in values:
        if value is not None:
            total = value if total is None else total + value
    return total


def sum_if_all_known(amounts: Sequence[float | None]) -> float | None:
    """Return the sum of amounts; None unless there are any, and all are known."""
    values = known_values(amounts)
    return without_float_error(sum(values)) if values and len(values) == len(amounts) else None


def without_float_error(amount: float) -> float:
    """Return the amount, of at most six decimals, without what sums of fractions such as 0.1
    lose.
    """
    return round(amount, 6)


def all_known(*values: _Value | None) -> tuple[_Value, ...] | None:
    """Return the values; None unless all are known."""
    return None if None in values else cast("tuple[_Value, ...]", values)


def sum_of_both(value: _Number | None, other: _Number | None) -> _Number | None:
    """Return the sum of two values; None unless both are known."""
    # Without another call: each container asks this and ``excess`` several times a tick.
    return None if value is None or other is None else value + other


def difference(value: _Number | None, less: _Number | None) -> _Number | None:
    """Return what is left of a value; None unless both are known."""
    return _combine_if_known(operator.sub, value, less)


def excess(value: _Number | None, other: _Number | None) -> _Number | None:
    """Return by how much a value is above another one, at least 0; None unless both are known."""
    if value is None or other is None:
        return None
    return value - other if value > other else 0


def product(value: _Number | None, factor: _Number | None) -> _Number | None:
    """Return the value multiplied by the factor; None unless both are known."""
    return _combine_if_known(operator.mul, value, factor)


def _combine_if_known(
    combine: Callable[[_Number, _Number], _Number], value: _Number | None, other: _Number | None
) -> _Number | None:
    return None if value is None or other is None else combine(value, other)


def quotient(value: float | None, divisor: float) -> float | None:
    """Return the value divided by the divisor; None if the value is unknown."""
    return None if value is None else value / divisor


def rounded(value: float | None, digits: int) -> float | None:
    """Return the value rounded to a number of decimals; None if it is unknown."""
    return None if value is None else round(value, digits)


def median(ordered: Sequence[float]) -> float:
    """Return the median of sorted values, at least one.

    The statistics module would take a megabyte of the monitor's memory.
    """
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def mean_known(*values: float | None) -> float | None:
    """Return the mean of the known values, if any."""
    present = known_values(values)
    return sum(present) / len(present) if present else None

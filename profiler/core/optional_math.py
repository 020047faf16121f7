"""Arithmetic on values that may be unknown (None): functions ignore unknown values; without values they return None."""

from typing import TypeVar

_Number = TypeVar("_Number", int, float)


def max_known(*values: _Number | None) -> _Number | None:
    """Return the largest known value; None if no value is known."""
    largest: _Number | None = None
    for value in values:
        if value is not None and (largest is None or value > largest):
            largest = value
    return largest


def min_known(*values: _Number | None) -> _Number | None:
    """Return the smallest known value; None if no value is known."""
    return min((value for value in values if value is not None), default=None)


def sum_known(*values: _Number | None) -> _Number | None:
    """Return the sum of the known values; None, not 0, if no value is known."""
    total: _Number | None = None
    for value in values:
        if value is not None:
            total = value if total is None else total + value
    return total


def mean_known(*values: float | None) -> float | None:
    """Return the arithmetic mean of the known values; None if no value is known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

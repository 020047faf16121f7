"""Arithmetic among values some of which are not known (None): those are left out; of none, nothing is known. Pure."""

from typing import TypeVar

_Number = TypeVar("_Number", int, float)


def max_known(*values: _Number | None) -> _Number | None:
    """The largest; None if no value is known."""
    found: _Number | None = None
    for value in values:
        if value is not None and (found is None or value > found):
            found = value
    return found


def sum_known(*values: _Number | None) -> _Number | None:
    """The sum; None, not 0, if no value is known."""
    found: _Number | None = None
    for value in values:
        if value is not None:
            found = value if found is None else found + value
    return found


def mean_known(*values: float | None) -> float | None:
    """The arithmetic mean; None if no value is known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

"""Several devices as one number, bearing those that were not measured."""

from collections.abc import Sequence


def mean(values: Sequence[float | None]) -> float | None:
    """The plain mean of the known values."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def max_known(values: Sequence[float | None]) -> float | None:
    """The largest of the known values."""
    return max((value for value in values if value is not None), default=None)

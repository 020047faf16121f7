"""The record's time series in equal steps: longer steps, and columns of the same length."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from msgspec.structs import replace

from profiler.core.optional_math import known, known_members, known_values
from profiler.record.record_model import Series
from profiler.record.units import rounded_number

Column: TypeAlias = tuple[float | None, ...]

_SIGNIFICANT_DIGITS = 3
_MEMORY_COLUMN = "memory_used_mb"
_COLUMNS = (
    "vcpu_used",
    _MEMORY_COLUMN,
    "gpu_utilization_percent",
    "neuron_utilization_percent",
    "cpu_wait",
)


def measured_columns(series: Series) -> Iterator[tuple[str, Column]]:
    """The names and values of the columns that were measured."""
    yield from known_members({name: getattr(series, name) for name in _COLUMNS}).items()


def with_longer_steps(series: Series, step_ms: float) -> Series:
    """The series in steps of a multiple of its own: their mean, of the memory the maximum."""
    count = round(step_ms / series.step_ms)
    columns: dict[str, Any] = {}
    for name, values in measured_columns(series):
        columns[name] = _merged_steps(values, count, use_maximum=name == _MEMORY_COLUMN)
    return replace(series, step_ms=rounded_number(step_ms) or series.step_ms, **columns)


def padded_series(series: Series, length: int) -> Series:
    """The series with None at the end of its columns, up to this number of steps."""
    columns: dict[str, Any] = {}
    for name, values in measured_columns(series):
        columns[name] = values + (None,) * (length - len(values))
    return replace(series, **columns)


def longest_column_length(series: Series) -> int:
    """The number of steps of the longest column."""
    return max((len(values) for _, values in measured_columns(series)), default=0)


def _merged_steps(values: Column, count: int, *, use_maximum: bool) -> Column:
    merged: list[float | None] = []
    for first in range(0, len(values), count):
        present = known_values(values[first : first + count])
        if not present:
            merged.append(None)
        elif use_maximum:
            merged.append(_rounded_to_three_digits(max(present)))
        else:
            merged.append(_rounded_to_three_digits(sum(present) / len(present)))
    return tuple(merged)


def _rounded_to_three_digits(value: float) -> float:
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")


def rounded_column(values: Iterable[float | None]) -> Column | None:
    """Rounded to three significant digits; None if no step was measured."""
    rounded = tuple(known(_rounded_to_three_digits, value) for value in values)
    return None if rounded.count(None) == len(rounded) else rounded

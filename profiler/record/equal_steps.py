"""The record's time series in equal steps: longer steps, and columns of the same length."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from profiler.core.optional_math import first_known, known, known_members, known_values
from profiler.record.record_model import Series
from profiler.record.units import rounded_number

Column: TypeAlias = tuple[float | None, ...]

_SIGNIFICANT_DIGITS = 3


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# What a longer step has of the values in it, by column.
_VALUE_OF_LONGER_STEP: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "vcpu_used": _mean,
    "memory_used_mb": max,
    "gpu_utilization_percent": _mean,
    "neuron_utilization_percent": _mean,
    "cpu_wait": _mean,
}


def measured_columns(series: Series) -> Iterator[tuple[str, Column]]:
    """The names and values of the columns that were measured."""
    columns = {name: getattr(series, name) for name in _VALUE_OF_LONGER_STEP}
    yield from known_members(columns).items()


def with_longer_steps(series: Series, step_ms: float) -> Series:
    """The series in steps of a multiple of its own: their mean, of the memory the maximum."""
    count = round(step_ms / series.step_ms)
    columns: dict[str, Any] = {}
    for name, values in measured_columns(series):
        combine = _VALUE_OF_LONGER_STEP[name]
        longer_steps = (values[first : first + count] for first in range(0, len(values), count))
        columns[name] = tuple(_combined_step(step, combine) for step in longer_steps)
    whole_step_ms = first_known(rounded_number(step_ms), series.step_ms)
    return replace(series, step_ms=whole_step_ms, **columns)


def _combined_step(step: Column, combine: Callable[[Sequence[float]], float]) -> float | None:
    """The value of a longer step; None if nothing in it was measured."""
    measured = known_values(step)
    return _rounded_to_three_digits(combine(measured)) if measured else None


def padded_series(series: Series, length: int) -> Series:
    """The series with None at the end of its columns, up to this number of steps."""
    columns: dict[str, Any] = {}
    for name, values in measured_columns(series):
        columns[name] = values + (None,) * (length - len(values))
    return replace(series, **columns)


def longest_column_length(series: Series) -> int:
    """The number of steps of the longest column."""
    return max((len(values) for _, values in measured_columns(series)), default=0)


def with_columns_of(
    series: Series | None, added: Series | None, names: Collection[str]
) -> Series | None:
    """The series with the named columns of another one of the same run, whose steps are as long or
    longer.
    """
    if added is None:
        return series
    columns: dict[str, Any] = {
        name: values for name, values in measured_columns(added) if name in names
    }
    if not columns:
        return series
    if series is None:
        series = Series(started_at=added.started_at, step_ms=added.step_ms)
    elif series.started_at != added.started_at:
        return series
    series = replace(with_longer_steps(series, added.step_ms), **columns)
    return padded_series(series, longest_column_length(series))


def rounded_column(values: Iterable[float | None]) -> Column | None:
    """Rounded to three significant digits; None if no step was measured."""
    rounded = tuple(known(_rounded_to_three_digits, value) for value in values)
    return None if rounded.count(None) == len(rounded) else rounded


def rounded_columns(columns: Mapping[str, Iterable[float | None]]) -> dict[str, Any]:
    """The columns that were measured, rounded to three significant digits."""
    return known_members({name: rounded_column(values) for name, values in columns.items()})


def _rounded_to_three_digits(value: float) -> float:
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")

"""Time series of the report page as columns of numbers."""

import math
import string
from collections.abc import Mapping, Sequence

from profiler.html_report.page_runs import Step
from profiler.record.units import MIB

# More than a chart has pixels, and more than a browser should hold.
MAX_STEPS = 600_000
_MAX_STEPS_PER_RUN = 600
_MIN_STEPS_PER_RUN = 60
# Up to this number of runs a page has room for a fourth digit.
_MAX_FINE_RUNS = 500
_FINE_DIGITS, _COARSE_DIGITS = 4, 3
_MS_PER_SECOND = 1000
_COURSE_PARTS, _MIN_COURSE_VALUES = 24, 2
_DIGITS = string.digits + string.ascii_lowercase

Column = Sequence[float | None]


def steps_per_run(runs: int) -> int:
    """Return the maximum number of steps in the time series of each of ``runs`` runs."""
    return max(_MIN_STEPS_PER_RUN, min(_MAX_STEPS_PER_RUN, MAX_STEPS // max(runs, 1)))


def digits_of_values(runs: int) -> int:
    """Return the number of significant digits in the time series of a page of ``runs`` runs."""
    return _FINE_DIGITS if runs <= _MAX_FINE_RUNS else _COARSE_DIGITS


def series_columns(steps: Sequence[Step], digits: int) -> dict[str, Column]:
    """Turn steps into columns. A column without any value is left out; without any measurement the result is empty.

    The columns are vCPU, MB of memory, MB read and written per second, percent and MB of the GPUs, percent of the
    NeuronCores. The times are in ``ms``, the end of each step in ms after the start. Equal steps are ``steps``: their
    number, their length in ms, and the end of the last one. ``unpackRuns`` in content.js reads it.

    Args:
        steps: The steps.
        digits: The number of significant digits. A value that is negative or not finite counts as not measured.
    """
    ends_ms = [step.elapsed_ms for step in steps]
    measured: dict[str, Column] = {
        "vcpu": [step.vcpu_used for step in steps],
        "mb": [step.memory_used_mb for step in steps],
        "read": _rates(ends_ms, [step.block_read_bytes for step in steps]),
        "written": _rates(ends_ms, [step.block_write_bytes for step in steps]),
        "gpu": [step.gpu_percent for step in steps],
        "gpuMb": [step.gpu_memory_mb for step in steps],
        "neuron": [step.neuron_percent for step in steps],
    }
    known = {name: _rounded(column, digits) for name, column in measured.items() if not _is_empty(column)}
    return {**_times(ends_ms), **known} if known else {}


def memory_course(steps: Sequence[Step]) -> str | None:
    """Return the highest memory of each of 24 equal parts of the run; None if less than two values are known.

    A character is a digit to the base 36, of which the highest is the run's peak; "-" is a part without a measurement.
    """
    column = [step.memory_used_mb for step in steps]
    known = [value for value in column if value is not None and 0 <= value < math.inf]
    end_ms = steps[-1].elapsed_ms if steps else 0
    peak_mb = max(known, default=0)
    if len(known) < _MIN_COURSE_VALUES or end_ms <= 0 or not peak_mb:
        return None
    parts: list[list[float]] = [[] for _ in range(_COURSE_PARTS)]
    start = 0
    for step, value in zip(steps, column, strict=True):
        end = max(step.elapsed_ms * _COURSE_PARTS, start)
        if value is not None and 0 <= value < math.inf:
            for part in parts[start // end_ms : -(-end // end_ms)]:
                part.append(value)
        start = end
    top = len(_DIGITS) - 1
    return "".join([_DIGITS[round(top * (max(part) / peak_mb))] if part else "-" for part in parts])


def known_column(column: Column | None, digits: int) -> Column | None:
    """Round the values of a column; None for a column without any value."""
    return None if column is None or _is_empty(column) else _rounded(column, digits)


def _times(ends_ms: Sequence[int]) -> Mapping[str, Column]:
    length_ms = ends_ms[0]
    if len(ends_ms) > 1 and list(ends_ms[:-1]) == [number * length_ms for number in range(1, len(ends_ms))]:
        return {"steps": [len(ends_ms), length_ms, ends_ms[-1]]}
    return {"ms": ends_ms}


def _rounded(column: Column, digits: int) -> Column:
    form = f".{digits}g"
    return [None if value is None or not 0 <= value < math.inf else float(format(value, form)) for value in column]


def _is_empty(column: Sequence[float | None]) -> bool:
    return column.count(None) == len(column)


def _rates(ends_ms: Sequence[int], growths_bytes: Sequence[int | None]) -> Column:
    """MB per second, over the time since the last step whose bytes are known; empty if none is known."""
    if _is_empty(growths_bytes):
        return []
    rates: list[float | None] = []
    last_known_ms = 0
    for end_ms, growth_bytes in zip(ends_ms, growths_bytes, strict=True):
        length_ms = end_ms - last_known_ms
        if growth_bytes is None or length_ms <= 0:
            rates.append(None)
            continue
        last_known_ms = end_ms
        rates.append(growth_bytes / MIB * _MS_PER_SECOND / length_ms)
    return rates

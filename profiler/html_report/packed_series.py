"""Time series as short texts: two or three characters for a value.

A column of values is ``[maximum, text]``. Each value is a share of the maximum, written as a number with the digits of
``_DIGITS``; ``~`` is a value that was not measured. Two characters hold 4,096 levels, three 262,144: more than
a chart has pixels. ``decodeColumn`` in assets/numbers.js is the inverse.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from profiler.html_report.page import round_significant, to_script_json
from profiler.html_report.runs import Run, Step, downsample
from profiler.record.model import Number
from profiler.record.units import MIB

MAX_STEPS = 600_000
_MAX_STEPS_PER_RUN = 600
_MIN_STEPS_PER_RUN = 60
# Up to this number of runs a page has room for three characters a value.
_MAX_FINE_RUNS = 500
_FINE, _COARSE = 3, 2
_MAXIMUM_DIGITS = 6
_MS_PER_SECOND = 1000

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_MISSING = "~"
_TABLE = tuple(first + second for first in _DIGITS for second in _DIGITS)

Column = Sequence[float | None]
PackedColumn = tuple[Number, str]


def steps_per_run(runs: int) -> int:
    """Return the maximum number of steps in the time series of each of ``runs`` runs."""
    return max(_MIN_STEPS_PER_RUN, min(_MAX_STEPS_PER_RUN, MAX_STEPS // max(runs, 1)))


def series_members(runs: Sequence[Run], max_bytes: int) -> Iterator[str]:
    """Yield the time series as members of a JSON object, ``"INDEX":{…}``. A series that does not fit is left out."""
    max_steps = steps_per_run(sum(1 for run in runs if run.steps))
    width = _FINE if len(runs) <= _MAX_FINE_RUNS else _COARSE
    left_steps, left_bytes = MAX_STEPS, max_bytes
    for index, run in enumerate(runs):
        steps = downsample(run.steps, max_steps)
        packed = pack_columns(columns(steps), width)
        if not packed:
            continue
        text = f'"{index}":{to_script_json(packed)},'
        if len(steps) > left_steps or len(text) > left_bytes:
            continue
        left_steps -= len(steps)
        left_bytes -= len(text)
        yield text[:-1]


def columns(steps: Sequence[Step]) -> dict[str, Column]:
    """Turn steps into columns: the end of each step in ms after the start, and the measurements of the step.

    These are vCPU, MB of memory, MB read and written per second, percent and MB of the GPUs, percent of the
    NeuronCores. A column without any value is left out; without any measurement the result is empty.
    """
    ends_ms = [step.elapsed_ms for step in steps]
    measured: dict[str, list[float | None]] = {
        "vcpu": [step.vcpu_used for step in steps],
        "mb": [step.memory_used_mb for step in steps],
        "read": _rates(ends_ms, [step.block_read_bytes for step in steps]),
        "written": _rates(ends_ms, [step.block_write_bytes for step in steps]),
        "gpu": [step.gpu_percent for step in steps],
        "gpuMb": [step.gpu_memory_mb for step in steps],
        "neuron": [step.neuron_percent for step in steps],
    }
    known = {name: column for name, column in measured.items() if not _is_empty(column)}
    return {"ms": ends_ms, **known} if known else {}


def _is_empty(column: Sequence[float | None]) -> bool:
    return column.count(None) == len(column)


def _rates(ends_ms: Sequence[int], growths_bytes: Sequence[int | None]) -> list[float | None]:
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
        rates.append(round_significant(growth_bytes / MIB * _MS_PER_SECOND / length_ms))
    return rates


def pack_columns(numbers: Mapping[str, Column], width: int) -> dict[str, object]:
    """Pack columns. Equal steps are ``steps``: their number, their length in ms, and the end of the last one.

    Args:
        numbers: The result of ``columns``.
        width: The characters of a value, 2 or 3.
    """
    if not numbers:
        return {}
    times = [round(ms or 0) for ms in numbers["ms"]]
    packed: dict[str, object] = {name: pack_column(column, width) for name, column in numbers.items() if name != "ms"}
    length = times[0]
    if len(times) > 1 and times[:-1] == [number * length for number in range(1, len(times))]:
        return {"steps": [len(times), length, times[-1]], **packed}
    return {"ms": times, **packed}


def pack_column(column: Sequence[float | None], width: int) -> PackedColumn:
    """Pack the values of one column. A value that is negative or not finite counts as not measured."""
    values = [value if value is not None and 0 <= value < math.inf else None for value in column]
    maximum = round_significant(max((value for value in values if value is not None), default=0), _MAXIMUM_DIGITS)
    top = len(_DIGITS) ** width - 1
    to_text = _TABLE.__getitem__ if width == _COARSE else _three_digits
    missing = _MISSING * width
    if not maximum:
        return maximum, "".join(missing if value is None else to_text(0) for value in values)
    # The maximum is rounded, so that the largest value may be a little above it. The division comes first: the
    # reciprocal of a tiny maximum is infinite.
    text = "".join(
        [
            missing if value is None else to_text(level if (level := round(value / maximum * top)) < top else top)
            for value in values
        ]
    )
    return maximum, text


def _three_digits(level: int) -> str:
    high, low = divmod(level, len(_TABLE))
    return _DIGITS[high] + _TABLE[low]

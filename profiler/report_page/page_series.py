"""Time series of the report page as columns of numbers, and their JSON, compressed for
``DecompressionStream``.
"""

import base64
import json
import math
import string
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from profiler.core.optional_math import known_values
from profiler.record.equal_steps import rounded_column
from profiler.record.measured import Number
from profiler.record.record_model import Record
from profiler.record.run_usage import RunUsage, run_usage_of
from profiler.record.units import MIB
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.step_series import Column, StepSeries

# A tenth less time for the whole page than level 6, for a tenth more bytes.
COMPRESSION_LEVEL = 4
GZIP_BITS = 31  # the format of gzip
# More steps than a chart has pixels, and more than a browser should hold.
MAX_STEPS = 240_000
# Further digits are only floating-point noise, and would make the page larger.
_NOISE_DIGITS = 12
_COURSE_PARTS = 24
_MIN_COURSE_VALUES = 2
_DIGITS = string.digits + string.ascii_lowercase
# Encodes as JSON in ASCII, without spaces.
to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Run(Struct, frozen=True, kw_only=True, dict=True):
    """One run of the page, and its time series if known."""

    past: PastRun
    steps: StepSeries = StepSeries()

    @property
    def record(self) -> Record:
        """The record of the report, or of the last checkpoint."""
        return self.past.report.record

    @cached_property
    def usage(self) -> RunUsage:
        """What the run used: its row and its details say the same."""
        return run_usage_of(self.record)


def steps_per_run(runs: int) -> int:
    """Return the maximum number of steps in the time series of each of ``runs`` runs."""
    return max(60, min(600, MAX_STEPS // max(runs, 1)))


def series_columns(steps: StepSeries) -> dict[str, Column]:
    """The columns that the page draws, without empty ones; ``unpackRuns`` in content.js reads
    them.

    Read and written are MB per second. ``ms`` is the end of each step after the start. Equal steps
    are ``steps``: their number, their length in ms, and the end of the last one.
    """
    ends_ms = steps.ends_ms
    measured: dict[str, Column] = {
        "vcpu": steps.vcpu_used,
        "mb": steps.memory_mb,
        "read": _mb_per_second(ends_ms, steps.block_read_bytes),
        "written": _mb_per_second(ends_ms, steps.block_write_bytes),
        "gpu": steps.gpu_percent,
        "gpuMb": steps.gpu_memory_mb,
        "neuron": steps.neuron_percent,
    }
    columns: dict[str, Column] = {}
    for name, column in measured.items():
        values = rounded_column(column)
        if values is not None:
            columns[name] = list(values)
    if not columns:
        return {}
    return {**_step_times(ends_ms), **columns}


def memory_digits(steps: StepSeries) -> str | None:
    """The peaks of 24 equal parts as digits to the base 36, the highest for the run's; None
    below two known values.
    """
    column = steps.memory_mb
    known = known_values(column)
    peak_mb = max(known, default=0)
    if len(known) < _MIN_COURSE_VALUES or steps.ends_ms[-1] <= 0 or not peak_mb:
        return None
    end_ms = steps.ends_ms[-1]
    parts: list[list[float]] = [[] for _ in range(_COURSE_PARTS)]
    start = 0
    for at_ms, value in zip(steps.ends_ms, column, strict=True):
        end = max(at_ms * _COURSE_PARTS, start)
        if value is not None:
            for part in parts[start // end_ms : -(-end // end_ms)]:
                part.append(value)
        start = end
    top = len(_DIGITS) - 1
    course = ""
    for part in parts:
        course += _DIGITS[round(top * (max(part) / peak_mb))] if part else "-"
    return course


def _step_times(ends_ms: Sequence[int]) -> Mapping[str, Column]:
    length_ms = ends_ms[0]
    if len(ends_ms) > 1 and list(ends_ms[:-1]) == [
        number * length_ms for number in range(1, len(ends_ms))
    ]:
        return {"steps": [len(ends_ms), length_ms, ends_ms[-1]]}
    return {"ms": ends_ms}


def _is_empty(column: Sequence[float | None]) -> bool:
    return column.count(None) == len(column)


def _mb_per_second(ends_ms: Sequence[int], growths_bytes: Sequence[int | None]) -> Column:
    """MB per second, over the time since the last step whose bytes are known; empty if none is
    known.
    """
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
        rates.append(growth_bytes / MIB * 1000 / length_ms)
    return rates


def finite_or_none(value: Number | None) -> Number | None:
    """Drop the noise. None for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return None
    rounded = round(value, _NOISE_DIGITS)
    return int(rounded) if rounded == int(rounded) else rounded


def compressed_base64(text: str) -> str:
    """Compress a text in ASCII, as base64."""
    data = zlib.compress(text.encode("ascii"), COMPRESSION_LEVEL, GZIP_BITS)
    return base64.b64encode(data).decode("ascii")

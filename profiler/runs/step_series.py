"""The time series of a past run as steps of any length.

It is read from one of three: the local history's JSON (``decode_steps``), the record's equal steps
(``steps_of_record``), or the checkpoints of a run without a report (``steps_of_checkpoints``).
``with_equal_steps`` makes the record's form of it, ``downsample`` a shorter one.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.statistics import MonotonicCounter
from profiler.aggregation.time_series import RunSeries, step_means
from profiler.core.optional_math import (
    first_known,
    known,
    max_known,
    product,
    quotient,
    rounded,
    sum_known,
)
from profiler.core.timestamps import NS_PER_MS, parse_ns, span_ms
from profiler.record.equal_steps import longest_column_length, padded_series
from profiler.record.record_model import Interval, Metrics, Record, Report, Series
from profiler.record.units import MIB, VCPU_DIGITS

# The first values of a stored step are always written: end, CPU and memory. Later ones are omitted
# from the end while they are None.
_MIN_STORED_VALUES = 3
_PERCENT_DIGITS = 2
_MAX_EQUAL_STEPS = 1000

Column = Sequence[float | None]
_Value = TypeVar("_Value", int, float)


class StepSeries(Struct, frozen=True, kw_only=True):
    """The measurements of steps of any length, each of which ends ``ends_ms`` after the start.

    An empty column was not measured; None is a step without a measurement.

    CPU, GPU and Neuron utilization are means, memory is the maximum. Bytes are counted since the
    last step whose bytes are known. :class:`Series` is the record's form: equal steps, and fewer
    columns.
    """

    ends_ms: Sequence[int] = ()
    vcpu_used: Column = ()
    memory_mb: Column = ()
    block_read_bytes: Sequence[int | None] = ()
    block_write_bytes: Sequence[int | None] = ()
    gpu_percent: Column = ()
    gpu_memory_mb: Column = ()
    neuron_percent: Column = ()


def _steps_of_rows(rows: Iterable[Sequence[float | None]]) -> StepSeries:
    """The steps whose values are in the order of :class:`StepSeries`; later ones may be absent."""
    columns: dict[str, Any] = dict(
        zip(StepSeries.__struct_fields__, zip_longest(*rows), strict=False)
    )
    return StepSeries(**columns)


def encode_steps(steps: StepSeries) -> bytes:
    """The steps as the history keeps them: a list of the values of each, with memory in bytes."""
    in_bytes = replace(
        steps,
        memory_mb=_mb_to_bytes(steps.memory_mb),
        gpu_memory_mb=_mb_to_bytes(steps.gpu_memory_mb),
    )
    columns: list[Column] = [getattr(in_bytes, name) for name in StepSeries.__struct_fields__]
    rows = []
    for row in zip_longest(*columns):
        length = len(row)
        while length > _MIN_STORED_VALUES and row[length - 1] is None:
            length -= 1
        rows.append(row[:length])
    return msgspec.json.encode(rows)


def decode_steps(text: bytes) -> StepSeries:
    """The steps in the history's JSON. Raises msgspec.DecodeError for another format."""
    steps = _steps_of_rows(msgspec.json.decode(text, type=list[list[int | float | None]]))
    return replace(
        steps,
        memory_mb=_bytes_to_mb(steps.memory_mb),
        gpu_memory_mb=_bytes_to_mb(steps.gpu_memory_mb),
    )


def _mb_to_bytes(column_mb: Column) -> Sequence[int | None]:
    return [known(round, product(size_mb, MIB)) for size_mb in column_mb]


def _bytes_to_mb(column_bytes: Column) -> Column:
    return [quotient(size_bytes, MIB) for size_bytes in column_bytes]


def steps_of_collected_series(series: RunSeries, duration_ms: float | None) -> StepSeries:
    """The steps of a run that this process measured; the last one ends with the run, if its
    duration is known.
    """
    length = series.step_count
    return StepSeries(
        ends_ms=_equal_ends_ms(length, series.step_ns / NS_PER_MS, duration_ms),
        vcpu_used=_rounded_column(step_means(series.cpu, length), VCPU_DIGITS),
        memory_mb=series.memory_mb(length),
        block_read_bytes=series.read.padded_cells(length),
        block_write_bytes=series.written.padded_cells(length),
        gpu_percent=_rounded_column(step_means(series.gpu, length), _PERCENT_DIGITS),
        gpu_memory_mb=_bytes_to_mb(series.gpus_memory.padded_cells(length)),
    )


def _rounded_column(column: Column, digits: int) -> Column:
    return [rounded(value, digits) for value in column]


def _equal_ends_ms(length: int, step_ms: float, duration_ms: float | None) -> list[int]:
    """The ends of equal steps, of which the last ends with the run."""
    ends_ms = []
    for number in range(length):
        end_ms = (number + 1) * step_ms
        if duration_ms is not None:
            end_ms = min(end_ms, max(duration_ms, number * step_ms))
        ends_ms.append(round(end_ms))
    return ends_ms


def steps_of_record(record: Record) -> StepSeries:
    """The time series of the record. The devices' utilization is there, and no bytes."""
    series = record.series
    if series is None:
        return StepSeries()
    length = longest_column_length(series)
    series = padded_series(series, length)
    return StepSeries(
        ends_ms=_equal_ends_ms(length, series.step_ms, record.metrics.duration_ms or math.inf),
        vcpu_used=series.vcpu_used or (),
        memory_mb=series.memory_used_mb or (),
        gpu_percent=series.gpu_utilization_percent or (),
        neuron_percent=series.neuron_utilization_percent or (),
    )


class _Checkpoint(Struct, frozen=True, kw_only=True):
    """A checkpoint's interval in milliseconds after the start of the run; None: its beginning is
    not known.
    """

    begun_ms: int | None
    end_ms: int
    interval: Interval
    metrics: Metrics


def steps_of_checkpoints(checkpoints: Iterable[Report]) -> StepSeries:
    """The intervals of a run's checkpoints, in the order of time.

    Those without valid times are left out.

    A time without a checkpoint, for example of a monitor that was restarted, is a step without
    measurements. GPUs are left out: a checkpoint has their means over the whole run so far, not
    over its interval.
    """
    by_end_ms = {checkpoint.end_ms: checkpoint for checkpoint in _with_valid_times(checkpoints)}
    read_bytes = MonotonicCounter()
    write_bytes = MonotonicCounter()
    rows: list[tuple[float | None, ...]] = []
    before_ms = 0
    for end_ms, checkpoint in sorted(by_end_ms.items()):
        begun_ms = checkpoint.begun_ms
        if begun_ms is not None and before_ms < begun_ms < end_ms:
            rows.append((begun_ms,))
        rows.append(
            (
                end_ms,
                checkpoint.interval.vcpu_used.avg,
                checkpoint.interval.memory_used_mb.max,
                _growth_since_known(read_bytes, checkpoint.metrics.block_read_bytes),
                _growth_since_known(write_bytes, checkpoint.metrics.block_write_bytes),
            )
        )
        before_ms = end_ms
    return _steps_of_rows(rows)


def _with_valid_times(checkpoints: Iterable[Report]) -> Iterator[_Checkpoint]:
    """The checkpoints whose end is a time after the start of the run."""
    for checkpoint in checkpoints:
        record = checkpoint.record
        interval = record.interval
        started_ns = record.started_ns
        end_ms = span_ms(started_ns, parse_ns(interval.finished_at or checkpoint.time))
        if end_ms is not None:
            yield _Checkpoint(
                begun_ms=span_ms(started_ns, interval.started_ns),
                end_ms=end_ms,
                interval=interval,
                metrics=record.metrics,
            )


def _growth_since_known(counter: MonotonicCounter, total_bytes: int | None) -> int | None:
    """The growth since the last known total, which is 0 at the start of the container."""
    if total_bytes is None:
        return None
    growth_bytes = counter.advance_to(total_bytes)
    return first_known(growth_bytes, total_bytes)


def with_equal_steps(steps: StepSeries, started_at: str) -> Series | None:
    """CPU and memory in at most 1,000 equal steps, the shortest of the series; None without steps.

    Holes stay holes.
    """
    ends_ms = (0, *steps.ends_ms)
    if ends_ms[-1] <= 0:
        return None
    lengths_ms = [end - start for start, end in pairwise(ends_ms) if end > start]
    step_ms = max(min(lengths_ms), ends_ms[-1] // _MAX_EQUAL_STEPS, 1)
    length = _steps_until(ends_ms[-1], step_ms)
    vcpu_used: list[float | None] = [None] * length
    memory_mb: list[float | None] = [None] * length
    for index, (start_ms, end_ms) in enumerate(pairwise(ends_ms)):
        for number in range(start_ms // step_ms, min(_steps_until(end_ms, step_ms), length)):
            if steps.vcpu_used:
                vcpu_used[number] = steps.vcpu_used[index]
            if steps.memory_mb:
                memory_mb[number] = max_known(memory_mb[number], steps.memory_mb[index])
    return Series(
        started_at=started_at,
        step_ms=step_ms,
        vcpu_used=tuple(vcpu_used),
        memory_used_mb=tuple(memory_mb),
    )


def _steps_until(end_ms: int, step_ms: int) -> int:
    """The number of equal steps that reach to this time; the last one may reach beyond it."""
    whole, rest = divmod(end_ms, step_ms)
    return whole + (rest > 0)


def downsample(steps: StepSeries, max_steps: int) -> StepSeries:
    """Merge neighbouring steps to at most ``max_steps``: averages, maximum of memory, sum of
    bytes.
    """
    ends_ms = steps.ends_ms
    count = math.ceil(len(ends_ms) / max_steps)
    if count <= 1:
        return steps
    lengths_ms = [max(end - start, 0) for start, end in pairwise((0, *ends_ms))]
    return StepSeries(
        ends_ms=[*ends_ms[count - 1 : -1 : count], ends_ms[-1]],
        vcpu_used=_average_column(steps.vcpu_used, lengths_ms, count),
        memory_mb=_merged_column(steps.memory_mb, max_known, count),
        block_read_bytes=_merged_column(steps.block_read_bytes, sum_known, count),
        block_write_bytes=_merged_column(steps.block_write_bytes, sum_known, count),
        gpu_percent=_average_column(steps.gpu_percent, lengths_ms, count),
        gpu_memory_mb=_merged_column(steps.gpu_memory_mb, max_known, count),
        neuron_percent=_average_column(steps.neuron_percent, lengths_ms, count),
    )


def _merged_column(
    column: Sequence[_Value | None], merge: Callable[..., _Value | None], count: int
) -> Sequence[_Value | None]:
    """A value for every ``count`` steps; empty for a column without values."""
    if column.count(None) == len(column):
        return ()
    return [merge(*column[first : first + count]) for first in range(0, len(column), count)]


def _average_column(column: Column, lengths_ms: Sequence[int], count: int) -> Column:
    """The mean of every ``count`` steps by their lengths; empty for a column without values."""
    if column.count(None) == len(column):
        return ()
    times = list(zip(column, lengths_ms, strict=True))
    averages: list[float | None] = []
    for first in range(0, len(times), count):
        total = 0.0
        known_ms = 0
        for value, length_ms in times[first : first + count]:
            if value is not None:
                total += value * length_ms
                known_ms += length_ms
        averages.append(total / known_ms if known_ms else None)
    return averages

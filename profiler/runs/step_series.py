"""The time series of a past run in columns, with steps of any length: from the history, the
record or checkpoints.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Any

import msgspec
from msgspec import Struct

from profiler.aggregation.statistics import MonotonicCounter
from profiler.aggregation.time_series import RunSeries, padded_column
from profiler.core.optional_math import max_known, sum_known
from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.record.record_model import Distribution, Interval, Record, Report, Series
from profiler.record.units import MIB, VCPU_DIGITS

# These values are always written. Later ones are omitted from the end while they are None.
_MIN_ROW_LENGTH = 3

Column = Sequence[float | None]


class StepSeries(Struct, frozen=True, kw_only=True):
    """The measurements of each step, which ends ``ends_ms`` after the start.

    An empty column was not measured.

    CPU, GPU and Neuron utilization are means, memory is the maximum. Bytes are counted since the
    last step whose bytes are known.
    """

    ends_ms: Sequence[int] = ()
    vcpu_used: Column = ()
    memory_mb: Column = ()
    block_read_bytes: Sequence[int | None] = ()
    block_write_bytes: Sequence[int | None] = ()
    gpu_percent: Column = ()
    gpu_memory_mb: Column = ()
    neuron_percent: Column = ()


def encode_rows(rows: Iterable[Sequence[float | None]]) -> bytes:
    """The steps as the history keeps them: the values of :class:`StepSeries` in its order, with
    memory in bytes.
    """
    shortened = []
    for row in rows:
        length = len(row)
        while length > _MIN_ROW_LENGTH and row[length - 1] is None:
            length -= 1
        shortened.append(row[:length])
    return msgspec.json.encode(shortened)


def rows_of(series: RunSeries, duration_ms: float | None) -> list[Sequence[float | None]]:
    """The rows of a run; the last one ends with the run, if its duration is known."""
    rows: list[Sequence[float | None]] = []
    before_ms = 0.0
    for (
        end_ns,
        vcpu_used,
        memory_bytes,
        read_bytes,
        write_bytes,
        gpu_percent,
        gpus_bytes,
    ) in series.steps():
        end_ms = end_ns / NS_PER_MS
        known_end_ms = round(
            end_ms if duration_ms is None else min(end_ms, max(duration_ms, before_ms))
        )
        gpu = (
            None if gpu_percent is None else round(gpu_percent, 2),
            None if gpus_bytes is None else round(gpus_bytes),
        )
        vcpu = None if vcpu_used is None else round(vcpu_used, VCPU_DIGITS)
        rows.append((known_end_ms, vcpu, memory_bytes, read_bytes, write_bytes, *gpu))
        before_ms = end_ms
    return rows


def decode_rows(text: bytes) -> StepSeries:
    """The series in the history's JSON. Raises msgspec.DecodeError for another format."""
    rows = msgspec.json.decode(text, type=list[list[int | float | None]])
    columns: dict[str, Any] = dict(
        zip(StepSeries.__struct_fields__, zip_longest(*rows), strict=False)
    )
    for name in {"memory_mb", "gpu_memory_mb"} & columns.keys():
        columns[name] = [None if size is None else size / MIB for size in columns[name]]
    return StepSeries(**columns)


def steps_of_record(record: Record) -> StepSeries:
    """The time series of the record. The devices' utilization is there, and no bytes."""
    series = record.series
    if series is None:
        return StepSeries()
    columns = {
        "vcpu_used": series.vcpu_used or (),
        "memory_mb": series.memory_used_mb or (),
        "gpu_percent": series.gpu_utilization_percent or (),
        "neuron_percent": series.neuron_utilization_percent or (),
    }
    length = max(map(len, columns.values()))
    end_ms = record.metrics.duration_ms or math.inf
    step_ms = series.step_ms
    padded: dict[str, Any] = {
        name: padded_column(values, length) for name, values in columns.items() if values
    }
    ends_ms = [
        round(max(min((number + 1) * step_ms, end_ms), number * step_ms))
        for number in range(length)
    ]
    return StepSeries(ends_ms=ends_ms, **padded)


def steps_of_checkpoints(checkpoints: Iterable[Report]) -> StepSeries:
    """The intervals of a run's checkpoints, in the order of time.

    Those without valid times are left out.

    A time without a checkpoint, for example of a monitor that was restarted, is a step without
    measurements. GPUs are left out: a checkpoint has their means over the whole run so far, not
    over its interval.
    """
    by_time: dict[int, Report] = {}
    for checkpoint in checkpoints:
        elapsed_ms = _elapsed_ms(
            checkpoint, (checkpoint.record.interval or Interval()).finished_at or checkpoint.time
        )
        if elapsed_ms is not None:
            by_time[elapsed_ms] = checkpoint
    read_bytes = MonotonicCounter()
    write_bytes = MonotonicCounter()
    rows: list[tuple[int, float | None, float | None, int | None, int | None]] = []
    for elapsed_ms, checkpoint in sorted(by_time.items(), key=lambda item: item[0]):
        metrics = checkpoint.record.metrics
        interval = checkpoint.record.interval or Interval()
        begun_ms = _elapsed_ms(checkpoint, interval.started_at)
        if begun_ms is not None and (rows[-1][0] if rows else 0) < begun_ms < elapsed_ms:
            rows.append((begun_ms, None, None, None, None))
        vcpu = (interval.vcpu_used or Distribution()).avg
        memory_mb = (interval.memory_used_mb or Distribution()).max
        read = _growth(read_bytes, metrics.block_read_bytes)
        written = _growth(write_bytes, metrics.block_write_bytes)
        rows.append((elapsed_ms, vcpu, memory_mb, read, written))
    columns: Iterable[Any] = zip(*rows, strict=True)
    return StepSeries(**dict(zip(StepSeries.__struct_fields__, columns, strict=False)))


def _elapsed_ms(checkpoint: Report, time: str | None) -> int | None:
    """A time in milliseconds after the run's start."""
    start_ns = parse_ns(checkpoint.record.started_at)
    at_ns = parse_ns(time)
    if start_ns is None or at_ns is None or at_ns < start_ns:
        return None
    return (at_ns - start_ns) // NS_PER_MS


def _growth(counter: MonotonicCounter, total_bytes: int | None) -> int | None:
    """The growth since the last known total, which is 0 at the start of the container."""
    if total_bytes is None:
        return None
    growth_bytes = counter.add(total_bytes)
    return total_bytes if growth_bytes is None else growth_bytes


def with_equal_steps(steps: StepSeries, started_at: str) -> Series | None:
    """CPU and memory in at most 1,000 equal steps, the shortest of the series; None without steps.

    Holes stay holes.
    """
    ends_ms = (0, *steps.ends_ms)
    if ends_ms[-1] <= 0:
        return None
    lengths_ms = [end - start for start, end in pairwise(ends_ms) if end > start]
    step_ms = max(min(lengths_ms), ends_ms[-1] // 1000, 1)
    length = -(-ends_ms[-1] // step_ms)
    vcpu: list[float | None] = [None] * length
    memory: list[float | None] = [None] * length
    unknown: Column = (None,) * len(steps.ends_ms)
    values = zip(steps.vcpu_used or unknown, steps.memory_mb or unknown, strict=True)
    for (start_ms, end_ms), (vcpu_used, memory_mb) in zip(pairwise(ends_ms), values, strict=True):
        for number in range(start_ms // step_ms, min(-(-end_ms // step_ms), length)):
            vcpu[number] = vcpu_used
            memory[number] = max_known(memory[number], memory_mb)
    return Series(
        started_at=started_at, step_ms=step_ms, vcpu_used=tuple(vcpu), memory_used_mb=tuple(memory)
    )


def downsample(steps: StepSeries, max_steps: int) -> StepSeries:
    """Merge neighbouring steps to at most ``max_steps``: averages, maximum of memory, sum of
    bytes.
    """
    count = len(steps.ends_ms)
    size = -(-count // max_steps)
    if size <= 1:
        return steps
    parts = [slice(first, first + size) for first in range(0, count, size)]
    lengths_ms = [max(end - start, 0) for start, end in pairwise((0, *steps.ends_ms))]
    merged: dict[str, Any] = {
        name: [merge(column[part], lengths_ms[part]) for part in parts]
        for name, merge in _MERGES.items()
        if (column := getattr(steps, name)) and column.count(None) < count
    }
    return StepSeries(ends_ms=[steps.ends_ms[part][-1] for part in parts], **merged)


def _average(values: Column, lengths_ms: Sequence[int]) -> float | None:
    known = [
        (value * length, length)
        for value, length in zip(values, lengths_ms, strict=True)
        if value is not None
    ]
    total_ms = sum(length for _, length in known)
    return sum(part for part, _ in known) / total_ms if total_ms else None


_MERGES: Mapping[str, Callable[[Column, Sequence[int]], float | None]] = {
    "vcpu_used": _average,
    "memory_mb": lambda values, _: max_known(*values),
    "block_read_bytes": lambda values, _: sum_known(*values),
    "block_write_bytes": lambda values, _: sum_known(*values),
    "gpu_percent": _average,
    "gpu_memory_mb": lambda values, _: max_known(*values),
    "neuron_percent": _average,
}

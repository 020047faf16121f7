"""Runs of the report page. A time series comes from the record, the checkpoints or the local history."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from profiler.aggregation.statistics import MonotonicCounter
from profiler.core.optional_math import max_known, sum_known
from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.history.history_points import Point
from profiler.past_runs.run_source import PastRun
from profiler.record.record_model import Interval, Record, Report, Series
from profiler.record.units import MIB

_PERCENT = 100
_MAX_SERIES_STEPS = 1000


class Step(Struct, frozen=True, kw_only=True):
    """The measurements between the previous step and ``elapsed_ms`` after the start.

    CPU, GPU and Neuron utilization are means, memory is the maximum. Bytes are counted since the last step whose bytes
    are known.
    """

    elapsed_ms: int
    vcpu_used: float | None
    memory_used_mb: float | None
    block_read_bytes: int | None = None
    block_write_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_memory_mb: float | None = None
    neuron_percent: float | None = None


def steps_of_points(points: Iterable[Point]) -> tuple[Step, ...]:
    """Convert the time series of the history."""
    return tuple(
        Step(
            elapsed_ms=point.elapsed_ms,
            vcpu_used=point.vcpu_used,
            memory_used_mb=_megabytes(point.memory_used_bytes),
            block_read_bytes=point.block_read_bytes,
            block_write_bytes=point.block_write_bytes,
            gpu_percent=point.gpu_percent,
            gpu_memory_mb=_megabytes(point.gpu_memory_bytes),
        )
        for point in points
    )


def steps_of_checkpoints(checkpoints: Iterable[Report]) -> tuple[Step, ...]:
    """Convert the intervals of a run's checkpoints, in the order of time. Those without valid times are left out.

    Read and written bytes are differences of the checkpoints' totals. GPUs are left out: a checkpoint has their means
    over the whole run so far, not over its interval.
    """
    by_time: dict[int, Report] = {}
    for checkpoint in checkpoints:
        elapsed_ms = _elapsed_ms(checkpoint)
        if elapsed_ms is not None:
            by_time[elapsed_ms] = checkpoint
    read_bytes, write_bytes = MonotonicCounter(), MonotonicCounter()
    steps = []
    for elapsed_ms, checkpoint in sorted(by_time.items(), key=lambda item: item[0]):
        metrics, interval = checkpoint.record.metrics, checkpoint.record.interval or Interval()
        memory = interval.memory_used_mb
        steps.append(
            Step(
                elapsed_ms=elapsed_ms,
                vcpu_used=_vcpu_used(interval, metrics.vcpu_size),
                memory_used_mb=None if memory is None else memory.max if memory.max is not None else memory.avg,
                block_read_bytes=_growth(read_bytes, metrics.block_read_bytes),
                block_write_bytes=_growth(write_bytes, metrics.block_write_bytes),
            )
        )
    return tuple(steps)


def steps_of_series(record: Record) -> tuple[Step, ...]:
    """Convert the time series of the record. The devices' utilization is there, and no bytes."""
    series = record.series
    if series is None:
        return ()
    columns = (
        series.vcpu_used,
        series.memory_used_mb,
        series.gpu_utilization_percent,
        series.neuron_utilization_percent,
    )
    length = max(len(column or ()) for column in columns)
    vcpu, memory, gpu, neuron = ((*(column or ()), *(None,) * (length - len(column or ()))) for column in columns)
    end_ms = record.metrics.duration_ms or math.inf
    ends_ms = [(number + 1) * series.step_ms for number in range(length)]
    return tuple(
        [
            Step(
                elapsed_ms=round(after_ms if after_ms <= end_ms else max(end_ms, number * series.step_ms)),
                vcpu_used=vcpu[number],
                memory_used_mb=memory[number],
                gpu_percent=gpu[number],
                neuron_percent=neuron[number],
            )
            for number, after_ms in enumerate(ends_ms)
        ]
    )


def series_of_steps(started_at: str, steps: Sequence[Step]) -> Series | None:
    """Make a series of equal steps, to find moments in; None without steps. A time without a measurement is a gap."""
    if not steps or steps[-1].elapsed_ms <= 0:
        return None
    ends_ms = (0, *(step.elapsed_ms for step in steps))
    lengths_ms = [end - start for start, end in pairwise(ends_ms) if end > start]
    step_ms = max(min(lengths_ms), steps[-1].elapsed_ms // _MAX_SERIES_STEPS, 1)
    length = -(-steps[-1].elapsed_ms // step_ms)
    vcpu: list[float | None] = [None] * length
    memory: list[float | None] = [None] * length
    for start_ms, step in zip(ends_ms, steps, strict=False):
        for number in range(start_ms // step_ms, min(-(-step.elapsed_ms // step_ms), length)):
            vcpu[number] = step.vcpu_used
            memory[number] = max_known(memory[number], step.memory_used_mb)
    return Series(started_at=started_at, step_ms=step_ms, vcpu_used=tuple(vcpu), memory_used_mb=tuple(memory))


def _elapsed_ms(checkpoint: Report) -> int | None:
    """Return the end of a checkpoint's interval in milliseconds after the run's start."""
    record = checkpoint.record
    start_ns = parse_ns(record.started_at)
    end_ns = parse_ns((record.interval or Interval()).finished_at or checkpoint.time)
    if start_ns is None or end_ns is None or end_ns < start_ns:
        return None
    return (end_ns - start_ns) // NS_PER_MS


def _vcpu_used(interval: Interval, vcpu_size: float | None) -> float | None:
    if interval.vcpu_used is not None and interval.vcpu_used.avg is not None:
        return interval.vcpu_used.avg
    percent = interval.cpu_utilization_percent
    return None if percent is None or percent.avg is None or vcpu_size is None else percent.avg * vcpu_size / _PERCENT


def _growth(counter: MonotonicCounter, total_bytes: int | None) -> int | None:
    """Return the growth since the last known total, which is 0 at the start of the container."""
    if total_bytes is None:
        return None
    growth_bytes = counter.add(total_bytes)
    return total_bytes if growth_bytes is None else growth_bytes


def downsample(steps: Sequence[Step], max_steps: int) -> tuple[Step, ...]:
    """Merge neighbouring steps to at most ``max_steps``: averages, maximum of memory, sum of bytes."""
    size = -(-len(steps) // max_steps)
    if size <= 1:
        return tuple(steps)
    return tuple(
        _merge(steps[first : first + size], steps[first - 1].elapsed_ms if first else 0)
        for first in range(0, len(steps), size)
    )


def _merge(steps: Sequence[Step], before_ms: int) -> Step:
    starts_ms = (before_ms, *(step.elapsed_ms for step in steps[:-1]))
    lengths_ms = [max(step.elapsed_ms - start_ms, 0) for step, start_ms in zip(steps, starts_ms, strict=True)]
    return Step(
        elapsed_ms=steps[-1].elapsed_ms,
        vcpu_used=_average((step.vcpu_used for step in steps), lengths_ms),
        memory_used_mb=max_known(*(step.memory_used_mb for step in steps)),
        block_read_bytes=sum_known(*(step.block_read_bytes for step in steps)),
        block_write_bytes=sum_known(*(step.block_write_bytes for step in steps)),
        gpu_percent=_average((step.gpu_percent for step in steps), lengths_ms),
        gpu_memory_mb=max_known(*(step.gpu_memory_mb for step in steps)),
        neuron_percent=_average((step.neuron_percent for step in steps), lengths_ms),
    )


def _average(values: Iterable[float | None], lengths_ms: Iterable[int]) -> float | None:
    known = [(value, length_ms) for value, length_ms in zip(values, lengths_ms, strict=True) if value is not None]
    total_ms = sum(length_ms for _, length_ms in known)
    return sum(value * length_ms for value, length_ms in known) / total_ms if total_ms else None


def _megabytes(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / MIB


class Run(Struct, frozen=True, kw_only=True):
    """One run of the page, and its time series if known."""

    past: PastRun
    steps: tuple[Step, ...] = ()

    @property
    def record(self) -> Record:
        """The record of the report, or of the last checkpoint."""
        return self.past.report.record

"""The course of one run, short enough to stand in a page. Pure."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from profiler.known import max_known, sum_known
from profiler.points import Point
from profiler.record import Interval, Report
from profiler.series import MonotonicCounter
from profiler.times import NS_PER_MS, parse_ns

BYTES_PER_MB = 2**20
_PERCENT = 100


class Step(Struct, frozen=True, kw_only=True):
    """What was used up to ``elapsed_ms`` after the start, since the step before.

    Mean CPU and GPU utilization, most memory, and what was read and written since the last step
    that knows it.
    """

    elapsed_ms: int
    vcpu_used: float | None
    memory_used_mb: float | None
    block_read_bytes: int | None = None
    block_write_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_memory_mb: float | None = None


def steps_of_points(points: Iterable[Point]) -> tuple[Step, ...]:
    """The series that the history keeps."""
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
    """The intervals of a run's checkpoints, in the order of time; those without a place in it are left out.

    What was read and written is the difference of two checkpoints' totals. Of the GPUs a
    checkpoint tells the whole run so far, from which no interval can be worked out.
    """
    placed: dict[int, Report] = {}
    for checkpoint in checkpoints:
        elapsed_ms = _elapsed_ms(checkpoint)
        if elapsed_ms is not None:
            placed[elapsed_ms] = checkpoint
    read_bytes, write_bytes = MonotonicCounter(), MonotonicCounter()
    steps = []
    for elapsed_ms, checkpoint in sorted(placed.items(), key=lambda item: item[0]):
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


def _elapsed_ms(checkpoint: Report) -> int | None:
    """When the interval of a checkpoint ended, after the run's start."""
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
    """Since the last known total, which was 0 when the container started."""
    if total_bytes is None:
        return None
    growth_bytes = counter.add(total_bytes)
    return total_bytes if growth_bytes is None else growth_bytes


def downsample(steps: Sequence[Step], most: int) -> tuple[Step, ...]:
    """At most ``most`` steps: neighbours become one with the averages, the largest memory and all bytes of both."""
    size = -(-len(steps) // most)
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
    )


def _average(values: Iterable[float | None], lengths_ms: Iterable[int]) -> float | None:
    known = [(value, length_ms) for value, length_ms in zip(values, lengths_ms, strict=True) if value is not None]
    total_ms = sum(length_ms for _, length_ms in known)
    return sum(value * length_ms for value, length_ms in known) / total_ms if total_ms else None


def _megabytes(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / BYTES_PER_MB

"""The course of one run, short enough to stand in a page. Pure."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from profiler.points import Point
from profiler.record import Interval, Report
from profiler.times import NS_PER_MS, parse_ns

_BYTES_PER_MB = 2**20
_PERCENT = 100


class Step(Struct, frozen=True, kw_only=True):
    """What was used up to ``elapsed_ms`` after the start, since the step before: mean CPU, most memory."""

    elapsed_ms: int
    vcpu_used: float | None
    memory_used_mb: float | None


def steps_of_points(points: Iterable[Point]) -> tuple[Step, ...]:
    """The series that the history keeps."""
    return tuple(
        Step(
            elapsed_ms=point.elapsed_ms,
            vcpu_used=point.vcpu_used,
            memory_used_mb=None if point.memory_used_bytes is None else point.memory_used_bytes / _BYTES_PER_MB,
        )
        for point in points
    )


def steps_of_checkpoints(checkpoints: Iterable[Report]) -> tuple[Step, ...]:
    """The intervals of a run's checkpoints, in the order of time; those without a place in it are left out."""
    steps: dict[int, Step] = {}
    for checkpoint in checkpoints:
        record = checkpoint.record
        interval = record.interval or Interval()
        start_ns, end_ns = parse_ns(record.started_at), parse_ns(interval.finished_at or checkpoint.time)
        if start_ns is None or end_ns is None or end_ns < start_ns:
            continue
        elapsed_ms = (end_ns - start_ns) // NS_PER_MS
        memory = interval.memory_used_mb
        steps[elapsed_ms] = Step(
            elapsed_ms=elapsed_ms,
            vcpu_used=_vcpu_used(interval, record.metrics.vcpu_size),
            memory_used_mb=None if memory is None else memory.max if memory.max is not None else memory.avg,
        )
    return tuple(steps[elapsed_ms] for elapsed_ms in sorted(steps))


def _vcpu_used(interval: Interval, vcpu_size: float | None) -> float | None:
    if interval.vcpu_used is not None and interval.vcpu_used.avg is not None:
        return interval.vcpu_used.avg
    percent = interval.cpu_utilization_percent
    return None if percent is None or percent.avg is None or vcpu_size is None else percent.avg * vcpu_size / _PERCENT


def thinned(steps: Sequence[Step], most: int) -> tuple[Step, ...]:
    """At most ``most`` steps: neighbours become one with the average CPU and the largest memory of all."""
    size = -(-len(steps) // most)
    if size <= 1:
        return tuple(steps)
    return tuple(
        _merged(steps[first : first + size], steps[first - 1].elapsed_ms if first else 0)
        for first in range(0, len(steps), size)
    )


def _merged(steps: Sequence[Step], before_ms: int) -> Step:
    starts_ms = (before_ms, *(step.elapsed_ms for step in steps[:-1]))
    weighted = [
        (step.vcpu_used, max(step.elapsed_ms - start_ms, 0))
        for step, start_ms in zip(steps, starts_ms, strict=True)
        if step.vcpu_used is not None
    ]
    total_ms = sum(length_ms for _, length_ms in weighted)
    memories = [step.memory_used_mb for step in steps if step.memory_used_mb is not None]
    return Step(
        elapsed_ms=steps[-1].elapsed_ms,
        vcpu_used=sum(vcpu * length_ms for vcpu, length_ms in weighted) / total_ms if total_ms else None,
        memory_used_mb=max(memories, default=None),
    )

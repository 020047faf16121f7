"""The numbers of an ended run that left no report: those of its last checkpoint."""

from msgspec.structs import replace

from profiler.core.optional_math import first_known
from profiler.record.measured import Number
from profiler.record.record_model import (
    NO_INTERVAL,
    NOT_SAMPLED,
    UNKNOWN_COST,
    UNKNOWN_SIZE,
    Record,
)

_PERCENT = 100.0
_DIGITS = 1


def record_of_checkpoint(record: Record) -> Record:
    """A checkpoint's record without what is only known at the end."""
    metrics = replace(record.metrics, billed_duration_ms=None)
    return replace(record, cost=UNKNOWN_COST, interval=NO_INTERVAL, exit_code=None, metrics=metrics)


def record_until_end(record: Record, of_event: Record) -> Record:
    """A checkpoint's record with the start, the end and the log of its run by the task's event."""
    return replace(
        with_whole_duration(record, of_event.metrics.duration_ms),
        started_at=of_event.started_at or record.started_at,
        finished_at=of_event.finished_at,
        log_group=of_event.log_group or record.log_group,
        log_stream=of_event.log_stream or record.log_stream,
        log_region=of_event.log_region or record.log_region,
        task_size=record.task_size if of_event.task_size == UNKNOWN_SIZE else of_event.task_size,
    )


def with_whole_duration(record: Record, duration_ms: Number | None) -> Record:
    """A checkpoint's record as that of its run, which lasted longer: the CPU time covers a part of
    it, and no mark of the kernel the end. None: the duration is as unknown as before.
    """
    metrics = record.metrics
    sampling = record.sampling
    if metrics.memory_peak_source is not None:
        metrics = replace(metrics, memory_peak_source="sampled")
    seen_ms = metrics.duration_ms
    metrics = replace(metrics, duration_ms=first_known(duration_ms, seen_ms))
    if sampling != NOT_SAMPLED and duration_ms and seen_ms is not None:
        covered_percent = first_known(sampling.cpu_covered_percent, _PERCENT)
        covered_percent = min(covered_percent * seen_ms / duration_ms, _PERCENT)
        sampling = replace(sampling, cpu_covered_percent=round(covered_percent, _DIGITS))
    return replace(record, metrics=metrics, sampling=sampling)

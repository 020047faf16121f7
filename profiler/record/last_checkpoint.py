"""The numbers of an ended run that left no report: those of its last checkpoint."""

from msgspec.structs import replace

from profiler.core.optional_math import first_known
from profiler.record.measured import Number
from profiler.record.record_model import NOT_SAMPLED, Record

_PERCENT = 100.0
_DIGITS = 1


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

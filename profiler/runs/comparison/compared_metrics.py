"""The metrics of a run that are compared between two sets of runs, and the change of each.

Each metric has its own 95 % interval, without a correction for the number of metrics.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from profiler.record.mention_limits import whole_cpu_seconds
from profiler.record.record_model import Cost, Distribution, Record
from profiler.runs.comparison.change_interval import MedianChange, median_change


class ComparedMetric(Struct, frozen=True):
    """A metric, with its name in JSON and for a person."""

    name: str
    title: str
    unit: str
    read: Callable[[Record], float | None]


COMPARED_METRICS = (
    ComparedMetric("durationMs", "duration", "ms", lambda record: record.metrics.duration_ms),
    ComparedMetric("cpuSeconds", "CPU time", "s", whole_cpu_seconds),
    ComparedMetric(
        "maxMemoryUsedMB", "memory peak", "MB", lambda record: record.metrics.max_memory_used_mb
    ),
    ComparedMetric(
        "memoryAverageMB",
        "memory average",
        "MB",
        lambda record: (record.metrics.memory_used_mb or Distribution()).avg,
    ),
    ComparedMetric(
        "blockReadBytes", "read", "bytes", lambda record: record.metrics.block_read_bytes
    ),
    ComparedMetric(
        "blockWriteBytes", "written", "bytes", lambda record: record.metrics.block_write_bytes
    ),
    ComparedMetric("costUsd", "cost", "USD", lambda record: (record.cost or Cost()).usd),
)


class MetricChange(Struct, frozen=True, kw_only=True):
    """The change of a metric between two sets.

    ``known_a`` runs of the first set have the metric.
    """

    metric: ComparedMetric
    change: MedianChange
    known_a: int
    known_b: int


def is_measured(record: Record) -> bool:
    """Whether a run has any of the metrics."""
    return any(metric.read(record) is not None for metric in COMPARED_METRICS)


def compare_metrics(
    a: Sequence[Record], b: Sequence[Record], metrics: Sequence[ComparedMetric] = COMPARED_METRICS
) -> tuple[MetricChange, ...]:
    """Compare the runs ``b`` with the runs ``a``, metric by metric."""
    changes = []
    for metric in metrics:
        values_a = _known_values(metric, a)
        values_b = _known_values(metric, b)
        change = median_change(values_a, values_b)
        changes.append(
            MetricChange(metric=metric, change=change, known_a=len(values_a), known_b=len(values_b))
        )
    return tuple(changes)


def _known_values(metric: ComparedMetric, records: Sequence[Record]) -> list[float]:
    return [value for value in map(metric.read, records) if value is not None]

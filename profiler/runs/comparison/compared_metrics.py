"""The metrics of a run that are compared between two sets of runs, and the change of each.

Each metric has its own 95 % interval, without a correction for the number of metrics.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from msgspec import Struct

from profiler.core.optional_math import any_known, known_values
from profiler.record.fact_list import (
    COST,
    CPU_TIME,
    DURATION,
    GPU_AVERAGE,
    GPU_IDLE,
    GPU_IDLE_BETWEEN,
    GPU_MEMORY_PEAK,
    MEMORY_AVERAGE,
    MEMORY_PEAK,
    MEMORY_ROWS,
    READ,
    WRITTEN,
    NumberRow,
    number_of_row,
)
from profiler.record.measured import AtLeast, Measured, known_numbers, measured_from
from profiler.record.mention_limits import is_cpu_partial, whole_cpu_seconds
from profiler.record.record_model import Record
from profiler.record.spot_price import measured_cost
from profiler.record.unusual import MIN_RUNS
from profiler.runs.comparison.change_interval import NOT_COMPARABLE, MedianChange, median_change


class ComparedMetric(Struct, frozen=True):
    """A metric, with its name in JSON and the number that outputs for people show."""

    name: str
    row: NumberRow
    read: Callable[[Record], float | None]

    @property
    def is_share(self) -> bool:
        """Whether it is a share of the run's time, of which more is not worse: what it costs is in
        the duration.
        """
        return self.row.unit == "%"


COMPARED_METRICS = (
    ComparedMetric("durationMs", DURATION, lambda record: record.metrics.duration_ms),
    ComparedMetric("cpuSeconds", CPU_TIME, whole_cpu_seconds),
    ComparedMetric(
        "maxMemoryUsedMB", MEMORY_PEAK, lambda record: record.metrics.max_memory_used_mb
    ),
    ComparedMetric(
        "memoryAverageMB",
        MEMORY_AVERAGE,
        lambda record: record.metrics.memory_used_mb.avg,
    ),
    ComparedMetric("blockReadBytes", READ, lambda record: record.metrics.block_read_bytes),
    ComparedMetric("blockWriteBytes", WRITTEN, lambda record: record.metrics.block_write_bytes),
    ComparedMetric("costUsd", COST, lambda record: record.cost.usd),
    ComparedMetric("gpuUtilizationPercent", GPU_AVERAGE, partial(number_of_row, GPU_AVERAGE)),
    ComparedMetric("maxGpuMemoryUsedMB", GPU_MEMORY_PEAK, partial(number_of_row, GPU_MEMORY_PEAK)),
    ComparedMetric("gpuIdlePercent", GPU_IDLE, partial(number_of_row, GPU_IDLE)),
    ComparedMetric(
        "gpuIdleBetweenPercent", GPU_IDLE_BETWEEN, partial(number_of_row, GPU_IDLE_BETWEEN)
    ),
)


# Of the memory of two sets of runs.
MemoryMeaning = Literal["same", "without files", "differs"]
_BYTES = (READ, WRITTEN)


class MetricChange(Struct, frozen=True, kw_only=True):
    """The change of a metric between two sets.

    ``known_a`` runs of the first set have the metric. ``a`` is its median, at least that if one of
    them may have been larger.
    """

    metric: ComparedMetric
    change: MedianChange
    known_a: int
    known_b: int
    a: Measured
    b: Measured


def is_measured(record: Record) -> bool:
    """Whether a run has any of the metrics."""
    return any_known(*(metric.read(record) for metric in COMPARED_METRICS))


def compare_metrics(
    a: Sequence[Record], b: Sequence[Record], metrics: Sequence[ComparedMetric] = COMPARED_METRICS
) -> tuple[MetricChange, ...]:
    """Compare the runs ``b`` with the runs ``a``, metric by metric."""
    changes = []
    for metric in metrics:
        values_a, values_b = _comparable_values(metric, a, b)
        change = median_change(values_a, values_b)
        if metric.row is COST:
            is_known = not are_costs_apart((*a, *b))
        elif metric.row in MEMORY_ROWS:
            is_known = memory_meaning_of_both(a, b) != "differs"
        else:
            is_known = metric.row not in _BYTES or _is_proven(change, metric, a, b)
        is_known = is_known and not any(map(metric.row.is_estimate, (*a, *b)))
        if not is_known:
            change = MedianChange(a=change.a, b=change.b, verdict=NOT_COMPARABLE)
        changes.append(
            MetricChange(
                metric=metric,
                change=change,
                known_a=len(values_a),
                known_b=len(values_b),
                a=_median_value(metric, change.a, a),
                b=_median_value(metric, change.b, b),
            )
        )
    return tuple(changes)


def memory_meaning_of_both(a: Sequence[Record], b: Sequence[Record]) -> MemoryMeaning:
    """Whether the memory of all runs means the same; else whether that of enough runs of both sets
    leaves mapped files out.
    """
    known = [one for one in (*a, *b) if one.metrics.has_memory]
    if len({one.metrics.counts_files for one in known}) <= 1:
        return "same"
    fewest = min(sum(map(_leaves_files_out, records)) for records in (a, b))
    return "without files" if fewest >= MIN_RUNS else "differs"


def _leaves_files_out(record: Record) -> bool:
    metrics = record.metrics
    return metrics.has_memory and not metrics.counts_files


def _comparable_values(
    metric: ComparedMetric, a: Sequence[Record], b: Sequence[Record]
) -> tuple[Sequence[float], Sequence[float]]:
    """The known values of both sets; of memory only those without mapped files, if other runs
    have these and enough do not.
    """
    sets = [a, b]
    if metric.row in MEMORY_ROWS and memory_meaning_of_both(a, b) == "without files":
        sets = [[record for record in records if _leaves_files_out(record)] for records in sets]
    values_a, values_b = (known_values(map(metric.read, records)) for records in sets)
    return values_a, values_b


def are_costs_apart(records: Sequence[Record]) -> bool:
    """Whether the costs of some of the runs are the least on Spot, and those of others are not."""
    numbers = known_numbers(measured_cost(record.cost) for record in records)
    return len({isinstance(number, AtLeast) for number in numbers}) > 1


def _is_proven(
    change: MedianChange, metric: ComparedMetric, a: Sequence[Record], b: Sequence[Record]
) -> bool:
    """Whether a verdict holds although the median of one set alone is a lower bound, which proves
    only that this set has more.
    """
    is_least_a = _is_median_lower_bound(metric, a)
    is_least_b = _is_median_lower_bound(metric, b)
    if is_least_a == is_least_b or change.verdict == "too few runs":
        return True
    return change.verdict == ("less" if is_least_a else "more")


def _is_median_lower_bound(metric: ComparedMetric, records: Sequence[Record]) -> bool:
    """Whether at least half of the values are lower bounds."""
    are_least = _are_lower_bounds(metric, records)
    return 2 * sum(are_least) >= max(len(are_least), 1)


def _are_lower_bounds(metric: ComparedMetric, records: Sequence[Record]) -> Sequence[bool]:
    """Whether each value is a lower bound."""
    return [metric.row.is_least(record) for record in records if metric.read(record) is not None]


def _median_value(
    metric: ComparedMetric, value: float | None, records: Sequence[Record]
) -> Measured:
    """The median. The CPU time is estimated from the measured part, not a bound."""
    is_cpu = metric.row is CPU_TIME
    is_least = not is_cpu and any(_are_lower_bounds(metric, records))
    is_estimate = is_cpu_partial if is_cpu else metric.row.is_estimate
    return measured_from(value, is_least=is_least, is_estimate=any(map(is_estimate, records)))

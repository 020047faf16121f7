"""Adds the measurements of the batch's processes to a record that was built from task stats."""

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.container_usage import ContainerUsage, UsageTotals
from profiler.aggregation.run_end import RunEnd, out_of_memory
from profiler.aggregation.slowdown import CpuDemand
from profiler.aggregation.task_record import (
    ResourceLimits,
    build_interval,
    usage_metrics,
    with_cpu_demand,
    with_peak,
)
from profiler.aggregation.time_series import RunSeries, with_columns
from profiler.core.optional_math import max_known
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.readers.cgroup.hierarchy import GroupPeak
from profiler.record.model import (
    Interval,
    MemoryKills,
    Metrics,
    Number,
    PeakSource,
    Process,
    Record,
    Sampling,
    Series,
    known_status,
    may_have_missed_a_kill,
)
from profiler.record.units import CPU_SECONDS_DIGITS, MIB, mebibytes

# The processes' time series replaces that of the task stats if these come at most half as often.
_MIN_STEP_RATIO = 2
_CPU_SERIES = ("vcpu_used", "cpu_utilization_percent")
_MEMORY_DISTRIBUTIONS = ("memory_used_mb", "memory_utilization_percent")
_MEMORY_SERIES = (*_MEMORY_DISTRIBUTIONS, "max_memory_used_at")

_T = TypeVar("_T", Metrics, Interval)


class ProcessMeasurements(Struct, frozen=True, kw_only=True):
    """The measurements of a batch's processes when a line is written.

    ``agrees_on_cpu`` and ``agrees_on_memory`` are False if comparable task stats contradict them. ``since_checkpoint``
    is set for a checkpoint only.
    """

    usage: ContainerUsage
    cpu_ns: int
    peak_bytes: int | None
    group_peak: GroupPeak
    processes: tuple[Process, ...]
    kills: MemoryKills | None
    demand: CpuDemand
    agrees_on_cpu: bool = True
    agrees_on_memory: bool = True
    since_checkpoint: UsageTotals | None = None


def with_processes(record: Record, measured: ProcessMeasurements) -> Record:
    """Return the record with processes, kills, the better memory peak and the finer time series."""
    sizes = ResourceLimits(vcpu=record.metrics.vcpu_size, memory_bytes=_bytes(record.metrics.memory_size_mb))
    record = replace(record, metrics=_with_totals(record.metrics, measured), processes=measured.processes)
    if _is_finer(measured.usage, record.sampling):
        record = _with_series(record, measured, sizes)
    peak_bytes, source = _peak(record.metrics, measured, sizes)
    metrics = with_peak(record.metrics, peak_bytes, source, sizes)
    verdict = out_of_memory(
        RunEnd(status=known_status(record), exit_code=record.exit_code, until_ns=_end_ns(record)),
        memory_max_bytes=peak_bytes,
        memory_size_bytes=sizes.memory_bytes,
        peak_source=source,
        memory_kills=None if measured.kills is None else measured.kills.count,
        may_have_missed_a_kill=may_have_missed_a_kill(replace(record, metrics=metrics)),
    )
    record = replace(record, metrics=metrics, memory_kills=measured.kills)
    if record.likely_out_of_memory and not verdict.likely:
        return record  # by hits of the limit, which only the task stats have
    return replace(record, likely_out_of_memory=verdict.likely, out_of_memory_evidence=verdict.evidence)


def _end_ns(record: Record) -> int | None:
    """The end of the batch; None if it was not seen, and then the record has no duration."""
    return None if record.metrics.duration_ms is None else parse_ns(record.finished_at)


def _with_totals(metrics: Metrics, measured: ProcessMeasurements) -> Metrics:
    """Use the larger total: both sources count from the container's start to their last reading."""
    cpu_seconds = round(measured.cpu_ns / NS_PER_SECOND, CPU_SECONDS_DIGITS)
    group_peak_bytes = measured.group_peak.size_bytes
    return replace(
        metrics,
        cpu_seconds=max(cpu_seconds, metrics.cpu_seconds or 0.0),
        max_pids=max(measured.usage.max_pids or 0, metrics.max_pids or 0) or None,
        memory_usage_peak_mb=mebibytes(max_known(_bytes(metrics.memory_usage_peak_mb), group_peak_bytes)),
    )


def _is_finer(usage: ContainerUsage, sampling: Sampling | None) -> bool:
    """Whether the processes were read at least twice as often as the task stats changed."""
    step_ms = usage.median_step_ms
    stats_step_ms = None if sampling is None else sampling.stats_period_ms
    if stats_step_ms is None:
        return usage.samples > (0 if sampling is None else sampling.samples or 0)
    return step_ms is not None and _MIN_STEP_RATIO * step_ms <= stats_step_ms


def _with_series(record: Record, measured: ProcessMeasurements, sizes: ResourceLimits) -> Record:
    """Replace the distributions by those of the processes, unless the task stats contradict them."""
    finer = usage_metrics(measured.usage, sizes)
    metrics, part, since = record.metrics, record.interval, measured.since_checkpoint
    numbers = None if part is None or since is None else build_interval(since, sizes, started_ns=0, finished_ns=0)
    if measured.agrees_on_cpu:
        metrics = _copy_fields(metrics, finer, _CPU_SERIES)
        part = part and numbers and _copy_fields(part, numbers, ("cpu_seconds", *_CPU_SERIES))
    if measured.agrees_on_memory:
        metrics = _copy_fields(metrics, finer, _MEMORY_SERIES)
        part = part and numbers and _copy_fields(part, numbers, _MEMORY_DISTRIBUTIONS)
    sampling = record.sampling
    if sampling is not None and (measured.agrees_on_cpu or measured.agrees_on_memory):
        sampling = replace(sampling, samples=measured.usage.samples)
    if measured.agrees_on_cpu and metrics.slowdown_at_vcpu is None:
        vcpu_size = record.task_size.vcpu if record.task_size is not None else None
        metrics = with_cpu_demand(
            metrics, measured.demand, vcpu_size=vcpu_size or metrics.vcpu_size, max_threads=metrics.max_pids
        )
    return replace(
        record,
        metrics=metrics,
        interval=part,
        sampling=sampling,
        series=_finer_series(record, measured, measured.usage.series),
    )


def _finer_series(record: Record, measured: ProcessMeasurements, finer: RunSeries | None) -> Series | None:
    """The time series of a report with the columns of the processes; checkpoints have none."""
    if finer is None or record.status == "running":
        return record.series
    sources = (("vcpu_used", measured.agrees_on_cpu), ("memory_used_mb", measured.agrees_on_memory))
    return with_columns(record.series, finer, [name for name, agrees in sources if agrees])


def _copy_fields(target: _T, source: Struct, names: Iterable[str]) -> _T:
    """Return the target with the named fields of the source that are not None."""
    values = {name: getattr(source, name) for name in names}
    return replace(target, **{name: value for name, value in values.items() if value is not None})


def _peak(
    metrics: Metrics, measured: ProcessMeasurements, sizes: ResourceLimits
) -> tuple[float | None, PeakSource | None]:
    """The control group's high-water mark if it is complete and free of page cache, else the largest observed value.

    The observed value is bounded by the group's peak with page cache and by its limit, because the high-water mark of a
    process includes file pages that are charged to other groups.
    """
    stats_bytes, group = _bytes(metrics.max_memory_used_mb), measured.group_peak
    if group.size_bytes is not None and group.is_process_peak():
        return max_known(stats_bytes, group.size_bytes), "kernel"
    bounds = [size for size in (group.size_bytes, sizes.memory_bytes) if size is not None]
    observed_bytes = None if measured.peak_bytes is None else min(measured.peak_bytes, *bounds, measured.peak_bytes)
    high_water_bytes = group.size_bytes if group.is_free_of_cache() else None
    peak_bytes = max_known(stats_bytes, observed_bytes, high_water_bytes)
    return peak_bytes, None if peak_bytes is None else "sampled"


def _bytes(size_mb: Number | None) -> float | None:
    return None if size_mb is None else size_mb * MIB

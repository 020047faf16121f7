"""The fields of a record that come from the batch's processes, in addition to or in place of the task stats."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.container_usage import ContainerUsage, UsageWindow
from profiler.aggregation.process_totals import GroupPeak
from profiler.aggregation.run_end import RunEnd, may_have_missed_a_kill, out_of_memory
from profiler.aggregation.task_record import (
    ResourceLimits,
    build_interval,
    usage_metrics,
    with_cpu_demand,
    with_peak,
    within_total,
)
from profiler.aggregation.time_series import with_columns
from profiler.collectors.processes.process_usage import BatchProcesses
from profiler.core.ecs_terms import FARGATE
from profiler.core.optional_math import max_known
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.record.record_model import (
    Interval,
    Metrics,
    Number,
    PeakSource,
    Record,
    Sampling,
    known_status,
)
from profiler.record.units import CPU_SECONDS_DIGITS, MIB, mebibytes

_CPU_SERIES = ("vcpu_used", "cpu_utilization_percent")
_MEMORY_DISTRIBUTIONS = ("memory_used_mb", "memory_utilization_percent")
_MEMORY_SERIES = (*_MEMORY_DISTRIBUTIONS, "max_memory_used_at")
# The facts of a run that come from its processes.
_FIELDS = (
    *("metrics", "interval", "sampling", "series", "time_breakdown", "processes", "memory_kills"),
    *("likely_out_of_memory", "out_of_memory_evidence"),
)

_T = TypeVar("_T", Metrics, Interval)


def processes_values(record: Record, batch: BatchProcesses, *, is_current: bool) -> Mapping[str, object]:
    """Return the record's fields from its processes; the time series only if they are still read (``is_current``)."""
    sizes = ResourceLimits(vcpu=record.metrics.vcpu_size, memory_bytes=_bytes(record.metrics.memory_size_mb))
    group_peak = batch.group_peak(is_running=record.status == "running")
    is_memory_shared = batch.counts_shared_memory_twice(sizes.memory_bytes)
    processes = batch.totals.top(is_memory_shared=is_memory_shared)
    kills = batch.kills.kills(is_host_dedicated=record.launch_type == FARGATE)
    since = None if record.interval is None else batch.usage.end_interval()
    record = replace(record, metrics=_with_totals(record.metrics, batch, group_peak))
    if is_current and _is_finer(batch.usage, record.sampling):
        record = _with_series(record, batch, since, sizes)
    batch.time.flush(batch.usage.series)
    record = batch.time.added_to(record, batch.cpu_ns)
    if is_current and batch.usage.series is not None and record.status != "running":  # checkpoints have no series
        record = replace(record, series=with_columns(record.series, batch.usage.series, ["cpu_wait"]))
    if record.status != "running":
        series = batch.totals.with_commands(record.series, is_memory_shared=is_memory_shared)
        record = replace(record, series=series)
    peak_bytes, source = _peak(record.metrics, batch.peak_bytes, group_peak, sizes)
    metrics = with_peak(record.metrics, peak_bytes, source, sizes)
    # Without the end, which was not seen, the record has no duration.
    end_ns = None if record.metrics.duration_ms is None else parse_ns(record.finished_at)
    verdict = out_of_memory(
        RunEnd(status=known_status(record), exit_code=record.exit_code, until_ns=end_ns),
        memory_max_bytes=peak_bytes,
        memory_size_bytes=sizes.memory_bytes,
        peak_source=source,
        memory_kills=None if kills is None else kills.count,
        may_have_missed_a_kill=may_have_missed_a_kill(replace(record, metrics=metrics)),
    )
    processes = within_total(processes, metrics.max_memory_used_mb)
    record = replace(record, metrics=metrics, memory_kills=kills, processes=processes)
    if verdict.likely or not record.likely_out_of_memory:  # else by hits of the limit, which only the task stats have
        record = replace(record, likely_out_of_memory=verdict.likely, out_of_memory_evidence=verdict.evidence)
    return {name: getattr(record, name) for name in _FIELDS}


def _with_totals(metrics: Metrics, batch: BatchProcesses, group_peak: GroupPeak) -> Metrics:
    """Use the larger total: both sources count from the container's start to their last reading."""
    cpu_seconds = round(batch.cpu_ns / NS_PER_SECOND, CPU_SECONDS_DIGITS)
    return replace(
        metrics,
        cpu_seconds=max(cpu_seconds, metrics.cpu_seconds or 0.0),
        max_pids=max(batch.usage.max_pids or 0, metrics.max_pids or 0) or None,
        memory_usage_peak_mb=mebibytes(max_known(_bytes(metrics.memory_usage_peak_mb), group_peak.size_bytes)),
    )


def _is_finer(usage: ContainerUsage, sampling: Sampling | None) -> bool:
    """Whether the processes were read at least twice as often as the task stats changed."""
    step_ms = usage.steps_ms.median()
    stats_step_ms = None if sampling is None else sampling.stats_period_ms
    if stats_step_ms is None:
        return usage.samples > (0 if sampling is None else sampling.samples or 0)
    return step_ms is not None and 2 * step_ms <= stats_step_ms


def _with_series(record: Record, batch: BatchProcesses, since: UsageWindow | None, sizes: ResourceLimits) -> Record:
    """Use the processes' distributions unless the stats contradict them; ``since`` is for checkpoints."""
    finer = usage_metrics(batch.usage, sizes)
    agrees_on_cpu, agrees_on_memory = batch.comparison.cpu_agrees, batch.comparison.memory_agrees
    metrics, part = record.metrics, record.interval
    numbers = None if part is None or since is None else build_interval(since, sizes, started_ns=0, finished_ns=0)
    if agrees_on_cpu:
        metrics = _copy_fields(metrics, finer, _CPU_SERIES)
        part = part and numbers and _copy_fields(part, numbers, ("cpu_seconds", *_CPU_SERIES))
    if agrees_on_memory:
        metrics = _copy_fields(metrics, finer, _MEMORY_SERIES)
        part = part and numbers and _copy_fields(part, numbers, _MEMORY_DISTRIBUTIONS)
    sampling = record.sampling
    if sampling is not None and (agrees_on_cpu or agrees_on_memory):
        sampling = replace(sampling, samples=batch.usage.samples)
    if agrees_on_cpu and metrics.slowdown_at_vcpu is None:
        vcpu_size = record.task_size.vcpu if record.task_size is not None else None
        metrics = with_cpu_demand(
            metrics, batch.demand, vcpu_size=vcpu_size or metrics.vcpu_size, max_threads=metrics.max_pids
        )
    series, finer_series = record.series, batch.usage.series
    if finer_series is not None and record.status != "running":  # checkpoints have no series
        columns = (("vcpu_used", agrees_on_cpu), ("memory_used_mb", agrees_on_memory))
        series = with_columns(series, finer_series, [name for name, agrees in columns if agrees])
    return replace(record, metrics=metrics, interval=part, sampling=sampling, series=series)


def _copy_fields(target: _T, source: Struct, names: Iterable[str]) -> _T:
    """Return the target with the named fields of the source that are not None."""
    values = {name: getattr(source, name) for name in names}
    return replace(target, **{name: value for name, value in values.items() if value is not None})


def _peak(
    metrics: Metrics, processes_bytes: int | None, group: GroupPeak, sizes: ResourceLimits
) -> tuple[float | None, PeakSource | None]:
    """The group's mark if it is complete and free of page cache, else the largest observed value.

    The mark with page cache, plus memory outside the group, bounds that, and the limit: sums can count pages twice.
    """
    stats_bytes = _bytes(metrics.max_memory_used_mb)
    if group.size_bytes is not None and group.is_process_peak():
        return max_known(stats_bytes, group.size_bytes), "kernel"
    bounds = [size for size in (group.bound_bytes, sizes.memory_bytes) if size is not None]
    observed_bytes = None if processes_bytes is None else min((processes_bytes, *bounds))
    high_water_bytes = group.size_bytes if group.is_free_of_cache() else None
    peak_bytes = max_known(stats_bytes, observed_bytes, high_water_bytes)
    return peak_bytes, None if peak_bytes is None else "sampled"


def _bytes(size_mb: Number | None) -> float | None:
    return None if size_mb is None else size_mb * MIB

"""The only place that decides what a record says, from what all sources saw together."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.memory_peak import (
    charged_to_limit_bytes,
    choose_memory_peak,
    with_peak,
    with_unseen_peak,
)
from profiler.aggregation.out_of_memory import judge_out_of_memory, may_have_missed_kill
from profiler.aggregation.record_evidence import (
    NOTHING_SEEN,
    KillEvidence,
    ProcessActivity,
    ProcessReadings,
    ProcessRows,
    RunEvidence,
    combined_evidence,
    with_larger_maximum,
)
from profiler.aggregation.record_parts import RecordPart
from profiler.aggregation.run_end import RunEnd
from profiler.core.optional_math import known_values, max_known, rounded, sum_of_both
from profiler.core.timestamps import MS_PER_SECOND, NS_PER_MS, NS_PER_SECOND, parse_datetime
from profiler.record.activity_model import NO_BREAKDOWN
from profiler.record.record_model import (
    ABSENT_PARTS,
    NO_INTERVAL,
    NOT_SAMPLED,
    Interval,
    Metrics,
    Process,
    Record,
    Sampling,
    with_warnings,
)
from profiler.record.task_needs import measured_vcpu_limit
from profiler.record.units import CPU_SECONDS_DIGITS

if TYPE_CHECKING:
    from profiler.aggregation.slowdown import CpuDemand
    from profiler.readers.container_sample import ResourceLimits

_PERCENT_DIGITS = 1
_CPU_SERIES = ("vcpu_used", "cpu_utilization_percent")
_MEMORY_SERIES = ("memory_used_mb", "memory_utilization_percent", "max_memory_used_at")
_COLUMNS = ("vcpu_used", "memory_used_mb")
# The metrics that come from the task's and the container's facts, not from a source.
_OF_THE_RUN = (
    *("vcpu_size", "memory_size_mb", "vcpu_share"),
    *("duration_ms", "billed_duration_ms", "init_duration_ms"),
    *("ephemeral_storage_used_mb", "ephemeral_storage_size_mb"),
)

_T = TypeVar("_T", Metrics, Interval)


class RecordDraft(Struct, frozen=True):
    """The evidence of a run, which decides what its record says.

    ======================  =====================================================================
    value                   which evidence wins, and why
    ======================  =====================================================================
    memory peak             :func:`choose_memory_peak`: exact marks of the kernel before samples
    CPU time                :func:`choose_cpu_evidence`: the kernel's total of ended processes; else
                            the largest total, because all count from the start of the container to
                            their last reading
    share of the run read   up to the last reading of the chosen CPU time; 0 if it is partial
    distributions, series   the processes' if they were read twice as often as the task stats
                            changed (CPU: if both agree), else the stats'
    threads, usage peak,    the largest (:func:`combined_evidence`): each is a lower bound
    huge pages
    out of memory           :func:`judge_out_of_memory`, once, with the kills of all sources: a kill
                            that any source counted is decisive, and so is a count that did not
                            rise, whatever exit code and memory suggest
    processes               their rows, which together have the chosen CPU time, each with at most
                            the chosen peak
    devices, tags           their collector's: no other has a value of them
    ======================  =====================================================================

    ``run`` is the record without measurements: identity, sizes, times, sampling, monitor. ``end``
    has the times corrected for changes of the clock. ``evidence`` is what the program itself
    measured. ``sees_all_exits``: the profiler is the parent of all processes, so no kill of a child
    is missed.
    """

    run: Record
    end: RunEnd
    sizes: "ResourceLimits"
    evidence: tuple[RunEvidence, ...] = ()
    sees_all_exits: bool = False

    def build_record(self, parts: Sequence[RecordPart] = ()) -> Record:
        """The record by all evidence, with the ``parts`` of collectors; without their evidence if
        there is a defect in it.
        """
        try:
            return self._assemble_record(parts)
        except Exception as error:  # noqa: BLE001  the rest of the record is worth more
            others = []
            for part in parts:
                if part.evidence is not NOTHING_SEEN:
                    part = replace(part, evidence=NOTHING_SEEN, source=None)  # noqa: PLW2901
                others.append(part)
            return with_warnings(
                self._assemble_record(others), (left_out_warning(error, "RecordDraft"),)
            )

    def _assemble_record(self, parts: Sequence[RecordPart]) -> Record:
        seen = combined_evidence([*self.evidence, *(part.evidence for part in parts)])
        record = _with_parts(self.run, parts)
        record = _with_usage(record, seen)
        if seen.processes is not None:
            record = _with_process_distributions(record, seen.processes)
        if seen.activity is not None:
            record = with_activity(record, seen.activity)
            record = with_idle_parts(record, seen.activity)
        peak = choose_memory_peak(seen.memory)
        record = replace(record, metrics=with_peak(record.metrics, peak, self.sizes.memory_bytes))
        if not self.sees_all_exits:
            record = with_unseen_peak(record, seen.memory_marked_mb)
        if seen.rows is not None:
            record = _with_process_rows(record, seen.rows)
        verdict = judge_out_of_memory(
            self.end,
            seen.kills,
            peak,
            charged_bytes=charged_to_limit_bytes(seen.memory, peak),
            memory_size_bytes=self.sizes.memory_bytes,
            limit_hits=seen.limit_hits,
            may_have_missed_a_kill=self._may_have_missed_a_kill(record, seen.kills),
        )
        record = replace(
            record,
            likely_out_of_memory=verdict.likely,
            out_of_memory_evidence=verdict.evidence,
            memory_kills=seen.kills.own,
        )
        return with_warnings(record, self._warnings(record, parts))

    def _may_have_missed_a_kill(self, record: Record, kills: KillEvidence) -> bool:
        if self.sees_all_exits:
            return False
        return kills.may_have_missed or may_have_missed_kill(record)

    def _warnings(self, record: Record, parts: Sequence[RecordPart]) -> list[str]:
        """The warnings of all sources: which of their values are lower bounds."""
        warnings: list[str] = []
        for evidence in self.evidence:
            warnings += _evidence_warnings(record, evidence)
        for part in parts:
            warnings += _evidence_warnings(record, part.evidence)
            warnings += part.warnings
        return warnings


def left_out_warning(error: Exception, where: str) -> str:
    """The warning about a defect of the profiler, which cost a part of the values."""
    name = f"{type(error).__name__} in {where}"
    return f"Values are left out because of an error in the profiler ({name})."


def _with_parts(record: Record, parts: Sequence[RecordPart]) -> Record:
    """Return the record with the devices and sources of all collectors."""
    for part in parts:
        record = replace(record, **part.values)
        if part.source is not None and record.sampling is not NOT_SAMPLED:
            sources = (*record.sampling.sources, part.source)
            record = replace(record, sampling=replace(record.sampling, sources=sources))
        if part.reader_cpu_ns:
            monitor = record.monitor
            reader_seconds = part.reader_cpu_ns / NS_PER_SECOND
            cpu_seconds = rounded(sum_of_both(monitor.cpu_seconds, reader_seconds), 3)
            record = replace(record, monitor=replace(monitor, cpu_seconds=cpu_seconds))
    return record


def with_activity(record: Record, activity: ProcessActivity) -> Record:
    """Return the record with the division of its time, and with the waits for a CPU."""
    record = replace(record, time_breakdown=activity.breakdown)
    if activity.breakdown is NO_BREAKDOWN or activity.cpu_wait_ns is None:
        return record
    wait_ns = activity.cpu_wait_ns
    wanted_ns = max(wait_ns + activity.cpu_ns, 1)
    metrics = replace(
        record.metrics,
        cpu_wait_seconds=round(wait_ns / NS_PER_SECOND, CPU_SECONDS_DIGITS),
        cpu_wait_percent=round(100 * wait_ns / wanted_ns, _PERCENT_DIGITS),
    )
    sampling = record.sampling
    if sampling is not NOT_SAMPLED and activity.cpu_ns:
        percent = min(100 * activity.read_cpu_ns / activity.cpu_ns, 100.0)
        sampling = replace(sampling, cpu_wait_covered_percent=round(percent, _PERCENT_DIGITS))
    return replace(record, metrics=metrics, sampling=sampling)


def with_idle_parts(record: Record, activity: ProcessActivity) -> Record:
    """Add to the idle time of the GPUs what the batch did meanwhile, as far as that is known."""
    idle = record.gpu_idle
    started_ns = record.started_ns
    firsts = known_values(gpu.first_used_seconds for gpu in record.gpus)
    lasts = known_values(gpu.last_used_seconds for gpu in record.gpus)
    if idle is None or activity.idle_parts is None or started_ns is None or not (firsts and lasts):
        return record
    before, between = activity.idle_parts(
        started_ns + round(min(firsts) * NS_PER_SECOND),
        started_ns + round(max(lasts) * NS_PER_SECOND),
    )
    idle = replace(
        idle,
        waiting_for=idle.waiting_for if between is NO_BREAKDOWN else between,
        waiting_before=idle.waiting_before if before is NO_BREAKDOWN else before,
    )
    return replace(record, gpu_idle=idle)


def with_cpu_demand(
    metrics: Metrics, demand: "CpuDemand", *, vcpu_size: float | None, max_threads: int | None
) -> Metrics:
    """Add how often the task used all of its vCPUs, and how much slower smaller sizes would have
    been.
    """
    slowdown = demand.slowdown_by_vcpu(vcpu_size=vcpu_size, max_threads=max_threads)
    bounds = None
    if slowdown is not None:
        bounds = {f"{size:g}": bounds_of_size for size, bounds_of_size in slowdown.items()}
    return replace(
        metrics,
        vcpu_saturated_percent=demand.saturated_percent(vcpu_size),
        slowdown_at_vcpu=bounds,
    )


def _with_usage(run: Record, seen: RunEvidence) -> Record:
    """The run with its samples and totals."""
    metrics = run.metrics
    if seen.metrics is not None:
        own = {name: getattr(run.metrics, name) for name in _OF_THE_RUN}
        metrics = replace(seen.metrics, **own)
    of_task = seen.demand
    if of_task is not None:
        metrics = with_cpu_demand(
            metrics,
            of_task.demand,
            vcpu_size=of_task.vcpu_size,
            max_threads=of_task.max_threads,
        )
    metrics = replace(
        metrics,
        max_pids=max_known(metrics.max_pids, seen.max_pids),
        memory_usage_peak_mb=max_known(metrics.memory_usage_peak_mb, seen.usage_peak_mb),
        memory_used_bound_mb=max_known(metrics.memory_used_bound_mb, seen.memory_bound_mb),
        memory_huge_pages_mb=with_larger_maximum(metrics.memory_huge_pages_mb, seen.huge_pages),
    )
    record = replace(run, metrics=metrics, series=seen.series or run.series)
    cpu = seen.cpu
    if cpu is None:
        return record
    record = replace(record, metrics=replace(metrics, cpu_seconds=cpu.cpu_seconds))
    if cpu.is_partial and record.sampling is not NOT_SAMPLED:
        return replace(record, sampling=replace(record.sampling, cpu_covered_percent=0.0))
    return _with_cpu_covered(record, cpu.until_ns)


def _with_cpu_covered(record: Record, until_ns: int | None) -> Record:
    """Add the share of the run up to the last reading of its CPU time, by the wall clock of its
    start.
    """
    duration_ms = record.metrics.duration_ms
    sampling = record.sampling
    if sampling is NOT_SAMPLED or record.metrics.cpu_seconds is None:
        return record
    # This module's own text. The regular expression of parse_ns would take 0.2 ms of every run.
    started = parse_datetime(record.started_at)
    if until_ns is None or started is None or not duration_ms:
        return record
    covered_ms = until_ns / NS_PER_MS - MS_PER_SECOND * started.timestamp()
    percent = 100 * covered_ms / duration_ms
    covered_percent = round(min(max(percent, 0.0), 100.0), 1)
    return replace(record, sampling=replace(sampling, cpu_covered_percent=covered_percent))


def _with_process_distributions(record: Record, readings: ProcessReadings) -> Record:
    """Use the distributions and columns of the processes that are better than the stats'."""
    is_finer = _are_readings_finer(readings, record.sampling)
    has_cpu = is_finer and readings.agrees_on_cpu
    names: tuple[str, ...] = ()
    if has_cpu:
        names += _CPU_SERIES
    if is_finer:
        names += _MEMORY_SERIES
    metrics = _with_fields_of(record.metrics, readings.metrics, names)
    if has_cpu and metrics.slowdown_at_vcpu is None:
        metrics = with_cpu_demand(
            metrics,
            readings.demand,
            vcpu_size=measured_vcpu_limit(record),
            max_threads=metrics.max_pids,
        )
    interval = record.interval
    if interval is not NO_INTERVAL and readings.interval is not None:
        of_interval = names
        if has_cpu:
            of_interval += ("cpu_seconds",)
        interval = _with_fields_of(interval, readings.interval, of_interval)
    sampling = record.sampling
    if sampling is not NOT_SAMPLED and names:
        sampling = replace(sampling, samples=readings.samples)
    series = record.series
    if readings.series is not None:
        from profiler.record.equal_steps import with_columns_of  # the shortest runs have none

        min_step_ms = 0 if series is None else series.step_ms
        added = readings.series.copy_within_limits(min_step_ms=min_step_ms).series_so_far()
        columns = [name for name in _COLUMNS if name in names]
        series = with_columns_of(series, added, [*columns, "cpu_wait"])
    return replace(record, metrics=metrics, interval=interval, sampling=sampling, series=series)


def _are_readings_finer(readings: ProcessReadings, sampling: Sampling) -> bool:
    """Whether the processes were read at least twice as often as the task stats changed."""
    if sampling.stats_period_ms is None:
        return readings.samples > (sampling.samples or 0)
    return readings.step_ms is not None and 2 * readings.step_ms <= sampling.stats_period_ms


def _with_fields_of(target: _T, source: Struct, names: Iterable[str]) -> _T:
    """Return the target with the named fields of the source that it has and that are not None."""
    values: dict[str, Any] = {}
    for name in names:
        value = getattr(source, name, None)
        if value not in ABSENT_PARTS:
            values[name] = value
    return replace(target, **values)


def _with_process_rows(record: Record, named: ProcessRows) -> Record:
    """Add the rows of the processes, within the totals, and their part of the series."""
    processes: tuple[Process, ...] = ()
    if named.rows:
        from profiler.record.process_rows import (
            processes_within_total,
            with_unread_cpu_row,  # the shortest runs have none
        )

        rows = with_unread_cpu_row(named.rows, record.metrics.cpu_seconds)
        total_mb = record.metrics.max_memory_used_mb
        processes = processes_within_total(rows, total_mb, is_one=named.is_one)
    return replace(record, processes=processes, series=named.with_commands(record.series))


def _evidence_warnings(record: Record, evidence: RunEvidence) -> tuple[str, ...]:
    """The warnings of a source, and those of the waits in the record that it saw."""
    if evidence.activity is None:
        return evidence.warnings
    # Runs without activity do not import it.
    from profiler.aggregation.wait_warnings import wait_warnings

    return evidence.warnings + wait_warnings(record)

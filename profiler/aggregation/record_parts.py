"""The parts of a record: what the task, the container and its usage say, and what a collector adds.

:mod:`profiler.aggregation.record_assembly` decides between them.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from profiler.aggregation.container_usage import ContainerUsage, UsageWindow
from profiler.aggregation.memory_peak import evidence_from
from profiler.aggregation.record_evidence import (
    NOTHING_SEEN,
    CpuEvidence,
    DemandEvidence,
    ProcessActivity,
    RunEvidence,
)
from profiler.aggregation.run_end import RunEnd, run_end_of_exit
from profiler.aggregation.slowdown import CpuDemand
from profiler.aggregation.statistics import DeviceReadings, percent_of
from profiler.core.ecs_terms import arn_account, arn_region, cluster_name, task_id
from profiler.core.optional_math import (
    difference,
    first_known,
    known,
    known_members,
    known_values,
    max_known,
    min_known,
    rounded,
)
from profiler.core.timestamps import (
    MS_PER_SECOND,
    NS_PER_MS,
    NS_PER_SECOND,
    format_ms,
    parse_datetime,
    span_ms,
)
from profiler.readers.container_sample import ResourceLimits
from profiler.readers.linux.host import Host
from profiler.readers.memory_usage import is_notable
from profiler.record.activity_model import NO_BREAKDOWN
from profiler.record.measured import Number
from profiler.record.model_base import absent_if_empty
from profiler.record.record_model import (
    NO_READINGS,
    NOT_MEASURED,
    NOT_SAMPLED,
    NOTHING_VISIBLE,
    UNKNOWN_PROCESSOR,
    UNKNOWN_SIZE,
    AverageAndMaximum,
    Container,
    Distribution,
    Interval,
    Metrics,
    OtherContainer,
    PeakSource,
    Process,
    Processor,
    Record,
    Sampling,
    Series,
    TaskSize,
    Visible,
)
from profiler.record.task_needs import uncached_peak_mb
from profiler.record.units import (
    CPU_SECONDS_DIGITS,
    MIB,
    VCPU_DIGITS,
    billed_time_ms,
    bytes_to_mebibytes,
    rounded_number,
)

if TYPE_CHECKING:
    from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata

# The time of the highest sample counts as the time of the peak if the sample reached this part of
# it.
_SAMPLED_PEAK_FRACTION = 0.9
# What a runtime needs for a moment to start a container counts in its group, too.
_MIN_UNSEEN_MB = 32


class RecordPart(Struct, frozen=True, kw_only=True):
    """One collector's data on a run: ``values`` are fields of the record that no other source has,
    ``evidence`` is of fields that others may have, too.

    ``source`` is None if it had no data. ``reader_cpu_ns`` is the CPU time of a program that the
    collector runs, which counts as the monitor's.
    """

    values: Mapping[str, object] = {}
    evidence: RunEvidence = NOTHING_SEEN
    source: str | None = None
    warnings: tuple[str, ...] = ()
    reader_cpu_ns: int = 0


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


def container_limits(
    container: "ContainerMetadata",
    task: "TaskMetadata",
    host: Host,
    stats_bytes: int | None = None,
) -> ResourceLimits:
    """The vCPUs of the task, else of the machine.

    The container's own memory limit, else the task's, else that of the task stats.
    """
    memory_bytes = container.memory_limit_bytes or task.memory_limit_bytes
    # A limit above the machine's memory means that there is none.
    if memory_bytes is None and stats_bytes and stats_bytes <= (host.memory_bytes or 0):
        memory_bytes = stats_bytes
    return ResourceLimits(vcpu=first_known(task.vcpu_limit, host.vcpu), memory_bytes=memory_bytes)


def _usage_fields(
    totals: UsageWindow, cpu_seconds: float | None, sizes: ResourceLimits
) -> dict[str, Any]:
    """The fields that a whole run and an interval have."""
    return {
        "cpu_seconds": rounded(cpu_seconds, CPU_SECONDS_DIGITS),
        "vcpu_used": totals.vcpu.distribution(digits=VCPU_DIGITS),
        "cpu_utilization_percent": percent_of(totals.vcpu, sizes.vcpu),
        "memory_used_mb": totals.memory_bytes.distribution(per=MIB),
        "memory_utilization_percent": percent_of(totals.memory_bytes, sizes.memory_bytes),
    }


def kernel_memory_warnings(usage: ContainerUsage) -> tuple[str, ...]:
    """A warning if a notable part of the largest memory use may have been reclaimable."""
    kernel_bytes = usage.memory_max_kernel_bytes or 0
    if not is_notable(kernel_bytes, usage.memory_max_bytes or 0):
        return ()
    warning = (
        f"The memory peak has {kernel_bytes // MIB} MB of kernel memory. A part of it may be "
        "reclaimable, such as directory entries: version 1 of the control groups does not tell."
    )
    return (warning,)


def pinned_memory_warnings(usage: ContainerUsage) -> tuple[str, ...]:
    """A warning if open files may have kept a notable part of what counts as reclaimable."""
    bound_bytes = usage.notable_bound_bytes
    if bound_bytes is None:
        return ()
    warning = (
        f"The memory peak may have been {bound_bytes // MIB} MB: open files may have kept "
        "directory entries and inodes, which the kernel counts as reclaimable."
    )
    return (warning,)


def unseen_bound_mb(metrics: Metrics, marked_mb: Number | None) -> Number | None:
    """What the control group's mark has beside the page cache, if that is notably above the memory
    of all samples: between two of them, there was more memory, or more page cache.

    ``marked_mb`` is the most that the mark had beside the page cache of the samples before and
    after it rose: if that is unknown, the largest page cache counts.
    """
    if metrics.memory_peak_source != "sampled":
        return None
    if metrics.memory_cache_mb.max is not None:
        marked_mb = max_known(marked_mb, uncached_peak_mb(metrics))
    unseen_mb = difference(marked_mb, metrics.max_memory_used_mb or 0)
    if marked_mb is None or unseen_mb is None or unseen_mb < _MIN_UNSEEN_MB:
        return None
    return marked_mb if is_notable(unseen_mb * MIB, marked_mb * MIB) else None


def size_metrics(sizes: ResourceLimits) -> Metrics:
    """The metrics of a container of which only the limits are known."""
    return Metrics(
        vcpu_size=rounded_number(sizes.vcpu), memory_size_mb=bytes_to_mebibytes(sizes.memory_bytes)
    )


def usage_metrics(usage: ContainerUsage, sizes: ResourceLimits) -> Metrics:
    """The metrics of a container: its usage, absolute and relative to its limits."""
    source: PeakSource | None = None
    if usage.memory_max_bytes is not None:
        source = "sampled"
    return replace(
        size_metrics(sizes),
        max_memory_used_mb=bytes_to_mebibytes(usage.memory_max_bytes),
        **_usage_fields(usage.run, usage.cpu_seconds, sizes),
        memory_peak_source=source,
        memory_cache_mb=usage.memory_cache_bytes.average_and_maximum(per=MIB),
        memory_mapped_file_mb=usage.memory_mapped_file_bytes.average_and_maximum(per=MIB),
        memory_huge_pages_mb=_unknown_if_zero(
            usage.memory_huge_page_bytes.average_and_maximum(per=MIB)
        ),
        max_memory_used_at=known(format_ms, usage.memory_max_at_ns),
        memory_used_bound_mb=bytes_to_mebibytes(usage.notable_bound_bytes),
        memory_usage_peak_mb=bytes_to_mebibytes(usage.memory_usage_peak_bytes),
        max_pids=usage.max_pids,
        **usage.traffic_by_counter(),
    )


def _unknown_if_zero(huge_pages: AverageAndMaximum) -> AverageAndMaximum:
    """Most programs have no huge pages, which is not said."""
    return huge_pages if huge_pages.max else NO_READINGS


def with_peak(
    metrics: Metrics, size_bytes: float | None, source: PeakSource | None, sizes: ResourceLimits
) -> Metrics:
    """Replace the memory peak of the samples, also as the distributions' maximum; far above
    them, it has no time.
    """
    limit_bytes = sizes.memory_bytes
    percent = None
    if size_bytes is not None and limit_bytes:
        # The kernel lets a process that it kills exceed the limit by less than 1 MiB.
        if limit_bytes < size_bytes < limit_bytes + MIB:
            size_bytes = limit_bytes
        percent = round(100 * size_bytes / limit_bytes, 3)
    peak_mb = bytes_to_mebibytes(size_bytes)
    sampled_mb = metrics.memory_used_mb.max
    bound_mb = metrics.memory_used_bound_mb
    if (bound_mb or 0) <= (peak_mb or 0):
        bound_mb = None
    peak_at: str | None = None
    if peak_mb is not None and sampled_mb is not None:
        is_near = sampled_mb >= _SAMPLED_PEAK_FRACTION * peak_mb
        peak_at = metrics.max_memory_used_at if is_near else None
    return replace(
        metrics,
        max_memory_used_mb=peak_mb,
        max_memory_used_at=peak_at,
        memory_used_bound_mb=bound_mb,
        memory_peak_source=source,
        memory_used_mb=_with_max(metrics.memory_used_mb, peak_mb),
        memory_utilization_percent=_with_max(metrics.memory_utilization_percent, percent),
    )


def processes_within_total(
    processes: Iterable[Process], total_mb: Number | None, *, is_one: bool = False
) -> tuple[Process, ...]:
    """The processes, each with at most the memory peak of all together; the only one
    (``is_one``) has it.
    """
    limited: list[Process] = []
    for process in processes:
        peak_mb = process.max_memory_used_mb
        if peak_mb is not None:
            # The kernel's mark of a process can be a little higher than its control group's.
            peak_mb = total_mb if is_one else min_known(peak_mb, total_mb)
        limited.append(replace(process, max_memory_used_mb=peak_mb))
    return tuple(limited)


def with_cpu_demand(
    metrics: Metrics, demand: CpuDemand, *, vcpu_size: float | None, max_threads: int | None
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


def _with_max(distribution: Distribution, maximum: float | None) -> Distribution:
    """The distribution with another maximum, which no other of its values exceeds."""
    if distribution is NOT_MEASURED or maximum is None:
        return distribution
    peak = float(maximum)
    known_levels = known_members(asdict(distribution))
    values: dict[str, float] = {name: min(value, peak) for name, value in known_levels.items()}
    values["max"] = peak
    return Distribution(**values)


def build_interval(
    totals: UsageWindow,
    devices: DeviceReadings,
    sizes: ResourceLimits,
    *,
    started_ns: int,
    finished_ns: int,
) -> Interval:
    """The metrics since the last checkpoint, with the readings of all devices."""
    return Interval(
        started_at=format_ms(started_ns),
        finished_at=format_ms(finished_ns),
        **_usage_fields(totals, totals.cpu_seconds, sizes),
        gpu_utilization_percent=devices.gpu_percent.average_and_maximum(),
        gpu_memory_used_mb=devices.gpu_memory_bytes.average_and_maximum(per=MIB),
        neuron_utilization_percent=devices.neuron_percent.average_and_maximum(),
    )


def with_cpu_covered(record: Record, until_ns: int | None) -> Record:
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


def build_sampling(
    usage: ContainerUsage,
    sources: Iterable[str],
    *,
    interval_ns: int,
    failures: int,
    missed: int,
) -> Sampling:
    """The statistics of the sampling itself."""
    return Sampling(
        interval_ms=rounded_number(interval_ns / NS_PER_MS),
        failures=failures,
        missed_ticks=missed,
        sources=tuple(sources),
        samples=usage.samples,
        duplicates=usage.duplicates,
        longest_gap_ms=known(round, usage.steps_ms.maximum),
        stats_period_ms=known(round, usage.steps_ms.median()),
    )


def build_other_container(
    container: "ContainerMetadata",
    task: "TaskMetadata",
    usage: ContainerUsage,
    running: RunEnd,
    host: Host,
) -> OtherContainer:
    """A container other than the batch, without the task's network counters, which the batch's
    metrics have.

    ``running`` is its end for now, if it has not ended.
    """
    end = running
    if container.is_stopped:
        end = run_end_of_exit(container.exit_code, container.finished_ns, was_stopped=False)
    limits = container_limits(container, task, host, usage.memory_limit_bytes)
    metrics = usage_metrics(usage, limits)
    unseen_mb = unseen_bound_mb(metrics, bytes_to_mebibytes(usage.memory_marked_bytes))
    metrics = replace(
        metrics,
        memory_used_bound_mb=max_known(metrics.memory_used_bound_mb, unseen_mb),
        vcpu_share=rounded_number(container.vcpu_share),
        duration_ms=span_ms(container.started_ns, end.until_ns),
    )
    if container.shares_network:
        metrics = replace(metrics, network_rx_bytes=None, network_tx_bytes=None)
    return OtherContainer(
        name=container.name,
        status=container.known_status,
        exit_code=container.exit_code,
        metrics=metrics,
    )


def unmeasured_record(
    container: "ContainerMetadata",
    task: "TaskMetadata",
    end: RunEnd,
    host: Host,
    sizes: ResourceLimits,
) -> Record:
    """The record of one batch container without measurements: identity, sizes and times."""
    return Record(
        task_id=task_id(task.arn),
        task_arn=task.arn,
        cluster=cluster_name(task.cluster),
        family=task.family,
        revision=task.revision,
        region=arn_region(task.arn),
        account_id=arn_account(task.arn),
        availability_zone=task.availability_zone,
        launch_type=task.launch_type,
        cpu_architecture=host.cpu_architecture,
        processor=record_processor_of(host),
        container=_record_container_of(container),
        status=end.status,
        exit_code=end.exit_code,
        started_at=known(format_ms, container.started_ns),
        finished_at=known(format_ms, end.finished_ns),
        metrics=_sizes_and_times(container, task, end, sizes),
        task_size=record_task_size_of(task),
        visible=visible_hardware_of(host),
    )


def _record_container_of(container: "ContainerMetadata") -> Container:
    return Container(
        name=container.name,
        id=container.docker_id,
        arn=container.arn,
        image=container.image,
        image_digest=container.image_digest,
        restarts=container.restart_count or None,
    )


def _sizes_and_times(
    container: "ContainerMetadata", task: "TaskMetadata", end: RunEnd, sizes: ResourceLimits
) -> Metrics:
    return Metrics(
        vcpu_size=rounded_number(sizes.vcpu),
        memory_size_mb=bytes_to_mebibytes(sizes.memory_bytes),
        vcpu_share=rounded_number(container.vcpu_share),
        duration_ms=span_ms(container.started_ns, end.until_ns),
        billed_duration_ms=billed_time_ms(task.pull_started_ns, end.until_ns),
        init_duration_ms=span_ms(task.pull_started_ns, container.started_ns),
        ephemeral_storage_used_mb=task.ephemeral_storage_used_mib,
        ephemeral_storage_size_mb=task.ephemeral_storage_size_mib,
    )


def statistics_evidence(
    usage: ContainerUsage,
    sizes: ResourceLimits,
    *,
    series: Series | None = None,
    demand: DemandEvidence | None = None,
) -> RunEvidence:
    """What the task stats say of a batch container."""
    cpu = None
    if usage.cpu_seconds is not None:
        cpu = CpuEvidence(
            cpu_seconds=round(usage.cpu_seconds, CPU_SECONDS_DIGITS),
            until_ns=usage.cpu_until_ns,
        )
    of_kernel = evidence_from("statistics", usage.kernel_peak_bytes, "exact")
    of_samples = evidence_from("statistics", usage.memory_max_bytes)
    return RunEvidence(
        metrics=usage_metrics(usage, sizes),
        series=series,
        cpu=cpu,
        demand=demand,
        memory=of_kernel or of_samples,
        memory_marked_mb=bytes_to_mebibytes(usage.memory_marked_bytes),
        limit_hits=usage.memory_limit_hits,
    )


def record_processor_of(host: Host) -> Processor:
    """The machine's processor for the record."""
    processor = Processor(model=host.processor_model, count=host.processor_count)
    return absent_if_empty(processor, UNKNOWN_PROCESSOR)


def visible_hardware_of(host: Host) -> Visible:
    """What a program sees of the machine, for the record."""
    visible = Visible(
        memory_mb=bytes_to_mebibytes(host.memory_bytes),
        cpus=rounded_number(host.processor_count or host.vcpu),
        instance_type=host.instance_type,
    )
    return absent_if_empty(visible, NOTHING_VISIBLE)


def record_task_size_of(task: "TaskMetadata") -> TaskSize:
    """The task's limits for the record."""
    size = TaskSize(
        vcpu=rounded_number(task.vcpu_limit), memory_mb=bytes_to_mebibytes(task.memory_limit_bytes)
    )
    return absent_if_empty(size, UNKNOWN_SIZE)

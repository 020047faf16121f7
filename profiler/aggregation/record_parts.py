"""The parts of a record: what the task, the container and its usage say, and what a collector adds.

:mod:`profiler.aggregation.record_assembly` decides between them.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.container_usage import ContainerUsage, UsageWindow
from profiler.aggregation.memory_peak import evidence_from, unseen_bound_mb
from profiler.aggregation.record_evidence import (
    NOTHING_SEEN,
    CpuEvidence,
    DemandEvidence,
    KillEvidence,
    RunEvidence,
)
from profiler.aggregation.run_end import RunEnd, run_end_of_exit
from profiler.aggregation.statistics import DeviceReadings, percent_of
from profiler.core.ecs_terms import arn_account, arn_region, cluster_name, task_id
from profiler.core.optional_math import first_known, known, max_known, rounded
from profiler.core.timestamps import NS_PER_MS, format_ms, span_ms
from profiler.readers.container_sample import ResourceLimits
from profiler.readers.linux.host import Host
from profiler.readers.memory_usage import is_notable
from profiler.record.model_base import absent_if_empty
from profiler.record.record_model import (
    NO_READINGS,
    NOTHING_VISIBLE,
    UNKNOWN_PROCESSOR,
    UNKNOWN_SIZE,
    AverageAndMaximum,
    Container,
    Interval,
    Metrics,
    OtherContainer,
    PeakSource,
    Processor,
    Record,
    Sampling,
    Series,
    TaskSize,
    Visible,
)
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


def metadata_evidence(container: "ContainerMetadata") -> RunEvidence:
    """What ECS knows of kills for lack of memory in a container."""
    own_count = 1 if container.was_out_of_memory else None
    return RunEvidence(
        kills=KillEvidence(own_count=own_count, excludes_kill_at_end=container.excludes_memory_kill)
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

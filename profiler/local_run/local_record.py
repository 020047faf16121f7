"""Builds the record of a local command from its observed run, in an ECS task with the task's
identity and sizes.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.memory_peak import (
    Exactness,
    MemoryEvidence,
    MemoryPeak,
    choose_memory_peak,
    evidence_from,
    group_evidence,
)
from profiler.aggregation.process_tree_usage import GroupPeak, ProcessMarks, mark_shows_more
from profiler.aggregation.record_assembly import RecordDraft
from profiler.aggregation.record_evidence import (
    CpuEvidence,
    DemandEvidence,
    KillEvidence,
    ProcessRows,
    RunEvidence,
    series_without_commands,
)
from profiler.aggregation.record_parts import (
    container_limits,
    record_processor_of,
    size_metrics,
    unmeasured_record,
    usage_metrics,
    visible_hardware_of,
)
from profiler.aggregation.run_end import RunEnd
from profiler.aggregation.slowdown import CpuDemand
from profiler.core.ecs_terms import AWSLOGS, awslogs_target
from profiler.core.optional_math import first_known, known, known_values, quotient
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.local_run.command_supervisor import CommandExit, ReapedUsage
from profiler.local_run.memory_doubts import MemoryDoubts
from profiler.readers.cgroup.hierarchy import ProcessCgroups
from profiler.readers.container_sample import ResourceLimits
from profiler.readers.linux import proc
from profiler.readers.linux.host import Host
from profiler.readers.memory_usage import is_notable
from profiler.record.batch_job import NO_JOB, BatchJob
from profiler.record.measured import Number
from profiler.record.record_model import (
    LOCAL,
    NOT_MEASURED,
    UNKNOWN_PROCESSOR,
    Container,
    Distribution,
    MemoryKills,
    Metrics,
    Monitor,
    Process,
    Record,
    Report,
    Series,
)
from profiler.record.units import (
    CPU_SECONDS_DIGITS,
    MIB,
    VCPU_DIGITS,
    bytes_to_mebibytes,
    rounded_number,
)

if TYPE_CHECKING:
    from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata

# What ECS knows better than the command's own record: the members of the record and of its metrics.
_OF_THE_TASK = (
    *("task_id", "task_arn", "cluster", "revision", "region", "account_id", "availability_zone"),
    *("container", "task_size"),
)
_METRICS_OF_THE_TASK = (
    *("init_duration_ms", "billed_duration_ms", "vcpu_share"),
    *("ephemeral_storage_used_mb", "ephemeral_storage_size_mb"),
)
_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
_PEAK_OF_ONE_PROCESS = (
    "The run has no sample: its memory peak is the largest process's, with the pages of files that "
    "it mapped."
)
_WRITES_ARE_UNSURE = (
    "The bytes written may include files that were deleted before they were stored: the kernel "
    "does not show this user what an ended process has written."
)
_WRITES_MAY_BE_TOO_HIGH = (
    "The bytes written may be too high: the kernel counts a whole large page (folio) of a file for "
    "a write to a part of it, as of a database."
)
# The kernel keeps a process's memory counters per CPU and adds them up lazily.
_KERNEL_ROUNDING_BYTES = MIB
_MARK_ROUNDING_BYTES = MIB // 4
_EXACT_SHARE = 0.01


class TaskPlacement(Struct, frozen=True, kw_only=True):
    """The ECS task and the container that a command runs in."""

    task: "TaskMetadata"
    container: "ContainerMetadata"


def apply_placement(
    record: Record,
    placement: TaskPlacement,
    *,
    is_named: bool,
    started_ns: int,
    finished_ns: int | None,
) -> Record:
    """Add the identity, log stream and durations of the ECS task.

    A name that the user gave remains the family.
    """
    task = placement.task
    own = replace(placement.container, started_ns=started_ns)
    end = RunEnd(status="running", until_ns=finished_ns)
    placed = unmeasured_record(own, task, end, Host(), ResourceLimits())
    target = awslogs_target(
        own.log_options if own.log_driver == AWSLOGS else {}, own.name, task.arn
    )
    return replace(
        record,
        **{name: getattr(placed, name) for name in _OF_THE_TASK},
        family=record.family if is_named else placed.family or record.family,
        launch_type=placed.launch_type or record.launch_type,
        log_group=target.group,
        log_stream=target.stream,
        log_region=target.region if target.region != placed.region else None,
        metrics=replace(
            record.metrics, **{name: getattr(placed.metrics, name) for name in _METRICS_OF_THE_TASK}
        ),
    )


class RunIdentity(Struct, frozen=True, kw_only=True):
    """Whose run it is, where it runs, and whether the user gave the name (``is_named``)."""

    task_id: str
    family: str
    host: Host
    is_named: bool = False
    labels: Mapping[str, str] = {}
    batch: BatchJob = NO_JOB
    placement: TaskPlacement | None = None


class RunObservation(Struct, frozen=True, kw_only=True):
    """The measurements of a command.

    Start and end are by the wall clock, the duration by the monotonic clock.

    While the command runs, ``duration_ns`` is None, ``finished_ns`` is the last reading's time,
    ``end`` is read only if the profiler misses the end, and nothing counts as ``reaped``.
    ``was_only_process``: it has ended, and the kernel has counted no other. ``memory_kills`` counts
    the kernel's kills in the command's own control group; it is 0, too, if the profiler's group or
    the whole machine had none. Otherwise it is None, and ``shared_oom_kills`` counts those in the
    profiler's group, which may contain unrelated processes. ``marked_bytes``: the most that the
    processes had mapped by their marks, unsurely. ``is_cpu_partial``: some processes
    ended without a count. ``cancelled_write_bytes``: deleted before it was stored, as far as
    samples show. ``warnings`` are of the samples.
    """

    started_ns: int
    finished_ns: int | None
    duration_ns: int | None = None
    reaped: ReapedUsage = ReapedUsage()
    was_only_process: bool = False
    end: RunEnd = RunEnd(status="unknown")
    usage: ContainerUsage
    demand: CpuDemand
    cpu_ns: int
    memory: tuple[MemoryEvidence, ...]
    doubts: MemoryDoubts = MemoryDoubts()
    group_peak_bytes: int | None = None
    shared_oom_kills: int | None = None
    marked_bytes: float = 0
    memory_kills: int | None = None
    has_block_io: bool = False
    cancelled_write_bytes: int = 0
    is_cpu_partial: bool = False
    others_vcpu_used: Number | None = None
    warnings: tuple[str, ...] = ()
    processes: tuple[Process, ...] = ()
    with_commands: Callable[[Series | None], Series | None] = series_without_commands

    @property
    def peak(self) -> MemoryPeak:
        return choose_memory_peak(self.memory)


def memory_evidence(
    sampled_bytes: int | None,
    ending: CommandExit,
    group: GroupPeak,
    *,
    read_bytes: int | None,
    marks: ProcessMarks,
    had_several_processes: bool,
    floor_bytes: int | None,
    kernel_bytes: int = 0,
) -> tuple[MemoryEvidence, ...]:
    """What the samples, the group's mark and the largest process's mark say of a command.

    The group's mark counts if it is free of page cache. The process's mark (``ru_maxrss``) starts
    at the profiler's own mark at the fork (``floor_bytes``), so up to that value nothing of it is
    sure.
    """
    evidence = evidence_from("samples", sampled_bytes)
    transferred_bytes = ending.reaped.blocks.read_bytes + ending.reaped.blocks.write_bytes
    evidence += group_evidence(group, transferred_bytes)
    mark_bytes = ending.reaped.max_rss_bytes
    if floor_bytes is None or mark_bytes <= floor_bytes + _KERNEL_ROUNDING_BYTES:
        return evidence
    if not _is_within_limits(marks.seen_bytes, mark_bytes):
        return evidence + _evidence_of_unseen_mark(sampled_bytes, ending.reaped, group, marks)
    if ending.was_only_process and not had_several_processes:
        evidence += _evidence_of_only_process(
            sampled_bytes, read_bytes, mark_bytes, marks, kernel_bytes
        )
    return evidence


def _evidence_of_unseen_mark(
    sampled_bytes: int | None, reaped: ReapedUsage, group: GroupPeak, marks: ProcessMarks
) -> tuple[MemoryEvidence, ...]:
    """What a process's mark above all readings says.

    It counts each mapping of a page, also of files: what the readings show of that (``marks``) does
    not count. What it has more than the readings is pages of files, unless it is more than these
    may be by then, or there were enough page faults. If both are so, it is memory used in a group
    whose mark bounds it, unless notably much was read or written. Else it makes the peak unsure: it
    may be a file, or the same pages several times. A run without a reading has nothing but this
    mark.
    """
    reached_bytes = max(reaped.max_rss_bytes - marks.uncounted_bytes, 0)
    is_more = mark_shows_more(reached_bytes, sampled_bytes or 0, marks.uncounted_bytes)
    may_be_files = _may_be_files(reached_bytes, reaped)
    if may_be_files and not is_more:
        return ()
    transferred_bytes = reaped.blocks.read_bytes + reaped.blocks.write_bytes
    is_bounded = group.size_bytes_of_all is not None
    is_bounded = is_bounded and not is_notable(transferred_bytes, reached_bytes)
    is_bounded = is_bounded or sampled_bytes is None
    exactness: Exactness = "unsure"
    if is_more and not may_be_files and is_bounded:
        exactness = "at least"
    return evidence_from("process mark", group.peak_within_group_bytes(reached_bytes), exactness)


def _evidence_of_only_process(
    sampled_bytes: int | None,
    read_bytes: int | None,
    mark_bytes: int,
    marks: ProcessMarks,
    kernel_bytes: int,
) -> tuple[MemoryEvidence, ...]:
    """The exact peak of a tree that was one process, if at most 1 % is open.

    What is open: what the process did between two readings (``read_bytes`` is the most that one
    read) and after the last, when it may have mapped files, what its uncounted part was at the time
    of the mark, and ``kernel_bytes``, which only samples without a group have.
    """
    if sampled_bytes is None or read_bytes is None:
        return ()
    most_bytes = marks.most_bytes + min(kernel_bytes, round(_EXACT_SHARE * mark_bytes))
    values = (read_bytes, sampled_bytes, most_bytes)
    if not _is_within_limits(min(values), max(values)):
        return ()
    return evidence_from("process mark", sampled_bytes, "exact")


def _may_be_files(reached_bytes: int, reaped: ReapedUsage) -> bool:
    """Whether a process had too few page faults for so much memory of its own: it has mapped files
    since the last reading, or has huge pages.

    Where each process gets huge pages (a setting of the machine), and where the kernel counts no
    faults (gVisor), they tell nothing.
    """
    if not reaped.faulted_bytes or not is_notable(
        reached_bytes - reaped.faulted_bytes, reached_bytes
    ):
        return False
    return b"[always]" not in (proc.read_or_none(_HUGE_PAGES) or b"")


def _is_within_limits(low_bytes: int, high_bytes: int) -> bool:
    """Whether a value between these is known, to 1 % or what the kernel rounds."""
    return high_bytes - low_bytes <= max(_EXACT_SHARE * high_bytes, _MARK_ROUNDING_BYTES)


def smaller_limits(limits: ResourceLimits, host: Host, usable_cpus: int) -> ResourceLimits:
    """The limits of the command: the smaller ones of the control group and the machine."""
    vcpus = known_values((limits.vcpu, float(usable_cpus), host.vcpu))
    sizes = known_values((limits.memory_bytes, host.memory_bytes))
    return ResourceLimits(vcpu=min(vcpus), memory_bytes=min(sizes, default=None))


def read_limits(cgroups: ProcessCgroups, host: Host) -> ResourceLimits:
    """The limits of the command now; see :func:`smaller_limits`."""
    return smaller_limits(cgroups.smallest_limits(), host, len(os.sched_getaffinity(0)))


def draft_run_record(
    identity: RunIdentity,
    observed: RunObservation,
    sizes: ResourceLimits,
    *,
    min_series_step_ms: float = 0,
    max_series_steps: int = 0,
) -> RecordDraft:
    """The draft of a command that has ended, or runs."""
    placement = identity.placement
    task_vcpu = None
    if placement is not None:
        task_vcpu = placement.task.vcpu_limit
        limits = container_limits(placement.container, placement.task, Host(vcpu=sizes.vcpu))
        sizes = replace(limits, memory_bytes=limits.memory_bytes or sizes.memory_bytes)
    end = observed.end
    metrics = _sizes_and_duration(observed, sizes)
    run = _base_record(identity, end, observed.started_ns, observed.finished_ns, metrics)
    if run.processor != UNKNOWN_PROCESSOR:
        processor = replace(run.processor, others_vcpu_used=observed.others_vcpu_used)
        run = replace(run, processor=processor)
    series = None
    if observed.usage.series is not None and max_series_steps:
        series = observed.usage.series.copy_within_limits(
            min_step_ms=min_series_step_ms, max_steps=max_series_steps
        ).series_so_far()
    evidence = RunEvidence(
        metrics=_metrics(observed, sizes),
        series=series,
        cpu=_cpu_evidence(observed),
        demand=_demand_evidence(observed, first_known(task_vcpu, sizes.vcpu)),
        memory=observed.memory,
        kills=_kill_evidence(observed),
        rows=_process_rows(observed),
        warnings=_observation_warnings(observed),
    )
    # The profiler is the parent of the command: it sees the exit of each process.
    return RecordDraft(run, end, sizes, (evidence,), sees_all_exits=True)


def _cpu_evidence(observed: RunObservation) -> CpuEvidence | None:
    """The CPU time by the kernel's accounting; None before the first reading."""
    if observed.finished_ns is None:
        return None
    return CpuEvidence(
        cpu_seconds=round(observed.cpu_ns / NS_PER_SECOND, CPU_SECONDS_DIGITS),
        is_exact=True,
        is_partial=observed.is_cpu_partial,
    )


def _demand_evidence(observed: RunObservation, vcpu_size: float | None) -> DemandEvidence | None:
    """The vCPUs that an ended command used over time."""
    if observed.duration_ns is None:
        return None
    return DemandEvidence(
        demand=observed.demand, vcpu_size=vcpu_size, max_threads=observed.usage.max_pids
    )


def _kill_evidence(observed: RunObservation) -> KillEvidence:
    """The kernel's kills.

    One in the command's own group is decisive for every exit code, also after a stop request:
    systemd stops a unit after a kill.
    """
    own = None
    if observed.memory_kills:
        own = MemoryKills(count=observed.memory_kills)
    return KillEvidence(
        own_count=observed.memory_kills,
        own=own,
        shared_count=observed.shared_oom_kills or 0,
        marked_bytes=observed.marked_bytes,
    )


def _process_rows(observed: RunObservation) -> ProcessRows:
    """The largest processes, and whether the run had only one."""
    is_one = observed.was_only_process and len(observed.processes) == 1
    return ProcessRows(rows=observed.processes, with_commands=observed.with_commands, is_one=is_one)


def _observation_warnings(observed: RunObservation) -> tuple[str, ...]:
    warnings = observed.warnings
    reaped = observed.reaped
    written_bytes = _written_bytes(reaped, observed.cancelled_write_bytes)
    if observed.has_block_io and min(written_bytes, reaped.unread_write_bytes) >= MIB:
        warnings += (_WRITES_ARE_UNSURE,)
    if observed.has_block_io and written_bytes - reaped.changed_bytes >= MIB:
        warnings += (_WRITES_MAY_BE_TOO_HIGH,)
    if not observed.usage.samples and observed.peak.source == "sampled":
        return (_PEAK_OF_ONE_PROCESS, *warnings)
    return warnings


def build_not_started_record(
    identity: RunIdentity, exit_code: int, now_ns: int, monitor: Monitor
) -> Record:
    """The record of a command that could not be started, without a measurement of it."""
    end = RunEnd(status="failure", exit_code=exit_code, finished_ns=now_ns)
    return replace(_base_record(identity, end, now_ns, now_ns, Metrics()), monitor=monitor)


def build_unprofiled_record(
    identity: RunIdentity, end: RunEnd, started_ns: int, duration_ns: int, monitor: Monitor
) -> Record:
    """The record of a command of which only the end is known."""
    metrics = Metrics(duration_ms=rounded_number(duration_ns / NS_PER_MS))
    record = _base_record(identity, end, started_ns, end.finished_ns, metrics)
    return replace(record, monitor=monitor)


def _base_record(
    identity: RunIdentity,
    end: RunEnd,
    started_ns: int,
    finished_ns: int | None,
    metrics: Metrics,
) -> Record:
    """What is known without a reading, with the identity of the ECS task."""
    record = Record(
        task_id=identity.task_id,
        family=identity.family,
        launch_type=LOCAL,
        cpu_architecture=identity.host.cpu_architecture,
        processor=record_processor_of(identity.host),
        visible=visible_hardware_of(identity.host),
        labels=identity.labels or None,
        batch=identity.batch,
        container=Container(name=identity.family),
        status=end.status,
        exit_code=end.exit_code,
        started_at=format_ms(started_ns),
        finished_at=known(format_ms, finished_ns),
        metrics=metrics,
    )
    if identity.placement is None:
        return record
    return apply_placement(
        record,
        identity.placement,
        is_named=identity.is_named,
        started_ns=started_ns,
        finished_ns=end.finished_ns,
    )


def final_report(record: Record, now_ns: int) -> Report:
    """The final line of a run."""
    return Report(time=format_ms(now_ns), type="task.report", record=record)


def _sizes_and_duration(observed: RunObservation, sizes: ResourceLimits) -> Metrics:
    """What is known without a sample."""
    duration_ms = rounded_number(quotient(observed.duration_ns, NS_PER_MS))
    return replace(size_metrics(sizes), duration_ms=duration_ms)


def _metrics(observed: RunObservation, sizes: ResourceLimits) -> Metrics:
    """The statistics of the samples, with the kernel's exact totals of block I/O."""
    measured = usage_metrics(observed.usage, sizes)
    if observed.duration_ns is None:
        return measured
    # Too short for a rate between two samples.
    if measured.vcpu_used == NOT_MEASURED and observed.usage.samples and observed.duration_ns:
        vcpu = observed.cpu_ns / observed.duration_ns
        percent = NOT_MEASURED
        if sizes.vcpu:
            percent = Distribution(avg=round(100 * vcpu / sizes.vcpu, 3))
        average = Distribution(avg=round(vcpu, VCPU_DIGITS))
        measured = replace(measured, vcpu_used=average, cpu_utilization_percent=percent)
    measured = replace(measured, memory_usage_peak_mb=bytes_to_mebibytes(observed.group_peak_bytes))
    bound_mb = observed.doubts.bound_mb
    if bound_mb is not None:
        bound_mb = max(bound_mb, measured.memory_used_bound_mb or 0)
        measured = replace(measured, memory_used_bound_mb=bound_mb)
    if not observed.has_block_io:
        return replace(measured, block_read_bytes=None, block_write_bytes=None)
    return replace(
        measured,
        block_read_bytes=observed.reaped.blocks.read_bytes,
        block_write_bytes=_written_bytes(observed.reaped, observed.cancelled_write_bytes),
    )


def _written_bytes(reaped: ReapedUsage, seen_cancelled_bytes: int) -> int:
    """What was stored: rusage does not know what was cancelled, but the samples may."""
    if not reaped.unread_write_bytes:
        return reaped.blocks.stored_bytes
    cancelled_bytes = max(reaped.blocks.cancelled_bytes, seen_cancelled_bytes)
    return max(reaped.blocks.write_bytes - cancelled_bytes, 0)

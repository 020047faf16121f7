"""Builds the reports of one run: the run so far, and its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.memory_peak import (
    choose_memory_peak,
    evidence_from,
    mark_bytes_perhaps_of_files,
)
from profiler.aggregation.process_tree_usage import GroupPeak
from profiler.aggregation.record_assembly import RecordDraft
from profiler.aggregation.record_evidence import RunEvidence
from profiler.aggregation.record_parts import build_sampling, kernel_memory_warnings
from profiler.aggregation.run_end import run_end_of_exit
from profiler.collectors.collector import collected_parts
from profiler.core.background_call import NoCall
from profiler.core.clock import ClockJumpDetector
from profiler.core.optional_math import excess, known_values
from profiler.core.text import first_names
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.core.version import __version__
from profiler.local_run.command_supervisor import CommandExit
from profiler.local_run.command_usage import CommandReader
from profiler.local_run.local_notices import LocalNotices
from profiler.local_run.local_record import (
    RunIdentity,
    RunObservation,
    TaskPlacement,
    build_not_started_record,
    build_unprofiled_record,
    draft_run_record,
    final_report,
    memory_evidence,
    read_limits,
)
from profiler.local_run.memory_doubts import memory_doubts
from profiler.local_run.prepared_run import PreparedRun, StartFailure
from profiler.local_run.run_plan import RunResult
from profiler.local_run.sampler import Details, RunSampler
from profiler.readers.cgroup.hierarchy import machine_oom_kills
from profiler.readers.container_sample import ResourceLimits
from profiler.readers.linux import proc
from profiler.readers.linux.host import others_vcpu_used, read_busy_ns, read_own_usage
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.bounded_json_line import truncate_text
from profiler.record.measured import Number
from profiler.record.record_model import UNKNOWN_SIZE, Monitor, Record, Report, with_warnings
from profiler.record.units import bytes_to_mebibytes, format_duration, rounded_number

if TYPE_CHECKING:
    from profiler.aggregation.time_series import RunSeries

_CHILDREN_ARE_LOST = (
    "A process ignores the end of its children: their CPU time is known only up to the last "
    "sample before their end."
)
_TASK_IS_UNKNOWN = (
    "The task metadata endpoint did not answer during the run: the task's id, size and log stream "
    "are missing, and the record's task id belongs to no task of ECS."
)
_MAX_FAILURE_CHARS = 200
_PROFILER_WAS_KILLED = (
    "The profiler was killed before the command ended: the values end with its last reading, and "
    "the command may have run on."
)


def not_started_result(
    prepared: PreparedRun,
    identity: RunIdentity,
    request: NoCall[TaskPlacement],
    failure: StartFailure,
) -> RunResult:
    """The result of a command that could not be started; ``request`` reads its ECS task."""
    now_ns = prepared.clock.wall_ns()
    placed, warnings = _with_ecs_task(identity, request)
    monitor = _monitor(warnings, prepared)
    record = build_not_started_record(placed, failure.exit_code, now_ns, monitor)
    return RunResult(
        exit_code=failure.exit_code,
        report=final_report(record, now_ns),
        startup_error=failure.reason,
    )


class ReportBuilder(Struct, eq=False):
    """Builds the reports of one run that has started.

    ``request`` reads its ECS task, ``sizes`` are its limits. ``busy_before_ns`` is the CPU time
    that all programs of the machine had used when it started. ``clock_jumps`` are those since then.
    """

    _identity: RunIdentity
    _sampler: RunSampler
    _notices: LocalNotices
    _request: NoCall[TaskPlacement]
    _sizes: ResourceLimits
    _busy_before_ns: int | None
    _clock_jumps: ClockJumpDetector

    # The run so far

    def record_so_far(self) -> Record:
        identity = replace(self._identity, placement=self._request.result_so_far())
        observed = self._observed_run(ignored_sigchld=False)
        draft = self._draft_of_samples(observed, identity, self._notices.warnings)
        return draft.build_record(collected_parts(self._sampler.plan.collectors, draft.run))

    def so_far(self) -> tuple[Report, RunSeries | None]:
        """The report, and the history's series, of a run whose profiler is killed now."""
        record = with_warnings(self.record_so_far(), (_PROFILER_WAS_KILLED,))
        report = final_report(record, self._sampler.prepared.clock.wall_ns())
        return report, self._history_series(record)

    def _observed_run(self, *, ignored_sigchld: bool) -> RunObservation:
        """What the sampler has seen of a command."""
        sampler = self._sampler
        command = sampler.command
        observation = RunObservation(
            started_ns=sampler.started.started_wall_ns,
            finished_ns=command.last_read_ns,
            usage=sampler.samples.usage,
            demand=sampler.samples.demand,
            cpu_ns=command.cpu_ns,
            memory=evidence_from("samples", command.peak_bytes),
            cancelled_write_bytes=command.cancelled_write_bytes,
            warnings=kernel_memory_warnings(sampler.samples.usage),
        )
        if sampler.details is not None:
            processes = sampler.details.processes
            observation = replace(
                observation,
                processes=processes.largest_process_rows(),
                with_commands=processes.with_commands,
            )
        if not self._are_children_lost(ignored_sigchld=ignored_sigchld):
            return observation
        seconds = sum([process.cpu_seconds or 0 for process in observation.processes])
        listed_ns = round(NS_PER_SECOND * seconds)
        return replace(observation, cpu_ns=max(observation.cpu_ns, listed_ns), is_cpu_partial=True)

    # The end

    def observe_run(
        self, ending: CommandExit, finished_wall_ns: int, duration_ns: int
    ) -> RunObservation:
        """The measurements of the ended command, whose control group still exists."""
        prepared = self._sampler.prepared
        command = self._sampler.command
        group_peak = command.group_memory.final_peak()
        memory_kills, shared_oom_kills = self._memory_kills(group_peak)
        observed = self._observed_run(ignored_sigchld=ending.ignored_sigchld)
        memory = memory_evidence(
            command.peak_bytes,
            ending,
            group_peak,
            read_bytes=command.read_peak_bytes,
            marks=command.process_marks,
            had_several_processes=command.max_processes > 1 or command.has_hidden_processes,
            floor_bytes=prepared.floor_bytes,
            kernel_bytes=command.process_kernel_peak_bytes,
        )
        between_bytes = group_peak.peak_within_group_bytes(command.marked_bound_bytes)
        memory += evidence_from("shared memory", command.shared_bound_bytes, "unsure")
        memory += evidence_from("kernel memory", command.kernel_bound_bytes or None, "unsure")
        marked_bytes = max(mark_bytes_perhaps_of_files(memory), between_bytes)
        return replace(
            observed,
            finished_ns=finished_wall_ns,
            duration_ns=duration_ns,
            reaped=ending.reaped,
            was_only_process=ending.was_only_process,
            end=run_end_of_exit(
                ending.exit_code, finished_wall_ns, was_stopped=ending.is_stop_requested
            ),
            memory=memory,
            doubts=memory_doubts(
                choose_memory_peak(memory),
                observed.usage,
                command,
                # The samples' clock is not set during the run.
                finished_ns=self._sampler.started.started_wall_ns + duration_ns,
                counts_hidden=prepared.own_cgroup.counts_memory,
                marked_bytes=marked_bytes,
                throttling_limit_bytes=prepared.cgroups.throttling_limit_bytes(),
            ),
            group_peak_bytes=group_peak.size_bytes_of_all,
            memory_kills=memory_kills,
            shared_oom_kills=shared_oom_kills,
            marked_bytes=marked_bytes,
            has_block_io=proc.read_or_none("/proc/self/io") is not None,
            others_vcpu_used=self._others_vcpu_used(observed.cpu_ns, duration_ns),
        )

    def _others_vcpu_used(self, command_ns: int, duration_ns: int) -> Number | None:
        """What other programs used of the machine, by the command's CPU time and the profiler's."""
        used_seconds = read_own_usage().cpu_seconds - self._sampler.prepared.earlier_cpu_seconds
        own_ns = command_ns + round(NS_PER_SECOND * used_seconds)
        return rounded_number(
            others_vcpu_used(self._busy_before_ns, read_busy_ns, own_ns, duration_ns)
        )

    def _memory_kills(self, group_peak: GroupPeak) -> tuple[int | None, int | None]:
        """The kernel's kills of the command's processes, and those in the group in which this
        process was started, if the command has no own one: see :class:`RunObservation`.
        """
        own_kills = self._sampler.prepared.own_cgroup.oom_kills()
        if own_kills is None:
            shared_kills = self._shared_oom_kills()
            is_none_killed = shared_kills == 0 or self._has_machine_killed_none()
            return 0 if is_none_killed else None, shared_kills
        if own_kills or group_peak.includes_all_processes:
            return own_kills, None
        # The kernel may have killed a process that has left the group.
        return 0 if self._has_machine_killed_none() else None, None

    def _shared_oom_kills(self) -> int | None:
        """The kills since the start in the group in which this process was started."""
        before = self._sampler.prepared.oom_kills_before
        if before is None:
            return None
        return excess(self._sampler.prepared.cgroups.oom_kills(), before)

    def _has_machine_killed_none(self) -> bool:
        """Whether the kernel has killed no process of the whole machine since the start."""
        before = self._sampler.prepared.machine_oom_kills_before
        return before is not None and machine_oom_kills() == before

    def run_result(self, observation: RunObservation, ending: CommandExit) -> RunResult:
        """The result of the ended command."""
        plan = self._sampler.plan
        doubts = observation.doubts.sentences
        identity, missing = _with_ecs_task(self._identity, self._request)
        if (observation.duration_ns or 0) >= NS_PER_SECOND:  # a limit may have changed meanwhile
            self._sizes = read_limits(self._sampler.prepared.cgroups, self._identity.host)
        warnings = self._warnings(ending) + doubts + observation.doubts.unread
        warnings += observation.doubts.notes + missing
        draft = self._draft_of_samples(observation, identity, warnings)
        record = draft.build_record(collected_parts(plan.collectors, draft.run))
        now_ns = self._sampler.prepared.clock.wall_ns()
        if self._has_evidence(record) and not doubts:
            from profiler.sizing.advice import with_recommendation  # not for the shortest runs

            record = with_recommendation(record, plan.prices, time=format_ms(now_ns))
        record = _with_survivors(record, self._sampler.command.survivors)
        bound_mb = None
        if ending.was_only_process:
            bound_mb = bytes_to_mebibytes(ending.reaped.max_rss_bytes)
        return RunResult(
            exit_code=ending.exit_code,
            report=final_report(record, now_ns),
            series=self._history_series(record),
            stacks_line=plan.collectors.stacks_line(record),
            warnings=plan.collectors.startup_errors(),
            got_stop_signal=ending.got_stop_signal,
            memory_bound_mb=bound_mb,
        )

    def unprofiled_result(
        self, ending: CommandExit, finished_wall_ns: int, duration_ns: int, failure: str
    ) -> RunResult:
        """The result of an ended command whose profile failed: without measurements."""
        prepared = self._sampler.prepared
        warning = (
            f"The profiler failed ({truncate_text(failure, _MAX_FAILURE_CHARS)}): the command ran "
            "on without it, and nothing but its duration and exit code is known. If no low limit "
            "(ulimit) explains that, report it as a defect."
        )
        identity, missing = _with_ecs_task(self._identity, self._request)
        monitor = _monitor((warning, *missing), prepared)
        end = run_end_of_exit(
            ending.exit_code, finished_wall_ns, was_stopped=ending.is_stop_requested
        )
        started_ns = self._sampler.started.started_wall_ns
        try:
            record = build_unprofiled_record(identity, end, started_ns, duration_ns, monitor)
        # The task may be what the profile has failed at.
        except Exception:  # noqa: BLE001
            identity = self._identity
            record = build_unprofiled_record(identity, end, started_ns, duration_ns, monitor)
        return RunResult(
            exit_code=ending.exit_code,
            report=final_report(record, prepared.clock.wall_ns()),
            got_stop_signal=ending.got_stop_signal,
        )

    def _warnings(self, ending: CommandExit) -> tuple[str, ...]:
        """What is missing in the record, and why."""
        warnings = self._notices.warnings + self._clock_jumps.warnings
        if self._sampler.samples.failures:
            warnings += ("The command's processes could not be read in /proc.",)
        if self._are_children_lost(ignored_sigchld=ending.ignored_sigchld):
            warnings += (_CHILDREN_ARE_LOST,)
        return warnings + delay_warnings(ending)

    def _has_evidence(self, record: Record) -> bool:
        """Whether there is evidence for advice: a tick, a lack of memory, a task's size, a GPU."""
        if self._sampler.has_tick or record.likely_out_of_memory:
            return True
        return record.task_size != UNKNOWN_SIZE or bool(record.gpus)

    # The record

    def _draft_of_samples(
        self, observation: RunObservation, identity: RunIdentity, warnings: tuple[str, ...]
    ) -> RecordDraft:
        """The draft with the evidence of the samples, and the data about the profiler itself."""
        sampler = self._sampler
        details = sampler.details
        if details is not None:
            details.time.pass_cpu_waits_on(observation.usage.series)
        own = sampler.prepared.own_cgroup
        draft = draft_run_record(
            identity,
            observation,
            self._sizes,
            min_series_step_ms=sampler.min_series_step_ms,
            max_series_steps=2 * sampler.plan.series_points,
        )
        run = replace(
            draft.run,
            sampling=build_sampling(
                observation.usage,
                (CommandReader.name, own.name) if own.is_used else (CommandReader.name,),
                interval_ns=sampler.pace.kept_interval_ns,
                failures=sampler.samples.failures,
                missed=sampler.pace.missed_ticks,
            ),
            monitor=_monitor(warnings, sampler.prepared),
            notices=self._notices.raised_notices,
        )
        evidence = draft.evidence
        if details is not None:
            evidence += (_details_evidence(details, run, sampler.command.cpu_ns),)
        return replace(draft, run=run, evidence=evidence)

    def _are_children_lost(self, *, ignored_sigchld: bool) -> bool:
        """Whether the kernel gave the CPU time of some processes to nobody."""
        if self._sampler.command.has_lost_children:
            return True
        return ignored_sigchld and not self._sampler.prepared.own_cgroup.has_cpu_accounting

    def _history_series(self, record: Record) -> RunSeries | None:
        """A copy of the series that the history keeps; None without one."""
        series = self._sampler.samples.usage.series
        if series is None or not self._sampler.plan.max_history_steps:
            return None
        series = series.copy_within_limits(min_step_ms=self._sampler.min_series_step_ms)
        written_bytes = record.metrics.block_write_bytes
        if written_bytes is not None:
            series.lower_written_bytes(written_bytes)
        return series


def delay_warnings(ending: CommandExit) -> tuple[str, ...]:
    """A sentence if this process did not run for a while: only it knows when the command ended."""
    if not ending.delays_ns:
        return ()
    delays = format_duration(ending.delays_ns / NS_PER_MS)
    effect = "the command may have been stopped, too, and the duration includes that"
    if ending.end_delay_ns:
        earlier = format_duration(ending.end_delay_ns / NS_PER_MS)
        effect = f"the command may have ended up to {earlier} earlier than the report says"
    return (f"The profiler did not run for {delays}, as if stopped or frozen: {effect}.",)


def _details_evidence(details: Details, run: Record, cpu_ns: int) -> RunEvidence:
    """What the processes did over time; ``cpu_ns`` is their CPU time so far."""
    warnings: tuple[str, ...] = ()
    if run.status != "unknown":
        warnings = details.processes.unread_process_warnings(cpu_ns)
    activity = details.time.activity_so_far(run.metrics.duration_ms, cpu_ns)
    return RunEvidence(activity=activity, warnings=(*warnings, *details.time.defect_warnings))


def _with_survivors(record: Record, survivors: Sequence[ProcessReading]) -> Record:
    """Add a warning about processes that still run.

    This comes last: a helper may end a little after its parent.
    """
    if not survivors:
        return record
    from profiler.readers.linux.program_names import read_live_name  # short runs do without it

    live = (read_live_name(*process.identity) for process in survivors)
    counts = Counter(known_values(live))
    if not counts:
        return record
    programs: list[str] = []
    for name, count in counts.most_common():
        programs.append(name if count == 1 else f"{name} ×{count}")
    processes = counts.total()
    what = "1 process was" if processes == 1 else f"{processes} processes were"
    warning = (
        f"{what} still running when the command ended ({first_names(programs)}): the record does "
        "not cover what happened then."
    )
    return with_warnings(record, (warning,))


def _with_ecs_task(
    identity: RunIdentity, request: NoCall[TaskPlacement]
) -> tuple[RunIdentity, tuple[str, ...]]:
    """The identity with the ECS task, for which this waits, and a sentence if it is missing."""
    placement = request.result()
    is_missing = placement is None and request.was_made
    return replace(identity, placement=placement), (_TASK_IS_UNKNOWN,) if is_missing else ()


def _monitor(warnings: tuple[str, ...], prepared: PreparedRun) -> Monitor:
    used = read_own_usage()
    return Monitor(
        version=__version__,
        cpu_seconds=round(used.cpu_seconds - prepared.earlier_cpu_seconds, 3),
        max_rss_mb=used.max_rss_mb,
        warnings=warnings,
    )

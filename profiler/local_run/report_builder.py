"""Builds the reports of one run: the run so far, and its end."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.memory_evidence import MemoryPeak, evidence_from
from profiler.aggregation.process_tree_usage import lacks_memory
from profiler.aggregation.run_evidence import RunEvidence
from profiler.aggregation.task_record import build_sampling, pinned_memory_warnings
from profiler.collectors.collector import add_collected
from profiler.core.clock import ClockJumpDetector
from profiler.core.optional_math import max_known
from profiler.core.text import first_names
from profiler.core.threads import BackgroundCall
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.core.version import __version__
from profiler.local_run.command_reader import CommandReader
from profiler.local_run.command_supervisor import CommandExit
from profiler.local_run.local_notices import LocalNotices
from profiler.local_run.local_record import (
    Placement,
    RunIdentity,
    RunObservation,
    build_not_started_record,
    draft_run_record,
    memory_evidence,
    read_sizes,
    report,
)
from profiler.local_run.prepared_run import PreparedRun, StartFailure
from profiler.local_run.run_plan import RunResult
from profiler.local_run.sampler import Details, RunSampler
from profiler.readers.cgroup.hierarchy import machine_oom_kills
from profiler.readers.container_sample import ResourceLimits
from profiler.readers.linux import proc
from profiler.readers.linux.host import others_vcpu_used, read_busy_ns, read_own_usage
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.record_model import (
    Metrics,
    Monitor,
    Processor,
    Record,
    Report,
    with_warnings,
)
from profiler.record.units import MIB, as_number, format_memory, mebibytes

if TYPE_CHECKING:
    from profiler.aggregation.time_series import RunSeries

_CHILDREN_ARE_LOST = (
    "A process ignores the end of its children: their CPU time is known only up to the last "
    "sample before their end."
)
_MEMORY_IS_UNSURE = (
    "The memory peak may have been {} or more: how many pages the processes share or map again "
    "could not be read often enough."
)
_SHARED_MEMORY_IS_UNSURE = (
    "The memory peak may have been {}, and the average is a lower bound: files in memory (tmpfs, "
    "/dev/shm) and shared memory grew during the run, and it is unknown which program made them."
)
_AVERAGE_IS_UNSURE = (
    "The average memory use may have been {}: shared memory grew during the run, and it is unknown "
    "which program made it."
)
_KERNEL_MEMORY_IS_UNSURE = (
    "The memory peak may have been {}, and the average is a lower bound: the machine's kernel "
    "memory grew during the run, such as socket queues and pipes, perhaps by other programs."
)
_MEMORY_IS_IN_SWAP = (
    "Up to {} of the processes' memory was in swap: the memory values do not include it."
)
_PROCESSES_ARE_HIDDEN = (
    "The memory peak and average are lower bounds: /proc hides processes of another user from "
    "this one (mount option hidepid)."
)
_PROFILER_WAS_KILLED = (
    "The profiler was killed before the command ended: the values end with its last reading, and "
    "the command may have run on."
)


def not_started(prepared: PreparedRun, identity: RunIdentity, failure: StartFailure) -> RunResult:
    """The result of a command that could not be started."""
    now_ns = prepared.clock.wall_ns()
    monitor = _monitor((), prepared)
    record = build_not_started_record(identity, failure.exit_code, now_ns, monitor)
    return RunResult(
        exit_code=failure.exit_code, report=report(record, now_ns), startup_error=failure.reason
    )


class ReportBuilder(Struct, eq=False):
    """Builds the reports of one run that has started.

    ``request`` reads its ECS task, ``sizes`` are its limits. ``busy_before_ns`` is the CPU time
    that all programs of the machine had used when it started. ``clock_jumps`` are those since then.
    """

    _identity: RunIdentity
    _sampler: RunSampler
    _notices: LocalNotices
    _request: BackgroundCall[Placement | None] | None
    _sizes: ResourceLimits
    _busy_before_ns: int | None
    _clock_jumps: ClockJumpDetector

    # The run so far

    def record_so_far(self) -> Record:
        placement = None if self._request is None else self._request.result_so_far()
        return self._record(self._observed_so_far(), placement, self._notices.warnings)

    def so_far(self) -> "tuple[Report, RunSeries | None]":
        """The report, and the history's series, of a run whose profiler is killed now."""
        record = with_warnings(self.record_so_far(), (_PROFILER_WAS_KILLED,))
        return report(record, self._sampler.prepared.clock.wall_ns()), self._history_series(record)

    def _observed_so_far(self) -> RunObservation:
        """What the sampler has seen of a command that still runs."""
        sampler = self._sampler
        observation = RunObservation(
            started_ns=self._sampler.started.started_wall_ns,
            finished_ns=sampler.command.last_read_ns,
            usage=sampler.samples.usage,
            demand=sampler.samples.demand,
            cpu_ns=sampler.command.cpu_ns,
            memory=evidence_from("samples", sampler.command.peak_bytes),
            cancelled_write_bytes=sampler.command.cancelled_write_bytes,
        )
        if sampler.details is None:
            return observation
        processes = sampler.details.processes
        return replace(
            observation, processes=processes.top(), with_commands=processes.with_commands
        )

    # The end

    def observe(
        self, ending: CommandExit, finished_wall_ns: int, duration_ns: int
    ) -> RunObservation:
        """The measurements of the ended command, whose control group still exists."""
        prepared = self._sampler.prepared
        command = self._sampler.command
        group_peak = command.group_memory.final_peak()
        memory_kills = prepared.own_cgroup.oom_kills()
        shared_oom_kills = None
        if memory_kills is None:
            shared_oom_kills = self._shared_oom_kills()
            if shared_oom_kills == 0 or self._has_machine_killed_none():
                memory_kills = 0
        return replace(
            self._observed_so_far(),
            finished_ns=finished_wall_ns,
            duration_ns=duration_ns,
            ending=ending,
            memory=memory_evidence(
                command.peak_bytes,
                ending,
                group_peak,
                marks=command.marks,
                had_several_processes=command.max_processes > 1 or command.has_hidden_processes,
                floor_bytes=prepared.floor_bytes,
                page_table_bytes=command.page_table_peak_bytes,
            )
            + evidence_from("shared memory", command.shared_bound_bytes, "unsure")
            + evidence_from("kernel memory", command.kernel_bound_bytes or None, "unsure"),
            group_peak_bytes=group_peak.size_bytes,
            memory_kills=memory_kills,
            shared_oom_kills=shared_oom_kills,
            has_block_io=proc.read("/proc/self/io") is not None,
        )

    def _shared_oom_kills(self) -> int | None:
        """The kills since the start in the group in which this process was started."""
        before = self._sampler.prepared.oom_kills_before
        now = None if before is None else self._sampler.prepared.cgroups.oom_kills()
        if before is None or now is None:
            return None
        return max(now - before, 0)

    def _has_machine_killed_none(self) -> bool:
        """Whether the kernel has killed no process of the whole machine since the start."""
        before = self._sampler.prepared.machine_oom_kills_before
        return before is not None and machine_oom_kills() == before

    def result(self, observation: RunObservation, ending: CommandExit) -> RunResult:
        """The result of the ended command."""
        plan = self._sampler.plan
        doubts = self._memory_doubts(observation)
        warnings = self._warnings(ending) + doubts
        placement = None if self._request is None else self._request.result()
        if (observation.duration_ns or 0) >= NS_PER_SECOND:  # a limit may have changed meanwhile
            self._sizes = read_sizes(self._sampler.prepared.cgroups, self._identity.host)
        record = self._record(observation, placement, warnings)
        record = replace(record, metrics=self._with_bound(record.metrics, observation))
        now_ns = self._sampler.prepared.clock.wall_ns()
        if self._has_evidence(record) and not doubts:
            from profiler.sizing.advice import with_recommendation  # not for the shortest runs

            record = with_recommendation(record, plan.prices, time=format_ms(now_ns))
        record = _with_survivors(record, self._sampler.command.survivors)
        bound_mb = None
        if ending.was_only_process:
            bound_mb = mebibytes(ending.reaped.max_rss_bytes)
        return RunResult(
            exit_code=ending.exit_code,
            report=report(record, now_ns),
            series=self._history_series(record),
            stacks_line=plan.collectors.stacks_line(record),
            warnings=plan.collectors.startup_errors(),
            got_stop_signal=ending.got_stop_signal,
            memory_bound_mb=bound_mb,
        )

    def _memory_doubts(self, observation: RunObservation) -> tuple[str, ...]:
        """Why the command may have needed notably more memory: one sentence for each reason."""
        peak = observation.peak
        command = self._sampler.command
        doubts = tuple(sentence for _, sentence in self._bounds(peak))
        most_bytes = max(peak.size_bytes or 0, command.shared_bound_bytes or 0)
        average_doubts = _average_doubts(observation, command.average_bound_bytes, most_bytes)
        if peak.source != "sampled":
            return doubts + average_doubts
        doubts += pinned_memory_warnings(observation.usage)
        if not doubts:  # else they say it
            doubts += average_doubts
        if command.has_hidden_processes and not self._sampler.prepared.own_cgroup.counts_memory:
            doubts += (_PROCESSES_ARE_HIDDEN,)
        return doubts

    def _bounds(self, peak: MemoryPeak) -> Iterator[tuple[float, str]]:
        """How much the command may have needed, where that is notably more than the peak, and
        why.
        """
        command = self._sampler.command
        peak_bytes = peak.size_bytes or 0
        swap_bytes = command.swap_peak_bytes
        if lacks_memory(peak_bytes, peak_bytes + swap_bytes):
            sentence = _MEMORY_IS_IN_SWAP.format(format_memory(swap_bytes / MIB))
            yield peak_bytes + swap_bytes, sentence
        if peak.source != "sampled":
            return
        for bound_bytes, sentence in (
            (command.memory_bound_bytes, _MEMORY_IS_UNSURE),
            (command.shared_bound_bytes or 0, _SHARED_MEMORY_IS_UNSURE),
            (command.kernel_bound_bytes, _KERNEL_MEMORY_IS_UNSURE),
        ):
            if lacks_memory(peak_bytes, bound_bytes):
                yield bound_bytes, sentence.format(format_memory(bound_bytes / MIB))

    def _with_bound(self, metrics: Metrics, observation: RunObservation) -> Metrics:
        """With the most that the command may have needed, by all doubts that know it."""
        bounds_mb = [mebibytes(bound_bytes) for bound_bytes, _ in self._bounds(observation.peak)]
        bound_mb = max_known(metrics.memory_used_bound_mb, *bounds_mb)
        return replace(metrics, memory_used_bound_mb=bound_mb)

    def _warnings(self, ending: CommandExit) -> tuple[str, ...]:
        """What is missing in the record, and why."""
        warnings = self._notices.warnings + self._clock_jumps.warnings
        if self._sampler.samples.failures:
            warnings += ("The command's processes could not be read in /proc.",)
        if self._are_children_lost(ending):
            warnings += (_CHILDREN_ARE_LOST,)
        return warnings

    def _has_evidence(self, record: Record) -> bool:
        """Whether there is evidence for advice: a tick, a lack of memory, a task's size, a GPU."""
        if self._sampler.has_tick or record.likely_out_of_memory:
            return True
        return record.task_size is not None or bool(record.gpus)

    # The record

    def _record(
        self, observation: RunObservation, placement: Placement | None, warnings: tuple[str, ...]
    ) -> Record:
        """The record of what was observed until now, with the evidence of all collectors."""
        plan = self._sampler.plan
        sampler = self._sampler
        details = sampler.details
        if self._are_children_lost(observation.ending):
            seconds = sum([process.cpu_seconds or 0 for process in observation.processes])
            listed_ns = round(NS_PER_SECOND * seconds)
            observation = replace(
                observation, cpu_ns=max(observation.cpu_ns, listed_ns), is_cpu_partial=True
            )
        if details is not None:
            details.time.flush(observation.usage.series)
        own = self._sampler.prepared.own_cgroup
        sources = (CommandReader.name, own.name) if own.is_used else (CommandReader.name,)
        draft = draft_run_record(
            replace(self._identity, placement=placement),
            observation,
            self._sizes,
            build_sampling(
                observation.usage,
                sources,
                interval_ns=sampler.pace.kept_interval_ns,
                failures=sampler.samples.failures,
                missed=sampler.pace.missed,
            ),
            monitor=_monitor(warnings, self._sampler.prepared),
            min_series_step_ms=sampler.min_series_step_ms,
            max_series_steps=2 * plan.series_points,
        )
        processor = self._processor(draft.run, observation)
        draft.run = replace(draft.run, notices=self._notices.raised, processor=processor)
        if details is not None:
            draft.add(_details_evidence(details, draft.run, sampler.command.cpu_ns))
        add_collected(draft, plan.collectors)
        return draft.record()

    def _processor(self, run: Record, observation: RunObservation) -> Processor | None:
        """The processor with what other programs used of it; without that for a run so far."""
        if run.processor is None or run.monitor is None or observation.duration_ns is None:
            return run.processor
        profiler_ns = round(NS_PER_SECOND * (run.monitor.cpu_seconds or 0))
        others = others_vcpu_used(
            self._busy_before_ns,
            read_busy_ns,
            observation.cpu_ns + profiler_ns,
            observation.duration_ns,
        )
        return replace(run.processor, others_vcpu_used=as_number(others))

    def _are_children_lost(self, ending: CommandExit | None) -> bool:
        """Whether the kernel gave the CPU time of some processes to nobody."""
        if self._sampler.command.has_lost_children:
            return True
        if ending is None or self._sampler.prepared.own_cgroup.has_cpu_accounting:
            return False
        return ending.ignored_sigchld

    def _history_series(self, record: Record) -> "RunSeries | None":
        """A copy of the series that the history keeps; None without one."""
        series = self._sampler.samples.usage.series
        if series is None or not self._sampler.plan.max_history_steps:
            return None
        series = series.copy(min_step_ms=self._sampler.min_series_step_ms)
        written_bytes = record.metrics.block_write_bytes
        if written_bytes is not None:
            series.limit_written(written_bytes)
        return series


def _average_doubts(
    observation: RunObservation, unassigned_bytes: float, most_bytes: float
) -> tuple[str, ...]:
    """Why the average may be too low, although the peak is right: a segment of shared memory that
    its maker has filled, and left. No average is above ``most_bytes``.
    """
    memory = observation.usage.run.memory_bytes.distribution()
    average_bytes = 0.0 if memory is None else memory.avg or 0.0
    bound_bytes = min(average_bytes + unassigned_bytes, most_bytes)
    if not lacks_memory(average_bytes, bound_bytes):
        return ()
    return (_AVERAGE_IS_UNSURE.format(format_memory(bound_bytes / MIB)),)


def _details_evidence(details: Details, run: Record, cpu_ns: int) -> RunEvidence:
    """What the processes did over time; ``cpu_ns`` is their CPU time so far."""
    warnings: tuple[str, ...] = ()
    if run.status != "unknown":
        warnings = details.processes.warnings(cpu_ns)
    activity = details.time.activity(run.metrics.duration_ms, cpu_ns)
    return RunEvidence(activity=activity, warnings=(*warnings, *details.time.warnings))


def _with_survivors(record: Record, survivors: Sequence[ProcessReading]) -> Record:
    """Add a warning about processes that still run.

    This comes last: a helper may end a little after its parent.
    """
    if not survivors:
        return record
    from profiler.readers.linux.program_names import read_live_name  # short runs do without it

    live = (read_live_name(*process.identity) for process in survivors)
    counts = Counter(name for name in live if name is not None)
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


def _monitor(warnings: tuple[str, ...], prepared: PreparedRun) -> Monitor:
    used = read_own_usage()
    return Monitor(
        version=__version__,
        cpu_seconds=round(used.cpu_seconds - prepared.earlier_cpu_seconds, 3),
        max_rss_mb=used.max_rss_mb,
        warnings=warnings,
    )

"""Samples a prepared command until its first process ends; builds its report.

Writes to no standard stream.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.memory_evidence import observed
from profiler.aggregation.process_tree_usage import lacks_memory
from profiler.aggregation.run_evidence import RunEvidence
from profiler.aggregation.task_record import build_sampling
from profiler.aggregation.time_series import RunSeries
from profiler.collectors.collector import COMMAND, Collectors, add_collected
from profiler.core.optional_math import sum_known
from profiler.core.text import first_names, without_surrogates
from profiler.core.threads import BackgroundCall
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.core.version import __version__
from profiler.local_run.command_supervisor import CommandExit, Supervisor, become_subreaper
from profiler.local_run.local_record import (
    Placement,
    RunIdentity,
    RunObservation,
    build_not_started_record,
    draft_run_record,
    effective_sizes,
    memory_evidence,
    report,
)
from profiler.local_run.prepared_run import PreparedRun, StartedRun, StartFailure, family_name
from profiler.local_run.sampler import (
    FINEST_NS,
    CommandSampler,
    Reading,
    SampleBuffer,
    SamplingPace,
    UnrelatedChildren,
)
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.linux import proc
from profiler.readers.linux.host import (
    others_vcpu_used,
    read_busy_ns,
    read_host,
    read_own_usage,
    with_processor,
)
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.record_model import Monitor, Processor, Record, Report, with_warnings
from profiler.record.units import MIB, as_number, format_memory, mebibytes

if TYPE_CHECKING:
    from profiler.aggregation.process_table import ProcessTotals
    from profiler.aggregation.time_breakdown import TimeAccount
    from profiler.local_run.local_notices import LocalNotices
    from profiler.readers.linux.thread_times import ThreadReader
    from profiler.readers.linux.waited_target import Wait
    from profiler.record.notice_model import NoticeLine
    from profiler.sizing.prices import PriceOverrides

_CHILDREN_ARE_LOST = (
    "A process ignores the end of its children: their CPU time is known only up to the last "
    "sample before their end."
)
_MEMORY_IS_UNSURE = (
    "The memory peak may have been {} or more: how many pages the processes share could not be "
    "read often enough."
)
_PROFILER_WAS_KILLED = (
    "The profiler was killed before the command ended: the values end with its last reading, and "
    "the command may have run on."
)
# A run that ends sooner has no notices, and does not import their modules.
_FIRST_NOTICES_NS, _USUAL_STUCK_MINUTES = 5 * NS_PER_SECOND, 10


class RunPlan(Struct, frozen=True, kw_only=True):
    """How a command is run and profiled.

    The caller stops the collectors: the report need not wait for it.

    ``find_labels`` runs after the command has started; ``labels`` replace its own.
    ``fetch_placement`` reads the ECS task in a background thread; a result after one second is
    ignored. ``series_points`` is half the largest number of steps of the record's time series,
    ``max_history_steps`` the largest number of the history's; 0 for none. ``pause`` is called
    before the profiler stops with the command. ``keep_so_far`` writes down the run so far, if due.
    """

    name: str | None
    interval_seconds: float
    labels: Mapping[str, str]
    find_labels: Callable[[], Mapping[str, str]]
    fetch_placement: Callable[[], Placement | None] | None
    collectors: Collectors
    prices: "PriceOverrides | None"
    series_points: int
    max_history_steps: int = 0
    stuck_minutes: float
    expected_seconds: float | None
    on_notice: "Callable[[NoticeLine], None]"
    on_started: Callable[[], None] = lambda: None
    on_sample: Callable[[ContainerSample], None] = lambda _: None
    show: Callable[[ContainerSample, Sequence[ProcessReading]], None] = lambda sample, processes: (  # noqa: ARG005
        None
    )
    pause: Callable[[], None] = lambda: None
    keep_so_far: Callable[[Callable[[], tuple[Report, RunSeries | None]]], None] = lambda _: None


class RunResult(Struct, frozen=True, kw_only=True):
    """The result of a run.

    ``series`` is for the history; ``warnings``: what was required has no readings.
    """

    exit_code: int
    report: Report
    series: RunSeries | None = None
    stacks_line: bytes | None = None
    startup_error: str | None = None
    warnings: tuple[str, ...] = ()
    got_stop_signal: bool = False
    memory_bound_mb: float | None = None


class _Details(Struct):
    """What a full reading measures in addition.

    The shortest runs have none, and do not import the modules.
    """

    processes: "ProcessTotals"
    threads: "ThreadReader"
    time: "TimeAccount"


def run(prepared: PreparedRun, plan: RunPlan) -> RunResult:
    """Run the prepared command to its end."""
    become_subreaper()
    started = prepared.execute()
    identity = RunIdentity(
        task_id=prepared.run_id,
        family=family_name(plan.name, prepared.held.words),
        is_named=plan.name is not None,
        labels={name: without_surrogates(value) for name, value in plan.labels.items()},
        host=read_host(),
    )
    if isinstance(started, StartFailure):
        now_ns = prepared.clock.wall_ns()
        record = build_not_started_record(
            identity, started.exit_code, now_ns, _monitor((), prepared)
        )
        return RunResult(
            exit_code=started.exit_code, report=report(record, now_ns), startup_error=started.reason
        )
    return _Session(prepared, started, identity, plan).sample_until_exit()


class _Session:
    """One run, from the start of its command to the report."""

    def __init__(
        self, prepared: PreparedRun, started: StartedRun, identity: RunIdentity, plan: RunPlan
    ) -> None:
        self._prepared = prepared
        self._started = started
        self._plan = plan
        self._clock = prepared.clock
        self._interval_ns = round(plan.interval_seconds * NS_PER_SECOND)
        self._warnings: tuple[str, ...] = ()
        self._placement_call = None
        if plan.fetch_placement is not None:
            self._placement_call = BackgroundCall(plan.fetch_placement, self._clock, 1.0)
        labels = {**plan.find_labels(), **identity.labels}
        self._identity = replace(identity, labels=labels, host=with_processor(identity.host))
        self._usable_cpus = usable_cpus = len(os.sched_getaffinity(0))
        self._sizes = self._read_sizes()
        unrelated_children = UnrelatedChildren(prepared.preexisting_children, plan.collectors)
        self._supervisor = Supervisor(started.pid, self._clock, unrelated_children, plan.pause)
        self._sampler = CommandSampler(prepared, started, unrelated_children, usable_cpus)
        points = max(plan.series_points, plan.max_history_steps // 2)
        self._samples = SampleBuffer(
            self._interval_ns, started.started_wall_ns, self._sizes.vcpu, points
        )
        self._busy_before_ns = read_busy_ns()
        self._details: _Details | None = None
        self._notices: LocalNotices | None = None
        self._looks_for_notices = True
        may_be_soon = (
            plan.expected_seconds is not None or 0 < plan.stuck_minutes < _USUAL_STUCK_MINUTES
        )
        self._first_notices_ns = 0 if may_be_soon else _FIRST_NOTICES_NS
        self._pace = SamplingPace(started.started_ns, self._interval_ns, time.thread_time_ns())
        self._has_tick = self._has_shown = False

    def sample_until_exit(self) -> RunResult:
        """Sample until the command has ended, then collect the totals and build the report."""
        plan, supervisor = self._plan, self._supervisor
        began_ns = time.thread_time_ns()
        plan.on_started()
        for collector in plan.collectors.threads:
            collector.start()
        self._pace.leave_out(time.thread_time_ns() - began_ns)
        # A command that ends sooner writes no file.
        first_write_ns = self._started.started_ns + min(NS_PER_SECOND // 10, self._interval_ns // 2)
        while not supervisor.wait_until_exit(
            self._pace.next_ns(self._clock.monotonic_ns(), time.thread_time_ns())
        ):
            now_ns = self._clock.monotonic_ns()
            self._read(self._pace.begin(now_ns), now_ns)
            if now_ns >= first_write_ns:
                plan.keep_so_far(self._so_far)
        finished_ns, finished_wall_ns = self._clock.monotonic_ns(), self._clock.wall_ns()
        details = self._details if self._sampler.max_processes else None
        # This must come before the command is reaped.
        last_threads = None if details is None else details.threads.read_last(finished_ns)
        if details is not None:
            ended = self._sampler.sample_ended(supervisor.reaped.cpu_ns)
            details.processes.add(ended, self._read_ns(finished_ns), cpu_ns=self._sampler.cpu_ns)
        ending = supervisor.finish()
        final = self._sampler.final_sample(self._read_ns(finished_ns), ending.reaped.cpu_ns)
        if details is not None and last_threads is not None:
            details.time.finish(
                final.read_ns, self._sampler.cpu_ns, last_threads, self._samples.usage.series
            )
        self._samples.finish(final, finished_ns)
        observed = self._observation(
            ending, finished_wall_ns, finished_ns - self._started.started_ns
        )
        plan.collectors.final_readings()
        self._samples.add_devices(plan.collectors, finished_ns)
        return self._result(observed, ending)

    def _read(self, reading: Reading, now_ns: int) -> None:
        if reading == "quick":
            quick = self._sampler.sample_quickly(self._read_ns(now_ns))
            if quick is not None:
                self._samples.add_quick(quick, now_ns)
            return
        is_tick = reading == "tick"
        began_ns = time.thread_time_ns()
        details = self._details = self._details or self._new_details()
        self._pace.leave_out(time.thread_time_ns() - began_ns)
        now_ns = self._clock.monotonic_ns()  # the imports take some milliseconds
        read_ns, reaped = self._read_ns(now_ns), self._supervisor.reaped
        sample = self._sampler.sample(read_ns, reaped.cpu_ns, reaped.blocks)
        self._pace.leave_out(self._sampler.take_pages_cpu_ns())
        self._samples.add(sample, now_ns)
        if is_tick:
            self._samples.add_devices(self._plan.collectors, now_ns)
        processes = self._sampler.processes
        details.processes.add(
            processes, read_ns if processes else None, cpu_ns=self._sampler.cpu_ns
        )
        if not isinstance(sample, Unavailable):
            threads = details.threads.read(processes, now_ns)
            if threads is not None:
                details.time.add(read_ns, self._sampler.cpu_ns, threads, self._samples.usage.series)
            if is_tick:
                self._plan.on_sample(sample)
                if (
                    self._looks_for_notices
                    and now_ns - self._started.started_ns >= self._first_notices_ns
                ):
                    self._look_for_notices(sample, details.time.recent_waits.longest)
            began_ns = time.thread_time_ns()
            self._plan.show(sample, processes)
            if not self._has_shown:  # the first time it imports the view
                self._pace.leave_out(time.thread_time_ns() - began_ns)
            self._has_shown = True
        self._has_tick = self._has_tick or is_tick

    def _look_for_notices(
        self, sample: ContainerSample, longest_wait: "Callable[[int], Wait | None]"
    ) -> None:
        try:
            if self._notices is None:
                from profiler.local_run.local_notices import (
                    LocalNotices,
                )  # the shortest runs have no sample

                plan, started = self._plan, self._started
                interfaces = f"/proc/{started.pid}/net/dev"
                self._notices = LocalNotices(
                    started.started_wall_ns,
                    self._interval_ns,
                    lambda: sum_known(
                        *(
                            proc.parse_network(proc.read(interfaces) or b"", with_loopback=True)
                            or ()
                        )
                    ),
                    stuck_minutes=plan.stuck_minutes,
                    expected_seconds=plan.expected_seconds,
                )
            for line in self._notices.look(
                sample, self._sizes.memory_bytes, self._record_so_far, longest_wait
            ):
                self._plan.on_notice(line)
        except Exception as error:  # noqa: BLE001  a defect of the notices must not end the sampling
            self._looks_for_notices = False
            self._warnings += (
                (
                    f"The notifications failed ({type(error).__name__}): report this as a defect "
                    "of task-profiler."
                ),
            )

    def _new_details(self) -> _Details:
        import profiler.readers.linux.program_names  # noqa: F401
        from profiler.aggregation.process_table import ProcessTotals
        from profiler.aggregation.series_by_command import SeriesByCommand
        from profiler.aggregation.time_breakdown import TimeAccount
        from profiler.readers.cgroup.group_pressure import open_group_pressure
        from profiler.readers.linux.sockets import ask_peer_inode
        from profiler.readers.linux.thread_times import ThreadReader

        started_ns, interval_ns, plan = self._started.started_wall_ns, self._interval_ns, self._plan
        offset_ns = self._read_ns(0)

        def new_series() -> SeriesByCommand[Any]:
            return SeriesByCommand(started_ns, interval_ns, plan.series_points, finest_ns=FINEST_NS)

        def idle_ns(start_ns: int, end_ns: int) -> int:
            return plan.collectors.idle_gpu_ns(COMMAND, start_ns - offset_ns, end_ns - offset_ns)

        return _Details(
            processes=ProcessTotals(make_series=new_series if plan.series_points else None),
            threads=ThreadReader(
                time.thread_time_ns,
                peer_inode=ask_peer_inode,
                open_pressure=open_group_pressure,
            ),
            time=TimeAccount(started_ns, interval_ns, idle_ns),
        )

    def _so_far(self) -> tuple[Report, RunSeries | None]:
        record = with_warnings(self._record_so_far(), (_PROFILER_WAS_KILLED,))
        return report(record, self._clock.wall_ns()), self._history_series(record)

    def _observed_so_far(self) -> RunObservation:
        return RunObservation(
            started_ns=self._started.started_wall_ns,
            finished_ns=self._sampler.last_read_ns,
            usage=self._samples.usage,
            demand=self._samples.demand,
            cpu_ns=self._sampler.cpu_ns,
            memory=observed("samples", self._sampler.peak_bytes),
            processes=() if self._details is None else self._details.processes.top(),
            with_commands=None if self._details is None else self._details.processes.with_commands,
        )

    def _record_so_far(self) -> Record:
        placement = None if self._placement_call is None else self._placement_call.result_so_far()
        return self._record(self._observed_so_far(), placement, self._warnings)

    def _observation(
        self, ending: CommandExit, finished_wall_ns: int, duration_ns: int
    ) -> RunObservation:
        sampler = self._sampler
        group_peak = sampler.group_memory.final_peak()
        memory_kills = self._prepared.own_cgroup.oom_kills()
        shared_oom_kills = (
            None  # the kills since the start in the group in which this process was started
        )
        if memory_kills is None and self._prepared.oom_kills_before is not None:
            now = self._prepared.cgroups.oom_kills()
            shared_oom_kills = (
                None if now is None else max(now - self._prepared.oom_kills_before, 0)
            )
        return replace(
            self._observed_so_far(),
            finished_ns=finished_wall_ns,
            duration_ns=duration_ns,
            ending=ending,
            memory=memory_evidence(
                sampler.peak_bytes,
                ending,
                group_peak,
                had_several_processes=sampler.max_processes > 1,
                floor_bytes=self._prepared.floor_bytes,
            ),
            group_peak_bytes=group_peak.size_bytes,
            memory_kills=memory_kills,
            shared_oom_kills=shared_oom_kills,
            has_block_io=proc.read("/proc/self/io") is not None,
        )

    def _record(
        self, observed: RunObservation, placement: Placement | None, warnings: tuple[str, ...]
    ) -> Record:
        own = self._prepared.own_cgroup
        details = self._details
        if self._are_children_lost(observed.ending):
            listed_ns = round(
                NS_PER_SECOND * sum([process.cpu_seconds or 0 for process in observed.processes])
            )
            observed = replace(
                observed, cpu_ns=max(observed.cpu_ns, listed_ns), is_cpu_partial=True
            )
        if details is not None:
            details.time.flush(observed.usage.series)
        draft = draft_run_record(
            replace(self._identity, placement=placement),
            observed,
            self._sizes,
            build_sampling(
                observed.usage,
                (CommandSampler.name, own.name) if own.is_used else (CommandSampler.name,),
                interval_ns=self._pace.kept_interval_ns,
                failures=self._samples.failures,
                missed=self._pace.missed,
            ),
            monitor=_monitor(warnings, self._prepared),
            min_series_step_ms=self._min_series_step_ms,
            max_series_steps=2 * self._plan.series_points,
        )
        if self._notices is not None:
            draft.run = replace(draft.run, notices=self._notices.raised)
        draft.run = replace(draft.run, processor=self._processor(draft.run.processor, observed))
        if details is not None:
            draft.add(_details_evidence(details, draft.run, self._sampler.cpu_ns))
        add_collected(draft, self._plan.collectors)
        return draft.record()

    def _processor(self, processor: Processor | None, observed: RunObservation) -> Processor | None:
        """The processor with what other programs used of it; at the end, not of a run so far."""
        if processor is None or observed.duration_ns is None:
            return processor
        own_ns = observed.cpu_ns + time.process_time_ns()
        others = others_vcpu_used(
            self._busy_before_ns, read_busy_ns(), own_ns, observed.duration_ns
        )
        return replace(processor, others_vcpu_used=as_number(others))

    def _are_children_lost(self, ending: CommandExit | None) -> bool:
        ignores = (
            ending is not None
            and ending.ignored_sigchld
            and not self._prepared.own_cgroup.has_cpu_accounting
        )
        return ignores or self._sampler.has_lost_children

    def _result(self, observed: RunObservation, ending: CommandExit) -> RunResult:
        plan = self._plan
        warnings = self._warnings
        if self._samples.failures:
            warnings += ("The command's processes could not be read in /proc.",)
        if self._are_children_lost(ending):
            warnings += (_CHILDREN_ARE_LOST,)
        bound_bytes = self._sampler.memory_bound_bytes
        is_unsure = observed.peak.source == "sampled" and lacks_memory(
            observed.peak.size_bytes or 0, bound_bytes
        )
        if is_unsure:
            warnings += (_MEMORY_IS_UNSURE.format(format_memory(bound_bytes / MIB)),)
        placement = None if self._placement_call is None else self._placement_call.result()
        self._sizes = self._read_sizes()  # a limit may have changed during the run
        record = self._record(observed, placement, warnings)
        now_ns = self._clock.wall_ns()
        # There is evidence for advice: a tick, a lack of memory, the size of a task, or a GPU.
        has_evidence = (
            self._has_tick
            or record.likely_out_of_memory
            or record.task_size is not None
            or record.gpus
        )
        if has_evidence and not is_unsure:
            from profiler.sizing.advice import with_recommendation  # not for the shortest runs

            record = with_recommendation(record, plan.prices, time=format_ms(now_ns))
        record = _with_survivors(record, self._sampler.survivors)
        return RunResult(
            exit_code=ending.exit_code,
            report=report(record, now_ns),
            series=self._history_series(record),
            stacks_line=plan.collectors.stacks_line(record),
            warnings=plan.collectors.startup_errors(),
            got_stop_signal=ending.got_stop_signal,
            memory_bound_mb=mebibytes(ending.reaped.max_rss_bytes)
            if ending.was_only_process
            else None,
        )

    def _read_sizes(self) -> ResourceLimits:
        return effective_sizes(
            self._prepared.cgroups.limits(), self._identity.host, self._usable_cpus
        )

    def _history_series(self, record: Record) -> RunSeries | None:
        series = self._samples.usage.series if self._plan.max_history_steps else None
        if series is None:
            return None
        series = series.copy(min_step_ms=self._min_series_step_ms)
        written_bytes = record.metrics.block_write_bytes
        if written_bytes is not None:
            series.limit_written(written_bytes)
        return series

    @property
    def _min_series_step_ms(self) -> float:
        """The steps of the time series are not much shorter than those between the samples."""
        usage = self._samples.usage
        if usage.last_read_ns is None:
            return 0.0
        mean_ns = (usage.last_read_ns - self._started.started_wall_ns) / usage.samples
        return min(0.75 * mean_ns, self._interval_ns) / NS_PER_MS

    def _read_ns(self, monotonic_ns: int) -> int:
        """Convert a monotonic time to wall time, without the clock changes since the start."""
        return self._started.started_wall_ns + monotonic_ns - self._started.started_ns


def _details_evidence(details: _Details, run: Record, cpu_ns: int) -> RunEvidence:
    """What the processes did over time; ``cpu_ns`` is their CPU time so far."""
    warnings: tuple[str, ...] = ()
    if run.status != "unknown":
        warnings = details.processes.warnings(cpu_ns)
    activity = details.time.activity(run.metrics.duration_ms, cpu_ns)
    return RunEvidence(activity=activity, warnings=warnings)


def _with_survivors(record: Record, survivors: Iterable[ProcessReading]) -> Record:
    """Add a warning about processes that still run.

    This comes last: a helper may end a little after its parent.
    """
    from profiler.readers.linux.program_names import read_live_name  # short runs do without it

    live = (read_live_name(*process.identity) for process in survivors)
    names = [name for name in live if name is not None]
    if not names:
        return record
    listed = first_names(
        [name if count == 1 else f"{name} ×{count}" for name, count in Counter(names).most_common()]
    )
    what = "1 process was" if len(names) == 1 else f"{len(names)} processes were"
    warning = (
        f"{what} still running when the command ended ({listed}): the record does not cover what "
        "happened then."
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

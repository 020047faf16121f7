"""``task-profiler run``: starts a prepared command, samples it until it ends, and builds its report.

The run ends with the command's first process. Nothing here writes to the standard streams.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.task_record import ResourceLimits
from profiler.aggregation.usage_by_command import ProcessTotals
from profiler.collectors.collector import Collector, final_readings, with_collected
from profiler.core.clock import Ticker
from profiler.core.text import without_surrogates
from profiler.core.threads import BackgroundCall
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.core.version import __version__
from profiler.local_run.command_supervisor import CommandExit, Supervisor, become_subreaper
from profiler.local_run.labels import merge_labels
from profiler.local_run.launch import StartFailure, Words, shorten_name
from profiler.local_run.local_record import (
    Placement,
    RunFacts,
    RunIdentity,
    RunObservation,
    RunSoFar,
    RunSpan,
    build_not_started_record,
    build_run_record,
    build_sampling,
    build_unfinished_record,
    effective_sizes,
    may_have_failed_to_allocate,
    report,
    resolve_peak,
)
from profiler.local_run.prepared_run import PreparedRun, StartedRun
from profiler.local_run.sampler import CommandSampler, SampleBuffer, UnrelatedChildren
from profiler.readers import Unavailable
from profiler.readers.ecs.container_stats import ContainerSample
from profiler.readers.linux import proc
from profiler.readers.linux.host import read_host, read_own_usage
from profiler.readers.linux.process_tree import ProcessReading, ProcessTree
from profiler.record.model import Monitor, Process, Record, Report, Sampling
from profiler.record.units import MIB
from profiler.settings import DEFAULT_SERIES_POINTS
from profiler.sizing.prices import PriceOverrides

_ORPHANS_ARE_LOST = "Orphans of the command could not be tracked (prctl was refused); their CPU time may be missing."
_CHILDREN_ARE_LOST = (
    "The command ignores SIGCHLD: the CPU time of its children is known only up to the last sample before their end."
)
_PLACEMENT_TIMEOUT_SECONDS = 1.0
_PROFILER_WAS_KILLED = (
    "The profiler was killed before the command ended: the values end with its last reading, and the command may have "
    "run on."
)
_MAX_NAMES_SHOWN = 5
# A command that ends sooner costs no file.
_FIRST_WRITE_NS = NS_PER_SECOND // 10
_NO_PROCESS_FOLDER = "The command's processes could not be read in /proc."

OnSample = Callable[[ContainerSample], None]


def fan_out(listeners: Sequence[OnSample]) -> OnSample:
    """Return one listener that passes each sample to all."""

    def notify_all(sample: ContainerSample) -> None:
        for listener in listeners:
            listener(sample)

    return notify_all


class RunContext(Struct, frozen=True, kw_only=True):
    """What ``run`` uses besides the command itself.

    Args:
        find_labels: Determines the default labels after the command has started.
        fetch_placement: Reads the ECS task in a background thread; None outside of ECS. A result after one second is
            ignored.
        collectors: The collectors of accelerators. The caller stops them, because that may take a while and the report
            need not wait for it.
        prices: The prices of the settings.
        series_points: Half the largest number of steps of the time series; 0 for none.
        pause: Called before the profiler stops because the terminal stopped the command.
        keep_so_far: Writes down the report of the run so far, if that is due, for the case that the profiler is killed.
    """

    find_labels: Callable[[], Mapping[str, str]]
    fetch_placement: Callable[[], Placement | None] | None = None
    collectors: tuple[Collector, ...] = ()
    prices: PriceOverrides = PriceOverrides()
    series_points: int = DEFAULT_SERIES_POINTS
    pause: Callable[[], None] = lambda: None
    keep_so_far: Callable[[Callable[[], Report]], None] = lambda _: None


class RunRequest(Struct, frozen=True, kw_only=True):
    """The command to run, and the options of the run."""

    argv: Words
    family: str | None = None
    interval_seconds: float = 1.0
    labels: Mapping[str, str] = {}


class RunResult(Struct, frozen=True, kw_only=True):
    """The result of a run.

    ``exit_code`` is the exit code for this process. ``startup_error`` is a sentence if the command did not start.
    ``warnings`` are sentences about required accelerators without readings.
    """

    exit_code: int
    report: Report
    startup_error: str | None = None
    warnings: tuple[str, ...] = ()


def run(request: RunRequest, prepared: PreparedRun, on_sample: OnSample, context: RunContext) -> RunResult:
    """Run the prepared command to its end. ``on_sample`` receives every sample at once."""
    warnings = () if become_subreaper() else (_ORPHANS_ARE_LOST,)
    identity = RunIdentity(
        task_id=prepared.run_id,
        family=_family_name(request),
        is_named=request.family is not None,
        labels={name: without_surrogates(value) for name, value in request.labels.items()},
        host=read_host(),
    )
    started = prepared.execute()
    if isinstance(started, StartFailure):
        now_ns = prepared.clock.wall_ns()
        record = build_not_started_record(identity, started.exit_code, now_ns, _monitor(warnings))
        return RunResult(exit_code=started.exit_code, report=report(record, now_ns), startup_error=started.reason)
    session = _Session(prepared, started, identity, round(request.interval_seconds * NS_PER_SECOND), warnings)
    return session.sample_until_exit(on_sample, context)


class _Session:
    """One run, from the start of its command to the report."""

    def __init__(
        self,
        prepared: PreparedRun,
        started: StartedRun,
        identity: RunIdentity,
        interval_ns: int,
        warnings: tuple[str, ...],
    ) -> None:
        self._prepared = prepared
        self._started = started
        self._identity = identity
        self._clock = prepared.clock
        self._interval_ns = interval_ns
        self._warnings = warnings
        self._usable_cpus = len(os.sched_getaffinity(0))

    def sample_until_exit(self, on_sample: OnSample, context: RunContext) -> RunResult:
        """Sample until the command has ended, then collect the totals and build the report."""
        placement_call = self._start_placement_call(context)
        labels = merge_labels(context.find_labels(), self._identity.labels)
        prepared, started = self._prepared, self._started
        unrelated_children = UnrelatedChildren(prepared.preexisting_children, context.collectors)
        supervisor = Supervisor(started.command.pid, self._clock, unrelated_children, context.pause)
        source = self._make_sampler(unrelated_children)
        for collector in context.collectors:
            collector.start()
        sizes = effective_sizes(prepared.cgroups.limits(), self._identity.host, self._usable_cpus)
        samples = SampleBuffer(self._interval_ns, started.started_wall_ns, sizes.vcpu, context.series_points)
        totals = ProcessTotals()
        ticker = Ticker(started.started_ns, self._interval_ns)

        def build_report_so_far() -> Report:
            return self._report_so_far(
                source,
                samples,
                processes=totals.top(),
                missed=ticker.missed,
                sizes=sizes,
                facts=RunFacts(
                    placement=None if placement_call is None else placement_call.result_so_far(), labels=labels
                ),
                collectors=context.collectors,
            )

        has_ended = supervisor.wait_until_exit(started.started_ns + min(_FIRST_WRITE_NS, self._interval_ns // 2))
        if not has_ended:
            context.keep_so_far(build_report_so_far)
        while not (has_ended or supervisor.wait_until_exit(self._next_tick(ticker))):
            now_ns = self._clock.monotonic_ns()
            sample = source.sample(self._read_ns(now_ns), supervisor.reaped.cpu_ns, supervisor.reaped.blocks)
            samples.add(sample, now_ns)
            samples.add_devices(context.collectors, now_ns)
            totals.add(source.processes)
            if not isinstance(sample, Unavailable):
                on_sample(sample)
            context.keep_so_far(build_report_so_far)
        finished_ns = self._clock.monotonic_ns()
        finished_wall_ns = self._clock.wall_ns()
        ending = supervisor.finish()
        samples.finish(source.final_sample(self._read_ns(finished_ns), ending.reaped.cpu_ns), finished_ns)
        span = RunSpan(
            started_ns=started.started_wall_ns,
            finished_ns=finished_wall_ns,
            duration_ns=finished_ns - started.started_ns,
        )
        observed = self._observation(span, ending, source, samples, totals.top())
        final_readings(context.collectors)
        samples.add_devices(context.collectors, finished_ns)
        facts = RunFacts(placement=None if placement_call is None else placement_call.result(), labels=labels)
        return self._finished(observed, samples.failures, ticker.missed, facts, context)

    def _observation(
        self,
        span: RunSpan,
        ending: CommandExit,
        source: CommandSampler,
        samples: SampleBuffer,
        processes: tuple[Process, ...],
    ) -> RunObservation:
        group_peak = source.group_peak()
        memory_kills = self._prepared.own_cgroup.oom_kills()
        return RunObservation(
            span=span,
            ending=ending,
            usage=samples.usage,
            demand=samples.demand,
            cpu_ns=source.cpu_ns,
            peak=resolve_peak(
                source.peak_bytes,
                ending,
                group_peak,
                had_several_processes=source.max_processes > 1,
                floor_bytes=self._prepared.floor_bytes,
            ),
            group_peak_bytes=group_peak.size_bytes,
            memory_kills=memory_kills,
            shared_oom_kills=self._shared_oom_kills() if memory_kills is None else None,
            processes=processes,
            survivors=source.survivors,
            has_block_io=proc.read("/proc/self/io") is not None,
        )

    def _report_so_far(
        self,
        source: CommandSampler,
        samples: SampleBuffer,
        *,
        processes: tuple[Process, ...],
        missed: int,
        sizes: ResourceLimits,
        facts: RunFacts,
        collectors: tuple[Collector, ...],
    ) -> Report:
        so_far = RunSoFar(
            started_ns=self._started.started_wall_ns,
            read_ns=source.last_read_ns,
            usage=samples.usage,
            cpu_ns=source.cpu_ns,
            peak_bytes=source.peak_bytes,
            processes=processes,
            facts=facts,
        )
        record = build_unfinished_record(
            self._identity,
            so_far,
            sizes,
            self._sampling(samples.usage, samples.failures, missed),
            _monitor((*self._warnings, _PROFILER_WAS_KILLED)),
        )
        return report(with_collected(record, collectors), self._clock.wall_ns())

    def _sampling(self, usage: ContainerUsage, failures: int, missed: int) -> Sampling:
        own = self._prepared.own_cgroup
        sources = (CommandSampler.name, own.name) if own.is_used else (CommandSampler.name,)
        return build_sampling(usage, sources, interval_ns=self._interval_ns, failures=failures, missed=missed)

    def _make_sampler(self, unrelated_children: UnrelatedChildren) -> CommandSampler:
        return CommandSampler(
            ProcessTree(os.getpid(), unrelated_children, self._clock.monotonic_ns),
            self._prepared.own_cgroup,
            self._started.started_wall_ns,
            self._usable_cpus,
            startup_cpu_ns=self._started.command.startup_cpu_ns,
        )

    def _start_placement_call(self, context: RunContext) -> "BackgroundCall[Placement] | None":
        if context.fetch_placement is None:
            return None
        return BackgroundCall(context.fetch_placement, self._clock, _PLACEMENT_TIMEOUT_SECONDS)

    def _finished(
        self, observed: RunObservation, failures: int, missed: int, facts: RunFacts, context: RunContext
    ) -> RunResult:
        sampling = self._sampling(observed.usage, failures, missed)
        children_are_lost = observed.ending.ignored_sigchld and not self._prepared.own_cgroup.has_cpu_accounting
        conditions = ((failures > 0, _NO_PROCESS_FOLDER), (children_are_lost, _CHILDREN_ARE_LOST))
        warnings = (
            *self._warnings,
            *(warning for applies, warning in conditions if applies),
            *_allocation_warning(observed.ending),
        )
        sizes = effective_sizes(self._prepared.cgroups.limits(), self._identity.host, self._usable_cpus)
        record = build_run_record(self._identity, observed, sizes, sampling, monitor=_monitor(warnings), facts=facts)
        now_ns = self._clock.wall_ns()
        record = _with_advice(with_collected(record, context.collectors), context.prices, now_ns)
        record = _with_survivors(record, observed.survivors)
        startup_errors = tuple(
            collector.startup_error for collector in context.collectors if collector.startup_error is not None
        )
        return RunResult(exit_code=observed.ending.exit_code, report=report(record, now_ns), warnings=startup_errors)

    def _next_tick(self, ticker: Ticker) -> int:
        now_ns = self._clock.monotonic_ns()
        return now_ns + round(ticker.seconds_to_next(now_ns) * NS_PER_SECOND)

    def _read_ns(self, monotonic_ns: int) -> int:
        """A monotonic time as wall time that ignores clock changes since the start."""
        return self._started.started_wall_ns + monotonic_ns - self._started.started_ns

    def _shared_oom_kills(self) -> int | None:
        """The kills since the start in the group in which this process was started."""
        before, now = self._prepared.oom_kills_before, self._prepared.cgroups.oom_kills()
        return None if now is None or before is None else max(now - before, 0)


def _with_advice(record: Record, prices: PriceOverrides, now_ns: int) -> Record:
    """Add cost and recommendation, if there is evidence: a sample, a lack of memory, the size of a task, or a GPU."""
    is_sampled = record.metrics.vcpu_used is not None
    if not (is_sampled or record.likely_out_of_memory or record.task_size is not None or record.gpus):
        return record
    from profiler.sizing.advice import with_recommendation  # not for the shortest runs

    return with_recommendation(record, prices, time=format_ms(now_ns))


def _with_survivors(record: Record, found: Iterable[ProcessReading]) -> Record:
    """Add a warning about processes that outlive the command.

    It comes last: a helper that ends with its parent, such as Python's resource tracker, takes some milliseconds, and
    so may a shell's child to execute its program.
    """
    live = (proc.read_live_name(*process.identity) for process in found)
    names = [name for name in live if name is not None]
    if not names or record.monitor is None:
        return record
    counts = Counter(names).most_common()
    shown = [name if count == 1 else f"{name} ×{count}" for name, count in counts[:_MAX_NAMES_SHOWN]]
    more = ["…"] if len(counts) > _MAX_NAMES_SHOWN else []
    what = "1 process was" if len(names) == 1 else f"{len(names)} processes were"
    listed = ", ".join([*shown, *more])
    warning = f"{what} still running when the command ended ({listed}): the record does not cover what happened then."
    return replace(record, monitor=replace(record.monitor, warnings=(*record.monitor.warnings, warning)))


def _allocation_warning(ending: CommandExit) -> tuple[str, ...]:
    limit_bytes = ending.allocation_limit_bytes
    if limit_bytes is None or not may_have_failed_to_allocate(ending):
        return ()
    limit = f"a limit of {limit_bytes // MIB} MB for its address space or data (ulimit)"
    return (f"The command had {limit}: beyond it allocations fail without a kill, which the record cannot rule out.",)


def _monitor(warnings: tuple[str, ...]) -> Monitor:
    used = read_own_usage()
    return Monitor(
        version=__version__, cpu_seconds=round(used.cpu_seconds, 3), max_rss_mb=used.max_rss_mb, warnings=warnings
    )


def _family_name(request: RunRequest) -> str:
    name = request.family or os.path.basename(request.argv[0].rstrip("/")) or request.argv[0]  # noqa: PTH119
    return shorten_name(without_surrogates(name))

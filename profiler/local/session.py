"""``task-profiler run``: starts a local command, samples it until it ends, and builds its report.

The run ends with the command's first process. Nothing here writes to the standard streams.
"""

import os
import signal
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from profiler import __version__
from profiler.collectors.base import (
    Collectors,
    final_readings,
    start_collectors,
    with_contributions,
)
from profiler.collectors.processes.commands import ProcessTotals
from profiler.core.background import BackgroundCall
from profiler.core.clock import Clock, Ticker
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.local.build_record import (
    Placement,
    RunFacts,
    RunIdentity,
    RunObservation,
    RunSpan,
    build_not_started_record,
    build_run_record,
    build_sampling,
    effective_sizes,
    report,
    resolve_peak,
)
from profiler.local.labels import merge_labels
from profiler.local.launch import StartedCommand, StartFailure, launch, restore_caller_environment, shorten_name
from profiler.local.sampler import CommandSampler, SampleBuffer, UnrelatedChildren
from profiler.local.supervisor import HANDLED_SIGNALS, Supervisor, become_subreaper
from profiler.record.model import Monitor, Report
from profiler.settings import DEFAULT_SERIES_POINTS
from profiler.sizing.prices import PriceOverrides
from profiler.sources import Unavailable
from profiler.sources.cgroup.command import make_command_cgroup
from profiler.sources.cgroup.hierarchy import read_own_cgroups
from profiler.sources.ecs.container_stats import ContainerSample
from profiler.sources.linux import proc
from profiler.sources.linux.host import read_host, read_own_usage
from profiler.sources.linux.process_tree import ProcessTree, list_children

_ORPHANS_ARE_LOST = "Orphans of the command could not be tracked (prctl was refused); their CPU time may be missing."
_CHILDREN_ARE_LOST = (
    "The command ignores SIGCHLD: the CPU time of its children is known only up to the last sample before their end."
)
_PLACEMENT_TIMEOUT_SECONDS = 1.0
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
        meanwhile: Called while the command's process starts, for work that would otherwise delay the report.
    """

    find_labels: Callable[[], Mapping[str, str]]
    fetch_placement: Callable[[], Placement | None] | None = None
    collectors: Collectors = Collectors()
    prices: PriceOverrides = PriceOverrides()
    series_points: int = DEFAULT_SERIES_POINTS
    pause: Callable[[], None] = lambda: None
    meanwhile: Callable[[], None] = lambda: None


class RunRequest(Struct, frozen=True, kw_only=True):
    """The command to run, and the options of the run."""

    argv: tuple[str, ...]
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


def run(
    request: RunRequest, environment: Mapping[bytes, bytes], clock: Clock, on_sample: OnSample, context: RunContext
) -> RunResult:
    """Run a command to its end in ``environment``.

    ``on_sample`` receives every sample at once. The signals remain blocked afterwards, so that the report is written.
    """
    identity = RunIdentity(
        task_id=str(uuid.uuid4()),
        family=_family_name(request),
        is_named=request.family is not None,
        labels={name: _text(value) for name, value in request.labels.items()},
        host=read_host(),
    )
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    warnings = () if become_subreaper() else (_ORPHANS_ARE_LOST,)
    session = _Session(identity, clock, round(request.interval_seconds * NS_PER_SECOND), warnings)
    try:
        started = session.start(request.argv, environment, mask, context.meanwhile)
        if isinstance(started, StartFailure):
            now_ns = clock.wall_ns()
            record = build_not_started_record(identity, started.exit_code, now_ns, _monitor(warnings))
            return RunResult(exit_code=started.exit_code, report=report(record, now_ns), startup_error=started.reason)
        return session.sample_until_exit(started, on_sample, context)
    finally:
        session.clean_up()


class _Session:
    """One run, from the preparation of the start to the report."""

    def __init__(self, identity: RunIdentity, clock: Clock, interval_ns: int, warnings: Iterable[str]) -> None:
        self._identity = identity
        self._clock = clock
        self._interval_ns = interval_ns
        self._warnings = tuple(warnings)
        self._cgroups = read_own_cgroups()
        self._own_cgroup = make_command_cgroup(self._cgroups, os.getpid(), identity.task_id)
        self._oom_kills_before = self._cgroups.oom_kills()
        self._preexisting_children = list_children(os.getpid(), threads=1)
        self._usable_cpus = len(os.sched_getaffinity(0))
        self._started_ns = 0
        self._started_wall_ns = 0

    def start(
        self,
        argv: tuple[str, ...],
        environment: Mapping[bytes, bytes],
        mask: Iterable[int],
        meanwhile: Callable[[], None],
    ) -> StartedCommand | StartFailure:
        """Start the command. Its time starts just before its process executes it."""
        caller_environment = restore_caller_environment(environment, proc.read("/proc/self/environ"))
        self._started_wall_ns = self._clock.wall_ns()
        self._started_ns = self._clock.monotonic_ns()
        started = launch(argv, caller_environment, mask, self._before_exec, meanwhile=meanwhile)
        if isinstance(started, StartedCommand):
            exec_ns, _, joined = started.hook_output.partition(b" ")
            self._started_wall_ns += int(exec_ns) - self._started_ns
            self._started_ns = int(exec_ns)
            self._own_cgroup.on_started(joined)
        return started

    def _before_exec(self) -> bytes:
        joined = self._own_cgroup.join()
        return b"%d %s" % (self._clock.monotonic_ns(), joined)

    def clean_up(self) -> None:
        """Remove the command's control group."""
        self._own_cgroup.remove(self._clock.sleep)

    def sample_until_exit(self, started: StartedCommand, on_sample: OnSample, context: RunContext) -> RunResult:
        """Sample until the command has ended, then collect the totals and build the report."""
        placement_call = self._start_placement_call(context)
        labels = merge_labels(context.find_labels(), self._identity.labels)
        floor_bytes = proc.parse_status(proc.read("/proc/self/status") or b"").peak_bytes
        unrelated_children = UnrelatedChildren(self._preexisting_children, context.collectors.child_pids)
        supervisor = Supervisor(started.pid, self._clock, unrelated_children, context.pause)
        tree = ProcessTree(os.getpid(), unrelated_children, self._clock.monotonic_ns)
        source = CommandSampler(
            tree, self._own_cgroup, self._started_wall_ns, self._usable_cpus, startup_cpu_ns=started.startup_cpu_ns
        )
        start_collectors(context.collectors.all)
        sizes = effective_sizes(self._cgroups.limits(), self._identity.host, self._usable_cpus)
        samples = SampleBuffer(self._interval_ns, self._started_wall_ns, sizes.vcpu, context.series_points)
        totals = ProcessTotals()
        ticker = Ticker(self._started_ns, self._interval_ns)
        while not supervisor.wait_until_exit(self._next_tick(ticker)):
            now_ns = self._clock.monotonic_ns()
            sample = source.sample(self._read_ns(now_ns), supervisor.reaped.cpu_ns, supervisor.reaped.blocks)
            samples.add(sample, now_ns)
            samples.add_devices(context.collectors.devices, now_ns)
            totals.add(source.processes)
            if not isinstance(sample, Unavailable):
                on_sample(sample)
        finished_ns = self._clock.monotonic_ns()
        finished_wall_ns = self._clock.wall_ns()
        ending = supervisor.finish()
        samples.finish(source.final_sample(self._read_ns(finished_ns), ending.reaped.cpu_ns), finished_ns)
        group_peak = source.group_peak()
        memory_kills = self._own_cgroup.oom_kills()
        observed = RunObservation(
            span=RunSpan(
                started_ns=self._started_wall_ns,
                finished_ns=finished_wall_ns,
                duration_ns=finished_ns - self._started_ns,
            ),
            ending=ending,
            usage=samples.usage,
            demand=samples.demand,
            cpu_ns=source.cpu_ns,
            peak=resolve_peak(
                source.peak_bytes,
                ending,
                group_peak,
                had_several_processes=source.max_processes > 1,
                floor_bytes=floor_bytes,
            ),
            group_peak_bytes=group_peak.size_bytes,
            memory_kills=memory_kills,
            was_memory_read_to_end=samples.memory_readings.reach(self._read_ns(finished_ns)),
            shared_oom_kills=self._shared_oom_kills() if memory_kills is None else None,
            processes=totals.top(),
            has_block_io=proc.read("/proc/self/io") is not None,
        )
        final_readings(context.collectors.all)
        samples.add_devices(context.collectors.devices, finished_ns)
        facts = RunFacts(placement=None if placement_call is None else placement_call.result(), labels=labels)
        return self._finished(observed, samples.failures, ticker.missed, facts, context)

    def _start_placement_call(self, context: RunContext) -> "BackgroundCall[Placement] | None":
        if context.fetch_placement is None:
            return None
        return BackgroundCall(context.fetch_placement, self._clock, _PLACEMENT_TIMEOUT_SECONDS)

    def _finished(
        self, observed: RunObservation, failures: int, missed: int, facts: RunFacts, context: RunContext
    ) -> RunResult:
        from profiler.sizing.advice import with_recommendation  # not before the command starts

        own = self._own_cgroup
        sources = (CommandSampler.name, own.name) if own.is_used else (CommandSampler.name,)
        sampling = build_sampling(
            observed.usage, sources, interval_ns=self._interval_ns, failures=failures, missed=missed
        )
        children_are_lost = observed.ending.ignored_sigchld and not own.has_cpu_accounting
        conditions = ((failures > 0, _NO_PROCESS_FOLDER), (children_are_lost, _CHILDREN_ARE_LOST))
        warnings = (*self._warnings, *(warning for applies, warning in conditions if applies))
        sizes = effective_sizes(self._cgroups.limits(), self._identity.host, self._usable_cpus)
        record = build_run_record(self._identity, observed, sizes, sampling, monitor=_monitor(warnings), facts=facts)
        now_ns = self._clock.wall_ns()
        record = with_recommendation(
            with_contributions(record, context.collectors.all), context.prices, time=format_ms(now_ns)
        )
        startup_errors = tuple(
            collector.startup_error
            for collector in context.collectors.requirable
            if collector.startup_error is not None
        )
        return RunResult(exit_code=observed.ending.exit_code, report=report(record, now_ns), warnings=startup_errors)

    def _next_tick(self, ticker: Ticker) -> int:
        now_ns = self._clock.monotonic_ns()
        return now_ns + round(ticker.seconds_to_next(now_ns) * NS_PER_SECOND)

    def _read_ns(self, monotonic_ns: int) -> int:
        """A monotonic time as wall time that ignores clock changes since the start."""
        return self._started_wall_ns + monotonic_ns - self._started_ns

    def _shared_oom_kills(self) -> int | None:
        """The kills since the start in the group in which this process was started."""
        now = self._cgroups.oom_kills()
        return None if now is None or self._oom_kills_before is None else max(now - self._oom_kills_before, 0)


def _monitor(warnings: tuple[str, ...]) -> Monitor:
    used = read_own_usage()
    return Monitor(
        version=__version__, cpu_seconds=round(used.cpu_seconds, 3), max_rss_mb=used.max_rss_mb, warnings=warnings
    )


def _family_name(request: RunRequest) -> str:
    name = request.family or os.path.basename(request.argv[0].rstrip("/")) or request.argv[0]  # noqa: PTH119
    return shorten_name(_text(name))


def _text(word: str) -> str:
    """A word of the command line as valid text: a record cannot contain bytes that are not UTF-8."""
    return word.encode(errors="replace").decode()

"""``task-profiler run``: the life of a local command under the profiler.

The command is started, sampled on a fixed grid while it runs, and reaped; its run ends with its
first process. Nothing here writes to the command's standard streams.
"""

import os
import signal
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from profiler import __version__
from profiler.accelerators.accelerator import Accelerator, settle_all, start_all, with_accelerators
from profiler.clock import Clock, Grid
from profiler.local.beside import Beside
from profiler.local.joined_samples import JoinedSamples
from profiler.local.labels import merged
from profiler.local.launch import NotStarted, Started, callers_environment, launch
from profiler.local.local_record import (
    Found,
    Identity,
    Observed,
    Span,
    bounds,
    not_started_record,
    report,
    run_record,
    sampling_facts,
    settled_peak,
)
from profiler.local.names import short_name
from profiler.local.placement import Placement
from profiler.local.supervisor import HANDLED, Supervisor, become_subreaper
from profiler.processes.process_totals import ProcessTotals
from profiler.record import Monitor, Report
from profiler.sizing.prices import PriceOverrides
from profiler.sources import Unavailable, proc
from profiler.sources.cgroup import own_cgroups
from profiler.sources.container_stats import ContainerSample
from profiler.sources.host import host_facts
from profiler.sources.local import LocalSource
from profiler.sources.own_cgroup import make_own_cgroup
from profiler.sources.own_process import own_usage
from profiler.sources.process_tree import ProcessTree, children_of
from profiler.sources.strangers import Strangers
from profiler.times import NS_PER_SECOND, format_ms

_ORPHANS_ARE_LOST = "Orphans of the command could not be followed (prctl was refused); their CPU time may be missing."
_CHILDREN_ARE_LOST = (
    "The command ignores SIGCHLD: of its children only the CPU time up to the last sample before their end is known."
)
_ASK_SECONDS = 1.0
_NO_PROCESS_FOLDER = "The command's processes could not be read in /proc."


OnSample = Callable[[ContainerSample], None]


def everyone(listeners: Sequence[OnSample]) -> OnSample:
    """One listener that passes each sample on to all."""

    def tell(sample: ContainerSample) -> None:
        for listener in listeners:
            listener(sample)

    return tell


class BesideIt(Struct, frozen=True, kw_only=True):
    """What is asked for beside the command, so that it costs the command nothing.

    ``ask_task`` is None outside of ECS; its answer counts only within a second. ``prices`` are the settings'.
    ``pause`` is called before the profiler stops because the terminal stopped the command. The accelerators
    go on until the caller stops them: some take their time, and the report need not wait for it.
    """

    find_labels: Callable[[], Mapping[str, str]]
    ask_task: Callable[[], Placement | None] | None = None
    accelerators: tuple[Accelerator, ...] = ()
    prices: PriceOverrides = PriceOverrides()
    pause: Callable[[], None] = lambda: None


class Wanted(Struct, frozen=True, kw_only=True):
    """What to run and how."""

    words: tuple[str, ...]
    family: str | None = None
    interval_seconds: float = 1.0
    labels: Mapping[str, str] = {}


class Finished(Struct, frozen=True, kw_only=True):
    """What came of it: the exit code to end with, the report, and a sentence if it did not start.

    ``warnings`` are sentences on what was asked for and could not be had.
    """

    exit_code: int
    report: Report
    complaint: str | None = None
    warnings: tuple[str, ...] = ()


def run(
    wanted: Wanted, environment: Mapping[bytes, bytes], clock: Clock, on_sample: OnSample, beside: BesideIt
) -> Finished:
    """Run a command to its end in ``environment``.

    ``on_sample`` hears every sample as it is taken. Signals stay blocked afterwards, so that the report gets out.
    """
    identity = Identity(
        task_id=str(uuid.uuid4()),
        family=_family(wanted),
        is_named=wanted.family is not None,
        labels={name: _text(value) for name, value in wanted.labels.items()},
        host=host_facts(),
    )
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    warnings = () if become_subreaper() else (_ORPHANS_ARE_LOST,)
    session = _Session(identity, clock, round(wanted.interval_seconds * NS_PER_SECOND), warnings)
    try:
        started = session.start(wanted.words, environment, mask)
        if isinstance(started, NotStarted):
            now_ns = clock.wall_ns()
            record = not_started_record(identity, started.exit_code, now_ns, _monitor(warnings))
            return Finished(exit_code=started.exit_code, report=report(record, now_ns), complaint=started.reason)
        return session.follow(started, on_sample, beside)
    finally:
        session.tidy()


class _Session:
    """One run, from before the command's start to its report."""

    def __init__(self, identity: Identity, clock: Clock, interval_ns: int, warnings: Iterable[str]) -> None:
        self._identity = identity
        self._clock = clock
        self._interval_ns = interval_ns
        self._warnings = tuple(warnings)
        self._cgroups = own_cgroups(Path("/"))
        self._own_cgroup = make_own_cgroup(self._cgroups, os.getpid(), identity.task_id)
        self._oom_kills_before = self._cgroups.oom_kills()
        self._strangers = children_of(os.getpid(), threads=1)
        self._usable_cpus = len(os.sched_getaffinity(0))
        self._started_ns = 0
        self._started_wall_ns = 0

    def start(
        self, words: tuple[str, ...], environment: Mapping[bytes, bytes], mask: Iterable[int]
    ) -> Started | NotStarted:
        """Start the command as the very last thing; its time begins when its process becomes the command."""
        as_called = callers_environment(environment, proc.read("/proc/self/environ"))
        self._started_wall_ns = self._clock.wall_ns()
        self._started_ns = self._clock.monotonic_ns()
        started = launch(words, as_called, mask, self._last_words)
        if isinstance(started, Started):
            began, _, joined = started.answer.partition(b" ")
            self._started_wall_ns += int(began) - self._started_ns
            self._started_ns = int(began)
            self._own_cgroup.started(joined)
        return started

    def _last_words(self) -> bytes:
        joined = self._own_cgroup.join()
        return b"%d %s" % (self._clock.monotonic_ns(), joined)

    def tidy(self) -> None:
        """Leave no control group behind."""
        self._own_cgroup.remove(self._clock.sleep)

    def follow(self, started: Started, on_sample: OnSample, beside: BesideIt) -> Finished:
        """Sample until the command has ended, then settle the account."""
        asked = None if beside.ask_task is None else Beside(beside.ask_task, self._clock, _ASK_SECONDS)
        labels = merged(beside.find_labels(), self._identity.labels)
        floor_bytes = proc.parse_status(proc.read("/proc/self/status") or b"").peak_bytes
        strangers = Strangers(self._strangers, [_helper_of(each) for each in beside.accelerators])
        supervisor = Supervisor(started.pid, self._clock, strangers, beside.pause)
        tree = ProcessTree(os.getpid(), strangers, self._clock.monotonic_ns)
        source = LocalSource(
            tree, self._own_cgroup, self._started_wall_ns, self._usable_cpus, not_its_cpu_ns=started.own_cpu_ns
        )
        start_all(beside.accelerators)
        samples = JoinedSamples(self._interval_ns, self._started_wall_ns)
        totals = ProcessTotals()
        grid = Grid(self._started_ns, self._interval_ns)
        while not supervisor.ended_by(self._next_tick(grid)):
            now_ns = self._clock.monotonic_ns()
            sample = source.sample(self._read_ns(now_ns), supervisor.reaped.cpu_ns, supervisor.reaped.blocks)
            samples.add(sample, now_ns)
            totals.add(source.processes)
            if not isinstance(sample, Unavailable):
                on_sample(sample)
        finished_ns = self._clock.monotonic_ns()
        finished_wall_ns = self._clock.wall_ns()
        ending = supervisor.finish()
        samples.end(source.last_sample(self._read_ns(finished_ns), ending.reaped.cpu_ns), finished_ns)
        group_peak = source.group_peak()
        observed = Observed(
            span=Span(
                started_ns=self._started_wall_ns,
                finished_ns=finished_wall_ns,
                duration_ns=finished_ns - self._started_ns,
            ),
            ending=ending,
            usage=samples.usage,
            cpu_ns=source.cpu_ns,
            peak=settled_peak(
                source.peak_bytes, ending, group_peak, several_seen=source.most_processes > 1, floor_bytes=floor_bytes
            ),
            group_peak_bytes=group_peak.size_bytes,
            oom_kills=self._oom_kills(),
            memory_kills=self._own_cgroup.oom_kills(),
            processes=totals.top(),
            counts_blocks=proc.read("/proc/self/io") is not None,
        )
        settle_all(beside.accelerators)
        found = Found(placement=None if asked is None else asked.answer(), labels=labels)
        return self._finished(observed, samples.failures, grid.missed, found, beside)

    def _finished(self, observed: Observed, failures: int, missed: int, found: Found, beside: BesideIt) -> Finished:
        from profiler.sizing.advised import advised  # noqa: PLC0415  a command does not wait for it

        own = self._own_cgroup
        sources = (LocalSource.name, own.name) if own.used else (LocalSource.name,)
        sampling = sampling_facts(
            observed.usage, sources, interval_ns=self._interval_ns, failures=failures, missed=missed
        )
        children_are_lost = observed.ending.ignored_children and not own.counts_cpu
        noticed = ((failures > 0, _NO_PROCESS_FOLDER), (children_are_lost, _CHILDREN_ARE_LOST))
        warnings = (*self._warnings, *(warning for seen, warning in noticed if seen))
        sizes = bounds(self._cgroups.limits(), self._identity.host, self._usable_cpus)
        record = run_record(self._identity, observed, sizes, sampling, monitor=_monitor(warnings), found=found)
        now_ns = self._clock.wall_ns()
        record = advised(with_accelerators(record, beside.accelerators), beside.prices, time=format_ms(now_ns))
        complaints = tuple(each.complaint for each in beside.accelerators if each.complaint is not None)
        return Finished(exit_code=observed.ending.exit_code, report=report(record, now_ns), warnings=complaints)

    def _next_tick(self, grid: Grid) -> int:
        now_ns = self._clock.monotonic_ns()
        return now_ns + round(grid.seconds_to_next(now_ns) * NS_PER_SECOND)

    def _read_ns(self, monotonic_ns: int) -> int:
        """A moment as if the wall clock had not been set since the start."""
        return self._started_wall_ns + monotonic_ns - self._started_ns

    def _oom_kills(self) -> int | None:
        own = self._own_cgroup.oom_kills()
        if own is not None:
            return own
        now = self._cgroups.oom_kills()
        return None if now is None or self._oom_kills_before is None else max(now - self._oom_kills_before, 0)


def _helper_of(accelerator: Accelerator) -> Callable[[], int | None]:
    return lambda: accelerator.helper_pid


def _monitor(warnings: tuple[str, ...]) -> Monitor:
    used = own_usage()
    return Monitor(
        version=__version__, cpu_seconds=round(used.cpu_seconds, 3), max_rss_mb=used.max_rss_mb, warnings=warnings
    )


def _family(wanted: Wanted) -> str:
    name = wanted.family or os.path.basename(wanted.words[0].rstrip("/")) or wanted.words[0]  # noqa: PTH119
    return short_name(_text(name))


def _text(word: str) -> str:
    """A word of the command line as text: bytes that are no UTF-8 cannot stand in a record."""
    return word.encode(errors="replace").decode()

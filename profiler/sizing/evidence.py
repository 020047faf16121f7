"""What the runs of a family say together: the ground of a recommendation. Pure.

The last N runs by their start count, each once, however often its line is there. Of a run without
numbers it counts that it ran out of memory, and at which size; others without are counted and ignored.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import max_known, mean_known
from profiler.record.model import PeakSource, Report
from profiler.sizing.run_facts import RunFacts, Task, facts_of

LAST_RUNS = 50
_FAILURE = "failure"
_STOPPED = "stopped"


class Spike(Struct, frozen=True, kw_only=True):
    """The batch's highest peak, and what it held in 99 % of that run's time."""

    peak_mb: float
    p99_mb: float


class Evidence(Struct, frozen=True, kw_only=True):
    """Aggregates of a family's measured runs, and of its out-of-memory kills.

    ``out_of_memory`` counts all runs that ran out of memory, ``out_of_memory_unmeasured`` those of them that are not
    among the measured ``runs``; ``ignored`` counts the remaining runs. ``required_memory_mb`` and ``required_vcpu`` are
    the largest of any run, ``batch_peak_mb`` is the batch's part of the memory. ``cpu_bound_vcpu`` and ``oom_size_mb``
    are the largest sizes that were too small. ``peaks_mb`` are the batch's peaks in order of time, ``peak_source`` is
    the weakest source, ``stats_period_ms`` the longest period. ``first_started_at`` and ``last_started_at`` are start
    times; ``window_ns`` is the time between the starts of the first and the last of ``window_runs``, measured or not.
    ``assumptions`` are sentences on what the source of the runs cannot know.
    """

    family: str
    runs: int
    latest: Task
    failed: int = 0
    stopped: int = 0
    out_of_memory: int = 0
    out_of_memory_unmeasured: int = 0
    ignored: int = 0
    required_memory_mb: float | None = None
    required_vcpu: float | None = None
    batch_peak_mb: float | None = None
    cpu_bound_runs: int = 0
    cpu_bound_vcpu: float | None = None
    oom_size_mb: float | None = None
    peak_source: PeakSource | None = None
    stats_period_ms: int | None = None
    first_started_at: str | None = None
    last_started_at: str | None = None
    window_ns: int = 0
    mean_billed_ms: float | None = None
    spike: Spike | None = None
    peaks_mb: tuple[float, ...] = ()
    gpus_idle: bool = False
    assumptions: tuple[str, ...] = ()

    @property
    def window_runs(self) -> int:
        """How many runs were looked at, measured or not."""
        return self.runs + self.out_of_memory_unmeasured + self.ignored


class Family:
    """Collects a family's runs, never many more than are asked for."""

    def __init__(self, name: str, last: int) -> None:
        self._name = name
        self._last = last
        self._runs: dict[tuple[str, str, str], RunFacts] = {}

    def add(self, run: RunFacts) -> None:
        """Take a run; one that is there already stays as it is."""
        self._runs.setdefault(run.key, run)
        if len(self._runs) >= 2 * self._last + 100:
            self._runs = {one.key: one for one in self._newest()}

    def evidence(self) -> Evidence | None:
        """What the last runs say; None if none of them was measured."""
        return evidence_of_runs(self._name, self._newest())

    def _newest(self) -> list[RunFacts]:
        return sorted(self._runs.values(), key=_start_order)[-self._last :]


def families_of(reports: Iterable[Report], *, last: int = LAST_RUNS) -> dict[str, Family]:
    """The families of final reports, by name."""
    families: dict[str, Family] = {}
    for report in reports:
        run = facts_of(report)
        families.setdefault(run.family, Family(run.family, last)).add(run)
    return families


def evidence_of_runs(family: str, window: Sequence[RunFacts]) -> Evidence | None:
    """Aggregates of runs that are in the order of time."""
    runs = [run for run in window if run.is_measured]
    if not runs:
        return None
    killed = [run for run in window if run.out_of_memory]
    killed_unmeasured = sum(1 for run in killed if not run.is_measured)
    peaked = [run for run in runs if run.peak_mb is not None]
    bound = [run for run in runs if run.cpu_bound_vcpu is not None]
    neediest = max(peaked, key=lambda run: run.requirements.memory_mb or 0, default=None)
    idle = [run.gpus_idle for run in runs if run.gpus_idle is not None]
    return Evidence(
        family=family,
        runs=len(runs),
        latest=runs[-1].task,
        failed=sum(1 for run in runs if run.status == _FAILURE),
        stopped=sum(1 for run in runs if run.status == _STOPPED),
        out_of_memory=len(killed),
        out_of_memory_unmeasured=killed_unmeasured,
        ignored=len(window) - len(runs) - killed_unmeasured,
        required_memory_mb=max_known(*(run.requirements.memory_mb for run in runs)),
        required_vcpu=max_known(*(run.requirements.vcpu for run in runs)),
        batch_peak_mb=neediest.peak_mb if neediest is not None else None,
        cpu_bound_runs=len(bound),
        cpu_bound_vcpu=max_known(*(run.cpu_bound_vcpu for run in bound)),
        oom_size_mb=max_known(*(run.oom_size_mb for run in killed)),
        peak_source=weakest(run.peak_source for run in runs),
        stats_period_ms=max_known(*(run.stats_period_ms for run in runs)),
        first_started_at=runs[0].began,
        last_started_at=runs[-1].began,
        window_ns=window[-1].began_ns - window[0].began_ns,
        mean_billed_ms=mean_known(*(run.billed_ms for run in runs)),
        spike=spike_of(peaked),
        peaks_mb=tuple(run.peak_mb for run in peaked if run.peak_mb is not None),
        gpus_idle=bool(idle) and all(idle),
    )


def spike_of(runs: Iterable[RunFacts]) -> Spike | None:
    """Of the run with the batch's highest peak."""
    highest = max(runs, key=lambda run: run.peak_mb or 0, default=None)
    if highest is None or highest.peak_mb is None or highest.memory_p99_mb is None:
        return None
    return Spike(peak_mb=highest.peak_mb, p99_mb=highest.memory_p99_mb)


def weakest(sources: Iterable[PeakSource | None]) -> PeakSource | None:
    """One peak that was only sampled makes the highest of all no better than that."""
    known = {source for source in sources if source is not None}
    return "sampled" if "sampled" in known else "kernel" if known else None


def with_assumption(evidence: Evidence, sentence: str) -> Evidence:
    """The evidence with what its source had to assume."""
    return replace(evidence, assumptions=(*evidence.assumptions, sentence))


def _start_order(run: RunFacts) -> tuple[int, tuple[str, str, str]]:
    return run.began_ns, run.key

"""Aggregates the runs of each family: the evidence for a recommendation.

The last N runs by start time count, each of them once, even if its line occurs repeatedly. A run without
measurements counts only if it ran out of memory: its size was too small. Other runs without measurements are
ignored and counted as such.

The evidence includes how many times as long the runs would take with fewer vCPUs than the task has now, as two bounds.
Each report has the bounds of its own run: slowdown(c) for each size c, compared with how the run went. Compared with
the current size, the run would take slowdown(c) ÷ slowdown(current) times as long. Both are known as bounds only, so
the smallest quotient is min(c) ÷ max(current) and the largest max(c) ÷ min(current). A task with half the vCPUs takes
at most twice as long, so no quotient is more than current ÷ c. For a family, the largest bounds of any run count.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import max_known, mean_known
from profiler.core.timestamps import NS_PER_MS
from profiler.record.family_identity import FamilyKey
from profiler.record.record_model import PeakSource, Report, SlowdownBounds
from profiler.record.units import billed_ms
from profiler.record.worth_a_word import SATURATED_PERCENT
from profiler.sizing.fargate import LEGAL_VCPUS
from profiler.sizing.run_facts import RunFacts, Task, facts_on_fargate

_DIGITS = 3
_NO_SLOWDOWN = SlowdownBounds(min=1, max=1)
# From here on, a run counts as slower.
MIN_SLOWER_FACTOR = 1.05
LAST_RUNS = 50
FEW_RUNS = 5
"""Below this number, a recommendation is not reliable."""
MAX_FINE_PERIOD_MS = 2000
"""With a longer period of the statistics, sampled peaks can miss a short spike."""
MIN_MINUTES = 10
"""A run of fewer minutes is too short for the means of minutes to show its memory peak."""


class DurationFactor(Struct, frozen=True, kw_only=True):
    """How many times as long a run would take: at least ``min``, at most ``max``."""

    min: float
    max: float


SAME_DURATION = DurationFactor(min=1, max=1)


def duration_factors(runs: Iterable[RunFacts], current_vcpu: float | None) -> Mapping[float, DurationFactor] | None:
    """Return the factors of the vCPU sizes at which a run would be slower than at the current size.

    None if no run has bounds of its slowdown. Without a current size, the factors compare with how the runs went.
    """
    slowdowns = [run.slowdown for run in runs if run.slowdown is not None]
    if not slowdowns:
        return None
    factors = {}
    for vcpu in smaller_vcpus(current_vcpu):
        limit = math.inf if current_vcpu is None else current_vcpu / vcpu
        bounds = [
            (slowdown.get(vcpu, _NO_SLOWDOWN), slowdown.get(current_vcpu or 0, _NO_SLOWDOWN)) for slowdown in slowdowns
        ]
        factors[vcpu] = DurationFactor(
            min=max(_quotient(there.min, now.max, limit) for there, now in bounds),
            max=max(_quotient(there.max, now.min, limit) for there, now in bounds),
        )
    return {vcpu: factor for vcpu, factor in factors.items() if factor.max > 1}


def smaller_vcpus(current_vcpu: float | None) -> Sequence[float]:
    """Return Fargate's vCPU sizes below the current one; without a current size, all."""
    return [vcpu for vcpu in LEGAL_VCPUS if current_vcpu is None or vcpu < current_vcpu]


def larger_factor(vcpu: float, seen_vcpu: float, saturated: float | None) -> DurationFactor:
    """Return the bounds of the duration with ``vcpu``, more than the ``seen_vcpu`` that the runs had.

    ``saturated`` is the percentage of the time in which the runs used all of it: all of this time is shortened in
    proportion to the sizes, or none of it.
    """
    if saturated is None or saturated < SATURATED_PERCENT:
        return SAME_DURATION
    return DurationFactor(min=round(1 - saturated / 100 * (1 - seen_vcpu / vcpu), _DIGITS), max=1)


def _quotient(slowdown: float, current_slowdown: float, limit: float) -> float:
    """Divide a bound at another size by a bound at the current size; the result is between 1 and ``limit``."""
    return round(min(max(slowdown / current_slowdown, 1.0), limit), _DIGITS)


def _mean_percent(runs: Iterable[RunFacts], read: Callable[[RunFacts], float | None]) -> float | None:
    """Return the mean weighted by the runs' durations. A run of unknown duration hardly counts."""
    known = [
        (percent, 1 if run.duration_ms is None else run.duration_ms)
        for run in runs
        if (percent := read(run)) is not None
    ]
    total_ms = math.fsum(duration_ms for _, duration_ms in known)
    if not total_ms:
        return None
    return round(math.fsum(percent * duration_ms for percent, duration_ms in known) / total_ms, _DIGITS)


class _Run(NamedTuple):
    """The billed time of a run, and its parts: until the start, and after it."""

    was_ms: float
    before_ms: float
    duration_ms: float


class BilledTime(Struct, frozen=True):
    """The runs of each task whose billed time is known. A task is billed until its last run has ended.

    Fargate bills a task from the start of the image pull, rounds up to a second, and bills at least a minute. Only the
    duration after the start depends on the size of the task.
    """

    tasks: tuple[tuple[_Run, ...], ...] = ()

    def mean_ms(self, factor: float) -> float | None:
        """The mean over the tasks if each run took ``factor`` times as long; None if no billed time is known."""
        return _mean_ms(self.tasks, factor) if self.tasks else None


def _billed_time(runs: Iterable[RunFacts]) -> BilledTime:
    """Collect the billed times of runs by task. A run of unknown duration changes as a whole."""
    tasks: dict[str, list[_Run]] = {}
    for run in runs:
        if run.billed_ms:
            duration_ms = run.billed_ms if run.duration_ms is None else run.duration_ms
            before_ms = max(run.billed_ms - duration_ms, 0) if run.init_ms is None else run.init_ms
            tasks.setdefault(run.task_id, []).append(_Run(run.billed_ms, before_ms, duration_ms))
    return BilledTime(tuple(map(tuple, tasks.values())))


@lru_cache(maxsize=64)
def _mean_ms(tasks: tuple[tuple[_Run, ...], ...], factor: float) -> float:
    """Cached: each size of the table needs the mean, and many sizes have the same factor."""

    def time_ms(run: _Run) -> float:
        until_ns = round((run.before_ms + run.duration_ms * factor) * NS_PER_MS)
        return run.was_ms if factor == 1 else billed_ms(0, until_ns) or run.was_ms

    return round(math.fsum(max(map(time_ms, runs)) for runs in tasks) / len(tasks), 3)


class Evidence(Struct, frozen=True, kw_only=True):
    """Aggregates of a family's measured runs, and of its runs that ran out of memory.

    Attributes:
        runs: Number of measured runs. ``failed`` and ``stopped`` count some of them.
        out_of_memory: Number of all runs that ran out of memory; ``out_of_memory_unmeasured`` are not in ``runs``.
        ignored: Number of the remaining runs, without measurements.
        required_memory_mb: The largest requirement of any run, other containers included; ``required_vcpu`` alike.
        batch_peak_mb: The batch's part of it. ``batch_p99_mb``: the 99th percentile of its memory in the same run.
        slowdowns: The bounds of the duration at each vCPU size at which a run would be slower than at the size of
            ``latest``; None if no run has such bounds.
        vcpu_without_slowdown: The largest vCPU requirement of the runs that have no such bounds (schema 1.0).
        saturated_percent: Of the runs at the current vCPU size; ``cpu_wait_percent`` alike.
        processors: The number of runs on each processor, by its short name, the most frequent first.
        oom_size_mb: The largest memory size at which a run ran out of memory.
        reached_size_mb: The largest at which the usage reached the limit unseen, where a child may have been killed.
        peak_source: The least exact source of any peak. ``stats_period_ms``: the longest period.
        window_ns: Time between the starts of the first and the last run of the window, measured or not.
        window_tasks: The number of tasks in the window, measured or not. Each container of a task may have a report.
        latest: The task of the latest measured run, with the size of the latest run, measured or not.
        billed: The billed time of the tasks at the current vCPU size; of all tasks if none of them had this size.
        peaks_mb: The batch's peaks in the order of time. ``needs_mb``: the memory that the task required.
        idle_gpu_hours: The mean of the runs that have it; of the instances' GPUs if ``has_gpus_of_others`` is True.
        is_by_minute: Whether some runs were measured by the means of minutes. ``is_too_short``: all, and too short.
        on_fargate: The Region in which runs outside Fargate count as if they had run there. ``is_moved``: some do.
    """

    family: FamilyKey
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
    batch_p99_mb: float | None = None
    slowdowns: Mapping[float, DurationFactor] | None = None
    vcpu_without_slowdown: float | None = None
    saturated_percent: float | None = None
    cpu_wait_percent: float | None = None
    processors: tuple[tuple[str, int], ...] = ()
    oom_size_mb: float | None = None
    reached_size_mb: float | None = None
    peak_source: PeakSource | None = None
    stats_period_ms: int | None = None
    first_started_at: str | None = None
    last_started_at: str | None = None
    window_ns: int = 0
    window_tasks: int = 0
    billed: BilledTime = BilledTime()
    has_run_at_current_vcpu: bool = True
    peaks_mb: tuple[float, ...] = ()
    needs_mb: tuple[float, ...] = ()
    gpus_idle: bool = False
    idle_gpu_hours: float | None = None
    has_gpus_of_others: bool = False
    is_by_minute: bool = False
    is_too_short: bool = False
    on_fargate: str | None = None
    is_moved: bool = False

    @property
    def current_vcpu(self) -> float | None:
        """The vCPU size of the latest run's task."""
        return self.latest.vcpu

    @property
    def has_cpu(self) -> bool:
        """Whether CPU was measured in any run."""
        return self.required_vcpu is not None or self.slowdowns is not None

    @property
    def has_memory(self) -> bool:
        """Whether anything is known about the memory that the runs need."""
        return self.required_memory_mb is not None or self.oom_size_mb is not None

    @property
    def is_saturated(self) -> bool:
        """Whether the runs used all of the current vCPU size for 5 % of the time or more."""
        return (self.saturated_percent or 0) >= SATURATED_PERCENT


class Families:
    """Collects the last runs of each family. Memory is bounded: older runs are dropped on the way.

    The ``last`` runs of a family count. With ``on_fargate``, a Region, runs outside Fargate count as if they had run on
    Fargate there.
    """

    def __init__(self, last: int = LAST_RUNS, on_fargate: str | None = None) -> None:
        self._last = last
        self._on_fargate = on_fargate
        self._families: dict[FamilyKey, dict[tuple[str, str, str], RunFacts]] = {}

    def add(self, report: Report) -> None:
        """Add the run of a final report to its family; a repeated line of the same run is ignored."""
        run = facts_on_fargate(report, self._on_fargate)
        runs = self._families.setdefault(run.family, {})
        runs.setdefault(run.key, run)
        if len(runs) >= 2 * self._last + 100:
            self._families[run.family] = {run.key: run for run in self._newest(runs)}

    def evidence(self) -> Mapping[FamilyKey, Evidence | None]:
        """Aggregate the last runs of each family, in the order of the families; None if none of them was measured."""
        families = sorted(self._families.items(), key=lambda family: family[0].order)
        return {key: evidence_of_runs(key, self._newest(runs), self._on_fargate) for key, runs in families}

    def _newest(self, runs: Mapping[tuple[str, str, str], RunFacts]) -> Sequence[RunFacts]:
        return sorted(runs.values(), key=lambda run: (run.began_ns, run.key))[-self._last :]


def evidence_of_runs(family: FamilyKey, window: Sequence[RunFacts], on_fargate: str | None = None) -> Evidence | None:
    """Aggregate a family's runs, given in the order of time; None if none of them was measured."""
    runs = [run for run in window if run.is_measured]
    if not runs:
        return None
    killed = [run for run in window if run.out_of_memory]
    killed_unmeasured = sum(not run.is_measured for run in killed)
    with_peak = [run for run in runs if run.peak_mb is not None]
    latest, newest = runs[-1].task, window[-1].task
    if newest.size is not None:
        sizes = {"vcpu_size": newest.vcpu_size, "memory_size_mb": newest.memory_size_mb}
        latest = replace(latest, size=newest.size, **sizes)
    current_vcpu = latest.vcpu
    runs_now = [run for run in runs if run.task.vcpu == current_vcpu]
    largest = max(with_peak, key=lambda run: run.needed_memory_mb or 0, default=None)
    idle_flags = [run.gpus_idle for run in runs if run.gpus_idle is not None]
    sources = {run.peak_source for run in runs}
    return Evidence(
        family=family,
        runs=len(runs),
        latest=latest,
        failed=sum(run.status == "failure" for run in runs),
        stopped=sum(run.status == "stopped" for run in runs),
        out_of_memory=len(killed),
        out_of_memory_unmeasured=killed_unmeasured,
        ignored=len(window) - len(runs) - killed_unmeasured,
        required_memory_mb=max_known(*(run.needed_memory_mb for run in runs)),
        required_vcpu=max_known(*(run.needed_vcpu for run in runs)),
        batch_peak_mb=None if largest is None else largest.peak_mb,
        batch_p99_mb=None if largest is None else largest.memory_p99_mb,
        slowdowns=duration_factors(runs, current_vcpu),
        vcpu_without_slowdown=max_known(*(run.needed_vcpu for run in runs if run.slowdown is None)),
        # Runs at another vCPU size do not show how busy the task is now.
        saturated_percent=_mean_percent(runs_now, lambda run: run.saturated_percent),
        cpu_wait_percent=_mean_percent(runs_now, lambda run: run.cpu_wait_percent),
        processors=tuple(Counter(run.processor for run in runs if run.processor is not None).most_common()),
        oom_size_mb=max_known(*(run.oom_size_mb for run in killed)),
        reached_size_mb=max_known(*(run.reached_size_mb for run in runs)),
        peak_source="sampled" if "sampled" in sources else "kernel" if "kernel" in sources else None,
        stats_period_ms=max_known(*(run.stats_period_ms for run in runs)),
        first_started_at=runs[0].began,
        last_started_at=runs[-1].began,
        window_ns=window[-1].began_ns - window[0].began_ns,
        window_tasks=len({run.task_id for run in window}),
        billed=_billed_time(runs_now or runs),
        has_run_at_current_vcpu=bool(runs_now),
        peaks_mb=tuple(run.peak_mb for run in with_peak if run.peak_mb is not None),
        needs_mb=tuple(run.needed_memory_mb for run in runs if run.needed_memory_mb is not None),
        gpus_idle=bool(idle_flags) and all(idle_flags),
        idle_gpu_hours=mean_known(*(run.idle_gpu_hours for run in runs)),
        has_gpus_of_others=any(run.has_gpus_of_others for run in runs),
        is_by_minute=any(run.is_by_minute for run in runs),
        is_too_short=all(run.is_by_minute and (run.duration_ms or 0) < MIN_MINUTES * 60_000 for run in runs),
        on_fargate=on_fargate,
        is_moved=any(run.is_moved for run in runs),
    )

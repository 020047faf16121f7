"""Aggregates the last runs of each family: the evidence for a recommendation.

A run without measurements counts only if it ran out of memory: its size was too small.
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
from profiler.record.hardware import WHOLE_INSTANCE, short_processor_name
from profiler.record.record_model import (
    Distribution,
    PeakSource,
    Record,
    Report,
    TaskSize,
    is_sampled_each_minute,
    known_peak_source,
)
from profiler.record.units import billed_ms
from profiler.record.worth_a_word import SATURATED_PERCENT, counted_cpu_wait, is_cpu_wait_partial
from profiler.sizing.run_facts import (
    RunFacts,
    facts_of,
    gpus_idle,
    memory_of,
    oom_size_mb,
    reached_size_mb,
    size_of,
    stats_period_ms,
)
from profiler.sizing.slowdown_factors import FACTOR_DIGITS, Factors, duration_factors

LAST_RUNS = 50
MAX_FINE_PERIOD_MS = (
    2000  # of the statistics: with a longer one, sampled peaks can miss a short spike
)
MIN_MINUTES = 10  # a shorter run is too short for the means of minutes to show its memory peak


def _mean_percent(
    records: Iterable[Record], read: Callable[[Record], float | None]
) -> float | None:
    """Return the mean weighted by the runs' durations. A run of unknown duration hardly counts."""
    known = [
        (percent, 1 if record.metrics.duration_ms is None else record.metrics.duration_ms)
        for record in records
        if (percent := read(record)) is not None
    ]
    total_ms = math.fsum(duration_ms for _, duration_ms in known)
    if not total_ms:
        return None
    return round(
        math.fsum(percent * duration_ms for percent, duration_ms in known) / total_ms, FACTOR_DIGITS
    )


class _Run(NamedTuple):
    """The billed time of a run, and its parts: until the start, and after it, which alone
    depends on the size.
    """

    was_ms: float
    before_ms: float
    duration_ms: float


# The runs of each task whose billed time is known.
BilledTasks = tuple[tuple[_Run, ...], ...]


def _billed_tasks(records: Iterable[Record]) -> BilledTasks:
    """Collect the billed times of runs by task. A run of unknown duration changes as a whole."""
    tasks: dict[str, list[_Run]] = {}
    for record in records:
        metrics = record.metrics
        billed, init_ms = metrics.billed_duration_ms, metrics.init_duration_ms
        if billed:
            duration_ms = billed if metrics.duration_ms is None else metrics.duration_ms
            before_ms = max(billed - duration_ms, 0) if init_ms is None else init_ms
            tasks.setdefault(record.task_id, []).append(_Run(billed, before_ms, duration_ms))
    return tuple(map(tuple, tasks.values()))


@lru_cache(maxsize=64)
def mean_billed_ms(tasks: BilledTasks, factor: float) -> float | None:
    """The mean over the tasks if each run took ``factor`` times as long; None if no billed time
    is known.
    """

    def time_ms(run: _Run) -> float:
        until_ns = round((run.before_ms + run.duration_ms * factor) * NS_PER_MS)
        return run.was_ms if factor == 1 else billed_ms(0, until_ns) or run.was_ms

    if not tasks:
        return None
    return round(math.fsum(max(map(time_ms, runs)) for runs in tasks) / len(tasks), 3)


class Evidence(Struct, frozen=True, kw_only=True):
    """Aggregates of a family's measured runs, and of its runs that ran out of memory.

    ``runs`` are measured; ``out_of_memory_unmeasured`` and ``ignored`` are not among them.
    ``latest`` is the latest measured record, with the size of the latest run, measured or not.
    ``required_memory_mb`` includes the other containers; ``batch_peak_mb`` and ``batch_p99_mb`` are
    the batch's in the run with the largest need. ``slowdowns`` are the bounds at each vCPU size at
    which a run would be slower than now, None if no run has any; ``vcpu_without_slowdown`` is the
    largest need of the runs without them (schema 1.0). Saturation and CPU wait are of the runs at
    the current vCPU size; ``billed`` too, unless none had it. ``reached_size_mb`` is the largest
    size at whose limit a child may have been killed. ``peak_source`` is the least exact one,
    ``stats_period_ms`` the longest. The window's time and tasks include unmeasured runs.
    ``peaks_mb`` and ``needs_mb`` are in the order of time. ``unknown_memory``: containers with
    neither a measurement nor a limit of memory. ``is_by_minute``: some runs were measured by the
    means of minutes; ``is_too_short``: all, and too short. ``on_fargate`` is a Region in which runs
    outside Fargate count as if they had run there; ``is_moved``: some do.
    """

    family: FamilyKey
    runs: int
    latest: Record
    failed: int = 0
    stopped: int = 0
    has_success: bool = True
    out_of_memory: int = 0
    out_of_memory_unmeasured: int = 0
    ignored: int = 0
    required_memory_mb: float | None = None
    required_vcpu: float | None = None
    batch_peak_mb: float | None = None
    batch_p99_mb: float | None = None
    slowdowns: Factors | None = None
    vcpu_without_slowdown: float | None = None
    saturated_percent: float | None = None
    cpu_wait_percent: float | None = None
    is_cpu_wait_partial: bool = False
    processors: tuple[tuple[str, int], ...] = ()
    oom_size_mb: float | None = None
    reached_size_mb: float | None = None
    peak_source: PeakSource | None = None
    stats_period_ms: int | None = None
    first_started_at: str | None = None
    last_started_at: str | None = None
    window_ns: int = 0
    window_tasks: int = 0
    billed: BilledTasks = ()
    has_run_at_current_vcpu: bool = True
    peaks_mb: tuple[float, ...] = ()
    needs_mb: tuple[float, ...] = ()
    unknown_memory: tuple[str, ...] = ()
    gpus_idle: bool = False
    idle_gpu_hours: float | None = None
    has_gpus_of_others: bool = False
    is_by_minute: bool = False
    is_too_short: bool = False
    on_fargate: str | None = None
    is_moved: bool = False

    @property
    def size(self) -> TaskSize:
        return size_of(self.latest)

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
    """Collects the ``last`` runs of each family.

    Memory is bounded: older runs are dropped on the way.
    """

    def __init__(self, last: int = LAST_RUNS, on_fargate: str | None = None) -> None:
        self._last = last
        self._on_fargate = on_fargate
        self._families: dict[FamilyKey, dict[tuple[str, str, str], RunFacts]] = {}

    def add(self, report: Report) -> None:
        """Add the run of a final report to its family; a repeated line of the same run is
        ignored.
        """
        run = facts_of(report, self._on_fargate)
        runs = self._families.setdefault(run.family, {})
        runs.setdefault(run.key, run)
        if len(runs) >= 2 * self._last + 100:
            self._families[run.family] = {run.key: run for run in self._newest(runs)}

    def evidence(self) -> Mapping[FamilyKey, Evidence | None]:
        """Aggregate the last runs of each family, in the order of the families; None if none of
        them was measured.
        """
        families = sorted(self._families.items(), key=lambda family: family[0].order)
        return {
            key: evidence_of_runs(key, self._newest(runs), self._on_fargate)
            for key, runs in families
        }

    def runs(self) -> Mapping[FamilyKey, Sequence[RunFacts]]:
        """The last runs of each family, in the order of time."""
        return {key: self._newest(runs) for key, runs in self._families.items()}

    def _newest(self, runs: Mapping[tuple[str, str, str], RunFacts]) -> Sequence[RunFacts]:
        return sorted(runs.values(), key=lambda run: (run.began_ns, run.key))[-self._last :]


def evidence_of_runs(
    family: FamilyKey, window: Sequence[RunFacts], on_fargate: str | None = None
) -> Evidence | None:
    """Aggregate a family's runs, given in the order of time; None if none of them was measured."""
    runs = [run for run in window if run.is_measured]
    if not runs:
        return None
    killed = [run for run in window if run.record.likely_out_of_memory]
    killed_unmeasured = sum(not run.is_measured for run in killed)
    records = [run.record for run in runs]
    latest, newest = records[-1], window[-1].record
    if newest.task_size is not None:
        sizes = {
            "vcpu_size": newest.metrics.vcpu_size,
            "memory_size_mb": newest.metrics.memory_size_mb,
        }
        latest = replace(
            latest, task_size=newest.task_size, metrics=replace(latest.metrics, **sizes)
        )
    current_vcpu = size_of(latest).vcpu
    records_now = [record for record in records if size_of(record).vcpu == current_vcpu]
    of_largest = max(runs, key=lambda run: run.needed_memory_mb or -1).record.metrics
    processors = (record.processor.model for record in records if record.processor is not None)
    idle_flags = [idle for idle in map(gpus_idle, records) if idle is not None]
    sources = set(map(known_peak_source, (record.metrics for record in records)))
    return Evidence(
        family=family,
        runs=len(runs),
        latest=latest,
        failed=sum(record.status == "failure" for record in records),
        stopped=sum(record.status == "stopped" for record in records),
        has_success=any(map(_has_succeeded, records)),
        out_of_memory=len(killed),
        out_of_memory_unmeasured=killed_unmeasured,
        ignored=len(window) - len(runs) - killed_unmeasured,
        required_memory_mb=max_known(*(run.needed_memory_mb for run in runs)),
        required_vcpu=max_known(*(run.needed_vcpu for run in runs)),
        batch_peak_mb=of_largest.max_memory_used_mb,
        batch_p99_mb=(of_largest.memory_used_mb or Distribution()).p99,
        slowdowns=duration_factors(runs, current_vcpu),
        vcpu_without_slowdown=max_known(*(run.needed_vcpu for run in runs if run.slowdown is None)),
        # Runs at another vCPU size do not show how busy the task is now.
        saturated_percent=_mean_percent(
            records_now, lambda record: record.metrics.vcpu_saturated_percent
        ),
        cpu_wait_percent=_mean_percent(records_now, counted_cpu_wait),
        is_cpu_wait_partial=any(map(is_cpu_wait_partial, records_now)),
        processors=tuple(
            Counter(short_processor_name(model) for model in processors if model).most_common()
        ),
        oom_size_mb=max_known(*(oom_size_mb(run.record) for run in killed)),
        reached_size_mb=max_known(*map(reached_size_mb, records)),
        peak_source="sampled"
        if "sampled" in sources
        else "kernel"
        if "kernel" in sources
        else None,
        stats_period_ms=max_known(*map(stats_period_ms, records)),
        first_started_at=runs[0].began,
        last_started_at=runs[-1].began,
        window_ns=window[-1].began_ns - window[0].began_ns,
        window_tasks=len({run.record.task_id for run in window}),
        billed=_billed_tasks(records_now or records),
        has_run_at_current_vcpu=bool(records_now),
        peaks_mb=tuple(
            peak for record in records if (peak := record.metrics.max_memory_used_mb) is not None
        ),
        unknown_memory=tuple(
            one.name for one in records[-1].containers if memory_of(one, records[-1]) is None
        ),
        needs_mb=tuple(run.needed_memory_mb for run in runs if run.needed_memory_mb is not None),
        gpus_idle=bool(idle_flags) and all(idle_flags),
        idle_gpu_hours=mean_known(
            *(record.gpu_idle.gpu_hours for record in records if record.gpu_idle is not None)
        ),
        has_gpus_of_others=any(record.gpu_scope == WHOLE_INSTANCE for record in records),
        is_by_minute=any(map(is_sampled_each_minute, records)),
        is_too_short=all(map(_is_too_short, records)),
        on_fargate=on_fargate,
        is_moved=any(run.is_moved for run in runs),
    )


def _has_succeeded(record: Record) -> bool:
    """Whether the run succeeded, or perhaps: Container Insights alone does not know how a run
    ended.
    """
    return record.status == "success" or (
        record.status == "unknown" and is_sampled_each_minute(record)
    )


def _is_too_short(record: Record) -> bool:
    return (
        is_sampled_each_minute(record) and (record.metrics.duration_ms or 0) < MIN_MINUTES * 60_000
    )

"""What is known of a family's past: one answer to each question, whatever source has the runs.

Runs are added in any order, and families of other runs can be merged. What is kept is bounded, but
for 64 bits a run, by which a repeated one is known. A source that counts its runs itself, such as a
search cluster, adds the counts, and the newest successes one by one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final, Literal

from msgspec import Struct

from profiler.core.ecs_terms import cluster_name
from profiler.core.kept_items import HighestRanked
from profiler.core.optional_math import (
    difference,
    known,
    known_values,
    max_known,
    median,
    min_known,
)
from profiler.core.timestamps import DAYS_PER_MONTH, NS_PER_DAY, NS_PER_HOUR, parse_ns
from profiler.record.mapped_files import enough_say_files_apart, runs_of_one_meaning
from profiler.record.mention_limits import NEAR_FULL_SHARE
from profiler.record.record_model import Report
from profiler.record.run_outcome import Outcome
from profiler.record.stop_causes import outcome_of
from profiler.record.task_needs import task_size_of
from profiler.record.unusual import MIN_FAR_RUNS, MIN_RUNS

# More successes are no better evidence of what is usual.
LAST_SUCCESSES: Final = 50
# Of these, the newest ones show how long a run takes now.
LAST_DURATIONS: Final = 20
# A peak this little above the highest one so far is none of another kind; of few runs that differ
# much, the next one can exceed it by more: so many times their spread, shared by them, at most.
_SAME_PEAK_SHARE: Final = 0.02
_SPREADS: Final = 2.0
_MAX_SAME_PEAK_SHARE: Final = 0.1
# The runs of so many days decide on a size.
WINDOW_DAYS: Final = 35
# What is usual for a family is that of so many days: a rare one has its successes in a longer time
# than the runs that decide on a size.
USUAL_DAYS: Final = 90
# A run is slow from so many times the 95th percentile on.
_SLOW: Final = 1.5
# One task in a longer time is no nightly one.
_MIN_COVERED_DAYS: Final = 2
# From the first to the last of seven nights, of which the last may begin earlier: fewer days do not
# show what a week has.
_WEEK_NS: Final = 6 * NS_PER_DAY - NS_PER_HOUR

# ``measured``: from five tasks or more in a day or more. ``schedule``: the due times of the
# family's schedules. ``window``: as many tasks a day as a window shows that is too short for that.
# ``nightly``: one task was seen, and once a night is an assumption.
MonthBasis = Literal["measured", "schedule", "window", "nightly"]


class FamilyRun(Struct, frozen=True, kw_only=True):
    """What a family keeps of a run of one of its containers; None is unknown.

    ``peak_mb`` is the container's; ``memory_size_mb`` is its limit, which is the task's memory
    without one of its own. ``outcome`` is the word of :mod:`profiler.record.run_outcome`.
    ``is_complete``: the numbers are those of a report.
    """

    task_id: str
    container: str
    ended_ns: int
    outcome: str
    is_complete: bool = True
    ecs_cluster: str | None = None
    processor: str | None = None
    duration_ms: float | None = None
    cpu_seconds: float | None = None
    block_read_bytes: float | None = None
    block_write_bytes: float | None = None
    peak_mb: float | None = None
    mapped_files_mb: float | None = None
    memory_size_mb: float | None = None
    task_memory_mb: float | None = None

    @property
    def counts_files(self) -> bool:
        """Whether the peak may include pages of mapped files."""
        return self.peak_mb is not None and self.mapped_files_mb is None

    @property
    def is_success(self) -> bool:
        return self.outcome == "success"


class UsualDuration(Struct, frozen=True, kw_only=True):
    """The median and the 95th percentile of the durations of some successes."""

    median_ms: float
    p95_ms: float
    runs: int

    def is_exceeded_by(self, elapsed_ms: float) -> bool:
        """Whether a run takes longer than nearly all successes did."""
        return elapsed_ms > self.p95_ms

    def is_slow(self, elapsed_ms: float) -> bool:
        """Whether a run takes so much longer that people should know."""
        return self.runs >= MIN_FAR_RUNS and elapsed_ms > _SLOW * self.p95_ms


def usual_duration(durations_ms: Sequence[float]) -> UsualDuration | None:
    """The usual duration; None without a duration."""
    if not durations_ms:
        return None
    from statistics import quantiles  # slow to import

    if durations_ms[1:]:
        p95_ms = quantiles(durations_ms, n=20, method="inclusive")[-1]
    else:
        p95_ms = durations_ms[0]
    return UsualDuration(
        median_ms=median(sorted(durations_ms)), p95_ms=p95_ms, runs=len(durations_ms)
    )


class HighestPeak(Struct, frozen=True, kw_only=True):
    """The highest memory peak that some successes reached, at any size.

    ``median_mb``: of their peaks. ``counts_files``: one of them may include pages of mapped files,
    so that it was at most so high.
    """

    peak_mb: float
    runs: int
    median_mb: float | None = None
    counts_files: bool = False

    @property
    def expected_mb(self) -> float:
        """What the next run may reach by chance."""
        share = _SAME_PEAK_SHARE
        if self.median_mb:
            of_spread = _SPREADS * (self.peak_mb / self.median_mb - 1) / self.runs
            share = max(share, min(of_spread, _MAX_SAME_PEAK_SHARE))
        return (1 + share) * self.peak_mb

    def is_exceeded_by(self, used_mb: float, size_mb: float) -> bool:
        """Whether a run that goes on uses more than all of them did, and most of its size."""
        return used_mb >= NEAR_FULL_SHARE * size_mb and used_mb > self.expected_mb


def highest_peak_of(peaks_mb: Sequence[float], *, counts_files: bool = False) -> HighestPeak:
    """The highest of these peaks, at least one."""
    ordered = sorted(peaks_mb)
    return HighestPeak(
        peak_mb=ordered[-1],
        runs=len(ordered),
        median_mb=median(ordered),
        counts_files=counts_files,
    )


class NeedAtSize(Struct, frozen=True, kw_only=True):
    """What runs needed at one size: the highest peak of a success, and whether one was killed."""

    peak_mb: float | None = None
    was_killed: bool = False


class ObservedNeeds(Struct, frozen=True, kw_only=True):
    """What runs at one size show of their need: the highest peak of all successes, and that of
    those which say mapped files apart.
    """

    peak_mb: float | None = None
    apart_peak_mb: float | None = None
    apart_runs: int = 0
    was_killed: bool = False

    def with_others(self, other: "ObservedNeeds") -> "ObservedNeeds":
        """These needs with those of other runs."""
        return ObservedNeeds(
            peak_mb=max_known(self.peak_mb, other.peak_mb),
            apart_peak_mb=max_known(self.apart_peak_mb, other.apart_peak_mb),
            apart_runs=self.apart_runs + other.apart_runs,
            was_killed=self.was_killed or other.was_killed,
        )

    @property
    def need_of_counting_peaks(self) -> NeedAtSize:
        """The need by the peaks that count: see :mod:`profiler.record.mapped_files`."""
        counts_apart = enough_say_files_apart(self.apart_runs)
        return NeedAtSize(
            peak_mb=self.apart_peak_mb if counts_apart else self.peak_mb,
            was_killed=self.was_killed,
        )


class MonthlyTasks(Struct, frozen=True, kw_only=True):
    """The number of a family's tasks in a month, and its basis; ``is_of_few_days``: measured in
    less than a week.
    """

    runs: float
    basis: MonthBasis
    is_of_few_days: bool = False

    @property
    def is_estimate(self) -> bool:
        return self.basis != "measured"


def measured_month(tasks: int, window_ns: int) -> MonthlyTasks | None:
    """The tasks a month, from the first to the last of so many; None for fewer than 5 tasks or a
    window shorter than a day.
    """
    if tasks < MIN_RUNS or window_ns < NS_PER_DAY:
        return None
    per_day = (tasks - 1) / (window_ns / NS_PER_DAY)
    return MonthlyTasks(
        runs=per_day * DAYS_PER_MONTH, basis="measured", is_of_few_days=window_ns < _WEEK_NS
    )


def estimated_month(
    tasks: int, window_ns: int, due_a_month: float | None, covered_days: float
) -> MonthlyTasks:
    """The tasks a month where the window, from the first to the last, is too short to measure them.

    ``due_a_month``: of the family's schedules; None: they are not known. ``covered_days``: the
    source has all tasks of so many days. A window shorter than a day may hold all tasks of the
    day, so that no more of them are assumed.
    """
    if due_a_month is not None:
        return MonthlyTasks(runs=due_a_month, basis="schedule")
    days = window_ns / NS_PER_DAY
    per_day: float = tasks
    if tasks > 1 and days > 0:
        per_day = min(tasks, (tasks - 1) / days)
    elif tasks <= 1 and covered_days < _MIN_COVERED_DAYS:
        return MonthlyTasks(runs=DAYS_PER_MONTH, basis="nightly")
    elif tasks <= 1:
        per_day = 1 / covered_days
    return MonthlyTasks(runs=per_day * DAYS_PER_MONTH, basis="window")


class Family:
    """The runs of one family. A repeated run is ignored."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.run_ids: set[int] = set()
        self.task_ids: set[int] = set()
        self.counted_tasks = 0
        # By container and ECS cluster.
        self.newest: dict[tuple[str, str | None], HighestRanked[FamilyRun]] = {}
        # By container and the task's memory.
        self.needs: dict[tuple[str, float], ObservedNeeds] = {}

    def add_run(self, run: FamilyRun) -> None:
        """Add a run, in any order."""
        identity = _stable_hash(run.task_id, run.container)
        if identity in self.run_ids:
            return
        self.run_ids.add(identity)
        self.task_ids.add(_stable_hash(run.task_id))
        self.outcomes[run.outcome] += 1
        self._extend_window(run.ended_ns, run.ended_ns)
        self.add_counted_run(run)
        if run.task_memory_mb is not None:
            self.add_need(run.container, run.task_memory_mb, _observed_needs_of_run(run))

    def add_counted_run(self, run: FamilyRun) -> None:
        """Add one of the newest runs, which :meth:`add_counts` counts."""
        if run.is_success:
            kept = self.newest.setdefault(
                (run.container, run.ecs_cluster), HighestRanked(LAST_SUCCESSES)
            )
            kept.add(run.ended_ns, _stable_hash(run.task_id, run.container), run)

    def add_counts(self, tasks: int, first_ns: int, last_ns: int) -> None:
        """Add tasks that are not added one by one."""
        if tasks:
            self.counted_tasks += tasks
            self._extend_window(first_ns, last_ns)

    def add_need(self, container: str, task_memory_mb: float, needs: ObservedNeeds) -> None:
        """Add what runs of a container needed in tasks of one size."""
        added = self.needs.get((container, task_memory_mb), ObservedNeeds())
        self.needs[container, task_memory_mb] = added.with_others(needs)

    def merge(self, other: "Family") -> None:
        """Add the runs of another family object, which has other runs."""
        self.outcomes.update(other.outcomes)
        self._extend_window(other.first_ns, other.last_ns)
        self.run_ids |= other.run_ids
        self.task_ids |= other.task_ids
        self.counted_tasks += other.counted_tasks
        for key, successes in other.newest.items():
            self.newest.setdefault(key, HighestRanked(LAST_SUCCESSES)).merge(successes)
        for (container, memory_mb), needs in other.needs.items():
            self.add_need(container, memory_mb, needs)

    @property
    def task_count(self) -> int:
        return len(self.task_ids) + self.counted_tasks

    @property
    def month(self) -> MonthlyTasks | None:
        """The tasks a month; None of too few or in too short a time."""
        return known(
            partial(measured_month, self.task_count), difference(self.last_ns, self.first_ns)
        )

    def last_successes(self, container: str | None = None) -> tuple[FamilyRun, ...]:
        """The last successes, the newest first; None: of all containers."""
        entries = []
        for (name, _), kept in self.newest.items():
            if container in (None, name):
                entries += kept.entries
        entries.sort(key=lambda entry: entry[:2], reverse=True)
        return tuple(run for _, _, run in entries[:LAST_SUCCESSES])

    @property
    def ecs_clusters(self) -> frozenset[str | None]:
        """The ECS clusters of the last successes."""
        return frozenset(cluster for _, cluster in self.newest)

    def family_in_cluster(self, ecs_cluster: str | None) -> "Family":
        """The last successes in an ECS cluster; what else is known is left out."""
        same = Family()
        for (container, cluster), kept in self.newest.items():
            if cluster == ecs_cluster:
                same.newest[container, cluster] = kept
        return same

    def comparable_successes(
        self, ecs_cluster: str | None, enough: int, *, of: Callable[[FamilyRun], bool]
    ) -> tuple[FamilyRun, ...]:
        """The last successes with a property, in the ECS cluster if there are ``enough``, else in
        all; the newest first.
        """
        for successes in (
            self.family_in_cluster(ecs_cluster).last_successes(),
            self.last_successes(),
        ):
            chosen = tuple(filter(of, successes))
            if len(chosen) >= enough:
                return chosen
        return chosen

    def last_success(self, ecs_cluster: str | None = None) -> FamilyRun | None:
        """The newest success; one in the ECS cluster is preferred."""
        return next(
            iter(self.family_in_cluster(ecs_cluster).last_successes() or self.last_successes()),
            None,
        )

    def last_success_durations_ms(self, ecs_cluster: str | None = None) -> tuple[float, ...]:
        """The durations of the last successes, in the ECS cluster if it has five; the newest
        first.
        """
        timed = self.comparable_successes(
            ecs_cluster, MIN_RUNS, of=lambda run: bool(run.duration_ms)
        )
        return known_values(run.duration_ms for run in timed[:LAST_DURATIONS])

    def usual_duration(self, ecs_cluster: str | None = None) -> UsualDuration | None:
        return usual_duration(self.last_success_durations_ms(ecs_cluster))

    def highest_peak(self, container: str | None = None) -> HighestPeak | None:
        """What no success of the container has exceeded, at any size; None if fewer than five
        peaks are known. Without a container, of all.
        """
        measured = [run for run in self.last_successes(container) if run.peak_mb is not None]
        counted = runs_of_one_meaning(measured, lambda run: run.counts_files)
        peaks_mb = known_values(run.peak_mb for run in counted)
        if len(peaks_mb) < MIN_RUNS:
            return None
        return highest_peak_of(peaks_mb, counts_files=any(run.counts_files for run in counted))

    def memory_need(self, container: str, task_memory_mb: float) -> NeedAtSize:
        """What the runs of a container needed in tasks of this size."""
        return self.needs.get((container, task_memory_mb), ObservedNeeds()).need_of_counting_peaks

    def _extend_window(self, first_ns: int | None, last_ns: int | None) -> None:
        self.first_ns = min_known(self.first_ns, first_ns)
        self.last_ns = max_known(self.last_ns, last_ns)


def _observed_needs_of_run(run: FamilyRun) -> ObservedNeeds:
    peak_mb = run.peak_mb if run.is_success else None
    if peak_mb is None or run.counts_files:
        return ObservedNeeds(peak_mb=peak_mb, was_killed=run.outcome == "oom")
    return ObservedNeeds(peak_mb=peak_mb, apart_peak_mb=peak_mb, apart_runs=1)


def family_run_of(report: Report, outcome: Outcome | None = None) -> FamilyRun:
    """What a family keeps of a final report. ``outcome``: also by the task's event."""
    record = report.record
    metrics = record.metrics
    return FamilyRun(
        task_id=record.task_id,
        container=record.container.name,
        ended_ns=parse_ns(record.finished_at or report.time) or 0,
        outcome=(outcome or outcome_of(record)).cause,
        ecs_cluster=cluster_name(record.cluster),
        processor=record.processor.model,
        duration_ms=metrics.duration_ms,
        cpu_seconds=metrics.cpu_seconds,
        block_read_bytes=metrics.block_read_bytes,
        block_write_bytes=metrics.block_write_bytes,
        peak_mb=metrics.max_memory_used_mb,
        mapped_files_mb=metrics.mapped_files_mb,
        memory_size_mb=metrics.memory_size_mb,
        task_memory_mb=task_size_of(record).memory_mb,
    )


def family_of_reports(reports: Iterable[Report]) -> Family:
    """The family of these final reports, given in any order."""
    family = Family()
    for report in reports:
        family.add_run(family_run_of(report))
    return family


def _stable_hash(*words: str) -> int:
    """64 bits of a digest, which is the same in every process."""
    digest = blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")

"""The runs whose tasks had one size: counts by revision, and the runs that decide.

Whole runs are kept only where they decide: those with the largest needs, the newest ones, and a
sample.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from profiler.core.ecs_terms import VCPU_SIZES
from profiler.core.kept_items import HighestRanked
from profiler.core.optional_math import first_known, max_known
from profiler.core.timestamps import NS_PER_HOUR
from profiler.record.record_model import Metrics
from profiler.record.task_needs import bound_memory_mb, task_size_of, used_with_files_mb
from profiler.sizing.run_counts import RevisionRuns, RunCounts, outcome_counted_as
from profiler.sizing.run_facts import (
    RunFacts,
    oom_size_mb,
    possible_kill_size_mb,
    runs_in_time_order,
    stats_period_ms,
)
from profiler.sizing.slowdown_factors import (
    SAME_DURATION,
    Factors,
    are_all_bounds_larger,
    factors_at_each_vcpu,
    factors_of_run,
    larger_factors,
)

NEWEST_RUNS: Final = 100
SAMPLED_RUNS: Final = 100


def _deciding_values(run: RunFacts) -> tuple[float | None, ...]:
    """Values of a run: of all runs, the one with the largest value in each place decides."""
    record = run.record
    needed_mb = run.needed_memory_mb
    return (
        needed_mb,
        None if run.counts_files else needed_mb,
        needed_mb if run.counts_files else None,
        run.memory_with_files_mb,
        bound_memory_mb(record),
        run.needed_vcpu,
        run.needed_vcpu if run.slowdown is None else None,
        oom_size_mb(record) if run.outcome.ran_out_of_memory else None,
        possible_kill_size_mb(record),
        stats_period_ms(record),
    )


class ContainerMemory(Struct, frozen=True, kw_only=True):
    """The largest memory that a container used, and the largest limit of its own at which it was
    killed. ``held_mb`` keeps the limit from getting lower: with its mapped files, or what it may
    have used.
    """

    used_mb: float | None = None
    held_mb: float | None = None
    killed_limit_mb: float | None = None

    def with_larger(self, other: "ContainerMemory") -> "ContainerMemory":
        return ContainerMemory(
            used_mb=max_known(self.used_mb, other.used_mb),
            held_mb=max_known(self.held_mb, other.held_mb),
            killed_limit_mb=max_known(self.killed_limit_mb, other.killed_limit_mb),
        )


class RunsAtSize:
    """The runs whose tasks had one size."""

    def __init__(self) -> None:
        self.revisions: dict[str, RevisionRuns] = {}
        self.newest: HighestRanked[RunFacts] = HighestRanked(NEWEST_RUNS)
        self.sample: HighestRanked[RunFacts] = HighestRanked(SAMPLED_RUNS)
        self.containers: dict[str, ContainerMemory] = {}
        # By the vCPU size with which another one is compared.
        self.factors: dict[float, Factors] = {}
        # The longest success, by the hour of the day in UTC in which it began.
        self.longest_ms: dict[int, float] = {}
        # By the place in the deciding values: the largest one, and its run.
        self.extremes: dict[int, tuple[float, int, RunFacts]] = {}
        # Of AWS Batch's jobs, those of runs that are not kept, too.
        self.queues: set[str] = set()

    @property
    def counts(self) -> RunCounts:
        """The counts of all revisions."""
        total = RunCounts()
        for revision in self.revisions.values():
            total.merge(revision.counts)
        return total

    def deciding_runs(self) -> Sequence[RunFacts]:
        """The kept runs, in the order of time."""
        runs = dict(self.newest) | dict(self.sample)
        runs.update({identity: run for _, identity, run in self.extremes.values()})
        return runs_in_time_order(runs.values())

    def has_run_of(self, revision: str | None) -> bool:
        """Whether a run of this revision is among them; without one, any run."""
        return revision is None or revision in self.revisions

    def runs_of_revision(self, revision: str) -> RevisionRuns:
        return self.revisions.setdefault(revision, RevisionRuns())

    def keep_if_deciding(self, identity: int, run: RunFacts, *, is_sampled: bool = True) -> None:
        """Keep what decides of a run. A run that was kept changes nothing.

        ``is_sampled``: it may be in the sample, because it was not chosen for its values.
        """
        self.newest.add(run.began_ns, identity, run)
        if run.record.batch.queue:
            self.queues.add(run.record.batch.queue)
        if run.is_measured and is_sampled:
            self.sample.add(identity, identity, run)
        for place, value in enumerate(_deciding_values(run)):
            if value is not None:
                self._keep_extreme(place, value, identity, run)
        if run.slowdown:
            for vcpu, factors in factors_at_each_vcpu(run.slowdown):
                self._add_factors(vcpu, factors)
        for name, memory in _memory_by_container(run):
            self._add_container(name, memory)
        duration_ms = run.record.metrics.duration_ms
        if duration_ms and outcome_counted_as(run) == "success":
            self.add_longest_success(run.began_ns, duration_ms)

    def add_longest_success(self, began_ns: int, duration_ms: float) -> None:
        """Add the duration of a success."""
        hour = began_ns // NS_PER_HOUR % 24
        if duration_ms > self.longest_ms.get(hour, 0):
            self.longest_ms[hour] = duration_ms

    def add_largest_slowdowns(self, own_vcpu: float, bounds: Factors) -> None:
        """Add the largest slowdowns of runs that are not added one by one.

        Their task had ``own_vcpu``. Compared with a smaller size, the factors are upper bounds:
        the slowdown there counts as 1.
        """
        for vcpu in VCPU_SIZES:
            if vcpu < own_vcpu:
                self._add_factors(vcpu, factors_of_run({**bounds, vcpu: SAME_DURATION}, vcpu))
            else:
                self._add_factors(vcpu, factors_of_run(bounds, vcpu))

    def merge(self, other: "RunsAtSize") -> None:
        """Add the runs of another part of the window."""
        for revision, runs in other.revisions.items():
            self.runs_of_revision(revision).merge(runs)
        self.newest.merge(other.newest)
        self.queues |= other.queues
        self.sample.merge(other.sample)
        for place, (value, identity, run) in other.extremes.items():
            self._keep_extreme(place, value, identity, run)
        for vcpu, factors in other.factors.items():
            self._add_factors(vcpu, factors)
        for name, memory in other.containers.items():
            self._add_container(name, memory)
        for hour, duration_ms in other.longest_ms.items():
            self.longest_ms[hour] = max(self.longest_ms.get(hour, 0), duration_ms)

    def _keep_extreme(self, place: int, value: float, identity: int, run: RunFacts) -> None:
        present = self.extremes.get(place)
        if present is None or (value, identity) > present[:2]:
            self.extremes[place] = (value, identity, run)

    def _add_factors(self, vcpu: float, factors: Factors) -> None:
        known = self.factors.get(vcpu, {})
        if factors and not are_all_bounds_larger(known, factors):
            self.factors[vcpu] = larger_factors(known, factors)

    def _add_container(self, name: str, memory: ContainerMemory) -> None:
        self.containers[name] = memory.with_larger(self.containers.get(name, ContainerMemory()))


def _memory_by_container(run: RunFacts) -> Iterator[tuple[str, ContainerMemory]]:
    record = run.record
    metrics = record.metrics
    name = record.container.name
    limit_mb = metrics.memory_size_mb
    is_killed_at_own_limit = run.outcome.ran_out_of_memory and first_known(limit_mb, math.inf) < (
        task_size_of(record).memory_mb or 0
    )
    yield (
        name,
        ContainerMemory(
            used_mb=metrics.max_memory_used_mb,
            held_mb=_memory_with_held_mb(metrics),
            killed_limit_mb=limit_mb if is_killed_at_own_limit else None,
        ),
    )
    for container in record.containers:
        if container.metrics is not None:
            used_mb = container.metrics.max_memory_used_mb
            held_mb = _memory_with_held_mb(container.metrics)
            yield container.name, ContainerMemory(used_mb=used_mb, held_mb=held_mb)


def _memory_with_held_mb(metrics: Metrics) -> float | None:
    with_files_mb = used_with_files_mb(metrics, metrics.max_memory_used_mb)
    return max_known(with_files_mb, metrics.memory_used_bound_mb)

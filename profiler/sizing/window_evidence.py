"""The evidence of a window of runs: exact counts and extremes, and the sample's mean times."""

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import chain

from msgspec.structs import replace

from profiler.core.optional_math import known_values, max_known
from profiler.core.timestamps import format_ms
from profiler.record.record_model import TaskSize
from profiler.sizing.evidence import (
    Evidence,
    MemoryAndCpuNeeds,
    OutcomeCounts,
    UsageOfTasks,
    needs_of,
    precision_of,
    runs_that_count,
    spread_of_runs,
    usage_of_tasks,
    with_memory_needs_of,
    with_needs_over_time,
)
from profiler.sizing.family_window import FamilyWindow
from profiler.sizing.memory_margin import NeedSpread
from profiler.sizing.run_counts import RunCounts, least_task_count
from profiler.sizing.run_facts import RunFacts, runs_in_time_order
from profiler.sizing.runs_at_size import NEWEST_RUNS, RunsAtSize
from profiler.sizing.slowdown_factors import Factors, larger_factors


def evidence_at_size(window: FamilyWindow, size: TaskSize) -> Evidence | None:
    """What the runs on Fargate at a size show, with the needs and the kills of those elsewhere;
    None if none on Fargate was measured.
    """
    runs = window.runs_at(size)
    measured = [run for run in runs.deciding_runs() if run.is_measured]
    if not measured:
        return None
    newest = measured[-1]
    outcomes = _outcome_counts(runs.counts)
    needs = _needs_at(runs, size.vcpu)
    elsewhere = window.elsewhere.get(size)
    if elsewhere is not None:
        killed = elsewhere.counts.task_count_with("killed")
        outcomes = replace(outcomes, out_of_memory=outcomes.out_of_memory + killed)
        needs = _larger_needs(needs, _needs_at(elsewhere, size.vcpu))
        needs = _with_memory_of_sizes(needs, [runs, elsewhere])
    return Evidence(
        family=newest.family,
        latest=newest.record,
        outcomes=outcomes,
        needs=replace(needs, spread=spread_of_window_needs(window)),
        usage=_usage_of_runs(runs, size.vcpu),
        precision=precision_of(measured),
    )


def with_all_needs(evidence: Evidence, window: FamilyWindow) -> Evidence:
    """The evidence, with the largest needs of the runs at any size, wherever they were."""
    vcpu = evidence.task_size.vcpu
    needs = evidence.needs
    at_sizes = [runs for _, runs in window.runs_at_all_sizes()]
    for runs in at_sizes:
        needs = _larger_needs(needs, _needs_at(runs, vcpu))
    needs = replace(_with_memory_of_sizes(needs, at_sizes), spread=evidence.needs.spread)
    return replace(evidence, needs=needs)


def spread_of_window_needs(window: FamilyWindow) -> NeedSpread | None:
    """How far the needs of the runs at any size differ. The median is that of the newest runs
    whose need is known; of the kept ones, if that of no newest one is.
    """
    at_sizes = [runs for _, runs in window.runs_at_all_sizes()]
    deciding = runs_in_time_order(chain.from_iterable(runs.deciding_runs() for runs in at_sizes))
    every = spread_of_runs(deciding)
    known = (
        run for runs in at_sizes for run in runs.newest.items() if not run.outcome.ran_out_of_memory
    )
    newest = spread_of_runs(_newest_measured_runs(known)) or every
    if every is None or newest is None:
        return None
    known_needs = newest.runs
    if not with_memory_needs_of(MemoryAndCpuNeeds(), deciding).has_older:
        known_needs = sum(runs.counts.measured_to_end_count for runs in at_sizes)
    return replace(every, median_mb=newest.median_mb, runs=known_needs)


def run_with_largest_need(window: FamilyWindow) -> RunFacts | None:
    """The run that needed the most memory, at any size; one whose peak may include mapped files
    only where too few others are known.
    """
    deciding = chain.from_iterable(runs.deciding_runs() for _, runs in window.runs_at_all_sizes())
    counted = runs_that_count(deciding)
    return max(counted, key=lambda run: run.needed_memory_mb or 0, default=None)


def _outcome_counts(counts: RunCounts) -> OutcomeCounts:
    measured_tasks = least_task_count(counts.measured)
    killed_unmeasured = least_task_count(counts.killed_unmeasured)
    return OutcomeCounts(
        runs=measured_tasks,
        failed=counts.task_count_with("failed"),
        stopped=counts.task_count_with("stopped"),
        has_success=counts.counts_by_outcome["success"] + counts.counts_by_outcome["not known"] > 0,
        out_of_memory=counts.task_count_with("killed"),
        out_of_memory_unmeasured=killed_unmeasured,
        ignored=max(0, counts.task_count - measured_tasks - killed_unmeasured),
        first_started_at=format_ms(counts.first_ns or 0),
        last_started_at=format_ms(counts.last_ns or 0),
    )


def _needs_at(runs: RunsAtSize, vcpu: float | None) -> MemoryAndCpuNeeds:
    needs = needs_of(runs.deciding_runs(), vcpu)
    factors: Factors | None = needs.slowdowns
    if vcpu is not None:
        factors = runs.factors.get(vcpu, factors)
    return _with_newest(replace(needs, slowdowns=factors), runs.newest.items())


def _with_newest(needs: MemoryAndCpuNeeds, newest: Iterable[RunFacts]) -> MemoryAndCpuNeeds:
    """The needs, with those of the newest runs in the order of time."""
    return with_needs_over_time(needs, _newest_measured_runs(newest))


def _newest_measured_runs(runs: Iterable[RunFacts]) -> Sequence[RunFacts]:
    """The newest measured runs, in the order of time."""
    return runs_in_time_order(run for run in runs if run.is_measured)[-NEWEST_RUNS:]


def _with_memory_of_sizes(
    needs: MemoryAndCpuNeeds, at_sizes: Sequence[RunsAtSize]
) -> MemoryAndCpuNeeds:
    """The needs, with the memory that runs at some sizes needed."""
    deciding = chain.from_iterable(runs.deciding_runs() for runs in at_sizes)
    newest = chain.from_iterable(runs.newest.items() for runs in at_sizes)
    return _with_newest(with_memory_needs_of(needs, deciding), newest)


def _larger_needs(needs: MemoryAndCpuNeeds, other: MemoryAndCpuNeeds) -> MemoryAndCpuNeeds:
    """The larger needs, without those of memory."""
    slowdowns = known_values((needs.slowdowns, other.slowdowns))
    return MemoryAndCpuNeeds(
        required_vcpu=max_known(needs.required_vcpu, other.required_vcpu),
        slowdowns=reduce(larger_factors, slowdowns) if slowdowns else None,
        vcpu_without_slowdown=max_known(needs.vcpu_without_slowdown, other.vcpu_without_slowdown),
        oom_size_mb=max_known(needs.oom_size_mb, other.oom_size_mb),
        reached_size_mb=max_known(needs.reached_size_mb, other.reached_size_mb),
    )


def _usage_of_runs(runs: RunsAtSize, vcpu: float | None) -> UsageOfTasks:
    counts = runs.counts
    usage = usage_of_tasks(runs_in_time_order(runs.sample.items()), vcpu)
    return replace(
        usage,
        window_ns=(counts.last_ns or 0) - (counts.first_ns or 0),
        window_tasks=counts.task_count,
    )

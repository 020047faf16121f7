"""The evidence of a window of runs: exact counts and extremes, and the sample's mean times."""

from collections.abc import Sequence

from msgspec.structs import replace

from profiler.core.optional_math import known_values, max_known, median
from profiler.core.timestamps import format_ms
from profiler.record.record_model import TaskSize
from profiler.sizing.evidence import (
    Evidence,
    Needs,
    Outcomes,
    Usage,
    needs_of,
    precision_of,
    usage_of,
)
from profiler.sizing.family_window import FamilyWindow
from profiler.sizing.memory_margin import NeedSpread
from profiler.sizing.run_counts import RunCounts
from profiler.sizing.run_facts import RunFacts, in_order
from profiler.sizing.runs_at_size import NEWEST_RUNS, RunsAtSize
from profiler.sizing.slowdown_factors import Factors, larger_factors


def evidence_at(window: FamilyWindow, size: TaskSize) -> Evidence | None:
    """What the runs on Fargate at a size show, with the needs and the kills of those elsewhere;
    None if none on Fargate was measured.
    """
    runs = window.sizes.get(size)
    if runs is None:
        return None
    measured = [run for run in runs.deciding() if run.is_measured]
    if not measured:
        return None
    newest = measured[-1]
    outcomes = _outcomes(runs.counts)
    needs = _needs_at(runs, size.vcpu)
    elsewhere = window.elsewhere.get(size)
    if elsewhere is not None:
        killed = elsewhere.counts.outcomes["killed"]
        outcomes = replace(outcomes, out_of_memory=outcomes.out_of_memory + killed)
        needs = _with_course(
            _larger_needs(needs, _needs_at(elsewhere, size.vcpu)),
            [*runs.newest.items(), *elsewhere.newest.items()],
        )
    return Evidence(
        family=newest.family,
        latest=newest.record,
        outcomes=outcomes,
        needs=replace(needs, spread=spread_in(window)),
        usage=_usage(runs, size.vcpu),
        precision=precision_of(measured),
    )


def with_all_needs(evidence: Evidence, window: FamilyWindow) -> Evidence:
    """The evidence, with the largest needs of the runs at any size, wherever they were."""
    vcpu = evidence.size.vcpu
    needs = evidence.needs
    newest: list[RunFacts] = []
    for _, runs in window.everywhere():
        needs = _larger_needs(needs, _needs_at(runs, vcpu))
        newest += runs.newest.items()
    needs = replace(_with_course(needs, newest), spread=evidence.needs.spread)
    return replace(evidence, needs=needs)


def spread_in(window: FamilyWindow) -> NeedSpread | None:
    """How far the needs of the runs at any size differ: the median is the newest runs'."""
    newest: list[RunFacts] = []
    largest: list[float | None] = []
    measured = 0
    for _, runs in window.everywhere():
        newest += runs.newest.items()
        measured += runs.counts.measured
        if runs.largest_need is not None:
            largest.append(runs.largest_need.needed_memory_mb)
    newest_mb = _course(newest).needs_mb
    largest_mb = max_known(*largest)
    if largest_mb is None or not newest_mb:
        return None
    return NeedSpread(largest_mb=largest_mb, median_mb=median(sorted(newest_mb)), runs=measured)


def _outcomes(counts: RunCounts) -> Outcomes:
    return Outcomes(
        runs=counts.measured,
        failed=counts.outcomes["failed"],
        stopped=counts.outcomes["stopped"],
        has_success=counts.outcomes["success"] + counts.outcomes["not known"] > 0,
        out_of_memory=counts.outcomes["killed"],
        out_of_memory_unmeasured=counts.killed_unmeasured,
        ignored=counts.runs - counts.measured - counts.killed_unmeasured,
        first_started_at=format_ms(counts.first_ns or 0),
        last_started_at=format_ms(counts.last_ns or 0),
    )


def _needs_at(runs: RunsAtSize, vcpu: float | None) -> Needs:
    needs = needs_of(runs.deciding(), vcpu)
    factors: Factors | None = needs.slowdowns
    if vcpu is not None:
        factors = runs.factors.get(vcpu, factors)
    return _with_course(replace(needs, slowdowns=factors), runs.newest.items())


def _with_course(needs: Needs, newest: Sequence[RunFacts]) -> Needs:
    """The needs, with those of the newest runs in the order of time."""
    course = _course(newest)
    return replace(needs, peaks_mb=course.peaks_mb, needs_mb=course.needs_mb)


def _course(newest: Sequence[RunFacts]) -> Needs:
    """The peaks and needs of the newest runs, in the order of time."""
    course = in_order(run for run in newest if run.is_measured)[-NEWEST_RUNS:]
    return Needs(
        peaks_mb=known_values(run.record.metrics.max_memory_used_mb for run in course),
        needs_mb=known_values(run.needed_memory_mb for run in course),
    )


def _larger_needs(needs: Needs, other: Needs) -> Needs:
    largest = needs
    if (other.required_memory_mb or 0) > (needs.required_memory_mb or 0):
        largest = other
    slowdowns = needs.slowdowns
    if slowdowns is None:
        slowdowns = other.slowdowns
    elif other.slowdowns is not None:
        slowdowns = larger_factors(slowdowns, other.slowdowns)
    return Needs(
        required_memory_mb=largest.required_memory_mb,
        batch_peak_mb=largest.batch_peak_mb,
        batch_p99_mb=largest.batch_p99_mb,
        required_vcpu=max_known(needs.required_vcpu, other.required_vcpu),
        slowdowns=slowdowns,
        vcpu_without_slowdown=max_known(needs.vcpu_without_slowdown, other.vcpu_without_slowdown),
        oom_size_mb=max_known(needs.oom_size_mb, other.oom_size_mb),
        reached_size_mb=max_known(needs.reached_size_mb, other.reached_size_mb),
    )


def _usage(runs: RunsAtSize, vcpu: float | None) -> Usage:
    counts = runs.counts
    usage = usage_of(in_order(runs.sample.items()), vcpu)
    return replace(
        usage, window_ns=(counts.last_ns or 0) - (counts.first_ns or 0), window_tasks=counts.tasks
    )

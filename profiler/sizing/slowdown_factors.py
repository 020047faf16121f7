"""How much longer runs take with fewer vCPUs than now.

A run would take slowdown(c) ÷ slowdown(current) times as long with ``c`` vCPUs as with the current
ones. Both are known as bounds only: the quotient is from min(c) ÷ max(current) to max(c) ÷
min(current), and at most current ÷ c, because half the vCPUs take at most twice as long. For a
family, the largest bounds of any run count.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from profiler.core.ecs_terms import VCPU_SIZES
from profiler.core.optional_math import first_known, known_values
from profiler.record.mention_limits import SATURATED_PERCENT
from profiler.record.record_model import SlowdownBounds
from profiler.record.task_needs import least_time_factor, task_size_of, vcpu_limit
from profiler.record.unusual import MIN_RUNS
from profiler.sizing.run_facts import RunFacts

FACTOR_DIGITS = 3
# From here on, a run counts as slower.
MIN_SLOWER_FACTOR = 1.05
SAME_DURATION = SlowdownBounds(min=1, max=1)
_KNOWN_VCPUS = frozenset(VCPU_SIZES)

# By vCPU size; without an entry, a run takes as long as now.
Factors = Mapping[float, SlowdownBounds]


def duration_factors_of_runs(
    runs: Iterable[RunFacts], current_vcpu: float | None
) -> Factors | None:
    """The factors of the vCPU sizes at which a run would be slower than now; None if no run has
    a slowdown.
    """
    slowdowns = known_values(run.slowdown for run in runs)
    if not slowdowns:
        return None
    factors: Factors = {}
    for slowdown in slowdowns:
        factors = larger_factors(factors, factors_of_run(slowdown, current_vcpu))
    return factors


def factors_of_run(slowdown: Factors, current_vcpu: float | None) -> Factors:
    """The factors of one run, by its slowdown at each vCPU size."""
    now = slowdown.get(current_vcpu or 0, SAME_DURATION)
    vcpu_now = first_known(current_vcpu, math.inf)
    factors = {}
    # Every run of a window is asked about each size, and few sizes have a slowdown.
    for vcpu, there in slowdown.items():
        if vcpu not in _KNOWN_VCPUS:
            continue
        limit = vcpu_now / vcpu
        if limit <= 1:
            continue
        most = _slowdown_quotient(there.max, now.min, limit)
        if most > 1:
            factors[vcpu] = SlowdownBounds(
                min=_slowdown_quotient(there.min, now.max, limit), max=most
            )
    return factors


def factors_at_each_vcpu(slowdown: Factors) -> Iterator[tuple[float, Factors]]:
    """The factors of one run, compared with each of Fargate's vCPU sizes.

    They are the same for all sizes at which the run is not slower, unless a limit cuts one.
    """
    largest = max(slowdown, default=0)
    factors: Factors = {}
    is_shared = False
    for vcpu in VCPU_SIZES:
        if not is_shared:
            factors = factors_of_run(slowdown, vcpu)
            is_shared = vcpu > largest and all(
                slow.max * at <= vcpu for at, slow in slowdown.items()
            )
        yield vcpu, factors


def with_factors_of_saturated_runs(
    factors: Factors | None, runs: Sequence[RunFacts], current_vcpu: float | None
) -> Factors | None:
    """The factors, also by runs that used all of fewer vCPUs than the current ones: with these,
    such a run would take at least :func:`least_time_factor` times as long.

    Five runs at the current vCPU size show what it brings.
    """
    runs_now = sum(task_size_of(run.record).vcpu == current_vcpu for run in runs)
    if factors is None or current_vcpu is None or runs_now >= MIN_RUNS:
        return factors
    smaller = dict.fromkeys(smaller_vcpus(current_vcpu), SAME_DURATION)
    for run in runs:
        vcpu = first_known(vcpu_limit(run.record), math.inf)
        percent = run.record.metrics.vcpu_saturated_percent or 0
        if run.slowdown is None or vcpu >= current_vcpu:
            continue
        if percent >= SATURATED_PERCENT:
            least = least_time_factor(percent / 100, vcpu, current_vcpu)
            now = {current_vcpu: SlowdownBounds(min=least, max=1)}
            slowdown = {**smaller, **run.slowdown, **now}
            factors = larger_factors(factors, factors_of_run(slowdown, current_vcpu))
    return factors


def are_all_bounds_larger(factors: Factors, others: Factors) -> bool:
    """Whether no bound of the others is larger."""
    for vcpu, other in others.items():
        present = factors.get(vcpu, SAME_DURATION)
        if other.max > present.max or other.min > present.min or vcpu not in factors:
            return False
    return True


def larger_factors(factors: Factors, others: Factors) -> Factors:
    """The larger bounds of each size."""
    largest = dict(factors)
    for vcpu, other in others.items():
        present = largest.get(vcpu, SAME_DURATION)
        largest[vcpu] = SlowdownBounds(
            min=max(present.min, other.min), max=max(present.max, other.max)
        )
    return largest


def smaller_vcpus(current_vcpu: float | None) -> Sequence[float]:
    """Return Fargate's vCPU sizes below the current one; without a current size, all."""
    vcpu_now = first_known(current_vcpu, math.inf)
    return [vcpu for vcpu in VCPU_SIZES if vcpu < vcpu_now]


def _slowdown_quotient(slowdown: float, current_slowdown: float, limit: float) -> float:
    """Divide a bound at another size by a bound at the current size; the result is between 1 and
    ``limit``.
    """
    return round(min(max(slowdown / current_slowdown, 1.0), limit), FACTOR_DIGITS)

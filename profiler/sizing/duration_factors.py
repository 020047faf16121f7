"""How many times as long a family's runs would take with fewer vCPUs than the task has now, as two bounds.

Each report has the bounds of its own run: slowdown(c) for each size c, compared with how the run went. Compared with
the current size, the run would take slowdown(c) ÷ slowdown(current) times as long. Both are known as bounds only, so
the smallest quotient is min(c) ÷ max(current) and the largest max(c) ÷ min(current). A task with half the vCPUs takes
at most twice as long, so no quotient is more than current ÷ c. For a family, the largest bounds of any run count.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from profiler.record.record_model import SlowdownBounds
from profiler.record.worth_a_word import SATURATED_PERCENT
from profiler.sizing.fargate import LEGAL_VCPUS
from profiler.sizing.run_facts import RunFacts

_DIGITS = 3
_NO_SLOWDOWN = SlowdownBounds(min=1, max=1)
# From here on, a run counts as slower.
MIN_SLOWER_FACTOR = 1.05


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


def mean_percent(runs: Iterable[RunFacts], read: Callable[[RunFacts], float | None]) -> float | None:
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

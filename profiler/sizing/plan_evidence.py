"""What a person looks at before a size is changed: the largest need and when it was, how much was
seen, and how much longer a run would take.
"""

from collections.abc import Sequence

from msgspec import Struct

from profiler.core.timestamps import NS_PER_DAY
from profiler.record.record_model import SlowdownBounds, TaskSize
from profiler.sizing.run_facts import RunFacts
from profiler.sizing.slowdown_factors import SAME_DURATION, duration_factors


class PlanEvidence(Struct, frozen=True, kw_only=True):
    """``peak_mb``: the largest memory that a run needed, before the margin, with all containers.

    ``days``: from the first run to the last one. ``duration_factor`` is None if it is not known.
    """

    runs: int
    days: float | None = None
    peak_mb: float | None = None
    peak_started_at: str | None = None
    duration_factor: SlowdownBounds | None = None


def plan_evidence(runs: Sequence[RunFacts], present: TaskSize, new: TaskSize) -> PlanEvidence:
    """The evidence of runs in the order of time for a change from the present size."""
    if not runs:
        return PlanEvidence(runs=0)
    measured = [run for run in runs if run.needed_memory_mb is not None]
    largest = max(measured, key=lambda run: run.needed_memory_mb or 0, default=None)
    factors = duration_factors(runs, present.vcpu)
    factor = None
    if new.vcpu == present.vcpu:
        factor = SAME_DURATION
    elif factors is not None and new.vcpu is not None:
        factor = factors.get(new.vcpu, SAME_DURATION)
    return PlanEvidence(
        runs=len(runs),
        days=(runs[-1].began_ns - runs[0].began_ns) / NS_PER_DAY,
        peak_mb=None if largest is None else largest.needed_memory_mb,
        peak_started_at=None if largest is None else largest.began,
        duration_factor=factor,
    )

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.slowdown import CpuDemand
from profiler.core.ecs_terms import VCPU_SIZES
from profiler.record.record_model import SlowdownBounds
from tests.fakes import seconds
from tests.values import present

Step = tuple[float, int]


def demand(steps: Sequence[Step], size: float | None = None) -> CpuDemand:
    found = CpuDemand(size)
    for vcpu, held_ns in steps:
        found.add_step(vcpu, held_ns)
    return found


def bounds(
    steps: Sequence[Step], size: float | None = None, threads: int | None = None
) -> dict[float, SlowdownBounds]:
    found = present(demand(steps, size).slowdown_by_vcpu(vcpu_size=size, max_threads=threads))
    return dict(found)


def test_nothing_measured_has_no_bounds() -> None:
    assert CpuDemand().slowdown_by_vcpu(vcpu_size=1, max_threads=None) is None
    assert CpuDemand(1).saturated_percent(1) is None
    assert demand([(1, 0)]).slowdown_by_vcpu(vcpu_size=1, max_threads=None) is None


def test_saturated_is_95_percent_of_the_size() -> None:
    steps = [(0.95, seconds(1)), (0.94, seconds(3))]
    assert demand(steps, 1).saturated_percent(1) == 25
    assert demand(steps, 2).saturated_percent(2) == 0
    assert demand(steps, 0.98).saturated_percent(0.98) == 100
    assert demand(steps).saturated_percent(None) is None
    assert (
        demand(steps, 64).saturated_percent(1) == 25
    )  # the size of a Fargate task may be found late
    assert demand(steps, 64).saturated_percent(3) is None


STEPS = st.lists(st.tuples(st.floats(0, 200), st.integers(1, seconds(1000))), min_size=1)
SIZES = st.none() | st.sampled_from([*VCPU_SIZES, 3, 96])
THREADS = st.none() | st.integers(1, 300)


def brute_force(
    steps: Sequence[Step], size: float | None, threads: int | None
) -> dict[float, tuple[float, float]]:
    """The formulas of the documentation, written down once more from the steps themselves."""
    time = math.fsum(dt for _, dt in steps)
    mean = math.fsum(u * dt for u, dt in steps) / time
    largest = max(u for u, _ in steps)
    p: float | None = None
    for k in range(1, 400):
        reached = sum(dt for u, dt in steps if u >= 0.95 * k)
        if largest <= 1.05 * k and reached >= 0.05 * time:
            p = k
            break
    if p is None:
        p = size or max(largest, 1)
    p = min([p, *(limit for limit in (size, threads) if limit)])
    found = {}
    for c in VCPU_SIZES:
        low = math.fsum(dt * max(1, u / c) for u, dt in steps) / time
        high = max(low, 1 + mean * (1 / c - 1 / p)) if c < p else low
        found[c] = (low, high)
    return found


def near_a_threshold(steps: Sequence[Step]) -> bool:
    """Within rounding of a limit of the formulas, where two ways to calculate may differ."""
    largest = max(u for u, _ in steps)
    return any(abs(u / 0.95 - round(u / 0.95)) < 1e-9 for u, _ in steps if u) or (
        abs(largest / 1.05 - round(largest / 1.05)) < 1e-9 and largest > 0
    )


@given(steps=STEPS, size=SIZES, threads=THREADS)
def test_the_bounds_equal_brute_force(
    steps: list[Step], size: float | None, threads: int | None
) -> None:
    found = bounds(steps, size, threads)
    if near_a_threshold(steps):
        return
    for c, (low, high) in brute_force(steps, size, threads).items():
        if c in found:
            assert found[c].min == pytest.approx(low, rel=1e-6, abs=6e-4)
            assert found[c].max == pytest.approx(high, rel=1e-6, abs=6e-4)
        else:
            assert high <= 1.001 + 1e-6

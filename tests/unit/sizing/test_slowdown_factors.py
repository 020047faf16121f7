"""The factors of a run, compared with each vCPU size."""

from hypothesis import given
from hypothesis import strategies as st

from profiler.core.ecs_terms import VCPU_SIZES
from profiler.record.record_model import SlowdownBounds
from profiler.sizing.slowdown_factors import (
    are_all_bounds_larger,
    factors_at_each_vcpu,
    factors_of_run,
    larger_factors,
)

bounds = st.builds(
    lambda least, more: SlowdownBounds(min=least, max=least * more),
    st.floats(1, 8),
    st.floats(1, 4),
)
slowdowns = st.dictionaries(st.sampled_from([*VCPU_SIZES, 3.0]), bounds, max_size=5)


@given(slowdowns)
def test_the_factors_at_all_sizes_are_those_at_each(slowdown: dict[float, SlowdownBounds]) -> None:
    expected = {vcpu: factors_of_run(slowdown, vcpu) for vcpu in VCPU_SIZES}
    assert dict(factors_at_each_vcpu(slowdown)) == expected


@given(slowdowns, slowdowns)
def test_larger_factors_change_nothing_where_none_is_larger(
    factors: dict[float, SlowdownBounds], others: dict[float, SlowdownBounds]
) -> None:
    assert are_all_bounds_larger(factors, others) == (larger_factors(factors, others) == factors)

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from profiler.aggregation.statistics import MeanAndMaximum, MonotonicCounter, TimeWeightedStatistics
from profiler.record.record_model import NO_READINGS, NOT_MEASURED, AverageAndMaximum
from tests.values import present

values = st.just(0.0) | st.floats(
    min_value=1e-9, max_value=1e20, allow_nan=False, allow_infinity=False
)
weights = st.integers(min_value=1_000_000, max_value=10**13)


def test_the_percentiles_are_not_the_maximum_and_the_median_is_none_of_the_mean() -> None:
    series = TimeWeightedStatistics()
    series.add_value(2.0, 995)
    series.add_value(100.0, 5)
    shown = present(series.distribution())
    assert shown.p50 == pytest.approx(2.0, rel=0.01)
    assert shown.p95 == pytest.approx(2.0, rel=0.01)
    assert shown.p99 == pytest.approx(2.0, rel=0.01)
    assert shown.avg == 2.49
    assert shown.max == 100.0
    assert series.median() == pytest.approx(2.0, rel=0.01)
    assert series.maximum == pytest.approx(100.0, rel=0.01)


def test_values_are_divided_and_rounded_to_three_digits_by_default() -> None:
    series = TimeWeightedStatistics()
    series.add_value(1.23456, 1)
    plain, fewer, of_eight = (
        series.distribution(),
        series.distribution(digits=1),
        series.distribution(per=8),
    )
    assert present(plain).max == 1.235
    assert present(fewer).max == 1.2
    assert present(of_eight).max == 0.154


def test_a_mean_without_percentiles_is_weighted_by_time() -> None:
    series = MeanAndMaximum()
    assert series.average_and_maximum() == NO_READINGS
    series.add_reading(1000, 9)
    series.add_reading(11_000, 1)
    series.add_reading(50_000, 0)
    assert series.average_and_maximum(per=1000) == AverageAndMaximum(avg=2.0, max=11.0)
    series.add_reading(11_000.12345)
    assert series.average_and_maximum() == AverageAndMaximum(avg=2818.193, max=11_000.123)


def test_nothing_before_the_first_value_and_one_with_weight_0_is_ignored() -> None:
    series = TimeWeightedStatistics()
    for _ in range(2):
        assert series.distribution() is NOT_MEASURED
        assert series.maximum is None
        assert series.median() is None
        series.add_value(5.0, 0)
    series.add_value(1.0, 1)
    assert series.maximum == 1.0


@given(st.lists(st.tuples(values, weights), min_size=1, max_size=60))
def test_percentiles_are_ordered_and_within_one_percent_of_the_exact_ones(
    pairs: list[tuple[float, int]],
) -> None:
    series = TimeWeightedStatistics()
    for value, weight in pairs:
        series.add_value(value, weight)
    avg, p50, p95, p99, largest = map(present, astuple(present(series.distribution(digits=20))))
    assert p50 <= p95 <= p99 <= largest == max(value for value, _ in pairs)
    assert min(value for value, _ in pairs) <= avg <= largest
    assert any(
        math.isclose(p95, exact, rel_tol=0.0101, abs_tol=1e-300)
        for exact in _candidates(pairs, 0.95)
    )


def _candidates(pairs: list[tuple[float, int]], quantile: float) -> list[float]:
    """The values at the rank, and next to it: the rank may fall on a boundary."""
    ordered = sorted(pairs)
    total = sum(weight for _, weight in ordered)
    found, passed = [], 0.0
    for value, weight in ordered:
        low, high = passed / total, (passed + weight) / total
        if low - 2e-6 <= quantile <= high + 2e-6:
            found.append(value)
        passed += weight
    return found


def test_a_counter_that_falls_was_restarted() -> None:
    """A counter that falls was restarted and one known to restart adds even a larger value."""
    counter = MonotonicCounter()
    assert [counter.advance_to(value) for value in (10, 15, 3, 4)] == [None, 5, 3, 1]
    assert counter.total == 19
    counter, totals = MonotonicCounter(), [None, 10, 35, 40]
    for value, growth, before in zip((10, 25, 5), (None, 25, 5), totals, strict=False):
        counter.reset_to_zero()
        assert counter.total == before
        assert counter.advance_to(value) == growth
    assert counter.total == totals[-1]

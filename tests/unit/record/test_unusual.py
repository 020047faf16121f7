"""The rule of what is unusual: the spread of a family, and what is far outside it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.record.unusual import usual_value_of
from tests.values import present


@given(st.lists(st.floats(0.001, 1e9), min_size=5, max_size=50))
@settings(max_examples=300)
def test_half_of_the_runs_are_always_within_the_usual_range(values: list[float]) -> None:
    usual = present(usual_value_of(values))
    assert sum(map(usual.is_within_spread, values)) * 2 >= len(values)


def test_four_runs_show_nothing_that_is_usual() -> None:
    assert usual_value_of([100, 100, 110, 120, None]) is None


def test_the_spread_is_two_median_absolute_deviations() -> None:
    usual = present(usual_value_of([100, 100, 110, 120, 130]))
    assert usual.middle == 110
    assert usual.width == 20


@pytest.mark.parametrize(
    ("value", "is_usual"), [(105, True), (106, False), (95, True), (94, False)]
)
def test_a_steady_family_has_a_spread_of_five_percent(value: float, *, is_usual: bool) -> None:
    assert present(usual_value_of([100] * 6)).is_within_spread(value) is is_usual


def test_a_value_within_the_spread_is_usual_however_far_from_the_median() -> None:
    usual = present(usual_value_of([100, 100, 200, 200, 300, 300, 300]))
    assert usual.is_notably_different(100)
    assert usual.is_within_spread(100)

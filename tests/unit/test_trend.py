import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.sizing.trend import Growth, growth


def test_a_straight_line_grows_by_its_slope() -> None:
    found = growth([100.0 + 10 * n for n in range(12)])
    assert found == Growth(per_run=10, now=210)
    assert found is not None
    assert (found.runs_until(240), found.runs_until(235), found.runs_until(200)) == (4, 3, None)


def test_a_few_odd_runs_do_not_move_it() -> None:
    values = [100.0 + 10 * n for n in range(20)]
    values[3], values[11] = 900, 5
    found = growth(values)
    assert found is not None
    assert found.per_run == pytest.approx(10, abs=0.5)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [100.0 * n for n in range(7)],
        [100.0] * 30,
        [100.0 + n % 2 for n in range(30)],
        [300.0 - n for n in range(30)],
        [10_000.0 + n for n in range(30)],
    ],
    ids=["none", "too few", "level", "up and down", "down", "hardly anything"],
)
def test_what_does_not_clearly_grow_does_not_grow(values: list[float]) -> None:
    assert growth(values) is None


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=40))
def test_any_growth_is_upward_and_ends(values: list[float]) -> None:
    found = growth(values)
    if found is not None:
        assert found.per_run > 0
        left = found.runs_until(found.now + 100)
        assert left is not None
        assert left >= 1

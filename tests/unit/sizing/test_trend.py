from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.sizing.trend import Growth, growth


def test_a_straight_line_grows_by_its_slope() -> None:
    found = growth([100.0 + 10 * n for n in range(12)])
    assert found == Growth(per_run=10, now=210, runs=12)
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
    ],
    ids=["none", "too few", "level", "up and down", "down"],
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


def test_what_grows_surely_and_hardly_is_not_notable() -> None:
    found = growth([10_000.0 + n for n in range(30)])
    assert found is not None
    assert (found.per_run, found.is_notable) == (1, False)


def steady(random: Random, runs: int) -> list[float]:
    """Peaks around a level: with little or much noise, with or without rare large inputs."""
    spread = random.choice([0.005, 0.03, 0.1, 0.3])
    rare = random.choice([0, 0.1])
    return [1000 * random.lognormvariate(0, spread) * (1.5 if random.random() < rare else 1) for _ in range(runs)]


@pytest.mark.parametrize("runs", [8, 12, 20, 50])
def test_steady_families_hardly_ever_seem_to_grow(runs: int) -> None:
    """One side of a 90 % interval is 5 %."""
    random = Random(runs)
    grown = sum(growth(steady(random, runs)) is not None for _ in range(600))
    assert grown <= 600 * 0.08


@pytest.mark.parametrize(("runs", "percent"), [(8, 2), (12, 1), (20, 0.5), (50, 0.2)])
def test_growth_beyond_the_noise_is_seen(runs: int, percent: float) -> None:
    """With 2 % noise: the rise over the runs is at least five times the noise."""
    random = Random(runs)
    families = [
        growth([1000 * (1 + percent / 100 * n) * random.lognormvariate(0, 0.02) for n in range(runs)])
        for _ in range(100)
    ]
    found = [one.per_run for one in families if one is not None]
    assert len(found) >= 97
    assert found == pytest.approx([10 * percent] * len(found), rel=0.8)


@given(st.lists(st.floats(min_value=1, max_value=1e6), min_size=8, max_size=30), st.floats(min_value=0.1, max_value=10))
def test_the_unit_changes_nothing(values: list[float], unit: float) -> None:
    one, other = growth(values), growth([unit * value for value in values])
    assert (one is None) == (other is None)

"""The change between two sets of runs: exact cases, invariances, and simulated alarms, coverage and power."""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from random import Random
from statistics import mean, median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.runs.comparison.compared_metrics import MedianChange, Verdict, _resampled_medians, median_change
from tests.values import present

amounts = st.floats(min_value=0.001, max_value=1e15)
some_runs = st.lists(amounts, min_size=5, max_size=12)


def interval(change: MedianChange) -> tuple[float, float]:
    """The ends of a known interval."""
    return present(change.low_percent), present(change.high_percent)


def noisy(random: Random, runs: int, noise: float = 0.02, middle: float = 100) -> list[float]:
    return [random.gauss(middle, noise * middle) for _ in range(runs)]


def test_a_change_beyond_the_noise_has_a_verdict_and_an_interval_around_it() -> None:
    a, b = [100.0, 101, 99, 102, 98], [110.0, 111, 109, 112, 108]
    more, less = median_change(a, b), median_change(b, a)
    assert (more.a, more.b, more.verdict, less.verdict) == (100, 110, "more", "less")
    assert more.change_percent == pytest.approx(10)
    low, high = interval(more)
    assert 5 < low < 10 < high < 15
    random = Random(4)  # ten percent more is always seen in ten runs with little noise
    assert {median_change(noisy(random, 10), noisy(random, 10, middle=110)).verdict for _ in range(30)} == {"more"}


def certain(percent: float, verdict: Verdict, **more: Any) -> MedianChange:
    return MedianChange(change_percent=percent, low_percent=percent, high_percent=percent, verdict=verdict, **more)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param([], [2], MedianChange(a=None, b=2), id="no base"),
        pytest.param([100] * 4, [200] * 400, MedianChange(a=100, b=200, runs_needed=5), id="four runs"),
        pytest.param(
            [100] * 5, [100] * 5, certain(0, "no difference seen", a=100, b=100, runs_needed=5), id="the same"
        ),
        pytest.param([100] * 5, [125] * 5, certain(25, "more", a=100, b=125, runs_needed=5), id="certain"),
        pytest.param([0] * 5, [3] * 5, MedianChange(a=0, b=3, verdict="more"), id="from zero"),
        pytest.param([3] * 5, [0] * 5, certain(-100, "less", a=3, b=0), id="to zero"),
        pytest.param([0, 0, 0, 0, 9], [0, 0, 0, 9, 9], MedianChange(a=0, b=0), id="mostly zeros"),
        pytest.param(
            [0, 0, 0, 4, 4, 4], [4] * 6, MedianChange(a=2, b=4, change_percent=100, low_percent=0), id="maybe from 0"
        ),
    ],
)
def test_few_runs_constant_sets_and_zeros(a: list[float], b: list[float], expected: MedianChange) -> None:
    assert median_change(a, b) == expected


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 6])
def test_the_medians_are_those_of_resampled_sets(runs: int) -> None:
    values = [float(n**2) for n in range(runs)]
    exact = Counter(median(resampled) for resampled in itertools.product(values, repeat=runs))
    drawn = Counter(_resampled_medians(values, 0))
    assert drawn.keys() <= exact.keys()
    for value, number in exact.items():
        assert drawn[value] / drawn.total() == pytest.approx(number / runs**runs, abs=0.02)


@settings(max_examples=25)
@given(some_runs, some_runs)
def test_the_interval_holds_the_change_and_agrees_with_the_verdict(a: list[float], b: list[float]) -> None:
    change = median_change(a, b)
    low, high = interval(change)
    assert -100 <= low <= high
    assert low - 1e-6 <= present(change.change_percent) <= high + 1e-6 * (1 + abs(high))
    assert (change.verdict == "more", change.verdict == "less") == (low > 1e-7, high < -1e-7)
    assert change.runs_needed is not None
    assert change.runs_needed >= 5
    if change.verdict == "too few runs":
        assert change.runs_needed > min(len(a), len(b))
    if change.verdict == "no difference seen":
        assert change.runs_needed <= max(len(a), len(b)) * 2
        assert high - low < 12


@pytest.mark.parametrize(("step", "needed"), [(1, 8), (0.1, 10)], ids=["some noise", "little noise"])
@pytest.mark.parametrize("outlier", [200, 1e9])
def test_an_outlier_demands_few_more_runs(step: float, needed: int, outlier: float) -> None:
    usual = [100 + step * number for number in range(5)]
    change = median_change([*usual[:4], outlier], usual)
    assert (change.verdict, change.runs_needed) == ("too few runs", needed)


DISTRIBUTIONS: dict[str, Callable[[Random], float]] = {
    "normal": lambda random: random.gauss(100, 10),
    "two modes": lambda random: random.gauss(100, 2) * (1.5 if random.random() < 0.4 else 1),
    "heavy tail": lambda random: 100 * math.exp(0.05 * random.gauss(0, 1) / math.sqrt(random.expovariate(1))),
    "whole numbers": lambda random: round(random.gauss(100, 2)),
}


@pytest.mark.parametrize("runs", [(5, 5), (6, 6), (10, 10), (7, 200)], ids=str)
def test_equal_sets_raise_few_alarms(runs: tuple[int, int]) -> None:
    random = Random(f"{runs}")
    verdicts = Counter(
        median_change(*([value(random) for _ in range(count)] for count in runs)).verdict
        for value in DISTRIBUTIONS.values()
        for _ in range(15)
    )
    assert verdicts["more"] + verdicts["less"] <= 0.08 * verdicts.total()


def test_the_runs_needed_show_five_percent() -> None:
    random, seen = Random(5), []
    for _ in range(8):
        needed = present(median_change(noisy(random, 8, 0.06), noisy(random, 8, 0.06)).runs_needed)
        seen.append(median_change(noisy(random, needed, 0.06), noisy(random, needed, 0.06, 105)).verdict == "more")
    assert mean(seen) > 0.6

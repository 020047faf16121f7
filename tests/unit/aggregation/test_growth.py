"""Growth towards a limit: what leaks is found in time, and what only looks like it is not."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.aggregation.run_notices import MIN_RUN_NS, Growth, GrowthToLimit
from tests.fakes import seconds
from tests.values import present

SIZE = 1000.0


def found(
    used_at: Callable[[float], float | None], *, minutes: float = 180, step: float = 10
) -> tuple[float, Growth] | None:
    """The minute in which the growth of a quantity, a share of its size, is found; None if never."""
    growth = GrowthToLimit(0)
    for tick in range(int(60 * minutes / step) + 1):
        at = tick * step
        used = used_at(at / 60)
        if used is None:
            continue
        if used >= 1:
            return None
        result = growth.add(seconds(at), SIZE * used, SIZE)
        if result is not None:
            return at / 60, result
    return None


@pytest.mark.parametrize(("minutes", "step"), [(24, 1), (24, 10), (24, 60), (40, 10), (90, 10), (600, 30)])
def test_a_leak_is_found_before_its_end_and_not_before_its_last_15_minutes(minutes: float, step: float) -> None:
    """It uses 10 % at first and all after so many minutes."""
    result = present(found(lambda at: 0.1 + 0.9 * at / minutes, minutes=minutes, step=step))
    at, growth = result
    assert max(minutes - 15.2, 20) <= at < minutes - 2
    assert growth.used >= 0.7 * SIZE
    assert growth.minutes_left == pytest.approx(minutes - at, rel=0.3)
    assert growth.since_ns / seconds(60) == pytest.approx(0.75 * at, rel=0.1)
    assert growth.per_minute == pytest.approx(900 / minutes, rel=0.2)


@pytest.mark.parametrize(("start", "minutes"), [(120, 20), (300, 60), (600, 60), (1200, 30)])
def test_a_leak_that_begins_late_is_found(start: float, minutes: float) -> None:
    """The last quarter is longer than the leak."""
    result = present(found(lambda at: 0.3 + 0.7 * max(at - start, 0) / minutes, minutes=start + minutes))
    assert start + minutes - 15.2 <= result[0] < start + minutes - 1
    sawtooth = found(lambda at: 0.1 + 0.8 * at / 60 + 0.05 * (at % 2) / 2, minutes=64)
    assert sawtooth is not None


def test_growth_without_a_size_below_70_percent_or_in_the_first_20_minutes_is_none() -> None:
    assert found(lambda at: 0.1 + 0.89 * at / 20, minutes=MIN_RUN_NS / seconds(60) - 1) is None
    growth = GrowthToLimit(0)
    assert not any(growth.add(seconds(at), at, None) for at in range(0, 7200, 10))
    assert found(lambda at: 0.69 * at / 60, minutes=60) is None


@given(
    period=st.floats(0.5, 19),
    low=st.floats(0.05, 0.6),
    height=st.floats(0.1, 0.39),
    step=st.sampled_from([5, 10]),
    phase=st.floats(0, 1),
)
@settings(max_examples=12, deadline=None)
def test_a_sawtooth_is_no_growth(period: float, low: float, height: float, step: float, phase: float) -> None:
    assert found(lambda at: low + height * ((at / period + phase) % 1), minutes=60, step=step) is None


@given(period=st.floats(20, 60), seed=st.integers(0, 100))
@settings(max_examples=6, deadline=None)
def test_a_slow_sawtooth_is_no_growth_after_its_first_tooth(period: float, seed: int) -> None:
    tops = random.Random(seed)
    heights = [0.95] + [0.9 + 0.05 * tops.random() for _ in range(20)]
    growth = GrowthToLimit(0)
    for at in range(0, 4 * 3600, 10):
        tooth, part = divmod(at / 60 / period, 1)
        used = SIZE * (0.2 + (heights[int(tooth)] - 0.2) * part)
        assert growth.add(seconds(at), used, SIZE) is None or tooth == 0


@given(rise=st.floats(0.1, 15), level=st.floats(0.5, 0.97), noise=st.floats(0, 0.01), seed=st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_a_plateau_is_no_growth(rise: float, level: float, noise: float, seed: int) -> None:
    jitter = random.Random(seed)
    assert found(lambda at: min(at / rise, 1) * level + noise * jitter.random(), minutes=60) is None


@given(steps=st.lists(st.floats(1, 19), min_size=1, max_size=6), top=st.floats(0.7, 0.98))
@settings(max_examples=20, deadline=None)
def test_a_staircase_that_has_ended_is_no_growth(steps: list[float], top: float) -> None:
    assert found(lambda at: 0.1 + (top - 0.1) * sum(at >= begin for begin in steps) / len(steps), minutes=90) is None


def test_a_long_leak_that_has_ended_is_no_growth() -> None:
    """The last quarter of the run still shows it."""
    ended = 300.0
    late = GrowthToLimit(0)
    for at in range(0, 400 * 60, 10):
        used = SIZE * (0.1 + 0.75 * min(at / 60 / ended, 1))
        assert late.add(seconds(at), used, SIZE) is None


def test_missing_readings_are_no_growth() -> None:
    """Neither in the last quarter nor before it: a restarted monitor does not know the usage of before."""
    assert found(lambda at: 0.1 + 0.8 * at / 60 if at < 40 else None, minutes=54) is None
    assert found(lambda at: 0.1 + 0.8 * at / 60 if at < 45 or at > 52 else None, minutes=53) is None
    assert found(lambda at: 0.1 + 0.8 * at / 60 if at > 43 else None, minutes=54) is None
    assert found(lambda at: 0.1 + 0.8 * at / 60 if at > 30 else None, minutes=54) is not None


@given(st.lists(st.tuples(st.integers(0, 100_000), st.floats(0, 1200)), max_size=200))
@settings(max_examples=30, deadline=None)
def test_any_readings_can_be_added(readings: list[tuple[int, float]]) -> None:
    growth = GrowthToLimit(seconds(50_000))
    for at, used in sorted(readings):
        result = growth.add(seconds(at), used, SIZE)
        assert result is None or (result.per_minute > 0 and 0 <= result.minutes_left <= 15)

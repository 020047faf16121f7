"""A growth is said only if like weekdays show it, and the runs of a night are one witness."""

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest

from profiler.sizing.trend import NO_GROWTH, Growth, find_growth
from tests.runs import report
from tests.sized_runs import advice

_DAYS = (8, 10, 14, 21, 28)
_FAMILIES = 20
# The shares of a figure that the days of a week add.
_RHYTHMS: dict[str, Sequence[float]] = {
    "to the end of the week": [0.05 * day for day in range(7)],
    "weekend": [0, 0, 0, 0, 0, 0.25, 0.25],
    "one day": [0, 0, 0, 0.3, 0, 0, 0],
    "none": [0] * 7,
}


def _family(
    random: Random, runs: int, week: Sequence[float], per_night: float
) -> list[list[float]]:
    """The values of each of 28 nights, which differ by the night and by the run."""
    first = random.randrange(7)
    nights = []
    for night in range(max(_DAYS)):
        level = 1000 * (1 + week[(first + night) % 7] + per_night * night)
        level *= math.exp(random.gauss(0, 0.02))
        nights.append([level * math.exp(random.gauss(0, 0.02)) for _ in range(runs)])
    return nights


def _growths(week: Sequence[float], per_night: float = 0) -> Iterator[tuple[int, Growth]]:
    """Of families with one, three and five runs a night, what each of some mornings shows."""
    random = Random(20261129)
    for number in range(3 * _FAMILIES):
        nights = _family(random, (1, 3, 5)[number % 3], week, per_night)
        for days in _DAYS:
            values = [value for night in nights[:days] for value in night]
            numbers = [night for night, runs in enumerate(nights[:days]) for _ in runs]
            yield days, find_growth(values[-50:], numbers[-50:])


@pytest.mark.parametrize("rhythm", _RHYTHMS)
def test_a_weekly_rhythm_and_the_differences_of_nights_are_no_growth(rhythm: str) -> None:
    found = [one for _, one in _growths(_RHYTHMS[rhythm])]
    assert sum(one.is_notable for one in found) <= 0.01 * len(found)


@pytest.mark.parametrize("rhythm", ["none", "one day"])
def test_a_growth_is_said_beside_a_rhythm(rhythm: str) -> None:
    found = [one for days, one in _growths(_RHYTHMS[rhythm], per_night=0.02) if days >= 14]
    assert sum(one.is_notable for one in found) >= 0.75 * len(found)
    assert sum(one != NO_GROWTH for one in found) >= 0.97 * len(found)


def test_a_growth_within_few_nights_is_not_sure() -> None:
    """The order of a workflow's inputs shows the same; a size is on the safe side."""
    values = [100.0 + 10 * number for number in range(21)]
    found = find_growth(values, [number // 3 for number in range(21)])
    assert found.per_run == 10
    assert not found.is_sure
    assert find_growth([*values, 310], [number // 3 for number in range(22)]).is_sure


def test_families_that_run_once_a_week_or_a_month_grow_as_others_do() -> None:
    values = [100.0 + 10 * number for number in range(12)]
    for apart in (1, 2, 7, 14, 30, 31):
        assert find_growth(values, range(0, 12 * apart, apart)).is_sure


def _of_week(day: int) -> float:
    return 700 + 12 * (day % 7)


def _of_all_days(day: int) -> float:
    return 700 + 12 * day


@pytest.mark.parametrize(("peak_mb", "grows"), [(_of_week, False), (_of_all_days, True)])
def test_the_reasons_name_no_growth_that_is_the_weeks(
    peak_mb: Callable[[int], float], *, grows: bool
) -> None:
    found = advice([report(day, peak_mb=peak_mb(day)) for day in range(14)])
    assert any("The memory peak grows by" in reason for reason in found.reasons) == grows
    assert (found.choice.growth != NO_GROWTH) == grows

"""How a figure of a family goes over its runs: the growth of its memory peak."""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations, groupby
from typing import Final

from msgspec import Struct

from profiler.core.optional_math import median
from profiler.core.timestamps import NS_PER_DAY

MIN_TREND_RUNS = 8
# A smaller rise over all runs is not worth a word, nor is a limit that is further away.
_MIN_NOTABLE_SHARE = 0.05
_MAX_RUNS_AHEAD = 1000
# The quantiles of a normal distribution that have 90 % and 98 % within them. By the first, a size
# is on the safe side; of 30 families whose figures differ by chance, one would be said to grow.
_LIKELY = 1.6449
_SURE = 2.3263
_DAYS_OF_WEEK = 7
# Like weekdays of a trend rise as much as the line does: less than this share of it is no trend.
_MIN_SHARE_OF_LIKE_DAYS = 0.5


class Growth(Struct, frozen=True, kw_only=True):
    """A rising trend: the increase per run, the line's value at the last run, and the number of
    runs. ``is_sure``: less than one in 100 families would show it by chance in so many nights.
    """

    per_run: float
    now: float
    runs: int
    is_sure: bool = False

    @property
    def is_notable(self) -> bool:
        """Whether the rise is worth a word."""
        rise = self.per_run * (self.runs - 1)
        return self.is_sure and rise >= _MIN_NOTABLE_SHARE * self.now

    def value_after_runs(self, runs: int) -> float:
        return self.now + self.per_run * runs

    def runs_until(self, limit: float) -> int | None:
        """Return the number of further runs until the trend passes the limit; None if it already
        has, or never does.
        """
        if self.now > limit or not self.runs:
            return None
        return int((limit - self.now) // self.per_run) + 1

    def runs_until_near(self, limit: float) -> int | None:
        """The runs until the limit is near; None also for a limit that is far away."""
        runs = self.runs_until(limit) or _MAX_RUNS_AHEAD + 1
        return runs if runs <= _MAX_RUNS_AHEAD else None


NO_GROWTH: Final = Growth(per_run=0, now=0, runs=0)


def nights_before(newest_ns: int, at_ns: int) -> int:
    """How many nights before the newest run of a family another one was: the nearest number, for
    a nightly run is at times early and at times late.
    """
    return round((newest_ns - at_ns) / NS_PER_DAY)


class CourseOverRuns(Struct, frozen=True, kw_only=True):
    """A figure of a family in the order of time: of each run its value and the number of its
    night.
    """

    values: tuple[float, ...] = ()
    nights: tuple[int, ...] = ()

    @property
    def growth(self) -> Growth:
        return find_growth(self.values, self.nights)


def course_of_values(values_at: Iterable[tuple[int, float | None]]) -> CourseOverRuns:
    """The course of the known values, with their times in nanoseconds, the oldest first."""
    listed = [(at_ns, value) for at_ns, value in values_at if value is not None]
    newest_ns = listed[-1][0] if listed else 0
    return CourseOverRuns(
        values=tuple(value for _, value in listed),
        nights=tuple(-nights_before(newest_ns, at_ns) for at_ns, _ in listed),
    )


def find_growth(values: Sequence[float], nights: Sequence[int] = ()) -> Growth:
    """Find the growth of values in the order of time; ``NO_GROWTH`` for fewer than 8, and if it
    could be chance.

    ``nights`` are the numbers of the values' nights; without them, each value has its own. A rhythm
    of the week is no growth: like weekdays must show it, too. The runs of a night have their night
    in common, so that a growth that is sure is one of the highest values of 8 nights or more.

    The slope is the Theil-Sen estimator, which counts if its 90 % interval (by the variance of
    Kendall's statistic) is above 0; one that is sure, if its 98 % interval is.
    https://doi.org/10.1080/01621459.1968.10480934
    """
    recent = values[
        -200:
    ]  # all pairs of these are compared; older runs are weaker evidence for the future
    count = len(recent)
    if count < MIN_TREND_RUNS:
        return NO_GROWTH
    slopes = _slopes_of_pairs(recent)
    if not _is_rising(slopes, _kendall_variance(recent), _LIKELY):
        return NO_GROWTH
    highest = _highest_of_nights(recent, nights[-200:] or range(count))
    of_nights = [value for _, value in highest]
    slopes_of_nights = _slopes_of_pairs(of_nights)
    knows_nights = len(of_nights) >= MIN_TREND_RUNS
    if knows_nights and _is_weekly(highest, median(slopes_of_nights)):
        return NO_GROWTH
    slope = median(slopes)
    level = median(sorted(value - slope * index for index, value in enumerate(recent)))
    is_sure = knows_nights and _is_rising(slopes_of_nights, _kendall_variance(of_nights), _SURE)
    return Growth(per_run=slope, now=level + slope * (count - 1), runs=count, is_sure=is_sure)


def _highest_of_nights(
    values: Sequence[float], nights: Sequence[int]
) -> Sequence[tuple[int, float]]:
    """The highest value of each night, the oldest first."""
    highest: dict[int, float] = {}
    for night, value in zip(nights, values, strict=True):
        highest[night] = max(highest.get(night, value), value)
    return sorted(highest.items())


def _is_weekly(highest: Sequence[tuple[int, float]], per_night: float) -> bool:
    """Whether like weekdays rise less than the line through all nights, so that the line follows
    the days of the week.
    """
    like_days = sorted(
        (later[1] - earlier[1]) / (to - since)
        for (since, earlier), (to, later) in combinations(enumerate(highest), 2)
        if (later[0] - earlier[0]) % _DAYS_OF_WEEK == 0
    )
    return bool(like_days) and median(like_days) < _MIN_SHARE_OF_LIKE_DAYS * per_night


def _kendall_variance(values: Sequence[float]) -> float:
    """The variance of Kendall's statistic, the number of rising pairs less falling pairs, in a
    random order.
    """
    ties = [len(list(same)) for _, same in groupby(sorted(values))]
    return (_tie_variance_term(len(values)) - sum(map(_tie_variance_term, ties))) / 18


def _is_rising(slopes: Sequence[float], variance: float, quantile: float) -> bool:
    """Whether the interval of the slope is above 0."""
    lowest = (len(slopes) - quantile * math.sqrt(variance)) / 2
    return slopes[max(math.floor(lowest), 0)] > 0


def _slopes_of_pairs(values: Sequence[float]) -> list[float]:
    """The slopes of all pairs, in order."""
    slopes: list[float] = []
    for distance in range(1, len(values)):
        pairs = zip(values, values[distance:], strict=False)
        slopes += [(later - earlier) / distance for earlier, later in pairs]
    slopes.sort()
    return slopes


def _tie_variance_term(count: int) -> int:
    return count * (count - 1) * (2 * count + 5)

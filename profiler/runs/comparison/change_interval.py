"""The change between the medians of two sets of values, and its 95 % interval.

The interval is the bootstrap of the ratio of medians (Efron and Tibshirani, *An Introduction to the
Bootstrap*, 1993): both sets are resampled with replacement, and the ends are two quantiles of the
ratio.

- **Resampled medians are drawn directly.** A resampled value has the index ⌊nU⌋ in the ordered set
  of n runs, with U uniform from 0 to 1. The resampled median has the index ⌊nM⌋, where M is the
  median of n uniform numbers. For an odd n, M is (1 + √(1 - U^(2/n)) cos 2πV) / 2 (Ulrich, *Applied
  Statistics* 33, 1984). For an even n, one number joins n - 1 others. It is below their median M
  with the probability M. The middle pair is then M and the largest of the n/2 numbers below M, else
  M and the smallest of the n/2 numbers above M.
- **The quantiles are Φ(±t) instead of 2.5 % and 97.5 %**, with Student's t for Welch's degrees of
  freedom (after Hesterberg, *What Teachers Should Know About the Bootstrap*, 2015). With 2.5 %,
  seven runs and thousands of runs of the same batch differ in 11 % of comparisons.
- **The runs needed follow from the middle 80 % of the ratios**, so that one outlier among five runs
  has little influence. The spread is assumed to shrink with √n. A change is likely to be seen if 80
  % of comparisons show it.

The runs must be independent.
"""

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, median
from typing import Final, Literal

from msgspec import Struct

from profiler.core.optional_math import first_known
from profiler.record.unusual import MIN_RUNS, MIN_SHARE

Verdict = Literal["more", "less", "no difference seen", "too few runs", "not comparable"]
NOT_COMPARABLE: Final = "not comparable"
_MIN_RUNS_FOR_SPREAD: Final = 3
_SEEN_RATIO: Final = 1 + MIN_SHARE
# Equal figures that were computed in different ways, such as costs, may differ by this.
_ROUNDING: Final = 1e-9
_NORMAL: Final = NormalDist()
_Z: Final = _NORMAL.inv_cdf(0.975)
_OUTSIDE_MIDDLE: Final = 0.1
_SEEN: Final[tuple[Verdict, ...]] = ("more", "less")


class MedianChange(Struct, frozen=True, kw_only=True, rename="camel"):
    """The medians of one metric in two sets, and the change from the first, the base, with its
    95 % interval.

    There is no change from 0, and no interval for a set of fewer than 5 runs; the upper end is None
    also if the base can be 0. ``runs_needed`` are the runs per set that would likely show a change
    of 5 %; None where one is seen.
    """

    a: float | None
    b: float | None
    change_percent: float | None = None
    low_percent: float | None = None
    high_percent: float | None = None
    verdict: Verdict = "too few runs"
    runs_needed: int | None = None

    @property
    def is_seen(self) -> bool:
        """Whether the interval excludes that nothing has changed."""
        return self.verdict in _SEEN


def median_change(a: Sequence[float], b: Sequence[float]) -> MedianChange:
    """Compare the medians of two sets of values, none negative.

    ``a`` is the base. The order has no effect.
    """
    if not a or not b:
        return MedianChange(a=_known_median(a), b=_known_median(b))
    base = median(a)
    other = median(b)
    ratio = _ratio_to_base(base, other)
    change_percent = _change_percent(base, ratio)
    fewest_runs = min(len(a), len(b))
    if fewest_runs < _MIN_RUNS_FOR_SPREAD:
        return MedianChange(a=base, b=other, change_percent=change_percent)
    medians_a = _resampled_medians(a, 0)
    medians_b = _resampled_medians(b, 1)
    ratios = sorted(map(_ratio_to_base, medians_a, medians_b))
    runs = 2 / (1 / len(a) + 1 / len(b))
    runs_needed = _runs_needed(ratios, runs)
    if fewest_runs < MIN_RUNS:
        return MedianChange(a=base, b=other, change_percent=change_percent, runs_needed=runs_needed)
    spread_a = _spread_of_values(medians_a) * other
    spread_b = _spread_of_values(medians_b) * base
    freedom = _degrees_of_freedom(spread_a, len(a), spread_b, len(b))
    low, high = _values_without_tails(ratios, _NORMAL.cdf(-_student_quantile(freedom)))
    is_enough = first_known(runs_needed, math.inf) <= runs
    verdict = _verdict_on_ratio(ratio, low, high, is_enough=is_enough)
    if is_enough and verdict == "too few runs":
        # Outliers or a second mode, which the middle of the ratios does not show.
        runs_needed = 2 * fewest_runs
    return MedianChange(
        a=base,
        b=other,
        change_percent=change_percent,
        low_percent=_change_percent(base, low),
        high_percent=_change_percent(base, high),
        verdict=verdict,
        runs_needed=None if verdict in _SEEN else runs_needed,
    )


def _known_median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _verdict_on_ratio(ratio: float, low: float, high: float, *, is_enough: bool) -> Verdict:
    """The verdict on a ratio of medians whose interval is from ``low`` to ``high``.

    ``is_enough``: the sets have the runs that are needed to see a change. With fewer, an interval
    without any change of 5 % shows as well that there is none: of 2,400 pairs of sets of 5 to 30
    runs that differed by 5 %, four had such an interval.
    """
    if low > 1 + _ROUNDING:
        return "more"
    if high < 1 - _ROUNDING:
        return "less"
    is_narrow = ratio / _SEEN_RATIO <= low and high <= ratio * _SEEN_RATIO
    excludes_change = low > 1 / _SEEN_RATIO and high < _SEEN_RATIO
    if excludes_change or (is_enough and is_narrow):
        return "no difference seen"
    return "too few runs"


def _ratio_to_base(base: float, other: float) -> float:
    if base:
        return other / base
    return math.inf if other else 1.0


def _change_percent(base: float, ratio: float) -> float | None:
    return 100 * (ratio - 1) if base and math.isfinite(ratio) else None


def _student_quantile(freedom: float) -> float:
    """The 97.5 % quantile of Student's t (Abramowitz and Stegun, 26.7.5)."""
    first = (_Z**3 + _Z) / (4 * freedom)
    second = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
    return _Z + first + second


def _values_without_tails(ordered: Sequence[float], tail: float) -> tuple[float, float]:
    """The two values that leave out the share ``tail`` on each side."""
    index = int(tail * len(ordered))
    return ordered[index], ordered[-1 - index]


def _spread_of_values(values: Sequence[float]) -> float:
    low, high = _values_without_tails(sorted(values), _OUTSIDE_MIDDLE)
    return high - low


def _degrees_of_freedom(spread_a: float, runs_a: int, spread_b: float, runs_b: int) -> float:
    """Welch's degrees of freedom, from the spreads of both medians or from equally noisy runs:
    the fewer.

    Between two modes, the median of thousands of runs can spread as much as the median of seven.
    """
    shares_of_a = [runs_b / (runs_a + runs_b)]
    total = spread_a**2 + spread_b**2
    if total:
        shares_of_a.append(spread_a**2 / total)
    return min(
        1 / (share**2 / (runs_a - 1) + (1 - share) ** 2 / (runs_b - 1)) for share in shares_of_a
    )


def _runs_needed(ratios: Sequence[float], runs: float) -> int | None:
    low, high = _values_without_tails(ratios, _OUTSIDE_MIDDLE)
    if not low or math.isinf(high):
        return None
    deviation = (math.log(high) - math.log(low)) / (2 * _NORMAL.inv_cdf(1 - _OUTSIDE_MIDDLE))
    # With a power of 80 %, a spread estimated too low would lose more than one estimated too high
    # gains.
    deviation_needed = math.log(_SEEN_RATIO) / (_Z + _NORMAL.inv_cdf(0.85))
    # Resampled sets spread less than new sets, by (runs - 1) / runs. The interval of few runs is
    # wider than a normal distribution's: about two more runs make up for it.
    needed = math.ceil(runs**2 / (runs - 1) * (deviation / deviation_needed) ** 2) + 2
    # An estimate has no more than two digits.
    unit: int = 10 ** max(0, len(str(needed)) - 2)
    return max(MIN_RUNS, -(-needed // unit) * unit)


def _resampled_medians(values: Sequence[float], side: int) -> list[float]:
    """10,000 medians; the two sets are side 0 and side 1, whose random numbers differ."""
    ordered = sorted(values)
    return [(ordered[low] + ordered[high]) / 2 for low, high in _middle_indices(len(values), side)]


@lru_cache(maxsize=16)
def _middle_indices(runs: int, side: int) -> tuple[tuple[int, int], ...]:
    """The indices of the two middle values in each resampled, ordered set; equal for an odd
    number.
    """
    uniform = random.Random(20261122 + side).random  # noqa: S311 - not for secrets
    odd = runs - 1 + runs % 2
    pairs = []
    for _ in range(10_000):
        radius = math.sqrt(1 - uniform() ** (2 / odd))
        middle = (1 + radius * math.cos(2 * math.pi * uniform())) / 2
        low = middle
        high = middle
        if runs > odd:
            nearest = uniform() ** (2 / runs)
            if uniform() < middle:
                low = middle * nearest
            else:
                high = 1 - (1 - middle) * nearest
        low_index = min(int(runs * low), runs - 1)
        high_index = min(int(runs * high), runs - 1)
        pairs.append((low_index, high_index))
    return tuple(pairs)

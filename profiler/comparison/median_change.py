"""The change of a metric between two sets of runs."""

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from statistics import median
from typing import Final, Literal

from msgspec import Struct

Verdict = Literal["more", "less", "no difference seen", "too few runs"]

MIN_RUNS: Final = 5
_DRAWS: Final = 10_000
_SEED: Final = 20261122


class MedianChange(Struct, frozen=True, kw_only=True):
    """The medians of one metric in two sets, and the change from the first to the second in percent.

    Attributes:
        a: The median of the first set, which is the base; None if no run has the metric.
        b: The median of the second set.
        change_percent: The change of the median; None if a median is unknown or the base is 0.
        low_percent: Lower end of the 95 % interval of the change.
        high_percent: Upper end.
        verdict: What the interval shows; None if a median is unknown.
        runs_needed: With how many runs a side a change of 5 % would likely be seen; None if that cannot be estimated.
    """

    a: float | None
    b: float | None
    change_percent: float | None = None
    low_percent: float | None = None
    high_percent: float | None = None
    verdict: Verdict | None = None
    runs_needed: int | None = None


def median_change(a: Sequence[float], b: Sequence[float]) -> MedianChange:
    """Compare the medians of two sets of runs; ``a`` is the base."""
    if not a or not b:
        return MedianChange(a=median(a) if a else None, b=median(b) if b else None)
    base, other = median(a), median(b)
    if not base:
        return MedianChange(a=base, b=other, verdict="too few runs")
    ratios = sorted(
        after / before if before else math.inf if after else 1.0
        for before, after in zip(_medians(a, 0), _medians(b, 1), strict=True)
    )
    low, high = (100 * (ratios[round(share * (_DRAWS - 1))] - 1) for share in (0.025, 0.975))
    verdict: Verdict = "no difference seen"
    if min(len(a), len(b)) < MIN_RUNS:
        verdict = "too few runs"
    elif low > 0:
        verdict = "more"
    elif high < 0:
        verdict = "less"
    return MedianChange(
        a=base, b=other, change_percent=100 * (other / base - 1), low_percent=low,
        high_percent=high if math.isfinite(high) else None, verdict=verdict, runs_needed=None,
    )  # fmt: skip


def _medians(values: Sequence[float], side: int) -> list[float]:
    ordered = sorted(values)
    return [(ordered[low] + ordered[high]) / 2 for low, high in _middle_indices(len(values), side)]


@lru_cache(maxsize=8)
def _middle_indices(count: int, side: int) -> tuple[tuple[int, int], ...]:
    """Of each resampled set, the indices of its two middle values in the ordered set."""
    rng = random.Random(_SEED + side)  # noqa: S311 - not for secrets
    odd = count - 1 + count % 2
    pairs = []
    for _ in range(_DRAWS):
        middle = (1 + math.sqrt(1 - rng.random() ** (2 / odd)) * math.cos(2 * math.pi * rng.random())) / 2
        below = above = middle
        if odd < count:
            gap = rng.random() ** (2 / count)
            if rng.random() < middle:
                below = middle * gap
            else:
                above = 1 - (1 - middle) * gap
        pairs.append((min(int(count * below), count - 1), min(int(count * above), count - 1)))
    return tuple(pairs)

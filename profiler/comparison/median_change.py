"""The change of a metric between two sets of runs."""

from typing import Literal

from msgspec import Struct

Verdict = Literal["more", "less", "no difference seen", "too few runs"]


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

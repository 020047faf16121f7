"""Streaming statistics whose memory does not grow with the length of a run.

:class:`TimeWeightedStatistics` computes the mean, maximum and percentiles of a quantity; each value is weighted by the
time for which it held. :class:`TimeWeightedMean` computes the mean and maximum only. :class:`MonotonicCounter` computes
the total of a kernel counter across resets.
"""

from typing import TYPE_CHECKING

from profiler.record.model import AverageAndMaximum, Distribution

if TYPE_CHECKING:
    from ddsketch import LogCollapsingLowestDenseDDSketch

RELATIVE_ERROR = 0.01
# 2048 bins at 1 % span 17 orders of magnitude, more than any quantity here. Beyond that the
# lowest bins are merged, which affects only the low percentiles.
MAX_BINS = 2048


class TimeWeightedStatistics:
    """Mean, maximum and percentiles of a quantity over time.

    The mean and maximum are exact; percentiles come from a DDSketch (Masson, Rim and Lee,
    PVLDB 12, 2019) and are within 1 % of the true value, never above the maximum.
    """

    __slots__ = ("_maximum", "_minimum", "_sketch", "_weight_ns", "_weighted_sum")

    def __init__(self) -> None:
        self._sketch: LogCollapsingLowestDenseDDSketch | None = None
        self._weighted_sum = 0.0
        self._weight_ns = 0
        self._minimum = float("inf")
        self._maximum = float("-inf")

    def add(self, value: float, weight_ns: int) -> None:
        """Add a value of at least 0 that held for ``weight_ns`` nanoseconds."""
        if weight_ns <= 0:
            return
        if self._sketch is None:
            self._sketch = _new_sketch()
        self._sketch.add(value, weight_ns)
        self._weighted_sum += value * weight_ns
        self._weight_ns += weight_ns
        # Comparisons take a third of the time of min() and max(), several times for each container and tick.
        if value < self._minimum:  # noqa: PLR1730
            self._minimum = value
        if value > self._maximum:  # noqa: PLR1730
            self._maximum = value

    @property
    def maximum(self) -> float | None:
        """The largest value; None before the first one."""
        return self._maximum if self._weight_ns else None

    def distribution(self, *, per: float = 1, digits: int = 3) -> Distribution | None:
        """The statistics, divided by ``per`` and rounded to ``digits``; None before the first value."""
        if not self._weight_ns:
            return None

        def shown(value: float) -> float:
            return round(value / per, digits)

        return Distribution(
            avg=shown(self._mean()),
            p50=shown(self._quantile(0.50)),
            p95=shown(self._quantile(0.95)),
            p99=shown(self._quantile(0.99)),
            max=shown(self._maximum),
        )

    def median(self) -> float | None:
        """The time-weighted median; None before the first value."""
        return self._quantile(0.5) if self._weight_ns else None

    def _mean(self) -> float:
        # Rounding of the sum can move the quotient beyond the extremes by one unit in the last place.
        return self._within(self._weighted_sum / self._weight_ns)

    def _quantile(self, quantile: float) -> float:
        value = None if self._sketch is None else self._sketch.get_quantile_value(quantile)
        return self._within(value if value is not None else self._maximum)

    def _within(self, value: float) -> float:
        return min(max(value, self._minimum), self._maximum)


def _new_sketch() -> "LogCollapsingLowestDenseDDSketch":
    from ddsketch import LogCollapsingLowestDenseDDSketch  # not for a command that ends before the first sample

    return LogCollapsingLowestDenseDDSketch(RELATIVE_ERROR, MAX_BINS)


class TimeWeightedMean:
    """Mean and maximum of a quantity over time, in three numbers."""

    __slots__ = ("_maximum", "_weight_ns", "_weighted_sum")

    def __init__(self) -> None:
        self._weighted_sum = 0
        self._weight_ns = 0
        self._maximum = 0

    def add(self, value: int, weight_ns: int) -> None:
        """Add a value of at least 0 that held for ``weight_ns`` nanoseconds."""
        if weight_ns > 0:
            self._weighted_sum += value * weight_ns
            self._weight_ns += weight_ns
            self._maximum = max(self._maximum, value)

    def summary(self, *, per: float = 1, digits: int = 3) -> AverageAndMaximum | None:
        """Mean and maximum, divided by ``per`` and rounded to ``digits``; None before the first value."""
        if not self._weight_ns:
            return None
        average = self._weighted_sum / self._weight_ns
        return AverageAndMaximum(avg=round(average / per, digits), max=round(self._maximum / per, digits))


class MonotonicCounter:
    """The total of a counter that only grows, across any number of resets to zero.

    A value below the last one means that the counter was reset: the new value is added to the
    total so far.
    """

    __slots__ = ("_before_reset", "_last")

    def __init__(self) -> None:
        self._before_reset = 0
        self._last: int | None = None

    def add(self, value: int) -> int | None:
        """Add the counter's next value; returns the increase since the last one (None for the first)."""
        last = self._last
        self._last = value
        if last is None:
            return None
        if value < last:
            self._before_reset += last
            return value
        return value - last

    def restart(self) -> None:
        """The counter was reset to 0, even if its next value is above the last one."""
        if self._last is not None:
            self._before_reset += self._last
            self._last = 0

    @property
    def total(self) -> int | None:
        """The total; None before the first value."""
        return None if self._last is None else self._before_reset + self._last


def percent_of(series: TimeWeightedStatistics, size: float | None) -> Distribution | None:
    """A quantity as a percentage of ``size``; None if ``size`` is unknown or 0."""
    return series.distribution(per=size / 100) if size else None

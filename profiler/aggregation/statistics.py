"""Streaming statistics whose memory does not grow with the length of a run."""

import math
from collections.abc import Iterable, MutableSequence

from msgspec import Struct, field

from profiler.core.optional_math import max_known
from profiler.record.record_model import NO_READINGS, NOT_MEASURED, AverageAndMaximum, Distribution

RELATIVE_ERROR = 0.01
# Bin k has the values above gamma^(k-1), up to gamma^k.
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_BINS_PER_E = 1 / math.log(_GAMMA)
# The value that is at most 1 % from both ends of its bin, relative to the upper end.
_MIDDLE = 2 / (1 + _GAMMA)


class TimeWeightedStatistics:
    """Mean, maximum and percentiles of a quantity over time.

    The mean and maximum are exact; percentiles come from a DDSketch (Masson, Rim and Lee, PVLDB 12,
    2019) and are within 1 % of the true value, never above the maximum. A quantity has some hundred
    bins; all floats have 71,000.
    """

    __slots__ = (
        "_lowest_bin",
        "_maximum",
        "_minimum",
        "_weight_ns",
        "_weighted_sum",
        "_weights",
        "_zero_weight_ns",
    )

    def __init__(self) -> None:
        self._weighted_sum = 0.0
        self._weight_ns = 0
        self._zero_weight_ns = 0
        # The weights of neighbouring bins from the lowest one on: an array, once there is a value.
        # A float cannot overflow, even after a jump of a clock.
        self._weights: MutableSequence[float] = []
        self._lowest_bin = 0
        self._minimum = float("inf")
        self._maximum = float("-inf")

    def add_value(self, value: float, weight_ns: int) -> None:
        """Add a value of at least 0 that held for ``weight_ns`` nanoseconds."""
        if weight_ns <= 0:
            return
        if value > 0:
            index = math.ceil(math.log(value) * _BINS_PER_E) - self._lowest_bin
            if 0 <= index < len(self._weights):
                self._weights[index] += weight_ns
            else:
                self._add_bin(index + self._lowest_bin, weight_ns)
        else:
            self._zero_weight_ns += weight_ns
        self._weighted_sum += value * weight_ns
        self._weight_ns += weight_ns
        # Comparisons take a third of the time of min() and max(), several times for each container
        # and tick.
        if value < self._minimum:  # noqa: PLR1730
            self._minimum = value
        if value > self._maximum:  # noqa: PLR1730
            self._maximum = value

    def _add_bin(self, number: int, weight_ns: int) -> None:
        """Add a bin that is not among the present ones, with the bins in between."""
        from array import array  # the shortest runs have no value

        if not self._weights:
            self._lowest_bin = number
        below = max(self._lowest_bin - number, 0)
        weights = array("d", bytes(8 * below))
        weights.extend(self._weights)
        self._lowest_bin -= below
        weights.extend([0.0] * (number + 1 - self._lowest_bin - len(weights)))
        weights[number - self._lowest_bin] += weight_ns
        self._weights = weights

    @property
    def weight_ns(self) -> int:
        """The time for which the quantity is known."""
        return self._weight_ns

    @property
    def maximum(self) -> float | None:
        return self._maximum if self._weight_ns else None

    def distribution(self, *, per: float = 1, digits: int = 3) -> Distribution:
        """The statistics, divided by ``per`` and rounded to ``digits``; NOT_MEASURED before the
        first value.
        """
        if not self._weight_ns:
            return NOT_MEASURED
        # Rounding of the sum can move the quotient beyond the extremes by one unit in the last
        # place.
        mean = self._within_extremes(self._weighted_sum / self._weight_ns)
        p50, p95, p99 = map(self._quantile, (0.50, 0.95, 0.99))
        avg, p50, p95, p99, most = (
            round(value / per, digits) for value in (mean, p50, p95, p99, self._maximum)
        )
        return Distribution(avg=avg, p50=p50, p95=p95, p99=p99, max=most)

    def median(self) -> float | None:
        """The value that was not exceeded for half of the time; None before the first value."""
        return self._quantile(0.5) if self._weight_ns else None

    def _quantile(self, quantile: float) -> float:
        rank = quantile * (self._weight_ns - 1)
        passed_ns = float(self._zero_weight_ns)
        if passed_ns > rank:
            return self._within_extremes(0.0)
        for number, weight_ns in enumerate(self._weights, self._lowest_bin):
            passed_ns += weight_ns
            if passed_ns > rank:
                return self._within_extremes(math.exp(number / _BINS_PER_E) * _MIDDLE)
        return self._maximum  # reached only by rounding

    def _within_extremes(self, value: float) -> float:
        return min(max(value, self._minimum), self._maximum)


class MeanAndMaximum:
    """The weighted mean and the maximum of readings, or over time with nanoseconds; ``total`` is
    the weighted sum.
    """

    __slots__ = ("maximum", "total", "weight")

    def __init__(self) -> None:
        self.total: float = 0
        self.weight = 0
        self.maximum: float | None = None

    def add_reading(self, value: float | None, weight: int = 1) -> None:
        """Add a reading; an unknown one, and one without weight, does not count."""
        if value is not None and weight > 0:
            self.total += value * weight
            self.weight += weight
            # Not by max_known: each sample comes here several times.
            if self.maximum is None or value > self.maximum:
                self.maximum = value

    def merge(self, other: "MeanAndMaximum") -> None:
        """Count the readings of another one, too."""
        self.total += other.total
        self.weight += other.weight
        self.maximum = max_known(self.maximum, other.maximum)

    def average_and_maximum(self, *, per: float = 1) -> AverageAndMaximum:
        """Mean and maximum, divided by ``per`` and rounded; both unknown before the first value."""
        if self.maximum is None:
            return NO_READINGS
        return AverageAndMaximum(
            avg=round(self.total / self.weight / per, 3), max=round(self.maximum / per, 3)
        )


class SeldomReadMean(MeanAndMaximum):
    """The mean over time of what only some of the readings have: a value counts for the time of the
    readings without one before it, too.
    """

    __slots__ = ("_unread",)

    def __init__(self) -> None:
        super().__init__()
        self._unread = 0

    def add_reading(self, value: float | None, weight: int = 1) -> None:
        """Add a reading."""
        self._unread += weight
        if value is not None:
            super().add_reading(value, self._unread)
            self._unread = 0


class RecentReadingsByBatch:
    """The values since the last call of :meth:`take_recent` for a batch; for a new batch, since the
    last call for any.
    """

    def __init__(self) -> None:
        self._unclaimed = MeanAndMaximum()
        self._by_batch: dict[str, MeanAndMaximum] = {}

    def add_reading(self, value: float | None) -> None:
        """Add a reading; an unknown one does not count."""
        for recent in (self._unclaimed, *self._by_batch.values()):
            recent.add_reading(value)

    def begin_batch(self, batch: str, values: Iterable[float | None]) -> None:
        """Begin a new batch: of the values so far, only these known ones are its own."""
        recent = MeanAndMaximum()
        for value in values:
            recent.add_reading(value)
        self._by_batch[batch] = recent

    def take_recent(self, batch: str) -> MeanAndMaximum:
        """The values since the last call for this batch."""
        taken = self._by_batch.get(batch, self._unclaimed)
        self._unclaimed = MeanAndMaximum()
        self._by_batch[batch] = MeanAndMaximum()
        return taken

    def forget_batch(self, batch: str) -> None:
        """The batch has ended."""
        self._by_batch.pop(batch, None)


class MonotonicCounter:
    """The total of a counter that only grows; a value below the last one means that it was reset
    to 0 in between.
    """

    __slots__ = ("_before_reset", "_last", "increase")

    def __init__(self) -> None:
        self.increase: int | None = None  # since the first value
        self._before_reset = 0
        self._last: int | None = None

    def advance_to(self, value: int) -> int | None:
        """Add the counter's next value; returns the increase since the last one (None for the
        first).
        """
        growth = None
        if self._last is not None:
            if value < self._last:
                self.reset_to_zero()
            growth = value - self._last
            self.increase = growth + (self.increase or 0)
        self._last = value
        return growth

    def is_below(self, value: int) -> bool:
        """Whether the value is below the last one."""
        return self._last is not None and value < self._last

    def growth_to(self, value: int) -> int | None:
        """The increase that :meth:`advance_to` would return."""
        if self._last is None:
            return None
        return value if value < self._last else value - self._last

    def reset_to_zero(self) -> None:
        """The counter was reset to 0, even if its next value is above the last one."""
        if self._last is not None:
            self._before_reset += self._last
            self._last = 0

    @property
    def total(self) -> int | None:
        if self._last is None:
            return None
        return self._before_reset + self._last


def percent_of(series: TimeWeightedStatistics, size: float | None) -> Distribution:
    """A quantity as a percentage of ``size``; NOT_MEASURED if ``size`` is unknown or 0."""
    return series.distribution(per=size / 100) if size else NOT_MEASURED


class UseWindow(Struct, frozen=True, gc=False):
    """The share of a time (monotonic) in which a GPU worked: a kernel ran, or a copy."""

    start_ns: int
    end_ns: int
    percent: float


class DeviceReadings(Struct):
    """The readings of all devices over a period; ``gpus_memory_bytes`` is the memory of all GPUs
    together.
    """

    gpu_percent: MeanAndMaximum = field(default_factory=MeanAndMaximum)
    gpu_memory_bytes: MeanAndMaximum = field(default_factory=MeanAndMaximum)
    gpus_memory_bytes: float | None = None
    neuron_percent: MeanAndMaximum = field(default_factory=MeanAndMaximum)
    # The work of the GPUs where it is known without gaps. None: ``gpu_percent`` is all.
    gpu_windows: list[UseWindow] | None = None

    def merge(self, other: "DeviceReadings") -> None:
        self.gpu_percent.merge(other.gpu_percent)
        self.gpu_memory_bytes.merge(other.gpu_memory_bytes)
        self.gpus_memory_bytes = max_known(self.gpus_memory_bytes, other.gpus_memory_bytes)
        self.neuron_percent.merge(other.neuron_percent)

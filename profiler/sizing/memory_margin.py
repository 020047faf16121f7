"""The margin above the memory that a family's runs needed: what their own needs say of the next
one's. docs/right-size.md explains it.
"""

import math
from collections.abc import Collection
from typing import Final

from msgspec import Struct

from profiler.core.optional_math import first_known, median
from profiler.record.record_model import PeakSource
from profiler.record.units import format_count, format_percent, format_period

# The more runs were seen, the less the next one exceeds the largest of them.
MIN_SPREAD_RUNS: Final = 20
# The least where the kernel knows the peaks, where they were sampled each second, and where it is
# not known how far they are exceeded.
KERNEL_PERCENT: Final = 5.0
EACH_SECOND_PERCENT: Final = 10.0
UNKNOWN_PERCENT: Final = 20.0
MAX_SPREAD_PERCENT: Final = 30.0
# The means of minutes do not show shorter peaks.
MINUTE_PERCENT: Final = 50.0
MINUTE_FACTOR: Final = 1 + MINUTE_PERCENT / 100
# A period of a second is measured as a little more or less.
_MAX_SECOND_MS: Final = 1500


class NeedSpread(Struct, frozen=True, kw_only=True):
    """The largest need of a family's measured runs, and the median of the ``runs`` whose need is
    known: what a run used that was killed at its limit is less than it needed.
    ``is_largest_killed``: such a run used the most.
    """

    largest_mb: float
    median_mb: float
    runs: int
    is_largest_killed: bool = False

    @property
    def largest_above_median_percent(self) -> float:
        """How far the largest need lies above the median."""
        if self.largest_mb <= self.median_mb:
            return 0
        if self.median_mb <= 0:
            return math.inf
        return 100 * (self.largest_mb / self.median_mb - 1)

    @property
    def killed_run_sentence(self) -> str:
        far = (
            "far"
            if math.isinf(self.largest_above_median_percent)
            else format_percent(self.largest_above_median_percent)
        )
        runs = format_count(self.runs, "run")
        if self.is_largest_killed:
            return f"a killed run lies at least {far} above the median of {runs}"
        return f"the largest of {runs} lies {far} above their median"


class PeakPrecision(Struct, frozen=True, kw_only=True):
    """How exactly the peaks were measured: the least exact source, and the longest period of the
    statistics. ``is_by_minute``: some are the means of minutes.
    """

    source: PeakSource | None = None
    period_ms: float | None = None
    is_by_minute: bool = False

    @property
    def is_each_second(self) -> bool:
        period_ms = first_known(self.period_ms, math.inf)
        return self.source == "sampled" and period_ms <= _MAX_SECOND_MS


class MemoryMargin(Struct, frozen=True, kw_only=True):
    """A margin, and why it is as large; "" of one that was asked for, or is the least."""

    percent: float
    why: str = ""

    @property
    def factor(self) -> float:
        return 1 + self.percent / 100

    @property
    def margin_of_one_value(self) -> "MemoryMargin":
        """The margin above a value of which only the largest is known, not the spread."""
        if not self.why or self.percent >= UNKNOWN_PERCENT:
            return self
        return UNKNOWN_MARGIN

    @property
    def margin_text(self) -> str:
        return f"a margin of {format_percent(self.percent)}"


UNKNOWN_MARGIN: Final = MemoryMargin(
    percent=UNKNOWN_PERCENT, why="how much the runs differ is not known"
)


def spread_of_needs(
    needs_mb: Collection[float], killed_used_mb: Collection[float] = ()
) -> NeedSpread | None:
    """The spread of all runs' needs; None without any.

    ``killed_used_mb``: what the runs used that were killed at their limits.
    """
    known_mb = max(needs_mb, default=-math.inf)
    largest_mb = max(known_mb, max(killed_used_mb, default=-math.inf))
    if math.isinf(largest_mb):
        return None
    return NeedSpread(
        largest_mb=largest_mb,
        median_mb=median(sorted(needs_mb)) if needs_mb else largest_mb,
        runs=len(needs_mb),
        is_largest_killed=largest_mb > known_mb,
    )


def memory_margin(
    spread: NeedSpread | None,
    precision: PeakPrecision,
    *,
    asked_percent: float | None = None,
    killed_at_mb: float = -math.inf,
) -> MemoryMargin:
    """The margin above the largest need.

    ``asked_percent``: a margin in place of the family's own. ``killed_at_mb``: the largest memory
    that was too little for a run; less than any without a kill.
    """
    if asked_percent is not None:
        margin = MemoryMargin(percent=asked_percent)
    elif spread is None:
        margin = UNKNOWN_MARGIN
    else:
        margin = _margin_for_spread(spread, _least_margin(spread, precision, killed_at_mb))
    if precision.is_by_minute and margin.percent < MINUTE_PERCENT:
        return MemoryMargin(percent=MINUTE_PERCENT, why="means of minutes do not show the peaks")
    return margin


def _margin_for_spread(spread: NeedSpread, least: MemoryMargin) -> MemoryMargin:
    share = math.sqrt(MIN_SPREAD_RUNS / max(spread.runs, MIN_SPREAD_RUNS))
    percent = min(spread.largest_above_median_percent * share, MAX_SPREAD_PERCENT)
    if percent <= least.percent and least.why:
        return least
    return MemoryMargin(percent=max(percent, least.percent), why=spread.killed_run_sentence)


def _least_margin(
    spread: NeedSpread, precision: PeakPrecision, killed_at_mb: float
) -> MemoryMargin:
    """The least margin, with a reason where the needs themselves do not count as known."""
    if killed_at_mb >= spread.largest_mb:
        return MemoryMargin(
            percent=UNKNOWN_PERCENT, why="how much more the killed run needed is not known"
        )
    if spread.runs < MIN_SPREAD_RUNS:
        runs = format_count(spread.runs, "run")
        verb = "does" if spread.runs == 1 else "do"
        return MemoryMargin(
            percent=UNKNOWN_PERCENT, why=f"{runs} {verb} not show how much the next one needs"
        )
    if precision.source == "kernel":
        return MemoryMargin(percent=KERNEL_PERCENT)
    if precision.is_each_second:
        return MemoryMargin(percent=EACH_SECOND_PERCENT)
    every = "not each second"
    period_ms = precision.period_ms or 0
    if period_ms > _MAX_SECOND_MS:
        every = f"every {format_period(period_ms)}"
    return MemoryMargin(percent=UNKNOWN_PERCENT, why=f"the peaks were sampled {every}")

"""What each size would cost and how long a run would take there: the table that a recommendation
is chosen from.
"""

import math
from collections.abc import Collection
from typing import Final, Literal

from msgspec import Struct

from profiler.core.optional_math import difference, first_known, known, product, quotient, rounded
from profiler.core.timestamps import MS_PER_HOUR
from profiler.record.family_statistics import MonthBasis
from profiler.record.measured import UNKNOWN, Measured, scaled_number
from profiler.record.record_model import SlowdownBounds
from profiler.record.task_needs import least_time_factor
from profiler.record.units import APPROXIMATELY
from profiler.sizing.billed_tasks import BilledTasks, mean_billed_ms
from profiler.sizing.evidence import Evidence
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size, whole_size
from profiler.sizing.prices import REFERENCE_PRICES, HourPrices
from profiler.sizing.slowdown_factors import FACTOR_DIGITS, SAME_DURATION

# What an amount a month is an estimate by.
EstimateBasis = MonthBasis | Literal["Spot"]
# Floating-point sums are not exact: 0.1 + 0.2 must fit into 0.3.
ROUNDING = 1e-9
# More than between any two sizes of Fargate: the current size is not a real one.
_MAX_PRICE_RATIO = 1e6


class MemoryNeed(Struct, frozen=True, kw_only=True):
    """The memory that a size must have: at least ``memory_mb``, and more than ``above_mb``.

    ``held_mb`` keeps a size from getting smaller, and is at most the current one: with mapped
    files, or by older peaks that may include them.
    """

    memory_mb: float = 0
    above_mb: float = 0
    held_mb: float = 0

    def holds_need(self, memory_mb: float) -> bool:
        return self.holds_without_files(memory_mb) and memory_mb >= self.held_mb - ROUNDING

    def holds_without_files(self, memory_mb: float) -> bool:
        """Whether a size would be enough without mapped files."""
        return memory_mb >= self.memory_mb - ROUNDING and memory_mb > self.above_mb


class SizeOption(Struct, frozen=True, kw_only=True):
    """The duration and the cost of a family's runs at one size; None: unknown.

    ``factor`` compares the duration with the current size. ``is_fast_enough``: its upper bound is
    within the limit. ``comparable_hour_usd`` is the price for the choice: of another Region if this
    one has none.
    """

    size: Size
    factor: SlowdownBounds | None
    holds_memory: bool
    is_fast_enough: bool
    hour_usd: float | None
    comparable_hour_usd: float
    current_hour_usd: float | None
    billed: BilledTasks

    @property
    def is_acceptable(self) -> bool:
        return self.holds_memory and self.is_fast_enough

    @property
    def comparable_cost(self) -> float:
        """The relative cost of a run at the upper bound of its duration; an unknown duration
        counts as unchanged.
        """
        return round(self.comparable_hour_usd * self._billed_hours(self.likely_factor.max), 12)

    @property
    def likely_factor(self) -> SlowdownBounds:
        """The factor; an unknown duration counts as unchanged."""
        return self.factor or SAME_DURATION

    @property
    def saving_percent(self) -> float | None:
        """The saving of a run in percent at the upper bound of its duration; negative if the
        size costs more.
        """
        if self.factor is None:
            return None
        return self.saving_percent_at(self.factor.max)

    def saving_percent_at(self, factor: float) -> float | None:
        """The saving of a run in percent if it takes ``factor`` times as long; None if a price
        is too small.
        """
        if self.hour_usd is None or not self.current_hour_usd:
            return None
        ratio = self.hour_usd / self.current_hour_usd
        if ratio >= _MAX_PRICE_RATIO:
            return None
        return (
            round(100 * (1 - ratio * self._billed_hours(factor) / self._billed_hours(1)), 1) + 0.0
        )

    @property
    def usd_per_run(self) -> float | None:
        """The cost of a run at the upper bound of its duration."""
        if self.factor is None:
            return None
        return self._run_usd(self.hour_usd, self.factor.max)

    @property
    def current_usd_per_run(self) -> float | None:
        """The cost of a run at the current size."""
        return self._run_usd(self.current_hour_usd, 1)

    def usd_saved_at(self, factor: float) -> float | None:
        """The saving of a run in USD if it takes ``factor`` times as long; negative if the size
        costs more.
        """
        return difference(self.current_usd_per_run, self._run_usd(self.hour_usd, factor))

    def _run_usd(self, hour_usd: float | None, factor: float) -> float | None:
        if not self.billed:
            return None
        return rounded(product(hour_usd, self._billed_hours(factor)), 8)

    def _billed_hours(self, factor: float) -> float:
        """The billed hours of a run that takes ``factor`` times as long; of unknown runs, as if
        each took an hour.
        """
        mean_hours = quotient(mean_billed_ms(self.billed, factor), MS_PER_HOUR)
        return first_known(mean_hours, factor)


def reserved_size_option(size: Size) -> SizeOption:
    """A size of a job on EC2 that is enough: it has no price, and no run gets slower by it, because
    nothing limits its CPU.
    """
    return SizeOption(
        size=size,
        factor=SAME_DURATION,
        holds_memory=True,
        is_fast_enough=True,
        hour_usd=None,
        comparable_hour_usd=0,
        current_hour_usd=None,
        billed=(),
    )


# No size of Fargate: it has no price, and no run gets slower.
NO_OPTION: Final = reserved_size_option(Size(0, 0))


class WhatIf(Struct, frozen=True, kw_only=True):
    """Calculates the duration and the cost at a size."""

    evidence: Evidence
    need: MemoryNeed
    max_slowdown_percent: float
    prices: HourPrices | None = None

    def option_at(self, size: Size) -> SizeOption:
        """Return the duration and the cost of the runs at this size."""
        factor = self.duration_factor_at(size.vcpu)
        hour_usd = self._hour_price_usd(size)
        without_storage = self.prices or REFERENCE_PRICES
        comparable_hour_usd = without_storage.size_hour_price_usd(size.vcpu, size.memory_mb)
        if factor is not None:
            is_fast_enough = factor.max <= 1 + self.max_slowdown_percent / 100 + ROUNDING
        else:
            # Without any measurement of CPU the current size stays, if there is one.
            current_vcpu = self.evidence.task_size.vcpu or 0
            is_fast_enough = not self.evidence.has_cpu and size.vcpu >= current_vcpu
        return SizeOption(
            size=size,
            factor=factor,
            holds_memory=self.need.holds_need(size.memory_mb),
            is_fast_enough=is_fast_enough,
            hour_usd=hour_usd,
            comparable_hour_usd=first_known(hour_usd, comparable_hour_usd),
            current_hour_usd=known(self._hour_price_usd, self.current_size),
            billed=self.evidence.usage.billed,
        )

    @property
    def current_size(self) -> Size | None:
        """The current size; None if a part of it is unknown."""
        return whole_size(self.evidence.task_size)

    def duration_factor_at(self, vcpu: float) -> SlowdownBounds | None:
        """The bounds of the duration with this vCPU size; None if nothing is known about it.

        A larger size shortens the saturated time in proportion to the sizes: all of it, or none.
        Runs without a slowdown (schema 1.0) are not slower with the vCPUs that they used for 95 %
        of the time; more is not known.
        """
        evidence = self.evidence
        current_vcpu = self.evidence.task_size.vcpu
        seen_vcpu = evidence.vcpu_limit
        if seen_vcpu and vcpu > seen_vcpu:
            if evidence.usage.is_saturated:
                saturated = (evidence.usage.saturated_percent or 0) / 100
            else:
                saturated = 0
            least = least_time_factor(saturated, seen_vcpu, vcpu)
            return SlowdownBounds(min=round(least, FACTOR_DIGITS), max=1)
        if vcpu >= first_known(current_vcpu, math.inf):
            return SAME_DURATION
        if not evidence.has_cpu or (not evidence.outcomes.has_success and vcpu < (seen_vcpu or 0)):
            return None
        if vcpu < (evidence.needs.vcpu_without_slowdown or 0) - ROUNDING:
            return None
        return (evidence.needs.slowdowns or {}).get(vcpu, SAME_DURATION)

    def _hour_price_usd(self, size: Size) -> float | None:
        """Return the price of an hour.

        A machine that counts as a task may have a size that Fargate does not have.
        """
        if self.prices is None or (
            self.evidence.on_fargate is not None and size not in LEGAL_SIZES
        ):
            return None
        return self.prices.hour_price_usd(
            size.vcpu, size.memory_mb, self.evidence.latest.metrics.ephemeral_storage_size_mb
        )

    def options_table(self, chosen: Size | None) -> tuple[SizeOption, ...]:
        """Return the smallest size of each vCPU size that holds the memory need, the current and
        the chosen one.
        """
        fitting = [size for size in reversed(LEGAL_SIZES) if self.need.holds_need(size.memory_mb)]
        smallest = {size.vcpu: size for size in fitting}.values()  # the last one of each vCPU size
        shown = {*smallest, *filter(None, (chosen, self.current_size))}
        return tuple(self.option_at(size) for size in sorted(shown))


def mark_of_estimates(estimated_by: Collection[EstimateBasis]) -> str:
    """The mark of amounts a month that are estimates by these; "" of others."""
    return APPROXIMATELY if estimated_by else ""


def usd_per_month(usd_per_run: float | None, evidence: Evidence) -> float | None:
    """The price of a run × the runs a month; None if one of them is unknown."""
    return product(usd_per_run, evidence.usage.runs_per_month)


def idle_gpu_hours_per_month(evidence: Evidence) -> Measured:
    """Estimate the idle time of the family's GPUs in a month; unknown without GPUs or an estimate
    of the runs.
    """
    runs = evidence.usage.runs_per_month
    return UNKNOWN if runs is None else scaled_number(evidence.usage.idle_gpu_hours, runs)

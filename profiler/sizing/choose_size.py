"""Chooses the size of a task from what each size would take and cost. docs/right-size.md
explains the policy.
"""

import math

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import FARGATE
from profiler.core.optional_math import first_known
from profiler.core.timestamps import DAYS_PER_MONTH
from profiler.record.measured import Number
from profiler.record.record_model import UNKNOWN_SIZE, SlowdownBounds, TaskSize
from profiler.record.units import rounded_number
from profiler.sizing.evidence import Evidence
from profiler.sizing.fargate_sizes import LARGEST, LEGAL_SIZES
from profiler.sizing.instance_memory import SmallestInstance
from profiler.sizing.memory_margin import UNKNOWN_MARGIN, MemoryMargin, memory_margin
from profiler.sizing.prices import PriceOverrides, fargate_prices
from profiler.sizing.reservation_size import reservation_size, size_within_instance
from profiler.sizing.size_options import NO_OPTION, ROUNDING, MemoryNeed, SizeOption, WhatIf
from profiler.sizing.trend import NO_GROWTH, Growth

# A size that the growing peak passes within this many runs or this time is too small.
GROWTH_RUNS = 30
_GROWTH_DAYS = 14


class SizePolicy(Struct, frozen=True, kw_only=True):
    """The limits of a size.

    ``memory_margin_percent``: None for the family's own. ``faster``: a saturated task gets more
    vCPUs. A definition reserves ``least_memory_mb``.
    """

    memory_margin_percent: float | None = None
    max_slowdown_percent: float = 25
    faster: bool = False
    least_memory_mb: float = 0


class SizeDecision(Struct, frozen=True, kw_only=True):
    """The recommended size, and the ``current`` one of the latest run's task, of which a part
    can be unknown.

    ``needs_more_vcpu``, ``needs_more_memory``: than Fargate has. ``size`` has neither part if a
    run was killed at Fargate's largest memory. ``outgrown`` would be enough without the growth;
    None if that does not change the size. ``chosen`` and the table of ``options``, by vCPU, exist
    on Fargate only, and ``ranked``: all sizes that are enough, the best one first, which is
    ``chosen`` unless a faster one was asked for. ``instance`` has less room than its memory, which
    decided the size of a job on EC2, or which the size exceeds.
    """

    current: TaskSize
    size: TaskSize
    is_fargate: bool
    policy: SizePolicy
    need: MemoryNeed
    margin: MemoryMargin = UNKNOWN_MARGIN
    needs_more_vcpu: bool = False
    needs_more_memory: bool = False
    growth: Growth = NO_GROWTH
    outgrown: TaskSize = UNKNOWN_SIZE
    chosen: SizeOption = NO_OPTION
    options: tuple[SizeOption, ...] = ()
    ranked: tuple[SizeOption, ...] = ()
    instance: SmallestInstance | None = None

    @property
    def factor(self) -> SlowdownBounds:
        """The bounds of the duration at the recommended size; unchanged if unknown."""
        return self.chosen.likely_factor

    @property
    def saving_percent(self) -> float | None:
        """Saving of a run in percent at the upper bound of its duration; negative if the new
        size costs more.
        """
        return self.chosen.saving_percent_at(self.factor.max)

    @property
    def usd_saved(self) -> float | None:
        """The saving of a run in USD, as above."""
        return self.chosen.usd_saved_at(self.factor.max)

    @property
    def will_soon_be_outgrown(self) -> bool:
        """Whether the memory peak will soon pass the size that is enough today."""
        return self.outgrown != UNKNOWN_SIZE

    @property
    def is_of_fargate(self) -> bool:
        """Whether the recommended size is one of Fargate's."""
        return self.chosen != NO_OPTION

    @property
    def is_current_size_right(self) -> bool:
        """Whether the current size is known, and neither another one is better nor more is
        needed.
        """
        return self.current != TaskSize() and not (
            self.is_other_size_better or self.needs_more_vcpu or self.needs_more_memory
        )

    @property
    def has_more_memory(self) -> bool:
        """Whether the recommended size has more memory than the current one."""
        return (self.size.memory_mb or 0) > (self.current.memory_mb or math.inf)

    @property
    def has_more_vcpu(self) -> bool:
        """Whether the recommended size has more vCPUs than the current one."""
        return (self.size.vcpu or 0) > (self.current.vcpu or math.inf)

    @property
    def is_other_size_better(self) -> bool:
        """Whether another size is better than the current one, if that is known; outside
        Fargate, in a part of which both are known.
        """
        if self.current == TaskSize():
            return False
        for current, new in self._compared_parts:
            is_compared = self.is_fargate or current is not None
            if is_compared and new not in (None, current):
                return True
        return False

    @property
    def is_reserved_too_much(self) -> bool:
        """Whether less than the reservation of a task outside Fargate is enough."""
        has_more = self.has_more_memory or self.has_more_vcpu
        return not self.is_fargate and self.is_other_size_better and not has_more

    @property
    def is_memory_without_margin(self) -> bool:
        """Whether the memory is only more than that with which a run was killed, because that is
        more than the runs used, with a margin.
        """
        need = self.need
        is_kill_decisive = max(need.memory_mb, need.held_mb) <= need.above_mb
        return is_kill_decisive and 0 < need.above_mb < (self.size.memory_mb or 0)

    @property
    def is_margin_cut(self) -> bool:
        """Whether the memory has less than the margin: an instance or Fargate has no more."""
        return (self.size.memory_mb or 0) < self.need.memory_mb - ROUNDING

    @property
    def exceeds_fargate(self) -> bool:
        """Whether a run was killed at Fargate's largest memory, so that no size is recommended."""
        return self.is_fargate and self.need.above_mb >= LARGEST.memory_mb

    @property
    def _compared_parts(self) -> tuple[tuple[Number | None, Number | None], ...]:
        """The vCPUs and the memory of the current and of the recommended size."""
        return (
            (self.current.vcpu, self.size.vcpu),
            (self.current.memory_mb, self.size.memory_mb),
        )


def recommend_size(
    evidence: Evidence, policy: SizePolicy, price_overrides: PriceOverrides
) -> SizeDecision:
    """Recommend a size for a family.

    A size that the growing peak soon passes is too small.
    """
    trend = evidence.needs.needs_mb.growth
    margin = memory_margin_of(evidence, policy)
    need = _memory_need(evidence, policy, margin)
    decision = _decide_size(evidence, policy, price_overrides, need)
    soon_mb = trend.value_after_runs(_runs_until_next_look(evidence, trend))
    if soon_mb <= (decision.size.memory_mb or 0):
        return replace(decision, growth=trend, margin=margin)
    largest_mb = LARGEST.memory_mb if decision.is_fargate else soon_mb
    grown = replace(need, memory_mb=max(need.memory_mb, min(soon_mb, largest_mb)))
    larger = _decide_size(evidence, policy, price_overrides, grown)
    outgrown = UNKNOWN_SIZE
    if larger.size != decision.size:
        outgrown = decision.size
    return replace(larger, growth=trend, margin=margin, outgrown=outgrown)


def _decide_size(
    evidence: Evidence, policy: SizePolicy, price_overrides: PriceOverrides, need: MemoryNeed
) -> SizeDecision:
    task = evidence.latest
    current = evidence.task_size
    # A machine on which every run failed, or had too little CPU, is no size of Fargate to compare
    # with.
    has_ended = evidence.outcomes.has_success or evidence.outcomes.out_of_memory
    is_starved = evidence.precision.is_starved
    is_unproven = evidence.is_moved and (is_starved or not has_ended)
    if task.launch_type != FARGATE or is_unproven:
        if is_unproven and is_starved:
            current = UNKNOWN_SIZE
        reserved = reservation_size(evidence, need)
        has_own_margin = policy.memory_margin_percent is None
        size, instance = size_within_instance(
            evidence, need, reserved, has_own_margin=has_own_margin
        )
        return SizeDecision(
            current=current,
            size=size,
            is_fargate=False,
            policy=policy,
            need=need,
            instance=instance,
        )
    known_prices = fargate_prices(
        task.region, task.cpu_architecture, price_overrides, on_spot=evidence.usage.on_spot
    )
    what_if = WhatIf(
        evidence=evidence,
        need=need,
        max_slowdown_percent=policy.max_slowdown_percent,
        prices=known_prices,
    )
    return _decide_on_fargate(evidence, policy, what_if)


def _decide_on_fargate(evidence: Evidence, policy: SizePolicy, what_if: WhatIf) -> SizeDecision:
    """The cheapest size that is enough; none after a kill at the largest memory."""
    need = what_if.need
    current = evidence.task_size
    every = [what_if.option_at(size) for size in LEGAL_SIZES]
    needs_more_vcpu = not any(option.is_fast_enough for option in every)
    needs_more_memory = not need.holds_need(LARGEST.memory_mb)
    if need.above_mb >= LARGEST.memory_mb:
        return SizeDecision(
            current=current,
            size=TaskSize(),
            is_fargate=True,
            policy=policy,
            need=need,
            needs_more_vcpu=needs_more_vcpu,
            needs_more_memory=True,
            options=what_if.options_table(None),
        )
    fitting = [
        option
        for option in every
        if (option.is_fast_enough or (needs_more_vcpu and option.size.vcpu == LARGEST.vcpu))
        and (
            option.holds_memory
            or (needs_more_memory and option.size.memory_mb == LARGEST.memory_mb)
        )
    ]
    ranked = sorted(fitting, key=_option_sort_key)
    larger = [option for option in fitting if option.size.vcpu > (current.vcpu or LARGEST.vcpu)]
    if larger and policy.faster and evidence.usage.is_saturated:
        chosen = min(larger, key=lambda option: option.size)
    else:
        chosen = ranked[0]
    return SizeDecision(
        current=current,
        size=TaskSize(
            vcpu=rounded_number(chosen.size.vcpu), memory_mb=rounded_number(chosen.size.memory_mb)
        ),
        is_fargate=True,
        policy=policy,
        need=need,
        needs_more_vcpu=needs_more_vcpu,
        needs_more_memory=needs_more_memory,
        chosen=chosen,
        options=what_if.options_table(chosen.size),
        ranked=tuple(ranked),
    )


def _option_sort_key(option: SizeOption) -> tuple[float, float, float]:
    """The cheapest size is first.

    Of several that cost the same, it is the one with the most vCPUs, then the least memory; where
    the prices are 0, the smallest one.
    """
    cost = option.comparable_cost
    vcpu = option.size.vcpu
    return cost, -vcpu if cost else vcpu, option.size.memory_mb


def memory_margin_of(evidence: Evidence, policy: SizePolicy) -> MemoryMargin:
    """The margin above the memory that a family's runs needed."""
    unknown_mb = math.inf if evidence.outcomes.out_of_memory else -math.inf
    killed_at_mb = first_known(evidence.needs.oom_size_mb, unknown_mb)
    return memory_margin(
        evidence.needs.spread,
        evidence.precision.peak_precision,
        asked_percent=policy.memory_margin_percent,
        killed_at_mb=killed_at_mb,
    )


def _runs_until_next_look(evidence: Evidence, trend: Growth) -> int:
    """The runs until the size is looked at again: in 14 days, but of a trend no more than showed
    it.
    """
    month = evidence.usage.tasks_in_a_month
    if month is None:
        return GROWTH_RUNS
    in_time = math.ceil(month.runs * _GROWTH_DAYS / DAYS_PER_MONTH)
    return max(GROWTH_RUNS, min(in_time, trend.runs))


def _memory_need(evidence: Evidence, policy: SizePolicy, margin: MemoryMargin) -> MemoryNeed:
    """Add the margin.

    The size stays if all runs failed or were too short, or a usage reached the limit unseen.
    """
    current = evidence.task_size
    required_mb = evidence.needs.required_memory_mb
    needed_mb = current.memory_mb or 0
    if required_mb is not None:
        needed_mb = required_mb * margin.factor
    keeps_size = evidence.precision.is_too_short or not evidence.outcomes.has_success
    kept_mb = (current.memory_mb or 0) if keeps_size else 0
    least_mb = max(evidence.needs.reached_size_mb or 0, kept_mb, policy.least_memory_mb)
    return MemoryNeed(
        memory_mb=max(needed_mb, least_mb),
        above_mb=evidence.needs.oom_size_mb or 0,
        held_mb=_floor_of_smaller_size_mb(evidence, margin),
    )


def _floor_of_smaller_size_mb(evidence: Evidence, margin: MemoryMargin) -> float:
    """What keeps a size from getting smaller, and never makes it larger: the memory used with the
    mapped files, older peaks that may include them, and what a run may have used; huge pages,
    which no group counts; what the containers reserve together.
    """
    needs = evidence.needs
    unsure_mb = max(needs.older_memory_mb or 0, needs.bound_mb or 0)
    current_mb = evidence.task_size.memory_mb or math.inf
    held_mb = max(
        needs.with_files_mb or 0,
        unsure_mb * margin.margin_of_one_value.factor,
        needs.apart.least_task_memory_mb(margin),
    )
    if needs.huge_pages_mb:
        with_them_mb = (needs.required_memory_mb or 0) + needs.huge_pages_mb
        limit_mb = evidence.latest.metrics.memory_size_mb or math.inf
        # The size of runs that count as if on Fargate may be that of their machine.
        size_mb = None if evidence.is_moved else evidence.task_size.memory_mb
        held_mb = max(held_mb, size_mb or min(with_them_mb, limit_mb))
    return min(held_mb, current_mb, LARGEST.memory_mb)

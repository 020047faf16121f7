"""Derives the size of a task from the evidence of its runs.

vCPU: at least the largest requirement of any run plus a margin; after a CPU-bound run, more than the size it used up.
Memory: at least the largest requirement plus a margin; after an out-of-memory kill, more than the size at which it
happened. On Fargate the result is the cheapest legal size that satisfies both, elsewhere both are rounded up.
docs/right-size.md explains the policy.
"""

import math
from collections.abc import Sequence

from msgspec import Struct

from profiler.record.model import TaskSize
from profiler.record.units import as_number
from profiler.sizing.evidence import LAST_RUNS, Evidence
from profiler.sizing.fargate import FARGATE, REFERENCE_PRICES, Prices, Size, legal_sizes, prices
from profiler.sizing.prices import PriceOverrides

_VCPU_STEP = 0.25
_MEMORY_STEP_MB = 64
_SAVING_DIGITS = 1
# Floating-point sums are not exact: 0.1 + 0.2 must fit into 0.3.
_ROUNDING = 1e-9


class Policy(Struct, frozen=True, kw_only=True):
    """Margins above the largest requirement, in percent, and the number of runs that count."""

    cpu_margin_percent: float = 15
    memory_margin_percent: float = 20
    last_runs: int = LAST_RUNS


class DeploymentTarget(Struct, frozen=True, kw_only=True):
    """Where the task will run, if this is known from its task definition; None: as the latest run."""

    launch_type: str | None = None
    cpu_architecture: str | None = None
    windows: bool = False


class SizeDecision(Struct, frozen=True, kw_only=True):
    """The recommended size.

    Attributes:
        current: Size of the latest run's task; None if unknown.
        is_max_vcpu: The size is the largest that Fargate has; ``is_max_memory`` alike.
        needs_more_vcpu: The runs need more than Fargate has; ``needs_more_memory`` alike.
        is_vcpu_unchanged: The requirement is unknown, so the current size stays; ``is_memory_unchanged`` alike.
        prices: None if no price applies. Then both ``hour_usd`` are None too.
    """

    current: TaskSize | None
    size: TaskSize
    is_fargate: bool
    is_windows: bool = False
    is_max_vcpu: bool = False
    is_max_memory: bool = False
    needs_more_vcpu: bool = False
    needs_more_memory: bool = False
    is_vcpu_unchanged: bool = False
    is_memory_unchanged: bool = False
    prices: Prices | None = None
    current_hour_usd: float | None = None
    hour_usd: float | None = None

    @property
    def saving_percent(self) -> float | None:
        """Saving at the same duration, in percent of the current price; negative if the new size costs more."""
        if self.current_hour_usd is None or self.hour_usd is None or not self.current_hour_usd:
            return None
        return round(100 * (1 - self.hour_usd / self.current_hour_usd), _SAVING_DIGITS) + 0.0

    @property
    def changes(self) -> bool:
        """Whether the current size is known and another one is better.

        Outside Fargate, where sizes have no price, only a size that is too small is changed.
        """
        if self.current is None:
            return False
        pairs = ((self.current.vcpu, self.size.vcpu), (self.current.memory_mb, self.size.memory_mb))
        if self.is_fargate:
            return any(current != new for current, new in pairs if new is not None)
        return any(current < new for current, new in pairs if current is not None and new is not None)


class _Requirements(Struct, frozen=True, kw_only=True):
    """Bounds of a size: at least ``vcpu`` and ``memory_mb``, and more than ``above_vcpu`` and ``above_mb``."""

    vcpu: float = 0
    above_vcpu: float = 0
    memory_mb: float = 0
    above_mb: float = 0

    def has_vcpu(self, vcpu: float) -> bool:
        return vcpu >= self.vcpu - _ROUNDING and vcpu > self.above_vcpu

    def has_memory(self, memory_mb: float) -> bool:
        return memory_mb >= self.memory_mb - _ROUNDING and memory_mb > self.above_mb


def recommend_size(
    evidence: Evidence, policy: Policy, price_overrides: PriceOverrides, target: DeploymentTarget | None = None
) -> SizeDecision:
    """Recommend a size for a family."""
    target = target or DeploymentTarget()
    task = evidence.latest
    launch_type = target.launch_type or task.launch_type
    current = task.size
    requirements = _requirements(evidence, policy)
    if launch_type != FARGATE:
        return SizeDecision(current=current, size=_round_up(evidence, requirements), is_fargate=False)
    sizes = legal_sizes(windows=target.windows)
    # The price table is for Linux. For Windows, only prices from the settings apply.
    region = None if target.windows else task.region
    known_prices = prices(region, target.cpu_architecture or task.cpu_architecture, price_overrides)
    size, needs_more_vcpu, needs_more_memory = _cheapest(sizes, requirements, known_prices or REFERENCE_PRICES)
    current_size = _as_size(current)
    return SizeDecision(
        current=current,
        size=TaskSize(vcpu=as_number(size.vcpu), memory_mb=as_number(size.memory_mb)),
        is_fargate=True,
        is_windows=target.windows,
        is_max_vcpu=size.vcpu == max(legal.vcpu for legal in sizes),
        is_max_memory=size.memory_mb == max(legal.memory_mb for legal in sizes),
        needs_more_vcpu=needs_more_vcpu,
        needs_more_memory=needs_more_memory,
        is_vcpu_unchanged=evidence.required_vcpu is None,
        is_memory_unchanged=evidence.required_memory_mb is None and evidence.oom_size_mb is None,
        prices=known_prices,
        current_hour_usd=(
            known_prices.hour_usd(current_size, task.storage_mb)
            if known_prices is not None and current_size is not None
            else None
        ),
        hour_usd=known_prices.hour_usd(size, task.storage_mb) if known_prices is not None else None,
    )


def _requirements(evidence: Evidence, policy: Policy) -> _Requirements:
    """Add the margins. An unknown requirement is replaced by the current size, without a margin."""
    current = evidence.latest.size or TaskSize()
    vcpu, memory_mb = evidence.required_vcpu, evidence.required_memory_mb
    return _Requirements(
        vcpu=current.vcpu or 0 if vcpu is None else vcpu * (1 + policy.cpu_margin_percent / 100),
        above_vcpu=evidence.cpu_bound_vcpu or 0,
        memory_mb=current.memory_mb or 0 if memory_mb is None else memory_mb * (1 + policy.memory_margin_percent / 100),
        above_mb=evidence.oom_size_mb or 0,
    )


def _cheapest(sizes: Sequence[Size], requirements: _Requirements, by_prices: Prices) -> tuple[Size, bool, bool]:
    """Find the cheapest size, and whether the required vCPU or memory is above the largest size."""
    max_vcpu = max(size.vcpu for size in sizes)
    max_memory_mb = max(size.memory_mb for size in sizes)
    needs_more_vcpu, needs_more_memory = not requirements.has_vcpu(max_vcpu), not requirements.has_memory(max_memory_mb)
    fitting = [
        size
        for size in sizes
        if (requirements.has_vcpu(size.vcpu) or (needs_more_vcpu and size.vcpu == max_vcpu))
        and (requirements.has_memory(size.memory_mb) or (needs_more_memory and size.memory_mb == max_memory_mb))
    ]
    return min(fitting, key=lambda size: (by_prices.size_hour_usd(size), size)), needs_more_vcpu, needs_more_memory


def _round_up(evidence: Evidence, requirements: _Requirements) -> TaskSize:
    """Round up to steps of 0.25 vCPU and 64 MiB; an unknown requirement stays None."""
    vcpu = memory_mb = None
    if evidence.required_vcpu is not None:
        vcpu = as_number(_step_up(requirements.vcpu, requirements.above_vcpu, _VCPU_STEP))
    if evidence.required_memory_mb is not None or evidence.oom_size_mb is not None:
        memory_mb = as_number(_step_up(requirements.memory_mb, requirements.above_mb, _MEMORY_STEP_MB))
    return TaskSize(vcpu=vcpu, memory_mb=memory_mb)


def _step_up(minimum: float, above: float, step: float) -> float:
    """Round ``minimum`` up to a multiple of ``step`` that is more than ``above``, if that is not 0."""
    steps = max(math.ceil(minimum / step - _ROUNDING), 1)
    if above:
        steps = max(steps, math.floor(above / step) + 1)
    return steps * step


def _as_size(size: TaskSize | None) -> Size | None:
    if size is None or size.vcpu is None or size.memory_mb is None:
        return None
    return Size(size.vcpu, size.memory_mb)

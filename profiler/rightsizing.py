"""From what the runs of a family say to the size its task should have. Pure.

vCPU: at least the largest need of any run and a margin; after a CPU-bound run at least the next
size. Memory: at least the largest need and a margin; after a run out of memory more than what was
not enough. On Fargate the cheapest legal size that satisfies both, elsewhere both rounded up.
docs/right-size.md has the policy with its reasons.
"""

import math
from collections.abc import Sequence

from msgspec import Struct

from profiler.fargate import FARGATE, REFERENCE_PRICES, Prices, Size, legal_sizes, prices
from profiler.figures import as_number
from profiler.record import TaskSize
from profiler.sizing.evidence import LAST_RUNS, Evidence
from profiler.sizing.prices import PriceOverrides

_VCPU_STEP = 0.25
_MEMORY_STEP_MB = 64
_DIGITS = 1
# Sums and margins of decimal fractions are not exact: 0.1 + 0.2 needs no more than 0.3.
_ROUNDING = 1e-9


class Policy(Struct, frozen=True, kw_only=True):
    """How much more than was ever needed, in percent, and how many runs are looked at."""

    cpu_margin_percent: float = 15
    memory_margin_percent: float = 20
    last_runs: int = LAST_RUNS


class DeploymentTarget(Struct, frozen=True, kw_only=True):
    """Where the task is to run, if that is known better than from its latest run."""

    launch_type: str | None = None
    cpu_architecture: str | None = None
    windows: bool = False


class SizeDecision(Struct, frozen=True, kw_only=True):
    """The size to take.

    ``is_max_vcpu`` and ``is_max_memory``: the size is the largest that Fargate has. ``needs_more_vcpu`` and
    ``needs_more_memory``: the runs need more than that. ``is_vcpu_unchanged`` and ``is_memory_unchanged``: the need is
    unknown, so the present size stays.
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
        """Of the price of the present size at the same duration; negative if the new size costs more."""
        if self.current_hour_usd is None or self.hour_usd is None or not self.current_hour_usd:
            return None
        return round(100 * (1 - self.hour_usd / self.current_hour_usd), _DIGITS) + 0.0

    @property
    def changes(self) -> bool:
        """Whether the present size is known and another is better.

        Outside of Fargate, where sizes have no price, only one that is too small is wrong.
        """
        if self.current is None:
            return False
        pairs = ((self.current.vcpu, self.size.vcpu), (self.current.memory_mb, self.size.memory_mb))
        if self.is_fargate:
            return any(now != then for now, then in pairs if then is not None)
        return any(now < then for now, then in pairs if now is not None and then is not None)


class _Requirements(Struct, frozen=True, kw_only=True):
    """What a size must have: at least ``vcpu`` and ``memory_mb``, and more than ``above_vcpu`` and ``above_mb``."""

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
    """The size for a family."""
    target = target or DeploymentTarget()
    task = evidence.latest
    launch_type = target.launch_type or task.launch_type
    current = task.size
    requirements = _requirements(evidence, policy)
    if launch_type != FARGATE:
        return SizeDecision(current=current, size=_round_up(evidence, requirements), is_fargate=False)
    sizes = legal_sizes(windows=target.windows)
    # The table is Linux's: for Windows only prices that were given hold.
    region = None if target.windows else task.region
    known = prices(region, target.cpu_architecture or task.cpu_architecture, price_overrides)
    size, needs_more_vcpu, needs_more_memory = _cheapest(sizes, requirements, known or REFERENCE_PRICES)
    now = _as_size(current)
    return SizeDecision(
        current=current,
        size=TaskSize(vcpu=as_number(size.vcpu), memory_mb=as_number(size.memory_mb)),
        is_fargate=True,
        is_windows=target.windows,
        is_max_vcpu=size.vcpu == max(one.vcpu for one in sizes),
        is_max_memory=size.memory_mb == max(one.memory_mb for one in sizes),
        needs_more_vcpu=needs_more_vcpu,
        needs_more_memory=needs_more_memory,
        is_vcpu_unchanged=evidence.required_vcpu is None,
        is_memory_unchanged=evidence.required_memory_mb is None and evidence.oom_size_mb is None,
        prices=known,
        current_hour_usd=known.hour_usd(now, task.storage_mb) if known is not None and now is not None else None,
        hour_usd=known.hour_usd(size, task.storage_mb) if known is not None else None,
    )


def _requirements(evidence: Evidence, policy: Policy) -> _Requirements:
    """Of a need that is not known the present size is what is left to go by."""
    current = evidence.latest.size or TaskSize()
    vcpu, memory_mb = evidence.required_vcpu, evidence.required_memory_mb
    return _Requirements(
        vcpu=current.vcpu or 0 if vcpu is None else vcpu * (1 + policy.cpu_margin_percent / 100),
        above_vcpu=evidence.cpu_bound_vcpu or 0,
        memory_mb=current.memory_mb or 0 if memory_mb is None else memory_mb * (1 + policy.memory_margin_percent / 100),
        above_mb=evidence.oom_size_mb or 0,
    )


def _cheapest(sizes: Sequence[Size], requirements: _Requirements, by: Prices) -> tuple[Size, bool, bool]:
    """The cheapest size, and whether more vCPU or memory than there is would be wanted."""
    max_vcpu = max(size.vcpu for size in sizes)
    max_memory_mb = max(size.memory_mb for size in sizes)
    needs_more_vcpu, needs_more_memory = not requirements.has_vcpu(max_vcpu), not requirements.has_memory(max_memory_mb)
    fitting = [
        size
        for size in sizes
        if (requirements.has_vcpu(size.vcpu) or (needs_more_vcpu and size.vcpu == max_vcpu))
        and (requirements.has_memory(size.memory_mb) or (needs_more_memory and size.memory_mb == max_memory_mb))
    ]
    return min(fitting, key=lambda size: (by.size_hour_usd(size), size)), needs_more_vcpu, needs_more_memory


def _round_up(evidence: Evidence, requirements: _Requirements) -> TaskSize:
    """Steps of 0.25 vCPU and 64 MiB; what is not known is left out."""
    vcpu = memory_mb = None
    if evidence.required_vcpu is not None:
        vcpu = as_number(_step_up(requirements.vcpu, requirements.above_vcpu, _VCPU_STEP))
    if evidence.required_memory_mb is not None or evidence.oom_size_mb is not None:
        memory_mb = as_number(_step_up(requirements.memory_mb, requirements.above_mb, _MEMORY_STEP_MB))
    return TaskSize(vcpu=vcpu, memory_mb=memory_mb)


def _step_up(minimum: float, above: float, step: float) -> float:
    steps = max(math.ceil(minimum / step - _ROUNDING), 1)
    if above:
        steps = max(steps, math.floor(above / step) + 1)
    return steps * step


def _as_size(size: TaskSize | None) -> Size | None:
    if size is None or size.vcpu is None or size.memory_mb is None:
        return None
    return Size(size.vcpu, size.memory_mb)

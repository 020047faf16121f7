"""From what the runs of a family say to the size its task should have. Pure.

vCPU: at least the largest need of any run and a margin; after a CPU-bound run at least the next
size. Memory: at least the largest need and a margin; after a run out of memory more than what was
not enough. On Fargate the cheapest legal size that satisfies both, elsewhere both rounded up.
docs/right-size.md has the policy with its reasons.
"""

import math
from collections.abc import Sequence

from msgspec import Struct

from profiler.fargate import COMPARED_PRICES, FARGATE, Prices, Size, legal_sizes, prices
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


class Target(Struct, frozen=True, kw_only=True):
    """Where the task is to run, if that is known better than from its latest run."""

    launch_type: str | None = None
    cpu_architecture: str | None = None
    windows: bool = False


class Choice(Struct, frozen=True, kw_only=True):
    """The size to take.

    ``is_largest_vcpu`` and ``is_largest_memory``: it is all that Fargate has; ``wants_vcpu`` and ``wants_memory``: more
    would be wanted. ``vcpu_is_kept`` and ``memory_is_kept``: nothing is known of that need, so that the present size
    stays.
    """

    current: TaskSize | None
    size: TaskSize
    is_fargate: bool
    is_windows: bool = False
    is_largest_vcpu: bool = False
    is_largest_memory: bool = False
    wants_vcpu: bool = False
    wants_memory: bool = False
    vcpu_is_kept: bool = False
    memory_is_kept: bool = False
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


class _Floor(Struct, frozen=True, kw_only=True):
    """What a size must have: at least ``vcpu`` and ``memory_mb``, and more than ``above_vcpu`` and ``above_mb``."""

    vcpu: float = 0
    above_vcpu: float = 0
    memory_mb: float = 0
    above_mb: float = 0

    def has_vcpu(self, vcpu: float) -> bool:
        return vcpu >= self.vcpu - _ROUNDING and vcpu > self.above_vcpu

    def has_memory(self, memory_mb: float) -> bool:
        return memory_mb >= self.memory_mb - _ROUNDING and memory_mb > self.above_mb


def choose(evidence: Evidence, policy: Policy, own_prices: PriceOverrides, target: Target | None = None) -> Choice:
    """The size for a family."""
    target = target or Target()
    task = evidence.latest
    launch_type = target.launch_type or task.launch_type
    current = task.size
    floor = _floor(evidence, policy)
    if launch_type != FARGATE:
        return Choice(current=current, size=_rounded_up(evidence, floor), is_fargate=False)
    sizes = legal_sizes(windows=target.windows)
    # The table is Linux's: for Windows only prices that were given hold.
    region = None if target.windows else task.region
    known = prices(region, target.cpu_architecture or task.cpu_architecture, own_prices)
    size, wants_vcpu, wants_memory = _cheapest(sizes, floor, known or COMPARED_PRICES)
    now = _whole(current)
    return Choice(
        current=current,
        size=TaskSize(vcpu=as_number(size.vcpu), memory_mb=as_number(size.memory_mb)),
        is_fargate=True,
        is_windows=target.windows,
        is_largest_vcpu=size.vcpu == max(one.vcpu for one in sizes),
        is_largest_memory=size.memory_mb == max(one.memory_mb for one in sizes),
        wants_vcpu=wants_vcpu,
        wants_memory=wants_memory,
        vcpu_is_kept=evidence.need_vcpu is None,
        memory_is_kept=evidence.need_memory_mb is None and evidence.died_at_mb is None,
        prices=known,
        current_hour_usd=known.hour_usd(now, task.storage_mb) if known is not None and now is not None else None,
        hour_usd=known.hour_usd(size, task.storage_mb) if known is not None else None,
    )


def _floor(evidence: Evidence, policy: Policy) -> _Floor:
    """Of a need that is not known the present size is what is left to go by."""
    current = evidence.latest.size or TaskSize()
    vcpu, memory_mb = evidence.need_vcpu, evidence.need_memory_mb
    return _Floor(
        vcpu=current.vcpu or 0 if vcpu is None else vcpu * (1 + policy.cpu_margin_percent / 100),
        above_vcpu=evidence.cpu_bound_vcpu or 0,
        memory_mb=current.memory_mb or 0 if memory_mb is None else memory_mb * (1 + policy.memory_margin_percent / 100),
        above_mb=evidence.died_at_mb or 0,
    )


def _cheapest(sizes: Sequence[Size], floor: _Floor, by: Prices) -> tuple[Size, bool, bool]:
    """The cheapest size, and whether more vCPU or memory than there is would be wanted."""
    largest_vcpu = max(size.vcpu for size in sizes)
    largest_mb = max(size.memory_mb for size in sizes)
    wants_vcpu, wants_memory = not floor.has_vcpu(largest_vcpu), not floor.has_memory(largest_mb)
    fitting = [
        size
        for size in sizes
        if (floor.has_vcpu(size.vcpu) or (wants_vcpu and size.vcpu == largest_vcpu))
        and (floor.has_memory(size.memory_mb) or (wants_memory and size.memory_mb == largest_mb))
    ]
    return min(fitting, key=lambda size: (by.size_hour_usd(size), size)), wants_vcpu, wants_memory


def _rounded_up(evidence: Evidence, floor: _Floor) -> TaskSize:
    """Steps of 0.25 vCPU and 64 MiB; what is not known is left out."""
    vcpu = memory_mb = None
    if evidence.need_vcpu is not None:
        vcpu = as_number(_step_up(floor.vcpu, floor.above_vcpu, _VCPU_STEP))
    if evidence.need_memory_mb is not None or evidence.died_at_mb is not None:
        memory_mb = as_number(_step_up(floor.memory_mb, floor.above_mb, _MEMORY_STEP_MB))
    return TaskSize(vcpu=vcpu, memory_mb=memory_mb)


def _step_up(least: float, above: float, step: float) -> float:
    steps = max(math.ceil(least / step - _ROUNDING), 1)
    if above:
        steps = max(steps, math.floor(above / step) + 1)
    return steps * step


def _whole(size: TaskSize | None) -> Size | None:
    if size is None or size.vcpu is None or size.memory_mb is None:
        return None
    return Size(size.vcpu, size.memory_mb)

"""The size of a task outside Fargate, which is a reservation: what is needed, rounded up, and of a
job on EC2 no more than an instance registers.
"""

import math
from functools import partial

from msgspec.structs import replace

from profiler.core.optional_math import first_known, known
from profiler.record.measured import Number
from profiler.record.record_model import TaskSize
from profiler.record.units import rounded_number
from profiler.sizing.evidence import Evidence
from profiler.sizing.instance_memory import SmallestInstance, smallest_instance_for
from profiler.sizing.memory_margin import KERNEL_PERCENT
from profiler.sizing.size_options import ROUNDING, MemoryNeed
from profiler.sizing.slowdown_factors import MIN_SLOWER_FACTOR, SAME_DURATION, smaller_vcpus

# Memory is rounded up to this.
MEMORY_STEP_MB = 64
# A reservation of which less than this share is not needed is right.
MIN_UNNEEDED_SHARE = 0.1


def reservation_size(evidence: Evidence, need: MemoryNeed) -> TaskSize:
    """The requirement rounded up, or the current size where that is right.

    A size that is too small in one part is not reduced in the other one.
    """
    current = evidence.task_size
    needed = _rounded_up_size(evidence, need)
    if not evidence.outcomes.has_success:  # failures show only that a size was too small
        is_too_small = need.above_mb or need.memory_mb > (current.memory_mb or math.inf)
        if is_too_small:
            return replace(current, memory_mb=needed.memory_mb)
        return current
    vcpu = _needed_or_current_if_right(needed.vcpu, current.vcpu)
    memory_mb = _needed_or_current_if_right(needed.memory_mb, current.memory_mb)
    has_more_memory = (memory_mb or 0) > (current.memory_mb or math.inf)
    if has_more_memory and (vcpu or 0) < (current.vcpu or 0):
        vcpu = current.vcpu
    return TaskSize(vcpu=vcpu, memory_mb=memory_mb)


def size_within_instance(
    evidence: Evidence, need: MemoryNeed, size: TaskSize, *, has_own_margin: bool
) -> tuple[TaskSize, SmallestInstance | None]:
    """The size with no more memory than an instance registers whose nominal memory would be enough,
    and that instance. Where less than 5 % would be left of the family's own margin, and where the
    margin is for peaks that were not seen, the size stays, for the next instance.
    """
    if size.memory_mb is None:
        return size, None
    instance = smallest_instance_for(size.memory_mb, evidence.latest)
    if instance is None or size.memory_mb <= instance.registered_mb:
        return size, None
    least_mb = max(
        (evidence.needs.required_memory_mb or math.inf) * (1 + KERNEL_PERCENT / 100),
        evidence.needs.reached_size_mb or 0,
        need.held_mb,
    )
    room_mb = instance.registered_mb // MEMORY_STEP_MB * MEMORY_STEP_MB
    precision = evidence.precision
    sees_peaks = not (precision.is_by_minute or precision.is_too_short)
    is_enough = room_mb >= least_mb and room_mb > need.above_mb
    if is_enough and has_own_margin and sees_peaks and evidence.outcomes.has_success:
        return replace(size, memory_mb=room_mb), instance
    return size, instance


def _needed_or_current_if_right(needed: Number | None, current: Number | None) -> Number | None:
    """The needed part of a size, or the current one if little of it is not needed."""
    if needed is None or current is None:
        return needed
    if (1 - MIN_UNNEEDED_SHARE) * current < needed < current:
        return current
    return needed


def _rounded_up_size(evidence: Evidence, need: MemoryNeed) -> TaskSize:
    """Round up to 0.25 vCPU and 64 MiB (None if unknown), but not above a size that was enough
    or slows no run down.
    """
    memory_mb = None
    vcpu = None
    if evidence.has_cpu:
        vcpu = known(partial(_least_sufficient_vcpu, evidence), evidence.needs.required_vcpu)
    if evidence.needs.has_memory:
        used_mb = _round_up_above(need.memory_mb, need.above_mb, MEMORY_STEP_MB)
        memory_mb = rounded_number(max(used_mb, _rounded_up_floor_mb(evidence, need)))
    return TaskSize(vcpu=vcpu, memory_mb=memory_mb)


def _least_sufficient_vcpu(evidence: Evidence, required_vcpu: float) -> Number | None:
    """The need rounded up, but not above the limit, or above a size that slows no run down."""
    limit = first_known(evidence.vcpu_limit, math.inf)
    rounded = _round_up_above(required_vcpu, 0, 0.25)
    is_above = required_vcpu > limit
    if is_above and not evidence.is_cpu_limited:
        return rounded_number(rounded)
    if not is_above:
        rounded = min(rounded, limit)
    enough = first_known(_least_vcpu_without_slowdown(evidence, limit), rounded)
    return rounded_number(min(rounded, enough))


def _least_vcpu_without_slowdown(evidence: Evidence, limit: float) -> float | None:
    """The least vCPU size below the limit that slows no run down; None if that is not known of
    all, or there is none.
    """
    needs = evidence.needs
    if needs.slowdowns is None or needs.vcpu_without_slowdown is not None:
        return None
    for vcpu in smaller_vcpus(limit):
        if needs.slowdowns.get(vcpu, SAME_DURATION).max < MIN_SLOWER_FACTOR:
            return vcpu
    return None


def _rounded_up_floor_mb(evidence: Evidence, need: MemoryNeed) -> float:
    """What keeps a size from getting smaller, rounded up, but not above the present limit."""
    limit_mb = first_known(evidence.task_size.memory_mb, evidence.latest.metrics.memory_size_mb)
    return min(
        _round_up_above(need.held_mb, 0, MEMORY_STEP_MB), max(need.held_mb, limit_mb or math.inf)
    )


def _round_up_above(minimum: float, above: float, step: float) -> float:
    """Round ``minimum`` up to a multiple of ``step`` that is more than ``above``, if that is not
    0.
    """
    steps = max(math.ceil(minimum / step - ROUNDING), 1)
    if above:
        steps = max(steps, math.floor(above / step) + 1)
    return steps * step

"""Why a size may not be taken, although it would do: what its target, its queue or its instance
refuses, what a run needed that only Container Insights saw, and runs that would take too long.
"""

from collections.abc import Mapping

from profiler.core.optional_math import known_members
from profiler.record.units import format_duration, format_memory, format_vcpu
from profiler.sizing.fargate_sizes import Size
from profiler.sizing.memory_margin import MINUTE_FACTOR
from profiler.sizing.resize_case import ResizeCase
from profiler.sizing.size_options import SizeOption

# A run may take this share of the time between two starts, and of its job's timeout.
_MAX_SHARE_OF_INTERVAL = 0.9


def why_size_is_refused(
    case: ResizeCase, option: SizeOption, *, job_memory_on_instance_mb: float, needed_mb: float
) -> str | None:
    """Why a size may not be taken; None if it may.

    ``job_memory_on_instance_mb`` is what a job on EC2 may ask for, and ``needed_mb`` what the
    reports of runs show that they needed.
    """
    size = option.size
    return (
        _why_vcpu_is_refused(case, size)
        or _why_no_instance_has_room(size, job_memory_on_instance_mb)
        or _why_a_target_is_refused(case, size)
        or _why_insights_run_needs_more(case, size, needed_mb)
        or _why_runs_would_overlap(case, option)
        or _why_a_run_would_be_ended(case, option)
    )


def _why_vcpu_is_refused(case: ResizeCase, size: Size) -> str | None:
    """Why the containers need more vCPUs, or a queue of the jobs allows fewer."""
    least_vcpu = case.circumstances.least_vcpu
    if size.vcpu < least_vcpu:
        return f"its containers need {format_vcpu(least_vcpu)} together"
    most_vcpu = case.circumstances.most_vcpu
    if size.vcpu > most_vcpu:
        return (
            f"{size.text} could never start: "
            f"the environments of a queue of its jobs allow {format_vcpu(most_vcpu)}"
        )
    return None


def _why_no_instance_has_room(size: Size, job_memory_on_instance_mb: float) -> str | None:
    if size.memory_mb <= job_memory_on_instance_mb:
        return None
    return f"no instance that its jobs have seen has room for {format_memory(size.memory_mb)}"


def _why_a_target_is_refused(case: ResizeCase, size: Size) -> str | None:
    """Why ECS would not start what a schedule or rule asks for, if the definition had this size."""
    for override in case.circumstances.overrides:
        if not override.allows_definition_size(size):
            return f"{override.target} overrides sizes, so ECS would refuse it with {size.text}"
    return None


def _why_insights_run_needs_more(case: ResizeCase, size: Size, needed_mb: float) -> str | None:
    """A run that only Container Insights saw, and that used more than any report says, forbids
    less memory than it may have needed. It calls for none.
    """
    if size.memory_mb >= (case.definition_size.memory_mb or 0):
        return None
    killed_mb = case.window.killed_by_minute_mb
    if size.memory_mb <= killed_mb:
        return (
            "a run that only Container Insights saw was killed with "
            f"{format_memory(killed_mb)} of memory"
        )
    used_mb = case.window.used_by_minute_mb
    if used_mb <= needed_mb or size.memory_mb >= MINUTE_FACTOR * used_mb:
        return None
    return (
        f"a run that only Container Insights saw used {format_memory(used_mb)} in the mean of "
        f"a minute, so its peak may have been above {format_memory(size.memory_mb)}"
    )


def _why_runs_would_overlap(case: ResizeCase, option: SizeOption) -> str | None:
    """The run that would exceed its time by the most. A size at which no run is slower changes
    nothing.
    """
    factor = option.likely_factor.max
    if factor <= 1:
        return None
    overlaps = [
        (longest_ms * factor, interval_ms)
        for longest_ms, interval_ms in case.longest_runs_and_intervals_ms
        if longest_ms * factor > _MAX_SHARE_OF_INTERVAL * interval_ms
    ]
    if not overlaps:
        return None
    slower_ms, interval_ms = max(
        overlaps, key=lambda overlap: overlap[0] - _MAX_SHARE_OF_INTERVAL * overlap[1]
    )
    return (
        f"with {option.size.text}, a run would take up to {format_duration(slower_ms)}, and the "
        f"next one is due {format_duration(interval_ms)} after its start"
    )


def _why_a_run_would_be_ended(case: ResizeCase, option: SizeOption) -> str | None:
    """The longest run would be ended before its end. A size at which no run is slower changes
    nothing.
    """
    factor = option.likely_factor.max
    if factor <= 1:
        return None
    slower_ms = max(case.runs_at_definition_size.longest_ms.values(), default=0) * factor
    for what_ends_it, limit_ms in _time_limits_ms(case).items():
        if slower_ms > _MAX_SHARE_OF_INTERVAL * limit_ms:
            return (
                f"with {option.size.text}, a run would take up to "
                f"{format_duration(slower_ms)}, and {what_ends_it} after "
                f"{format_duration(limit_ms)}"
            )
    return None


def _time_limits_ms(case: ResizeCase) -> Mapping[str, float]:
    """The times after which a run is ended, by what ends it, in words."""
    circumstances = case.circumstances
    of_states = {
        f"the {title} ends it": limit_ms for title, limit_ms in circumstances.time_limits_ms.items()
    }
    of_batch = {"AWS Batch stops an attempt": circumstances.timeout_ms}
    return of_states | known_members(of_batch)

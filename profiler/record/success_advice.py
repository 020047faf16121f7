"""What to do about a run that succeeded, by its memory and by what took the largest part of its
time. All outputs take it from the run's story.
"""

import math
from typing import Final

from profiler.record.container_engine_clients import container_client
from profiler.record.fact_list import LargestWait, largest_wait
from profiler.record.measured import AtLeast
from profiler.record.mention_limits import is_near_limit
from profiler.record.record_model import Metrics, Record
from profiler.record.task_needs import least_time_factor
from profiler.record.units import (
    format_count,
    format_memory,
    format_range,
    format_time_share,
    format_vcpu,
)

# Also of a family.
ALL_CPU_USED: Final = "used all of its"
_MIN_SATURATED_PERCENT = 30
_MIN_ADVICE_PERCENT = 30
_ONE_CPU = (0.9, 1.05)
_PERCENT = 100


def memory_advice(record: Record) -> str:
    """A warning where nearly all of the memory was used; "" else.

    Of a machine's memory, other programs had a part, and what does not fit may be swapped.
    """
    metrics = record.metrics
    peak_mb = metrics.max_memory_used_mb
    size_mb = metrics.memory_size_mb
    if peak_mb is None or not size_mb or not is_near_limit(peak_mb, size_mb):
        return ""
    is_of_machine = size_mb == record.visible.memory_mb
    if peak_mb < size_mb:
        is_bound = is_of_machine or isinstance(metrics.memory_peak, AtLeast)
        left = f"{'at most' if is_bound else 'only'} {format_memory(size_mb - peak_mb)} of"
        more = f"{math.ceil(_PERCENT * (size_mb / peak_mb - 1))} % more"
    else:
        left = "no"
        more = "more"
    end = "not fit" if is_of_machine else "be killed"
    return f"{left} memory was left: a run that needs {more} would {end}."


def time_advice(record: Record, cpu_wait_sentence: str) -> str:
    """Advice on what took the largest part of the time, else on the next part that has advice; ""
    if no part has.

    ``cpu_wait_sentence`` says that the threads waited long for a CPU, and is "" if they did not.
    """
    if container_client(record):
        return "put task-profiler before the command in the container."
    times = record.time_breakdown
    wait = largest_wait(times, with_cpu=False)
    parts = [
        (times.on_cpu_percent or 0, _saturated_advice(record.metrics)),
        (times.waiting_for_cpu_percent or 0, cpu_wait_sentence),
        (wait.percent, _wait_advice(wait)),
    ]
    parts.sort(key=lambda part: -part[0])
    return next((text for _, text in parts if text), "") or _one_cpu_advice(record.metrics)


def _wait_advice(wait: LargestWait) -> str:
    if wait.percent < _MIN_ADVICE_PERCENT:
        return ""
    return f"{wait.text}: more CPU or memory would not help there."


def _saturated_advice(metrics: Metrics) -> str:
    percent = metrics.vcpu_saturated_percent
    vcpu = metrics.vcpu_size
    threads = metrics.max_pids
    if percent is None or not vcpu or percent < _MIN_SATURATED_PERCENT:
        return ""
    share = format_time_share(percent)
    used = f"it {ALL_CPU_USED} CPU ({format_vcpu(vcpu)}) for {share} of the time"
    if threads is not None and 0 < threads <= vcpu:
        return (
            f"{used}, but with at most {format_count(threads, 'thread')}: more CPUs would hardly "
            "help."
        )
    least = least_time_factor(percent / 100, vcpu, 2 * vcpu)
    return f"{used}: with {format_vcpu(2 * vcpu)} it would take {format_range(least, 1)}× as long."


def _one_cpu_advice(metrics: Metrics) -> str:
    used = metrics.vcpu_used
    size = metrics.vcpu_size
    if used.avg is None or used.p95 is None:
        return ""
    if not size or size < 2:  # noqa: PLR2004
        return ""
    if used.avg < _ONE_CPU[0] or used.p95 > _ONE_CPU[1]:
        return ""
    return f"it kept one of {size:g} CPUs busy: more CPUs help only if it works in parallel."

"""One line of advice for the end of a run. Each follows from numbers of the record."""

from collections.abc import Sequence

from profiler.cli.terminal.page_parts import CPU_PARTS, OTHER, time_parts
from profiler.record.activity_model import WaitTarget
from profiler.record.fact_list import cpu_wait_fact
from profiler.record.hardware import gpu_advice, idle_advice
from profiler.record.record_model import Metrics, Record, known_status
from profiler.record.units import (
    format_count,
    format_memory,
    format_percent,
    format_range,
    format_task_size,
    format_vcpu,
)
from profiler.record.worth_a_word import (
    is_long_cpu_wait,
    is_near_limit,
    wait_in_words,
)

_MIN_SATURATED_PERCENT = 30
_MIN_ADVICE_PERCENT = 30
_ONE_CPU = (0.9, 1.05)
# A shorter run is little evidence for a size.
_MIN_SIZED_MS = 1000


def next_step(record: Record, waits: Sequence[WaitTarget], recommend: str) -> str | None:
    """The most useful advice that the record supports.

    ``recommend`` is the command for a size; "" without one.
    """
    metrics = record.metrics
    if record.likely_out_of_memory:
        return _more_memory(record, recommend)
    if known_status(record) != "success":
        return None
    gpu = next(gpu_advice(record), None)
    texts = (
        idle_advice(record.gpus),
        _near_limit(metrics),
        gpu,
        _saturated(metrics),
        _waited_for_cpu(record),
    )
    found = next(filter(None, texts), None)
    return found or _waited(record, waits) or _one_cpu(metrics) or _enough(record, recommend)


def _waited(record: Record, waits: Sequence[WaitTarget]) -> str | None:
    wait = next(
        (one for one in waits if one.kind != OTHER and one.percent >= _MIN_ADVICE_PERCENT), None
    )
    if wait is None:
        return None
    percent = wait.percent
    target = f"{wait.target} ({wait.kind})"
    # A target is not shown if the run waited longer for something without a target.
    times = None
    if record.time_breakdown is not None:
        times = time_parts(record.time_breakdown)[CPU_PARTS:]
    kinds = [(share, kind) for kind, share in times or () if share is not None and kind != OTHER]
    larger = max(kinds, default=(0.0, ""))
    if larger[0] > percent and larger[1] != wait.kind:
        percent = larger[0]
        target = wait_in_words(larger[1])
    part = format_percent(min(percent, 100))
    return f"{part} of the time it waited for {target}: more CPU or memory would not help there."


def _more_memory(record: Record, recommend: str) -> str:
    """The size that ``recommend`` gives, if it is larger than the size that was too small."""
    size_mb = record.metrics.memory_size_mb
    recommended_mb = None
    if record.recommendation is not None:
        recommended_mb = record.recommendation.memory_mb
    if recommended_mb is not None and recommended_mb > (size_mb or 0):
        memory = f"{format_memory(recommended_mb)} of memory{recommend and f' ({recommend})'}"
    elif size_mb:
        memory = f"more memory than {format_memory(size_mb)}"
    else:
        memory = "more memory"
    return f"give it {memory} or process less data at a time."


def _near_limit(metrics: Metrics) -> str | None:
    peak_mb = metrics.max_memory_used_mb
    size_mb = metrics.memory_size_mb
    if peak_mb is None or not size_mb or not is_near_limit(peak_mb, size_mb):
        return None
    if peak_mb < size_mb:
        left = f"only {format_memory(size_mb - peak_mb)} of"
    else:
        left = "no"
    return f"{left} memory was left: with a little more data it would be killed."


def _saturated(metrics: Metrics) -> str | None:
    percent = metrics.vcpu_saturated_percent
    vcpu = metrics.vcpu_size
    threads = metrics.max_pids
    if percent is None or not vcpu or percent < _MIN_SATURATED_PERCENT:
        return None
    used = (
        f"it used all of its CPU ({format_vcpu(vcpu)}) for {format_percent(min(percent, 100))} of "
        "the time"
    )
    if threads is not None and 0 < threads <= vcpu:
        return (
            f"{used}, but with at most {format_count(threads, 'thread')}: more CPUs would hardly "
            "help."
        )
    least = 1 - min(percent, 100) / 100 / 2
    return f"{used}: with {format_vcpu(2 * vcpu)} it would take {format_range(least, 1)}× as long."


def _waited_for_cpu(record: Record) -> str | None:
    if not is_long_cpu_wait(record):
        return None
    metrics = record.metrics
    waited = cpu_wait_fact(record).sentence
    if metrics.max_pids and metrics.vcpu_size and metrics.max_pids > metrics.vcpu_size:
        threads = format_count(metrics.max_pids, "thread")
        return (
            f"{waited}: up to {threads} shared {format_vcpu(metrics.vcpu_size)}, perhaps with "
            "other programs."
        )
    return f"{waited}: other programs used the CPUs, or it works in short bursts."


def _one_cpu(metrics: Metrics) -> str | None:
    used = metrics.vcpu_used
    size = metrics.vcpu_size
    if used is None or used.avg is None or used.p95 is None or not size or size < 2:  # noqa: PLR2004
        return None
    if used.avg < _ONE_CPU[0] or used.p95 > _ONE_CPU[1]:
        return None
    return f"it kept one of {size:g} CPUs busy: more CPUs help only if it works in parallel."


def may_name_size(record: Record) -> bool:
    """Whether the advice can be a size."""
    is_long = (record.metrics.duration_ms or 0) >= _MIN_SIZED_MS
    is_compared = record.likely_out_of_memory or (is_long and record.task_size is None)
    return is_compared and record.recommendation is not None


def _enough(record: Record, recommend: str) -> str | None:
    """The size that the run would have needed as a task; a run of a task has a size to compare
    with.
    """
    recommended = record.recommendation
    if recommended is None or not may_name_size(record):
        return None
    size = format_task_size(recommended.vcpu, recommended.memory_mb)
    return size and f"{size} would have been enough{recommend and f' ({recommend})'}."

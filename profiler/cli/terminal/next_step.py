"""One line of advice for the end of a run. Each follows from numbers of the record."""

from profiler.record.cpu_wait import long_cpu_wait
from profiler.record.fact_list import LargestWait, largest_wait
from profiler.record.mention_limits import is_near_limit
from profiler.record.record_model import (
    NO_RECOMMENDATION,
    UNKNOWN_SIZE,
    Metrics,
    Record,
    known_status,
)
from profiler.record.run_outcome import Outcome
from profiler.record.story_rows import Story
from profiler.record.task_needs import least_time_factor
from profiler.record.units import (
    format_count,
    format_memory,
    format_range,
    format_task_size,
    format_time_share,
    format_vcpu,
)

_MIN_SATURATED_PERCENT = 30
_MIN_ADVICE_PERCENT = 30
_ONE_CPU = (0.9, 1.05)
# A shorter run is little evidence for a size.
_MIN_SIZED_MS = 1000


def next_step(record: Record, story: Story, recommend: str) -> str:
    """The most useful advice that the record supports; "" if there is none.

    ``recommend`` is the command for a size; "" without one.
    """
    metrics = record.metrics
    if story.outcome.ran_out_of_memory:
        return _more_memory_advice(record, recommend)
    if record.likely_out_of_gpu_memory:
        from profiler.record.gpu_facts import more_gpu_memory_advice  # most runs have no GPU

        return more_gpu_memory_advice(record)
    if known_status(record) != "success":
        return ""
    on_gpus = story.first_text_named("GPU advice")
    texts = (
        on_gpus if story.usage.gpus.idle else "",
        _near_limit_advice(metrics),
        on_gpus,
        _largest_part_advice(record),
        _one_cpu_advice(metrics),
    )
    return next(filter(None, texts), "") or _sufficient_size_advice(record, story, recommend)


def _largest_part_advice(record: Record) -> str:
    """Advice on what took the largest part of the time, else on the next part that has advice."""
    times = record.time_breakdown
    wait = largest_wait(times, with_cpu=False)
    parts = [
        (times.on_cpu_percent or 0, _saturated_advice(record.metrics)),
        (times.waiting_for_cpu_percent or 0, _cpu_wait_advice(record)),
        (wait.percent, _wait_advice(wait)),
    ]
    parts.sort(key=lambda part: -part[0])
    return next((text for _, text in parts if text), "")


def _wait_advice(wait: LargestWait) -> str:
    if wait.percent < _MIN_ADVICE_PERCENT:
        return ""
    return f"{wait.text}: more CPU or memory would not help there."


def _more_memory_advice(record: Record, recommend: str) -> str:
    """The size that ``recommend`` gives, if it is larger than the size that was too small."""
    size_mb = record.metrics.memory_size_mb
    recommended_mb = record.recommendation.memory_mb
    if recommended_mb is not None and recommended_mb > (size_mb or 0):
        memory = f"{format_memory(recommended_mb)} of memory{recommend and f' ({recommend})'}"
    elif size_mb:
        memory = f"more memory than {format_memory(size_mb)}"
    else:
        memory = "more memory"
    return f"give it {memory} or process less data at a time."


def _near_limit_advice(metrics: Metrics) -> str:
    peak_mb = metrics.max_memory_used_mb
    size_mb = metrics.memory_size_mb
    if peak_mb is None or not size_mb or not is_near_limit(peak_mb, size_mb):
        return ""
    if peak_mb < size_mb:
        left = f"only {format_memory(size_mb - peak_mb)} of"
    else:
        left = "no"
    return f"{left} memory was left: with a little more data it would be killed."


def _saturated_advice(metrics: Metrics) -> str:
    percent = metrics.vcpu_saturated_percent
    vcpu = metrics.vcpu_size
    threads = metrics.max_pids
    if percent is None or not vcpu or percent < _MIN_SATURATED_PERCENT:
        return ""
    share = format_time_share(percent)
    used = f"it used all of its CPU ({format_vcpu(vcpu)}) for {share} of the time"
    if threads is not None and 0 < threads <= vcpu:
        return (
            f"{used}, but with at most {format_count(threads, 'thread')}: more CPUs would hardly "
            "help."
        )
    least = least_time_factor(percent / 100, vcpu, 2 * vcpu)
    return f"{used}: with {format_vcpu(2 * vcpu)} it would take {format_range(least, 1)}× as long."


def _cpu_wait_advice(record: Record) -> str:
    sentence = long_cpu_wait(record).sentence
    return sentence and f"{sentence}."


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


def may_name_size(record: Record, outcome: Outcome) -> bool:
    """Whether the advice can be a size."""
    is_long = (record.metrics.duration_ms or 0) >= _MIN_SIZED_MS
    is_compared = outcome.ran_out_of_memory or (is_long and record.task_size == UNKNOWN_SIZE)
    return is_compared and record.recommendation != NO_RECOMMENDATION


def _sufficient_size_advice(record: Record, story: Story, recommend: str) -> str:
    """The size that the run would have needed as a task; a run of a task has a size to compare
    with.
    """
    recommended = record.recommendation
    if not may_name_size(record, story.outcome):
        return ""
    size = format_task_size(recommended.vcpu, recommended.memory_mb)
    if not size:
        return ""
    beside = story.usage.beside_text
    return f"{size}{beside} would have been enough{recommend and f' ({recommend})'}."

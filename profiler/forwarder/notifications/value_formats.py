"""Formats the numbers and causes of a notice. A value that is unknown is None."""

from collections.abc import Callable, Sequence

from profiler.core.ecs_terms import is_billed_by_size
from profiler.core.optional_math import first_known, known, known_values
from profiler.core.text import words_if_known
from profiler.forwarder.ended_run import EndedRun
from profiler.forwarder.family_runs import unusual_words
from profiler.record.device_totals import NEVER_USED, SHARED, GpuTotals, NeuronTotals
from profiler.record.fact_list import cost_text, largest_wait
from profiler.record.gpu_facts import gpu_cause_sentences
from profiler.record.hardware import most_telling_gpu_error
from profiler.record.mention_limits import MIN_COVERED_PERCENT
from profiler.record.record_model import WHOLE_INSTANCE, Distribution, Recommendation, Record
from profiler.record.run_outcome import Status
from profiler.record.run_summary import BESIDE_MEMORY, Story
from profiler.record.run_usage import CpuUse
from profiler.record.sparkline import GAP, curve_top, draw_sparkline
from profiler.record.units import (
    format_duration,
    format_memory,
    format_percent,
    format_task_size,
    format_vcpu,
    saving_words,
)

_SIGNS: dict[Status, str] = {"success": "✅", "failure": "❌", "stopped": "⏹️", "unknown": "❔"}
_MIN_SPARKLINE_VALUES = 3
_WHOLE_PERCENT = 100
_HALF_PERCENT = 50
# Each sample covers an interval: with fewer samples, the shares are rough.
_MIN_INTERVALS = 10


def draw_percent_bar(percent: float) -> str:
    """Draw a bar of ten cells: ``▰▰▰▰▱▱▱▱▱▱`` for 42 %."""
    filled = round(min(percent, 100) / 10)
    return "▰" * filled + "▱" * (10 - filled)


def words_with_bar(words: str, percent: Distribution) -> str:
    """The words with a bar of the average, else of the maximum, in front of them."""
    shown = first_known(percent.avg, percent.max)
    return words_if_known("{}  ", known(draw_percent_bar, shown)) + words if words else words


def cpu_and_memory_words(story: Story) -> tuple[str, str]:
    """The usage of CPU and memory in words, empty where unknown."""
    memory = story.usage.memory
    size = known(format_memory, memory.size_mb) or ""
    percent = memory.percent
    memory_used = usage_words(percent.avg, percent.max, peak=memory.peak_text_if_known, size=size)
    beside = [row.text for row in story.rows_named(*BESIDE_MEMORY)]
    return (
        _cpu_words(story.usage.cpu),
        "; ".join(filter(None, (memory_used, *beside))),
    )


def _cpu_words(cpu: CpuUse) -> str:
    """The use in percent of the size, or in vCPUs where nothing limited it."""
    size = known(format_vcpu, cpu.size) or ""
    if cpu.is_more_than_asked and cpu.used.avg is not None:
        peak = words_if_known(", peak {}", known(format_vcpu, cpu.used.max))
        return f"{format_vcpu(cpu.used.avg)} avg{peak}, asked for {size}"
    return usage_words(cpu.percent.avg, cpu.percent.max, size=size)


def billed_or_cost(notice: EndedRun) -> tuple[str, str]:
    """A name, and the billed duration and the cost, or the cost alone of a task that is not billed
    itself; empty where unknown.
    """
    cost = cost_text(notice.cost)
    if not is_billed_by_size(notice.record.launch_type):
        return "Cost", cost
    duration = known(format_duration, notice.metrics.billed_duration_ms)
    return "Billed", ", ".join(filter(None, (duration, cost)))


def numbers_source_sentence(notice: EndedRun, story: Story) -> str:
    """Where the numbers are from, if not from a report, or why a report has none; else empty."""
    if notice.has_final_report:
        return story.first_sentence_named("unmeasured")
    if notice.has_line:
        return "There is no report: the numbers are from the last checkpoint."
    return words_if_known("There is no report: the duration is ECS's.", notice.duration_ms)


def usage_words(
    average: float | None,
    maximum: float | None,
    *,
    peak: str = "",
    size: str = "",
    as_text: Callable[[float], str] = format_percent,
) -> str:
    """Return the average and the peak in percent, as far as known.

    ``peak`` is the peak with its unit, ``size`` what 100 % are.
    """
    highest = known(as_text, maximum) or ""
    if highest and peak:
        highest = f"{highest} ({peak})"
    highest = highest or peak
    parts = (
        words_if_known("{} avg", known(as_text, average)),
        f"peak {highest}" if highest else "",
    )
    text = ", ".join(filter(None, parts))
    return f"{text} of {size}" if text and size else text


def draw_series(values: Sequence[float | None] | None, size: float | None, least: float) -> str:
    """Draw a series on the terminal's scale, as code; empty with fewer than three values.

    Slack would cut spaces at the ends.
    """
    measured = known_values(values or ())
    if len(measured) < _MIN_SPARKLINE_VALUES:
        return ""
    top, _ = curve_top(max(measured), size, least)
    drawn = draw_sparkline(values or (), width=40, top=top).replace(GAP, "\N{NO-BREAK SPACE}")
    return f"`{drawn}`"


def gpu_usage_words(totals: GpuTotals) -> str:
    """The use of all GPUs of the run together, with a clear statement if none was ever used."""
    if totals.word_instead_of_use == NEVER_USED:
        return f"{draw_percent_bar(0)}  never used: allocated and billed"
    parts = [_utilization_words(totals.utilization_percent, totals.use_text)]
    if totals.word_instead_of_use == SHARED:
        parts = ["shared with other programs"]
    if totals.memory_text:
        parts.append(f"peak memory {totals.memory_text}")
    if totals.scope == WHOLE_INSTANCE:
        parts.append("of all programs on the instance")
    if totals.unused_text:
        parts.append(totals.unused_text)
    return "; ".join(parts)


def gpu_memory_sentences(notice: EndedRun) -> list[str]:
    """What shows that the GPU's memory was the cause of a failure; of a success, the error of its
    driver. The error that caused a failure is in the sentence on the cause.
    """
    record = notice.record
    word = notice.outcome.cause
    is_noted = word == "success" and most_telling_gpu_error(record)
    if is_noted or word == "gpu-oom":
        return [*gpu_cause_sentences(record)]
    return []


def neuron_usage_words(totals: NeuronTotals) -> str:
    """The use of all NeuronCores together, with a clear statement if they were idle, and the
    memory of their devices.
    """
    parts = [_utilization_words(totals.utilization_percent)]
    busiest = first_known(totals.utilization_percent.max, 1)
    if busiest < 1:
        parts = [
            f"{draw_percent_bar(busiest)}  idle throughout: allocated and billed, but not used"
        ]
    peak = words_if_known("peak memory {}", known(format_memory, totals.device_memory_used_mb.max))
    return "; ".join(filter(None, (*parts, peak)))


def _utilization_words(
    utilization: Distribution, as_text: Callable[[float], str] = format_percent
) -> str:
    words = usage_words(utilization.avg, utilization.max, as_text=as_text)
    return words_with_bar(words, utilization) or "use unknown"


def end_headline(notice: EndedRun) -> str:
    """Why the run ended, and after which time: ``❌ Out of memory after 12m 34s``."""
    if notice.unusual:
        return "⚠️ Success, but unlike its family"
    outcome = notice.outcome
    text = f"{_SIGNS.get(outcome.status, '❔')} {outcome.title}"
    return text + words_if_known(" after {}", known(format_duration, notice.duration_ms))


def unusual_success_words(notice: EndedRun) -> str | None:
    """Return how a success differs from its family: "unlike its family: read 0 MB (usually 2.1
    GB)"; None if not.
    """
    if not notice.unusual:
        return None
    return f"unlike its family: {', '.join(map(unusual_words, notice.unusual))}"


def longest_wait_sentence(notice: EndedRun) -> str | None:
    """A sentence on what a failed or slow run waited for over half of its time; None if the
    samples do not show it.
    """
    record = notice.record
    if not notice.failed_or_was_slow:
        return None
    wait = largest_wait(record.time_breakdown)
    if not _HALF_PERCENT < wait.percent <= _WHOLE_PERCENT:
        return None
    return f"{wait.text}." if _is_share_well_sampled(record, wait.percent) else None


def _is_share_well_sampled(record: Record, percent: float) -> bool:
    interval_ms = record.sampling.interval_ms or 0
    duration_ms = record.metrics.duration_ms or 0
    if duration_ms < _MIN_INTERVALS * interval_ms:
        return False
    # The time that no sample covers counts as other time, so no part is longer than the covered
    # time.
    covered = record.time_breakdown.covered_percent
    return first_known(covered, _WHOLE_PERCENT) >= min(percent, MIN_COVERED_PERCENT)


def recommended_size_words(advice: Recommendation, beside: str) -> str:
    """Return the recommended size, what it is ``beside``, and the saving or what it costs more;
    empty without a size.
    """
    text = format_task_size(advice.vcpu, advice.memory_mb)
    if not text:
        return ""
    saving = saving_words(advice.saving_percent)
    return f"Recommended size: {text}{beside}{saving and f' ({saving})'}."

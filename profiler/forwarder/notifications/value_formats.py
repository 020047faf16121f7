"""Formats the numbers and causes of a notice. A value that is unknown is None."""

from collections.abc import Callable, Sequence
from operator import itemgetter

from profiler.core.optional_math import known
from profiler.forwarder.notifications.notification import EndedTask
from profiler.record.activity_model import TimeBreakdown
from profiler.record.record_model import Distribution, Metrics, Recommendation, Record
from profiler.record.run_outcome import EndStatus, describe_cause
from profiler.record.sparkline import GAP, curve_top, sparkline
from profiler.record.task_end import Outcome
from profiler.record.units import (
    MIB,
    format_duration,
    format_memory,
    format_peak,
    format_percent,
    format_task_size,
)
from profiler.record.worth_a_word import MIN_COVERED_PERCENT, PAST_WAITS

TITLES: dict[EndStatus, str] = {
    "success": "✅ Success",
    "failure": "❌ Failure",
    "stopped": "⏹️ Stopped",
    "unknown": "❔ Ended, outcome unknown",
}
_MIN_SPARKLINE_VALUES = 3
_WHOLE_PERCENT = 100
_HALF_PERCENT = 50
_MEASURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "durationMs": ("took {} (usually {})", format_duration),
    "cpuSeconds": (
        "used {} of CPU time (usually {})",
        lambda seconds: format_duration(seconds * 1000),
    ),
    "blockReadBytes": ("read {} (usually {})", lambda count: format_memory(count / MIB)),
    "blockWriteBytes": ("wrote {} (usually {})", lambda count: format_memory(count / MIB)),
}
# Each sample covers an interval: with fewer samples, the shares are rough.
_MIN_INTERVALS = 10


def peak(metrics: Metrics) -> str | None:
    """Format the peak of the memory; None if it is unknown."""
    return known(
        lambda peak_mb: format_peak(peak_mb, metrics.memory_peak_source), metrics.max_memory_used_mb
    )


def bar(percent: float) -> str:
    """Draw a bar of ten cells: ``▰▰▰▰▱▱▱▱▱▱`` for 42 %."""
    filled = round(min(percent, 100) / 10)
    return "▰" * filled + "▱" * (10 - filled)


def usage(
    average: float | None,
    maximum: float | None,
    *,
    peak: str | None = None,
    size: str | None = None,
) -> str:
    """Return a bar, the average and the peak in percent, as far as known.

    ``peak`` is the peak with its unit.
    """
    peak_text = (
        peak if maximum is None else f"{format_percent(maximum)}{f' ({peak})' if peak else ''}"
    )
    parts = [
        None if average is None else f"{format_percent(average)} avg",
        peak_text and f"peak {peak_text}",
    ]
    text = ", ".join(part for part in parts if part)
    if not text:
        return ""
    shown = maximum if average is None else average
    drawn = "" if shown is None else f"{bar(shown)}  "
    return f"{drawn}{text}{f' of {size}' if size else ''}"


def series(values: Sequence[float | None], size: float | None, least: float) -> str:
    """Draw a series on the terminal's scale; empty with fewer than three values.

    Slack would cut spaces at the ends.
    """
    measured = [value for value in values if value is not None]
    if len(measured) < _MIN_SPARKLINE_VALUES:
        return ""
    top, _ = curve_top(max(measured), size, least)
    return sparkline(values, width=40, top=top).replace(GAP, "\N{NO-BREAK SPACE}")


def accelerators(count: int, utilization: Distribution, peak_mb: float | None, name: str) -> str:
    """Return the use of all GPUs or Neuron cores together, with a clear statement if they were
    idle.
    """
    text = usage(utilization.avg, utilization.max)
    busiest = utilization.avg if utilization.max is None else utilization.max
    if busiest is not None and busiest < 1:
        text = f"{bar(busiest)}  idle throughout: allocated and billed, but not used"
    peak_memory = None if peak_mb is None else f"peak memory {format_memory(peak_mb)}"
    parts = "; ".join(filter(None, (text, peak_memory)))
    return f"*{count} {name}{'' if count == 1 else 's'}*  {parts or 'use unknown'}"


def cause(outcome: Outcome) -> str | None:
    """Return a sentence on why the task stopped."""
    killed = (
        "A process in the container was killed because memory ran out, but the container exited "
        "successfully"
    )
    if outcome.status == "success":
        sentence = killed if outcome.category == "oom" else None
    else:
        sentence = describe_cause(outcome.category, outcome.exit_code)
    return sentence and f"{sentence}."


def unusual(notice: EndedTask) -> str | None:
    """Return how a success differs from its family: "unlike its family: read 0 MB (usually 2.1
    GB)"; None if not.
    """
    parts = []
    for measure in notice.unusual:
        sentence, shown = _MEASURES[measure.metric]
        parts.append(sentence.format(shown(measure.value), shown(measure.usual)))
    return f"unlike its family: {', '.join(parts)}" if parts else None


def longest_wait(notice: EndedTask) -> str | None:
    """A sentence on what a failed or slow run waited for over half of its time; None if the
    samples do not show it.
    """
    record = notice.record
    if record is None or record.time_breakdown is None or not notice.went_wrong:
        return None
    breakdown = record.time_breakdown
    shares = {kind: getattr(breakdown, f"{kind}_percent") or 0 for kind in PAST_WAITS}
    kind, percent = max(shares.items(), key=itemgetter(1))
    if not _HALF_PERCENT < percent <= _WHOLE_PERCENT or not _is_well_sampled(
        record, breakdown, percent
    ):
        return None
    targets = [
        (target.percent, target.target) for target in breakdown.waiting_for if target.kind == kind
    ]
    part, name = max(
        ((part or 0, name) for part, name in targets), key=itemgetter(0), default=(0, "")
    )
    longest = f", {format_percent(part)} for {name}" if part else ""
    return f"{format_percent(percent)} of the time it {PAST_WAITS[kind]}{longest}."


def _is_well_sampled(record: Record, breakdown: TimeBreakdown, percent: float) -> bool:
    covered = breakdown.covered_percent
    interval_ms = None if record.sampling is None else record.sampling.interval_ms
    is_long = (
        interval_ms is None or (record.metrics.duration_ms or 0) >= _MIN_INTERVALS * interval_ms
    )
    # The time that no sample covers counts as other time, so no part is longer than the covered
    # time.
    return is_long and (covered is None or covered >= min(percent, MIN_COVERED_PERCENT))


def recommended_size(advice: Recommendation) -> str:
    """Return the recommended size, and the saving or what it costs more; empty without a size."""
    text, percent = format_task_size(advice.vcpu, advice.memory_mb), advice.saving_percent or 0
    words = (
        f"saves {format_percent(percent)}"
        if percent > 0
        else f"costs {format_percent(-percent)} more"
    )
    return f"Recommended size: {text}{f' ({words})' if abs(percent) >= 1 else ''}." if text else ""

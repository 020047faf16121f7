"""Formats the numbers and causes of a notice. A value that is unknown is None."""

import math
from collections.abc import Callable, Sequence
from operator import itemgetter

from forwarder.notices.ended_task import EndedTask
from forwarder.task.stop_classification import Outcome
from profiler.record.activity_model import TimeBreakdown
from profiler.record.record_model import Distribution, Process, Record, TaskSize
from profiler.record.run_outcome import EndStatus, describe_cause, describe_exit_code
from profiler.record.sparkline import GAP, sparkline
from profiler.record.units import MIB, format_duration, format_memory, format_task_size, format_usd, format_vcpu

TITLES: dict[EndStatus, str] = {
    "success": "✅ Success",
    "failure": "❌ Failure",
    "stopped": "⏹️ Stopped",
    "unknown": "❔ Ended, outcome unknown",
}
_UNUSUAL_TITLE = "⚠️ Success, but unlike its family"
_OOM_BUT_SUCCESS = (
    "A process in the container was killed because memory ran out, but the container exited successfully."
)
_BAR_CELLS = 10
_SPARKLINE_WIDTH = 40
_MIN_SPARKLINE_VALUES = 3
_NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
_WHOLE_PERCENT = 100
_HALF_PERCENT = 50
_MEASURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "durationMs": ("took {} (usually {})", format_duration),
    "cpuSeconds": ("used {} of CPU time (usually {})", lambda seconds: format_duration(seconds * 1000)),
    "blockReadBytes": ("read {} (usually {})", lambda count: format_memory(count / MIB)),
    "blockWriteBytes": ("wrote {} (usually {})", lambda count: format_memory(count / MIB)),
}
# What a run did in the parts of its time in which it was not on a CPU.
_WAITS = {
    "waiting_for_cpu": "waited for a CPU",
    "disk": "waited for the disk",
    "network": "waited for the network",
    "sleep": "slept",
    "lock": "waited for a lock",
    "pipe": "waited for a pipe",
    "child": "waited for a child process",
}
# Each sample stands for an interval: of fewer, the shares are rough.
_MIN_INTERVALS = 10
# What samples do not cover is in the other time, so no part is longer than what they cover.
_MOSTLY_COVERED_PERCENT = 95
_IDLE_BELOW_PERCENT = 1
_MAX_MS = 1e15


def title(notice: EndedTask) -> str:
    """Return the outcome in words, with a symbol."""
    return _UNUSUAL_TITLE if notice.unusual else TITLES[notice.outcome.status]


def valid_number(value: float | None) -> float | None:
    """Return ``value`` if it is finite and not negative, else None."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def duration(milliseconds: float | None) -> str | None:
    """Format a duration; None if it is unknown or implausible."""
    value = valid_number(milliseconds)
    return None if value is None or value > _MAX_MS else format_duration(value)


def memory(size_mb: float | None) -> str | None:
    """Format a size of memory; None if it is unknown."""
    value = valid_number(size_mb)
    return None if value is None else format_memory(value)


def vcpu(count: float | None) -> str | None:
    """Format a number of vCPUs; None if it is unknown."""
    value = valid_number(count)
    return None if value is None else format_vcpu(value)


def dollars(value: float | None) -> str | None:
    """Format US dollars; None if they are unknown."""
    usd = valid_number(value)
    return None if usd is None else format_usd(usd)


def exit_code(code: int | None) -> str | None:
    """Return the code, with the name of the signal for codes that shells and Docker use for a signal."""
    return None if code is None else describe_exit_code(code)


def bar(percent: float) -> str:
    """Draw a bar of ten cells: ``▰▰▰▰▱▱▱▱▱▱`` for 42 %."""
    filled = round(min(percent, _WHOLE_PERCENT) / _WHOLE_PERCENT * _BAR_CELLS)
    return "▰" * filled + "▱" * (_BAR_CELLS - filled)


def usage(average: float | None, maximum: float | None, *, peak: str | None = None, size: str | None = None) -> str:
    """Return a bar, the average and the peak in percent, as far as known. ``peak`` is the peak with its unit."""
    average, maximum = valid_number(average), valid_number(maximum)
    peak_text = peak if maximum is None else f"{_percent(maximum)}{f' ({peak})' if peak else ''}"
    parts = [
        None if average is None else f"{_percent(average)} avg",
        None if peak_text is None else f"peak {peak_text}",
    ]
    text = ", ".join(part for part in parts if part)
    if not text:
        return ""
    shown = maximum if average is None else average
    drawn = "" if shown is None else f"{bar(shown)}  "
    return f"{drawn}{text}{f' of {size}' if size else ''}"


def series(values: Sequence[float | None], size: float | None) -> str:
    """Draw a series on the scale of ``size``, or of its largest value; empty with fewer than three measured values.

    Slack would cut spaces at both ends off, so a gap is drawn as a space that does not break.
    """
    measured = [value for value in values if valid_number(value) is not None]
    if len(measured) < _MIN_SPARKLINE_VALUES:
        return ""
    top = valid_number(size) or max(value for value in measured if value is not None)
    return sparkline(values, width=_SPARKLINE_WIDTH, top=top).replace(GAP, _NO_BREAK_SPACE)


def process(used: Process, name: str) -> str | None:
    """Return the processes of a name with their memory peak; ``name`` is their escaped name. None without a peak."""
    peak = memory(used.max_memory_used_mb)
    if peak is None or not name:
        return None
    number = 1 if used.count is None else max(used.count, 1)
    holders = used.max_memory_used_processes or 1
    together = "" if number == holders else f" in {holders} of them"
    return f"{name} ({'' if number == 1 else f'{number}×, '}peak {peak}{together})"


def accelerators(count: int, utilization: Distribution, peak_mb: float | None, name: str) -> str:
    """Return the use of all GPUs or Neuron cores together, with a clear statement if they were idle."""
    peak = memory(peak_mb)
    peak_memory = None if peak is None else f"peak memory {peak}"
    average, maximum = valid_number(utilization.avg), valid_number(utilization.max)
    busiest = average if maximum is None else maximum
    if busiest is not None and busiest < _IDLE_BELOW_PERCENT:
        text = f"{bar(busiest)}  idle throughout: allocated and billed, but not used"
    else:
        text = usage(average, maximum)
    parts = "; ".join(part for part in (text, peak_memory) if part)
    return f"*{count} {name}{'' if count == 1 else 's'}*  {parts or 'use unknown'}"


def cause(outcome: Outcome) -> str | None:
    """Return a sentence on why the task stopped."""
    if outcome.status == "success":
        return _OOM_BUT_SUCCESS if outcome.category == "oom" else None
    sentence = describe_cause(outcome.category, outcome.exit_code)
    return None if sentence is None else f"{sentence}."


def unusual(notice: EndedTask) -> str | None:
    """Return how a success differs from its family: "unlike its family: read 0 MB (usually 2.1 GB)"; None if not."""
    words = ((*_MEASURES[measure.metric], measure) for measure in notice.unusual)
    measures = ", ".join(
        sentence.format(shown(measure.value), shown(measure.usual)) for sentence, shown, measure in words
    )
    return f"unlike its family: {measures}" if measures else None


def longest_wait(notice: EndedTask) -> str | None:
    """Return a sentence on what a failed or slow run did most of the time, if that was not work on a CPU.

    It also names the target with the longest share. None if no known part took over half of the time, and if the
    samples do not show that: a run that was seen for a shorter share, or for fewer than ten sampling intervals.
    """
    breakdown = None if notice.record is None else notice.record.time_breakdown
    if breakdown is None or not notice.went_wrong:
        return None
    shares = {kind: valid_number(getattr(breakdown, f"{kind}_percent")) or 0 for kind in _WAITS}
    kind, percent = max(shares.items(), key=itemgetter(1))
    if not _HALF_PERCENT < percent <= _WHOLE_PERCENT or not _is_well_sampled(notice, breakdown, percent):
        return None
    targets = {
        target.target: share
        for target in breakdown.waiting_for
        if target.kind == kind and (share := valid_number(target.percent))
    }
    name = max(targets, key=targets.__getitem__, default=None)
    longest = "" if name is None else f", {_percent(targets[name])} for {name}"
    return f"{_percent(percent)} of the time it {_WAITS[kind]}{longest}."


def _is_well_sampled(notice: EndedTask, breakdown: TimeBreakdown, percent: float) -> bool:
    covered, sampling = breakdown.covered_percent, None if notice.record is None else notice.record.sampling
    interval_ms = None if sampling is None else valid_number(sampling.interval_ms)
    is_long = interval_ms is None or (notice.metrics.duration_ms or 0) >= _MIN_INTERVALS * interval_ms
    return is_long and (covered is None or covered >= min(percent, _MOSTLY_COVERED_PERCENT))


def memory_at_oom(notice: EndedTask) -> str | None:
    """Return the memory peak and limit of a run that ran out of memory, as far as known."""
    peak, limit = memory(notice.metrics.max_memory_used_mb), memory(notice.metrics.memory_size_mb)
    parts = [None if peak is None else f"measured peak {peak}", None if limit is None else f"limit {limit}"]
    text = ", ".join(part for part in parts if part)
    return f"Memory: {text}." if text else None


def new_size(record: Record) -> TaskSize | None:
    """Return the recommended size; None if there is none, or if the task has it already."""
    advice = record.recommendation
    size = None if advice is None else TaskSize(vcpu=advice.vcpu, memory_mb=advice.memory_mb)
    return None if size == record.task_size else size


def suggested_size(size: TaskSize, saving_percent: float | None) -> str | None:
    """Return the size to try next and the saving, which is negative if the size costs more."""
    text = format_task_size(valid_number(size.vcpu), valid_number(size.memory_mb))
    return f"Suggested size: {text}{_saving(saving_percent)}." if text else None


def _saving(percent: float | None) -> str:
    if percent is None or not math.isfinite(percent) or abs(percent) < 1:
        return ""
    return f" (saves {_percent(percent)})" if percent > 0 else f" (costs {_percent(-percent)} more)"


def _percent(value: float) -> str:
    """Format with one decimal below 1 %; never as 0 if the value is not 0."""
    text = f"{value:.{0 if value >= 1 else 1}f}".removesuffix(".0")
    return f"{value:.1g} %" if text == "0" and value else f"{text} %"

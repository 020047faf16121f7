"""The summary of several runs of one command, in one sentence."""

from collections.abc import Callable, Sequence

from profiler.record.record_model import Metrics
from profiler.record.units import format_count, format_duration, format_memory


def summary_sentence(successes: Sequence[Metrics]) -> str:
    """The median and the range of duration and memory peak; "" of less than two runs."""
    if len(successes) < 2:  # noqa: PLR2004
        return ""
    duration = _median_and_range([metrics.duration_ms for metrics in successes], format_duration)
    memory = _median_and_range([metrics.max_memory_used_mb for metrics in successes], format_memory)
    runs = format_count(len(successes), "successful run")
    return f"{runs}, median (range): {', memory peak '.join(text for text in (duration, memory) if text)}."


def _median_and_range(values: Sequence[float | None], format_value: Callable[[float], str]) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return ""
    middle = len(known) // 2
    median = known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2
    least, most = format_value(known[0]), format_value(known[-1])
    return format_value(median) + ("" if least == most else f" ({least} to {most})")

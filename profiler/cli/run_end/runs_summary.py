"""The summary of several runs of one command, in one sentence."""

from collections.abc import Callable, Sequence

from profiler.record.record_model import Metrics
from profiler.record.units import format_duration, format_memory


def summary_sentence(successes: Sequence[Metrics]) -> str:
    """The median and the range of duration and memory peak; "" of less than two runs."""
    if len(successes) < 2:  # noqa: PLR2004
        return ""
    duration = _median_and_range([metrics.duration_ms for metrics in successes], format_duration)
    memory = _median_and_range([metrics.max_memory_used_mb for metrics in successes], format_memory)
    parts = (duration, memory and f"memory peak {memory}")
    known = ", ".join(part for part in parts if part)
    return known and f"Median of {len(successes)} runs: {known}."


def _median_and_range(values: Sequence[float | None], format_value: Callable[[float], str]) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return ""
    middle = len(known) // 2
    median = known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2
    least, most = format_value(known[0]), format_value(known[-1])
    if least == most:
        return format_value(median)
    (number, _, unit), (_, _, last_unit) = least.partition(" "), most.partition(" ")
    return f"{format_value(median)} ({number if unit == last_unit else least} to {most})"

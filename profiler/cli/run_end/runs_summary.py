"""The summary of several runs of one command, in one sentence."""

from collections.abc import Callable, Sequence

from profiler.record.record_model import Record, known_status
from profiler.record.units import format_count, format_duration, format_memory


def summary_line(records: Sequence[Record]) -> str:
    """The median and the range of the duration and of the memory peak, over the successes; "" without any."""
    successes = [record.metrics for record in records if known_status(record) == "success"]
    texts = (
        _range("", [metrics.duration_ms for metrics in successes], format_duration),
        _range(" with a memory peak of ", [metrics.max_memory_used_mb for metrics in successes], format_memory),
    )
    if not texts[0]:
        return ""
    runs = format_count(len(records), "run")
    some = "" if len(successes) == len(records) else f" {len(successes)} succeeded and"
    return f"{runs}:{some} took {''.join(texts)} (median, and range)."


def _range(before: str, values: Sequence[float | None], format_value: Callable[[float], str]) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return ""
    middle = len(known) // 2
    median = known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2
    least, most = format_value(known[0]), format_value(known[-1])
    return before + format_value(median) + ("" if least == most else f" ({least} to {most})")

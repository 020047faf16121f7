"""The huge pages of a machine's pool that a run holds, in addition to the memory used."""

from profiler.core.optional_math import sum_known
from profiler.record.record_model import Metrics, Record
from profiler.record.units import format_memory


def huge_pages_mb(record: Record) -> float | None:
    """The most that all containers of the task together had; None without any."""
    containers = (record.metrics, *(other.metrics or Metrics() for other in record.containers))
    return sum_known(*(metrics.memory_huge_pages_mb.max for metrics in containers))


def huge_pages_text(metrics: Metrics) -> str:
    """What a run holds of them, as the rest of a sentence; "" without any."""
    held_mb = metrics.memory_huge_pages_mb.max
    if not held_mb:
        return ""
    return (
        f"it also holds up to {format_memory(held_mb)} of huge pages, which the memory used lacks"
    )

"""What the warnings of a record say of its division of time."""

from profiler.readers.linux.wait_types import STOPPED
from profiler.record.cpu_wait import is_cpu_wait_partial
from profiler.record.record_model import Record
from profiler.record.units import format_duration, format_percent


def wait_warnings(record: Record) -> tuple[str, ...]:
    """A sentence if waits for a CPU are missing, and one if the run was stopped."""
    warnings: list[str] = []
    if is_cpu_wait_partial(record):
        missing = format_percent(100 - (record.sampling.cpu_wait_covered_percent or 0))
        warnings.append(
            f"The time waiting for a CPU is a lower bound: threads ended before {missing} of the "
            "CPU time was read."
        )
    for row in record.time_breakdown.waiting_for:
        if (row.kind, row.target) == (STOPPED.wait.kind, STOPPED.wait.target):
            stopped = format_duration(row.percent / 100 * (record.metrics.duration_ms or 0))
            warnings.append(
                f"The run, or a process for which it waited, was stopped for {stopped} (Ctrl-Z, "
                "SIGSTOP or a frozen group): this time is not the program's."
            )
    return tuple(warnings)

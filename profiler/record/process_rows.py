"""What the rows of ``processes`` say together: which one is of all others, and whether the CPU
time of each name is a lower bound.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from profiler.record.record_model import Metrics, Process, known_peak_source
from profiler.record.units import CPU_SECONDS_DIGITS

# The name of the row of all other processes, in ``processes`` and in ``series.processes``.
OTHER_PROCESSES = "other"
_COUNTED_TEXT = "other programs"
_UNREAD_TEXT = "other or unread programs"
# The kernel has the CPU time of ended children in two parts, each rounded down to 10 ms: a smaller
# difference between the rows and the total says nothing.
_MIN_NOTABLE_SECONDS = 0.05
_MIN_NOTABLE_SHARE = 0.01


def is_notable_cpu(part_seconds: float, whole_seconds: float) -> bool:
    """Whether a part of the CPU time is more than rounding: 50 ms and 1 % of the whole."""
    return part_seconds >= max(_MIN_NOTABLE_SECONDS, _MIN_NOTABLE_SHARE * whole_seconds)


def is_other_processes(row: Process) -> bool:
    """Whether this is the row of all other processes. A program of that name has a memory."""
    return row.name == OTHER_PROCESSES and row.max_memory_used_mb is None


def shown_name(row: Process) -> str:
    """The name of a row for people: the others' CPU time may be that of a named program, which
    ended before it was read.
    """
    if not is_other_processes(row):
        return row.name
    if row.count is None:
        return _UNREAD_TEXT
    return _COUNTED_TEXT


def are_processes_partial(rows: Sequence[Process]) -> bool:
    """Whether the CPU time of each name is a lower bound: some processes ended before it was read,
    so that the number of the others is unknown.
    """
    return bool(rows) and is_other_processes(rows[-1]) and rows[-1].count is None


def is_peak_partial(row: Process, metrics: Metrics) -> bool:
    """Whether the memory peak of a name is a lower bound: it is sampled, unless it is the run's own
    peak, and that is the kernel's.
    """
    peak_mb = row.max_memory_used_mb
    if peak_mb is None:
        return False
    return peak_mb != metrics.max_memory_used_mb or known_peak_source(metrics) != "kernel"


def with_unread(rows: Sequence[Process], cpu_seconds: float | None) -> tuple[Process, ...]:
    """The rows, which are in descending order, with the ``cpu_seconds`` of the run together.

    What they lack belongs to processes that ended before it was read: it is in the row of the
    others, which then has no count. What they have too much, which is rounding, the first one
    loses.
    """
    named = []
    hidden: Process | None = None
    for row in rows:
        if is_other_processes(row):
            hidden = row
        else:
            named.append(row)
    if not named or cpu_seconds is None:
        return tuple(rows)
    excess_seconds = sum(row.cpu_seconds or 0 for row in rows) - cpu_seconds
    if excess_seconds > 0:
        first = named[0]
        left_seconds = max((first.cpu_seconds or 0) - excess_seconds, 0)
        named[0] = replace(first, cpu_seconds=round(left_seconds, CPU_SECONDS_DIGITS))
    named_seconds = sum(row.cpu_seconds or 0 for row in named)
    other_seconds = round(cpu_seconds - named_seconds, CPU_SECONDS_DIGITS)
    if not is_notable_cpu(other_seconds, cpu_seconds):
        return tuple(named)
    count = None if hidden is None else hidden.count
    if is_notable_cpu(-excess_seconds, cpu_seconds):
        count = None
    return (*named, Process(name=OTHER_PROCESSES, count=count, cpu_seconds=other_seconds))

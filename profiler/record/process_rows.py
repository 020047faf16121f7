"""What the rows of ``processes`` say together: which one is of all others, whether the CPU time of
each name is a lower bound, and the largest in words.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import min_known
from profiler.record.measured import Exactly, Measured, Number, measured_from
from profiler.record.record_model import Process
from profiler.record.units import CPU_SECONDS_DIGITS, format_memory, format_value

# The name of the row of all other processes, in ``processes`` and in ``series.processes``.
OTHER_PROCESSES = "other"
_COUNTED_TEXT = "other programs"
_UNREAD_TEXT = "other or unread programs"
# The kernel has the CPU time of ended children in two parts, each rounded down to 10 ms: a smaller
# difference between the rows and the total says nothing.
_MIN_NOTABLE_SECONDS = 0.05
_MIN_NOTABLE_SHARE = 0.01
_MAX_NAMED = 3


def is_notable_cpu(part_seconds: float, whole_seconds: float) -> bool:
    """Whether a part of the CPU time is more than rounding: 50 ms and 1 % of the whole."""
    return part_seconds >= max(_MIN_NOTABLE_SECONDS, _MIN_NOTABLE_SHARE * whole_seconds)


def is_other_processes(row: Process) -> bool:
    """Whether this is the row of all other processes. A program of that name has a memory."""
    return row.name == OTHER_PROCESSES and row.max_memory_used_mb is None


def displayed_process_name(row: Process) -> str:
    """The name of a row for people: the others' CPU time may be that of a named program, which
    ended before it was read.
    """
    if not is_other_processes(row):
        return row.name
    if row.count is None:
        return _UNREAD_TEXT
    return _COUNTED_TEXT


class MeasuredProcessRow(Struct, frozen=True):
    """A row with its CPU time in seconds and its memory peak in MB."""

    process: Process
    cpu_seconds: Measured
    peak_mb: Measured


def measured_rows(rows: Sequence[Process], run_peak: Measured) -> list[MeasuredProcessRow]:
    """The rows of a run with this memory peak in MB.

    The CPU time of each name is at least that if some processes ended before theirs was read, so
    that the number of the others is unknown. The memory peak of a name is sampled, unless it is the
    run's own peak, and that is the kernel's.
    """
    is_partial = bool(rows) and is_other_processes(rows[-1]) and rows[-1].count is None
    measured_processes = []
    for row in rows:
        is_least = is_partial and not is_other_processes(row)
        is_sampled = Exactly(row.max_memory_used_mb or 0) != run_peak
        measured_processes.append(
            MeasuredProcessRow(
                row,
                measured_from(row.cpu_seconds, is_least=is_least),
                measured_from(row.max_memory_used_mb, is_least=is_sampled),
            )
        )
    return measured_processes


def largest_process_texts(rows: Sequence[Process], run_peak: Measured) -> Iterator[str]:
    """The programs with the most CPU time, and what the others used together."""
    named: list[str] = []
    others: list[str] = []
    for row in measured_rows(rows, run_peak):
        (others if is_other_processes(row.process) else named).append(_process_row_text(row))
    yield from named[:_MAX_NAMED]
    yield from others


def _process_row_text(row: MeasuredProcessRow) -> str:
    """The processes of one name: how many, their memory peak and their CPU time."""
    process = row.process
    text = displayed_process_name(process)
    if process.count not in (None, 1):
        text += f" ×{process.count}"
    values = []
    memory = row.peak_mb.text(format_memory)
    if memory:
        # The processes of this name that held the peak.
        holders = process.max_memory_used_processes or 1
        if process.count not in (None, holders):
            memory += f" in {holders} of them"
        values.append(memory)
    cpu_time = row.cpu_seconds.text(partial(format_value, unit="s"))
    if cpu_time:
        values.append(f"{cpu_time} of CPU")
    return f"{text} ({', '.join(values)})" if values else text


def measured_killed_rows(rows: Sequence[Process]) -> list[MeasuredProcessRow]:
    """The rows of killed processes, whose memory is what was last seen, no peak."""
    return [
        MeasuredProcessRow(
            row, measured_from(row.cpu_seconds), measured_from(row.max_memory_used_mb)
        )
        for row in rows
    ]


def with_unread_cpu_row(rows: Sequence[Process], cpu_seconds: float | None) -> tuple[Process, ...]:
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


def processes_within_total(
    processes: Iterable[Process], total_mb: Number | None, *, is_one: bool = False
) -> tuple[Process, ...]:
    """The processes, each with at most the memory peak of all together; the only one
    (``is_one``) has it.
    """
    limited: list[Process] = []
    for process in processes:
        peak_mb = process.max_memory_used_mb
        if peak_mb is not None:
            # The kernel's mark of a process can be a little higher than its control group's.
            peak_mb = total_mb if is_one else min_known(peak_mb, total_mb)
        limited.append(replace(process, max_memory_used_mb=peak_mb))
    return tuple(limited)

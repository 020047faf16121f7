"""Puts the readings of commands on the steps of the run's series. The rows of a step together are
not above the run's.

The run is read more often than its commands. So a step's CPU time is divided as that of all
processes between their two readings. Of a step's memory, each command has what it held at both
readings; what the run held beyond that belongs to the commands that grew or shrank between them.
Where they held more than the run, which was at other moments, each has its share of the run's.
In a step in which the run was not read, a command's memory is known if it was the same at both.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from profiler.record.activity_model import ProcessSeries
from profiler.record.equal_steps import Column, rounded_column
from profiler.record.record_model import Series
from profiler.record.units import MIB


class CommandStepValues(Struct, frozen=True, kw_only=True):
    """The values of one command in each step; unknown in the steps before ``first_step``."""

    cpu_ns: list[int]
    least_bytes: list[int]
    most_bytes: list[int]
    first_step: int = 0
    has_memory: bool = True


class RunStepValues(Struct, frozen=True, kw_only=True):
    """The steps of the run: the CPU time of all processes with the time that it was read for,
    whether their memory was read, and the run's own series.
    """

    cpu: Sequence[tuple[float, int]]
    is_read: Sequence[bool]
    series: Series


def remaining_cells(
    whole: CommandStepValues,
    rows: Sequence[CommandStepValues],
    largest: CommandStepValues,
    *,
    has_memory: bool,
) -> CommandStepValues:
    """What the rows leave of the whole, at least the ``largest`` of the other commands.

    Of a longer step, each row has its maximum, which can be of different times.
    """
    cpu_ns = list(whole.cpu_ns)
    least_bytes = list(whole.least_bytes)
    most_bytes = list(whole.most_bytes)
    for index in range(len(cpu_ns)):
        for row in rows:
            if index >= row.first_step:
                cpu_ns[index] -= row.cpu_ns[index]
                least_bytes[index] -= row.least_bytes[index]
                most_bytes[index] -= row.most_bytes[index]
        cpu_ns[index] = max(cpu_ns[index], 0)
        least_bytes[index] = max(least_bytes[index], largest.least_bytes[index])
        most_bytes[index] = max(most_bytes[index], largest.most_bytes[index], least_bytes[index])
    return CommandStepValues(
        cpu_ns=cpu_ns, least_bytes=least_bytes, most_bytes=most_bytes, has_memory=has_memory
    )


def process_series(
    run: RunStepValues, rows: Mapping[str, CommandStepValues]
) -> tuple[ProcessSeries, ...]:
    """The series of each command, by its text."""
    processes = []
    for text, row in rows.items():
        memory_used_mb = None
        if row.has_memory:
            memory_used_mb = rounded_column(_memory_column(run, row, list(rows.values())))
        processes.append(
            ProcessSeries(
                command=text,
                vcpu_used=rounded_column(_cpu_column(run, row)),
                memory_used_mb=memory_used_mb,
            )
        )
    return tuple(processes)


def _cpu_column(run: RunStepValues, row: CommandStepValues) -> Column:
    column: list[float | None] = []
    for index, (used_ns, covered_ns) in enumerate(run.cpu):
        if index < row.first_step or not covered_ns:
            column.append(None)
            continue
        run_vcpu = None
        if run.series.vcpu_used is not None:
            run_vcpu = run.series.vcpu_used[index]
        if run_vcpu is None:
            run_vcpu = used_ns / covered_ns
        share = row.cpu_ns[index] / used_ns if used_ns else 0.0
        column.append(run_vcpu * min(share, 1.0))
    return tuple(column)


def _memory_column(
    run: RunStepValues, row: CommandStepValues, rows: Sequence[CommandStepValues]
) -> Column:
    column: list[float | None] = []
    for index, is_read in enumerate(run.is_read):
        if index < row.first_step or not is_read:
            column.append(None)
            continue
        size_bytes: float = row.least_bytes[index]
        run_column = run.series.memory_used_mb
        run_mb = None if run_column is None else run_column[index]
        if run_mb is None:
            # Between two readings, in a step in which nothing was read, it may have been either.
            is_known = run_column is None or row.most_bytes[index] == row.least_bytes[index]
            column.append(size_bytes / MIB if is_known else None)
            continue
        present = [other for other in rows if index >= other.first_step and other.has_memory]
        together_bytes = sum(other.least_bytes[index] for other in present)
        room_bytes = sum(other.most_bytes[index] - other.least_bytes[index] for other in present)
        left_bytes = run_mb * MIB - together_bytes
        if left_bytes < 0:
            size_bytes *= run_mb * MIB / together_bytes
        elif room_bytes:
            part = min(left_bytes / room_bytes, 1.0)
            size_bytes += part * (row.most_bytes[index] - row.least_bytes[index])
        column.append(size_bytes / MIB)
    return tuple(column)

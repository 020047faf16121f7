"""The rows of commands on the steps of the run: together they are not above the run's."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.aggregation.command_series_alignment import (
    CommandStepValues,
    RunStepValues,
    process_series,
    remaining_cells,
)
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.record_model import Series
from tests.values import present

MIB = 2**20


def cells(cpu: float = 0, least: int = 0, most: int | None = None) -> CommandStepValues:
    """One step of a command: CPU seconds, and bounds of the memory in MiB."""
    return CommandStepValues(
        cpu_ns=[round(cpu * NS_PER_SECOND)],
        least_bytes=[least * MIB],
        most_bytes=[(least if most is None else most) * MIB],
    )


def one_second(
    cpu: float = 1, *, vcpu: float | None = None, memory: float | None = None
) -> RunStepValues:
    """One step of the run: the CPU seconds of all processes, and the run's own values."""
    return RunStepValues(
        cpu=[(cpu * NS_PER_SECOND, NS_PER_SECOND)],
        is_read=[True],
        series=Series(
            started_at="2026-11-01T06:00:00.000Z",
            step_ms=1000,
            vcpu_used=None if vcpu is None else (vcpu,),
            memory_used_mb=None if memory is None else (memory,),
        ),
    )


def memory_of(run: RunStepValues, **rows: CommandStepValues) -> dict[str, float | None]:
    return {row.command: present(row.memory_used_mb)[0] for row in process_series(run, rows)}


def test_a_command_has_its_share_of_the_runs_cpu_time() -> None:
    rows = process_series(one_second(2, vcpu=0.5), {"job": cells(cpu=1.5)})
    assert rows[0].vcpu_used == (0.375,)


def test_where_the_runs_cpu_time_is_unknown_a_command_has_its_own() -> None:
    rows = process_series(one_second(2), {"job": cells(cpu=1.5)})
    assert rows[0].vcpu_used == (1.5,)


def test_what_the_run_held_more_belongs_to_the_commands_that_changed() -> None:
    run = one_second(memory=130)
    found = memory_of(run, steady=cells(least=90), growing=cells(least=0, most=80))
    assert found == {"steady": 90, "growing": 40}


def test_memory_that_no_command_can_have_had_is_in_none() -> None:
    assert memory_of(one_second(memory=300), job=cells(least=90, most=100)) == {"job": 100}


def test_a_command_that_was_read_larger_than_the_run_has_the_runs_memory() -> None:
    assert memory_of(one_second(memory=94), job=cells(least=134)) == {"job": 94}


def test_commands_that_were_read_larger_than_the_run_share_the_runs_memory() -> None:
    rows = memory_of(one_second(memory=100), large=cells(least=90), small=cells(least=30))
    assert rows == {"large": 75, "small": 25}


def test_in_a_step_without_a_reading_no_command_has_the_smaller_one_of_two() -> None:
    """It grew from 268 to 398 MB, or ended, meanwhile: neither of these, nor 0, was its memory."""
    run = replace(one_second(), series=replace(one_second().series, memory_used_mb=(None,)))
    rows = {
        "steady": cells(least=90),
        "growing": cells(least=268, most=398),
        "ended": cells(most=454),
    }
    found = {row.command: row.memory_used_mb for row in process_series(run, rows)}
    assert found == {"steady": (90,), "growing": None, "ended": None}


def test_the_others_have_what_the_rows_leave_at_least_the_largest_of_them() -> None:
    rows = [cells(cpu=1, least=60, most=80)]
    left = remaining_cells(
        cells(cpu=1.5, least=90, most=100), rows, cells(least=40, most=45), has_memory=True
    )
    assert left == cells(cpu=0.5, least=40, most=45)


_commands = st.builds(
    cells, st.floats(0, 10), least=st.integers(0, 500), most=st.none() | st.integers(500, 900)
)


@given(
    commands=st.lists(_commands, min_size=1, max_size=5),
    vcpu=st.floats(0, 10),
    memory=st.integers(0, 2000),
    unread=st.floats(0, 10),
)
def test_the_rows_together_are_not_above_the_run(
    commands: list[CommandStepValues], vcpu: float, memory: int, unread: float
) -> None:
    used = sum(command.cpu_ns[0] for command in commands) / NS_PER_SECOND
    run = one_second(used + unread, vcpu=vcpu, memory=memory)
    rows = process_series(run, {str(place): command for place, command in enumerate(commands)})
    rounding = 1.01
    assert sum(present(row.vcpu_used)[0] or 0 for row in rows) <= rounding * vcpu
    assert sum(present(row.memory_used_mb)[0] or 0 for row in rows) <= rounding * memory

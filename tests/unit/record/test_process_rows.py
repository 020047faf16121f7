"""The rows of the processes together: none has more than was read, all have the run's CPU time."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from profiler.record.measured import UNKNOWN, AtLeast, Exactly
from profiler.record.process_rows import (
    MeasuredProcessRow,
    displayed_process_name,
    is_other_processes,
    measured_killed_rows,
    measured_rows,
    with_unread_cpu_row,
)
from profiler.record.record_model import Process
from tests.cases import each_case

JOB = Process(name="job", count=1, cpu_seconds=2.0, max_memory_used_mb=10)
HIDDEN = Process(name="other", count=7, cpu_seconds=0.5)
UNREAD = Process(name="other", cpu_seconds=1.0)


@each_case(
    ("rows", "cpu_seconds", "expected"),
    [
        ([JOB], 2.0, [JOB]),
        ([JOB], 2.04, [JOB]),
        ([JOB], 3.0, [JOB, UNREAD]),
        ([JOB, HIDDEN], 2.5, [JOB, HIDDEN]),
        ([JOB, HIDDEN], 3.0, [JOB, UNREAD]),
        ([JOB, Process(name="other", count=2, cpu_seconds=0.01)], 2.01, [JOB]),
        ([], 3.0, []),
        ([JOB], None, [JOB]),
    ],
    ids=[
        "all was read",
        "rounding is no row",
        "unread time is the others'",
        "names that are not listed are counted",
        "the number of the unread is unknown",
        "little is no row",
        "no process was read",
        "the total is unknown",
    ],
)
def test_the_rest_of_the_cpu_time_is_a_row_of_the_others(
    rows: Sequence[Process], cpu_seconds: float | None, expected: Sequence[Process]
) -> None:
    assert list(with_unread_cpu_row(rows, cpu_seconds)) == list(expected)


def test_an_excess_is_rounding_of_the_largest() -> None:
    (row,) = with_unread_cpu_row([JOB], 1.95)
    assert row.cpu_seconds == 1.95


@given(
    seconds=st.lists(st.floats(0, 1e4), min_size=1, max_size=10),
    hidden=st.none() | st.floats(0, 1e4),
    total=st.floats(0, 1e5),
)
def test_no_rows_are_above_the_total_and_none_gains(
    seconds: list[float], hidden: float | None, total: float
) -> None:
    named = [Process(name="job", cpu_seconds=used) for used in sorted(seconds, reverse=True)]
    others = [] if hidden is None else [Process(name="other", count=3, cpu_seconds=hidden)]
    rows = with_unread_cpu_row([*named, *others], total)
    assert all(
        (row.cpu_seconds or 0) <= (before.cpu_seconds or 0) + 1e-6
        for row, before in zip(rows, named, strict=False)
    )
    excess = sum(row.cpu_seconds or 0 for row in (*named, *others)) - total
    if excess <= (named[0].cpu_seconds or 0):
        assert sum(row.cpu_seconds or 0 for row in rows) <= total + 1e-5


def test_a_program_that_is_called_other_has_a_memory() -> None:
    program = Process(name="other", count=1, cpu_seconds=1, max_memory_used_mb=5)
    assert not is_other_processes(program)
    assert measured_killed_rows([program]) == [MeasuredProcessRow(program, Exactly(1), Exactly(5))]
    (row,) = measured_rows([program], UNKNOWN)
    assert row.cpu_seconds == Exactly(1)
    assert displayed_process_name(program) == "other"


def test_the_name_for_people_says_whether_all_was_read() -> None:
    assert [displayed_process_name(row) for row in (JOB, HIDDEN, UNREAD)] == [
        "job",
        "other programs",
        "other or unread programs",
    ]
    for other, job_seconds in ((HIDDEN, Exactly(2.0)), (UNREAD, AtLeast(2.0))):
        times = [row.cpu_seconds for row in measured_rows([JOB, other], UNKNOWN)]
        assert times == [job_seconds, Exactly(other.cpu_seconds or 0)]


def test_only_the_kernels_peak_of_the_run_is_exact() -> None:
    small = Process(name="b", count=1, max_memory_used_mb=4)
    rows = measured_rows([JOB, small, HIDDEN], Exactly(10))
    assert [row.peak_mb for row in rows] == [Exactly(10), AtLeast(4), UNKNOWN]
    assert measured_rows([JOB], AtLeast(10))[0].peak_mb == AtLeast(10)

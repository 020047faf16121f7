"""The batch's processes by command: totals and time series."""

import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.aggregation.process_table import ProcessTotals, ShowArguments
from profiler.aggregation.series_by_command import SeriesByCommand
from profiler.aggregation.time_series import RunSeries
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.activity_model import ProcessSeries
from profiler.record.process_rows import OTHER_PROCESSES
from profiler.record.record_model import Process, Series
from tests import fakes
from tests.values import present

MIB = 2**20


def process(
    pid: int, name: str, *, cpu: float = 0, mark: int | None = 10, held: int = 0, **more: Any
) -> ProcessReading:
    """Sizes are in MiB. One without a mark is a zombie."""
    sizes = {} if mark is None else {"held": (held or mark) * MIB, "mark": mark * MIB}
    return fakes.process(pid, name=name, own_cpu_ns=round(cpu * 1e9), **sizes, **more)


NINE = [process(pid, "python3", held=40, mark=60) for pid in range(1, 10)]
SHELL = process(1, "sh", cpu=0.1)


@pytest.mark.parametrize(
    ("readings", "shown"),
    [
        (
            [
                [SHELL, process(2, "worker", cpu=1, mark=300)],
                [SHELL, process(3, "worker", cpu=2, mark=200)],
            ],
            [("worker", 2, 3.0, 300, 1), ("sh", 1, 0.1, 10, 1)],
        ),
        (
            [NINE[:1], NINE, [process(pid, "python3", held=100, mark=100) for pid in (1, 2)]],
            [("python3", 9, 0, 360, 9)],
        ),
        (
            [[process(1, "worker", cpu=1, mark=mark)] for mark in (300, None)] + [[]],
            [("worker", 1, 1.0, 300, 1)],
        ),
    ],
    ids=["processes of one name are one entry", "at the highest moment", "a zombie keeps its mark"],
)
def test_the_totals_and_the_memory_of_a_name(
    readings: list[list[ProcessReading]], shown: list[Any]
) -> None:
    totals = ProcessTotals()
    for reading in readings:
        totals.add_reading(reading)
    names = ("name", "count", "cpu_seconds", "max_memory_used_mb", "max_memory_used_processes")
    assert totals.largest_process_rows() == tuple(
        Process(**dict(zip(names, values, strict=True))) for values in shown
    )


@pytest.mark.slow
@pytest.mark.no_cover
def test_any_number_of_names_takes_the_same_memory_also_with_their_series() -> None:
    totals = ProcessTotals(make_series=lambda: SeriesByCommand(0, NS_PER_SECOND, 60))
    main = process(9999, "main", cpu=1, mark=7000)
    tracemalloc.start()
    try:
        for number in range(800):
            totals.add_reading(
                [main, process(number, f"job-{number}", cpu=0.5, mark=number)],
                (number + 1) * NS_PER_SECOND,
            )
            if number == 399:
                half_bytes = tracemalloc.get_traced_memory()[0]
        assert tracemalloc.get_traced_memory()[0] - half_bytes < 100_000
    finally:
        tracemalloc.stop()
    assert {7000, 799} <= {shown.max_memory_used_mb for shown in totals.largest_process_rows()}


def with_series(
    readings: Sequence[Sequence[ProcessReading]], show_arguments: ShowArguments = lambda _: None
) -> ProcessTotals:
    """Totals with the series of a run that begins at 0 and is read once a second."""
    totals = ProcessTotals(show_arguments, lambda: SeriesByCommand(0, NS_PER_SECOND, 30))
    for second, processes in enumerate(readings, start=1):
        totals.add_reading(processes, second * NS_PER_SECOND)
    return totals


def commands(totals: ProcessTotals, until: int) -> dict[str, ProcessSeries]:
    run = RunSeries(0, NS_PER_SECOND, 30)
    run.spread_over_steps(run.cpu_wait, 0, until * NS_PER_SECOND, 0)
    series = present(totals.with_commands(run.series_so_far()))
    return {row.command: row for row in series.processes}


def test_of_many_names_the_largest_are_kept_and_the_others_are_counted_together() -> None:
    """A batch that starts a program with other arguments each time has a name for each."""
    totals = ProcessTotals(lambda reading: None if reading.name == "main" else "--part")
    main = process(9_999, "main", mark=1)
    ended = [process(pid, f"job-{pid}", cpu=0.25, mark=5) for pid in range(700)]
    ended[3] = replace(process(3, "busy", cpu=90, mark=5), unread_shmem_bytes=9 * MIB)
    ended[4] = replace(process(4, "large", cpu=0.25, mark=4_000), unread_shmem_bytes=9 * MIB)
    ended[5] = replace(ended[5], unread_shmem_bytes=900 * MIB)
    totals.add_reading([main, *ended])
    totals.add_reading([main])
    assert len(totals._ended) == len(totals._unread_bytes) + 99
    assert len(totals._memory) <= 201
    shown = {row.name: row for row in totals.largest_process_rows()}
    assert {"busy", "large", OTHER_PROCESSES} <= shown.keys()
    assert sum(row.count or 0 for row in shown.values()) == 701
    assert sum(row.cpu_seconds or 0 for row in shown.values()) == 699 * 0.25 + 90
    assert shown["large"].max_memory_used_mb == 4_000
    (warning,) = totals.unread_process_warnings(0)
    assert "of busy in" in warning, "job-5, which was dropped, is in no list"
    busy = replace(main, own_cpu_ns=round(500e9))
    totals.add_reading([busy])
    assert totals.largest_process_rows()[0].name == "main", "who is present is never dropped"


def test_cpu_time_is_that_between_two_readings_of_a_process() -> None:
    """CPU time is that between two readings of a process also of a zombie or after an exec."""
    first = [
        process(1, "sh", cpu=0.25),
        process(2, "worker", cpu=0.5, held=5),
        process(3, "sh", cpu=0, held=1),
    ]
    zombie = process(2, "worker", cpu=0.75, mark=None)
    later = [process(1, "java", cpu=1.25, held=7), zombie, first[2]]
    found = commands(with_series([first, later, [later[0], zombie, later[2]]]), 3)
    assert found == {
        "java": ProcessSeries(command="java", vcpu_used=(0, 1, 0), memory_used_mb=(0, 7, 7)),
        "worker": ProcessSeries(
            command="worker", vcpu_used=(0.5, 0.25, 0), memory_used_mb=(5, 0, 0)
        ),
        "sh": ProcessSeries(command="sh", vcpu_used=(0.25, 0, 0), memory_used_mb=(11, 1, 1)),
    }


def test_what_a_process_used_before_it_executed_another_program_belongs_to_the_old_name() -> None:
    readings = (
        process(1, "python3 load.py", cpu=0.25, mark=30),
        process(1, "python3 load.py", cpu=0.5, mark=60),
        process(1, "python3 export.py", cpu=1.25, mark=20),
        process(1, "python3", cpu=1.5, mark=None),
        process(1, "python3", cpu=1.5, mark=None),
    )
    totals = with_series([[reading] for reading in readings])
    for _ in range(2):
        found = [
            (one.name, one.count, one.cpu_seconds, one.max_memory_used_mb)
            for one in totals.largest_process_rows()
        ]
        assert found == [("python3 export.py", 1, 1, 20), ("python3 load.py", 1, 0.5, 60)]
        totals.add_reading([])


def test_what_a_child_used_after_its_last_reading_is_in_no_name() -> None:
    """It may be that of others, which began and ended unseen, or of a program that it executed."""
    totals = ProcessTotals()
    shell = process(1, "sh")
    totals.add_reading([shell, process(2, "worker", cpu=0.5, parent_pid=1)], cpu_ns=500_000_000)
    totals.add_reading([replace(shell, children_cpu_ns=2_500_000_000)], cpu_ns=2_500_000_000)
    assert {row.name: row.cpu_seconds for row in totals.largest_process_rows()} == {
        "worker": 0.5,
        "sh": 0,
    }
    expected = (
        "The CPU time of each process is a lower bound: processes ended before 80 % of it was read."
    )
    assert totals.unread_process_warnings(2_500_000_000) == (expected,)


def test_a_small_part_that_was_not_read_is_no_warning() -> None:
    totals = ProcessTotals()
    totals.add_reading([process(1, "sh", cpu=2)])
    assert (
        totals.unread_process_warnings(2_100_000_000)
        == totals.unread_process_warnings(2_000_000_000)
        == ()
    )


def test_unread_cpu_time_is_the_others_in_its_step_of_the_series() -> None:
    totals = ProcessTotals(make_series=lambda: SeriesByCommand(0, NS_PER_SECOND, 30))
    for second, (cpu, total) in enumerate(((0.25, 0.25), (0.5, 1.25), (0.75, 1.5)), start=1):
        processes = [process(1, "make", cpu=cpu)]
        cpu_ns = round(total * NS_PER_SECOND)
        totals.add_reading(processes, second * NS_PER_SECOND, cpu_ns=cpu_ns)
    found = commands(totals, 3)
    assert found["make"].vcpu_used == (0.25, 0.25, 0.25)
    assert found["other"].vcpu_used == (0, 0.75, 0)
    assert found["other"].memory_used_mb is None


def test_the_largest_eight_by_cpu_time_and_peak_are_shown() -> None:
    """The largest by CPU time and by peak are shown at most eight and the others together."""
    totals = with_series(
        [[process(pid, f"p{pid}", cpu=pid / 10, mark=100 - pid) for pid in range(20)]]
    )
    assert list(commands(totals, 1)) == [
        "p19",
        "p18",
        "p17",
        "p16",
        "p3",
        "p2",
        "p1",
        "p0",
        "other",
    ]
    by_cpu_and_by_mark = ["p19", "p18", "p17", "p16", "p15", "p4", "p3", "p2", "p1", "p0"]
    *shown, others = totals.largest_process_rows()
    assert [row.name for row in shown] == by_cpu_and_by_mark
    assert others == Process(name="other", count=10, cpu_seconds=9.5)


def test_the_arguments_that_are_shown_are_part_of_the_command() -> None:
    readings = [process(1, "python3", arguments=("a.py", "x" * 500)), process(2, "python3", cpu=1)]
    totals = with_series([readings], lambda shown: " ".join(shown.arguments) or None)
    assert list(commands(totals, 1)) == ["python3", f"python3 a.py {'x' * 186}…"]
    assert list(commands(with_series([readings]), 1)) == ["python3"]


def test_without_a_series_there_is_none_to_add() -> None:
    """Without a series of the run or of the commands there is none to add."""
    assert with_series([[process(1, "sh")]]).with_commands(None) is None
    series = Series(started_at="1970-01-01T00:00:00.000Z", step_ms=1000, vcpu_used=(1,))
    assert ProcessTotals().with_commands(series) == series


_readings = st.lists(
    st.builds(
        process,
        st.integers(1, 5),
        st.sampled_from("ab"),
        cpu=st.floats(0, 1e6),
        mark=st.integers(0, 1000),
    ),
    max_size=5,
    unique_by=lambda reading: reading.pid,
)


@given(st.lists(_readings, max_size=10))
def test_no_mark_is_lost_and_everybody_is_counted(steps: list[list[ProcessReading]]) -> None:
    totals = ProcessTotals()
    for processes in steps:
        totals.add_reading(processes)
    shown = totals.largest_process_rows()
    assert len(shown) <= 2
    assert all((one.count or 0) > 0 and (one.cpu_seconds or 0) >= 0 for one in shown)
    last = max((reading.peak_bytes or 0 for reading in steps[-1]), default=0) if steps else 0
    assert max((one.max_memory_used_mb or 0 for one in shown), default=0) * MIB >= last


def test_shared_memory_that_could_not_be_read_in_time_makes_the_memory_a_lower_bound() -> None:
    """Java's ZGC, whose heap counts three times in what it maps."""
    mib = 2**20
    java = replace(process(1, "java", mark=80), share_bytes=40 * mib, unread_shmem_bytes=600 * mib)
    read = replace(java, share_bytes=240 * mib, unread_shmem_bytes=0)
    slight = replace(process(2, "sh", mark=3), share_bytes=2 * mib, unread_shmem_bytes=mib)
    expected = (
        "The memory of java in the list of processes is a lower bound: how much it held of the "
        "shared memory that it mapped could not be read in time."
    )
    for readings, warnings in {
        ((java, slight),): (expected,),
        ((java, slight), ()): (expected,),
        ((java, slight), (read, slight), ()): (),
        ((read, slight),): (),
    }.items():
        totals = ProcessTotals()
        for reading in readings:
            totals.add_reading(reading)
        assert totals.unread_process_warnings(0) == warnings

"""The time series of commands: they are on the steps of the run's series, and together they are
the whole.
"""

import math
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.series_by_command import SeriesByCommand
from profiler.aggregation.time_series import RunSeries
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.activity_model import ProcessSeries
from profiler.record.process_rows import OTHER_PROCESSES as OTHER
from profiler.record.record_model import Series
from tests.values import present

MIB = 2**20
START_NS = 1_700_000_000 * NS_PER_SECOND
ROUNDING = 0.012  # three significant digits, of a sum and of the whole

# The CPU seconds and the memory of each command at one reading.
Reading = Mapping[str, tuple[float, int]]


def at(second: float) -> int:
    return START_NS + round(second * NS_PER_SECOND)


def collect(
    readings: Sequence[Reading], *, points: int = 30, period: float = 1, is_new: bool = True
) -> SeriesByCommand[str]:
    commands = SeriesByCommand[str](START_NS, NS_PER_SECOND, points, is_new=is_new)
    for number, reading in enumerate(readings, start=1):
        add(commands, number * period, reading)
    return commands


def add(commands: SeriesByCommand[str], second: float, reading: Reading) -> None:
    cpu_ns = {name: round(cpu * NS_PER_SECOND) for name, (cpu, _) in reading.items()}
    commands.add_reading(
        at(second), cpu_ns, {name: size_mb * MIB for name, (_, size_mb) in reading.items()}
    )


def run_series(until: float, *, points: int = 30, step_ms: int = 1000) -> Series:
    """A series of this length, in which the CPU time and the memory of the run are unknown."""
    run = RunSeries(START_NS, step_ms * 1_000_000, points)
    run.spread_over_steps(run.cpu_wait, START_NS, at(until), 0)
    return present(run.series_so_far())


def rows(commands: SeriesByCommand[str], series: Series, *shown: str) -> dict[str, ProcessSeries]:
    found = commands.with_commands(series, {name: name for name in shown})
    return {row.command: row for row in found.processes}


def test_each_command_has_its_cpu_time_and_memory_in_the_steps_of_the_run() -> None:
    commands = collect(
        [{"load": (1, 50), "export": (0.5, 20)}, {"load": (0.25, 40), "export": (0, 20)}]
    )
    found = commands.with_commands(run_series(2), {"load": "python3 load.py", "export": "export"})
    assert found.processes == (
        ProcessSeries(command="python3 load.py", vcpu_used=(1, 0.25), memory_used_mb=(50, 40)),
        ProcessSeries(command="export", vcpu_used=(0.5, 0), memory_used_mb=(20, 20)),
    )


def test_a_step_without_a_reading_has_no_value_in_any_command() -> None:
    commands = collect([{"a": (1, 5), "b": (0, 1)}])
    add(commands, 60, {"a": (59, 5), "b": (0, 1)})
    found = rows(commands, run_series(80, points=60), "a")
    assert found["a"].vcpu_used == (1,) * 60 + (None,) * 20
    assert found["a"].memory_used_mb == (5, *(None,) * 39, *(5,) * 20, *(None,) * 20)
    coarse = rows(commands, run_series(80, step_ms=16_000), "a")
    assert coarse["a"].memory_used_mb == (5, None, 5, 5, None)
    assert coarse[OTHER].memory_used_mb == (1, None, 1, 1, None)
    assert coarse[OTHER].vcpu_used == (0, 0, 0, 0, None)


def test_memory_of_others_that_follow_each_other_is_not_added() -> None:
    commands = collect(
        [{"a": (0, 50), f"part-{number}": (0, 20)} for number in range(20)], period=0.05
    )
    found = rows(commands, run_series(1), "a")
    assert found[OTHER].memory_used_mb == (20,)


def test_cpu_time_of_older_processes_before_the_first_reading_is_unknown() -> None:
    """CPU time before the first reading is unknown if processes are older than the run."""
    commands = collect([{"a": (500, 50)}, {"a": (0.5, 50)}], is_new=False)
    found = rows(commands, run_series(2), "a")
    assert found["a"].vcpu_used == (None, 0.5)


def test_a_dropped_command_that_comes_back_has_no_values_for_the_time_before() -> None:
    big = {f"big-{number}": (1.0, 100 + number) for number in range(16)}
    commands = collect([{**big, "small": (0.05, 1)}])
    for number in range(40):
        add(commands, 2 + number, {**big, f"part-{number}": (0.1, 2)})
    assert "small" not in commands
    add(commands, 42, {**big, "small": (0.05, 1)})
    found = rows(commands, run_series(42), "small", *big)
    assert "small" in commands
    assert found["small"].vcpu_used == (*(None,) * 41, 0.05)
    assert found["small"].memory_used_mb == (*(None,) * 41, 1)
    vcpu = present(found[OTHER].vcpu_used)
    assert vcpu[0] == 0.05
    assert set(vcpu[1:41]) == {0.1}
    assert vcpu[41] == 0


def test_a_large_command_that_starts_late_has_its_own_series() -> None:
    commands = collect([{f"part-{number}": (0.1, 2)} for number in range(500)])
    growing = [(0.01, 1 + 10 * number) for number in range(100)]
    for number, size in enumerate(growing):
        add(
            commands,
            501 + number,
            {"main": size, f"late-{number}": (0.1, 2), f"later-{number}": (0.1, 2)},
        )
    assert "main" in commands
    memory = present(rows(commands, run_series(600), "main")["main"].memory_used_mb)
    assert memory[-1] == 991


def test_the_series_of_the_run_takes_the_longer_steps() -> None:
    """The series of the run takes the longer steps and the length of the commands."""
    commands = collect([{"a": (1, number)} for number in range(1, 6)], points=2)
    found = commands.with_commands(run_series(4, points=2), {"a": "a"})
    assert found.step_ms == 2000
    assert found.cpu_wait == (0, 0, None)
    assert found.processes == (
        ProcessSeries(command="a", vcpu_used=(1, 1, 1), memory_used_mb=(2, 4, 5)),
    )


_names = st.sampled_from([f"command-{number}" for number in range(60)])
_readings = st.lists(
    st.dictionaries(
        _names,
        st.tuples(st.integers(0, 8).map(lambda cpu: cpu / 4), st.integers(0, 1000)),
        max_size=40,
    ),
    min_size=1,
    max_size=30,
)


@given(
    readings=_readings,
    shown=st.sets(_names),
    period=st.sampled_from([0.25, 1, 7]),
    points=st.integers(1, 30),
)
def test_all_rows_together_are_what_was_read(
    readings: list[Reading], shown: set[str], period: float, points: int
) -> None:
    commands = collect(readings, points=points, period=period)
    whole = RunSeries(START_NS, NS_PER_SECOND, points)
    for number, reading in enumerate(readings, start=1):
        cpu_ns = round(sum(cpu for cpu, _ in reading.values()) * NS_PER_SECOND)
        whole.add_cpu(at((number - 1) * period), at(number * period), cpu_ns)
        whole.add_memory(
            at(number * period),
            sum(size for _, size in reading.values()) * MIB,
            held_ns=at(period if number > 1 else min(period, 1)) - START_NS,
        )
    series = present(whole.series_so_far())
    assert series.vcpu_used is not None
    found = commands.with_commands(
        series, {name: name for name in sorted(shown) if name in commands}
    )
    is_complete = all(name in commands for reading in readings for name in reading)
    assert found.step_ms == series.step_ms
    assert found.vcpu_used == series.vcpu_used
    assert found.memory_used_mb == series.memory_used_mb
    columns = [row.vcpu_used for row in found.processes if row.vcpu_used is not None]
    assert {len(column) for column in columns} <= {len(series.vcpu_used)}
    assert {
        len(row.memory_used_mb) for row in found.processes if row.memory_used_mb is not None
    } <= {len(series.vcpu_used)}
    for index, total in enumerate(series.vcpu_used):
        values = [column[index] for column in columns]
        assert total is not None
        assert not is_complete or None not in values
        if found.processes:
            assert math.isclose(
                sum(value or 0 for value in values), total, rel_tol=ROUNDING, abs_tol=1e-9
            )
    others = next((row.memory_used_mb for row in found.processes if row.command == OTHER), None)
    for index, size in enumerate(series.memory_used_mb or ()):
        sizes = [
            row.memory_used_mb[index] for row in found.processes if row.memory_used_mb is not None
        ]
        known = [one for one in sizes if one is not None]
        if size is None:
            assert not known
        elif others is not None:
            assert max(known) <= size * (1 + ROUNDING)
            assert sum(known) >= size * (1 - ROUNDING)


@given(readings=_readings, period=st.sampled_from([0.5, 1, 3]), small=st.integers(1, 5))
def test_merging_before_or_after_gives_the_same(
    readings: list[Reading], period: float, small: int
) -> None:
    few, many = (
        collect(readings, points=small, period=period),
        collect(readings, points=64, period=period),
    )
    series = run_series(len(readings) * period, points=small)
    shown = {name: name for name in sorted({name for reading in readings for name in reading})[:8]}
    shown = {name: name for name in shown if name in few}
    assert few.with_commands(series, shown) == many.with_commands(series, shown)

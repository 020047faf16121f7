"""The comparison of measured and computed slowdowns: steps, factors, table, programs."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import slowdown_programs
from benchmarks.slowdown import (
    COARSE,
    CORES,
    FINE,
    STATS,
    Row,
    Run,
    bounds_of,
    figures_of,
    merge_steps,
    rows_of,
    seconds_at_cpu_time,
    table,
)
from benchmarks.slowdown_programs import PROGRAMS, Amount
from profiler.record.record_model import SlowdownBounds
from tests.fakes import seconds

NONE = SlowdownBounds(min=1, max=1)


def run(duration: float, cpu: float, low: float = 1.5, high: float = 2) -> Run:
    bounds = {0.5: SlowdownBounds(min=low, max=high)}
    return Run(seconds=duration, cpu_seconds=cpu, bounds=dict.fromkeys((STATS, FINE, COARSE), bounds))


def row(factor: float, equal: float) -> Row:
    bound = SlowdownBounds(min=1.5, max=2)
    return Row(
        program="single",
        vcpu_used=0.8,
        seconds=10,
        spread=0.1,
        limit=0.5,
        factor=factor,
        equal_cpu_factor=equal,
        cpu_factor=1.1,
        bounds={STATS: bound, FINE: bound, COARSE: NONE},
    )


@given(
    st.lists(st.tuples(st.integers(1, seconds(3)), st.integers(0, seconds(6))), min_size=1),
    st.integers(1, seconds(10)),
)
def test_merged_steps_keep_the_time_and_the_work(readings: list[tuple[int, int]], step_ns: int) -> None:
    trace = [(0, 0)]
    for held_ns, cpu_ns in readings:
        trace.append((trace[-1][0] + held_ns, trace[-1][1] + cpu_ns))
    steps = merge_steps(trace, step_ns)
    assert sum(held_ns for _, held_ns in steps) == trace[-1][0]
    assert sum(vcpu * held_ns for vcpu, held_ns in steps) == pytest.approx(trace[-1][1])
    assert all(held_ns >= step_ns for _, held_ns in steps[:-1])


def test_steps_without_a_length_are_left_out() -> None:
    assert merge_steps([(5, 0), (5, 0)], 1) == []


def test_the_bounds_are_those_of_a_task_with_two_vcpus() -> None:
    assert bounds_of([(0.5, seconds(10))], None)[1] == SlowdownBounds(min=1, max=1 + 0.5 * (1 - 1 / CORES))
    assert bounds_of([(1.0, seconds(10))], 1) == {
        0.25: SlowdownBounds(min=4, max=4),
        0.5: SlowdownBounds(min=2, max=2),
    }
    assert bounds_of([], None) == {}


def test_a_program_is_compared_with_its_median_run() -> None:
    unlimited = [run(12, 6, 1, 9), run(10, 5), run(8, 4, 1, 9)]
    (found,) = rows_of("single", unlimited, {0.5: [run(16, 5), run(20, 6)]})
    assert (found.vcpu_used, found.seconds, found.spread) == (0.5, 10, 0.4)
    assert found.factor == pytest.approx(1.8)
    assert found.cpu_factor == pytest.approx(1.1)
    assert found.equal_cpu_factor == pytest.approx((16 + 18) / 2 / 10)
    assert found.bounds[STATS] == SlowdownBounds(min=1.5, max=2)


def test_a_size_that_the_record_leaves_out_is_not_slower() -> None:
    (found,) = rows_of("single", [run(10, 5)], {1: [run(10, 5)]})
    assert found.bounds == {STATS: NONE, FINE: NONE, COARSE: NONE}


def test_work_that_took_more_cpu_time_is_corrected_at_the_rate_of_the_limit() -> None:
    assert seconds_at_cpu_time(run(44, 11), 10, 0.25) == pytest.approx(40)
    assert seconds_at_cpu_time(run(36, 9), 10, 0.25) == pytest.approx(40)


def test_a_factor_is_inside_with_the_tolerance() -> None:
    found = row(1, 1)
    assert found.is_inside(1.5 * 0.931, STATS)
    assert found.is_inside(2 * 1.069, STATS)
    assert not found.is_inside(1.5 * 0.929, STATS)
    assert not found.is_inside(2 * 1.071, STATS)


def test_bounds_without_the_factor_are_bold() -> None:
    head, rule, line = table([row(2.5, 1.8)]).splitlines()
    assert head.count("|") == rule.count("|") == line.count("|")
    assert line == (
        "| single | 0.80 | 10.0 (± 5 %) | 0.5 | 2.50 | × 1.10 | 1.80 | 1.50 to 2.00 | 1.50 to 2.00 | **1.00 to 1.00** |"
    )


def test_the_share_inside_the_bounds_has_a_target_for_steps_of_a_second() -> None:
    found = list(figures_of([row(2.5, 1.8), row(1.8, 2.5)]))
    equal, measured, width = found[:3]
    assert (equal.value, equal.note, equal.is_met) == (50, "1 of 2", None)
    assert (measured.value, measured.note, measured.is_met) == (50, "1 of 2", False)
    assert width.value == pytest.approx(2 / 1.5)
    assert [figure.value for figure in found[6:]] == [0, 0, 1]


@pytest.mark.parametrize("program", sorted(set(PROGRAMS) - {"waiting-3s"}))
def test_each_program_ends_and_needs_only_the_standard_library(program: str) -> None:
    file = Path(slowdown_programs.__file__)
    done = subprocess.run(
        [sys.executable, "-I", file, program, "0.01", "0.005", "0.05"], capture_output=True, check=False, cwd="/"
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_amount_of_work_follows_from_the_arguments() -> None:
    amount = Amount(seconds=8, parse_seconds=0.0001, block_seconds=0.005)
    assert amount.blocks(4) == 800
    assert amount.blocks(0) == 1

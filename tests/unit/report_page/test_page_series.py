"""Time series as columns of numbers."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from profiler.report_page.page_series import MAX_STEPS, memory_course, series_columns, steps_per_run
from tests.report_page import series_of, step


def test_a_series_has_a_column_for_each_kind_of_number_that_was_measured() -> None:
    steps = (step(2000, None, 1.26, block_read_bytes=3 * 2**20), step(3000, 0.5, None, gpu_percent=33.33), step(4000))
    assert series_columns(series_of(steps), 3) == {
        "ms": [2000, 3000, 4000],
        "vcpu": [None, 0.5, 1.0],
        "mb": [1.26, None, 10.0],
        "read": [1.5, None, None],
        "gpu": [None, 33.3, None],
    }
    assert series_columns(series_of([step(1000, None, None)]), 3) == series_columns(series_of([]), 3) == {}


def test_a_rate_is_that_since_the_bytes_were_last_known() -> None:
    written = {"block_write_bytes": 2**20}
    columns = series_columns(series_of((step(1000, **written), step(2000), step(3000, **written), step(3000))), 3)
    assert columns["written"] == [1, None, 0.5, None]
    assert "read" not in columns


def test_a_page_has_a_bounded_number_of_steps() -> None:
    assert steps_per_run(1) == 600
    assert steps_per_run(3000) * 3000 == MAX_STEPS
    assert steps_per_run(100_000) == 60


def test_equal_steps_cost_three_numbers() -> None:
    equal = series_columns(series_of([step(1000), step(2000), step(2500)]), 3)
    assert equal["steps"] == [3, 1000, 2500]
    assert "ms" not in equal
    different = series_columns(series_of([step(1000), step(5000), step(6000)]), 3)
    assert different["ms"] == [1000, 5000, 6000]
    assert "steps" not in different


@given(st.lists(st.none() | st.floats(0, 1e6), min_size=1, max_size=200), st.sampled_from([3, 4]))
@example(values=[5e-324, None], digits=3)
def test_values_have_their_significant_digits(values: list[float | None], digits: int) -> None:
    steps = [step(1000 * number, value, 1.0) for number, value in enumerate(values, start=1)]
    shown = series_columns(series_of(steps), digits).get("vcpu", [None] * len(values))
    for value, rounded in zip(values, shown, strict=True):
        assert (value is None) == (rounded is None)
        assert value is None or rounded == pytest.approx(value, rel=0.5 * 10 ** (1 - digits), abs=1e-300)


def test_the_course_of_the_memory_is_its_highest_value_in_each_part_of_the_run() -> None:
    growing = [step(1000 * number, memory_mb=float(number)) for number in range(1, 49)]
    assert memory_course(series_of(growing)) == "134679acdfgijkmnpqstvwyz"
    assert memory_course(series_of([step(1000, memory_mb=70.0), step(24_000, memory_mb=35.0)])) == "z" + 23 * "i"
    gap = [step(1000, memory_mb=70.0), step(23_000, memory_mb=None), step(24_000, memory_mb=0.0)]
    assert memory_course(series_of(gap)) == "z" + 22 * "-" + "0"


def test_a_run_with_less_than_two_values_has_no_course() -> None:
    unknown = step(2000, memory_mb=None)
    for steps in ((), (step(1000),), (step(1000), unknown), (step(0), step(0)), (step(1000, memory_mb=0.0),) * 2):
        assert memory_course(series_of(steps)) is None


@given(st.lists(st.tuples(st.integers(-5, 10**9), st.none() | st.floats(0, 1e18)), max_size=40))
def test_any_steps_have_a_course_of_digits(steps: list[tuple[int, float | None]]) -> None:
    course = memory_course(series_of(step(elapsed_ms, memory_mb=mb) for elapsed_ms, mb in steps))
    assert course is None or (len(course) == 24 and all(one == "-" or one.isalnum() for one in course))

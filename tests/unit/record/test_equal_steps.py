"""The record's time series in longer steps, and with columns of the same length."""

from profiler.record.equal_steps import (
    longest_column_length,
    padded_series,
    rounded_column,
    with_longer_steps,
)
from profiler.record.record_model import Series

STARTED_AT = "2026-11-01T06:00:00.000Z"


def test_a_longer_step_has_the_mean_and_the_highest_memory() -> None:
    series = Series(
        started_at=STARTED_AT,
        step_ms=1000,
        vcpu_used=(1.0, 2.0, 4.0),
        memory_used_mb=(10.0, 30.0, 20.0),
    )
    longer = with_longer_steps(series, 2000)
    assert longer.step_ms == 2000
    assert longer.vcpu_used == (1.5, 4.0)
    assert longer.memory_used_mb == (30.0, 20.0)


def test_a_longer_step_is_a_hole_only_if_nothing_in_it_was_measured() -> None:
    series = Series(started_at=STARTED_AT, step_ms=1000, vcpu_used=(None, 2.0, None, None))
    assert with_longer_steps(series, 2000).vcpu_used == (2.0, None)


def test_a_column_that_was_not_measured_stays_absent() -> None:
    series = Series(started_at=STARTED_AT, step_ms=1000, vcpu_used=(1.0,))
    assert with_longer_steps(series, 4000).memory_used_mb is None
    assert padded_series(series, 3).memory_used_mb is None


def test_the_shorter_column_ends_with_holes() -> None:
    series = Series(
        started_at=STARTED_AT, step_ms=1000, vcpu_used=(1.0,), memory_used_mb=(10.0, 20.0)
    )
    assert longest_column_length(series) == 2
    assert padded_series(series, 3).vcpu_used == (1.0, None, None)
    assert padded_series(series, 3).memory_used_mb == (10.0, 20.0, None)


def test_a_column_has_three_significant_digits_or_is_absent_without_values() -> None:
    assert rounded_column([0.12345, None, 1234.5]) == (0.123, None, 1230.0)
    assert rounded_column([None, None]) is None
    assert rounded_column([]) is None

"""The time series of a run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.history.history_points import Point
from profiler.html_report.page_runs import (
    downsample,
    series_of_steps,
    steps_of_checkpoints,
    steps_of_points,
    steps_of_series,
)
from profiler.record.record_model import Distribution, Interval, Metrics, Report, Series
from tests.report_page import checkpoint, report, step


def io_checkpoint(minute: int, read_bytes: int | None, write_bytes: int | None) -> Report:
    """A checkpoint with the bytes read and written since the run's start."""
    one = checkpoint("a", minute)
    totals = Metrics(block_read_bytes=read_bytes, block_write_bytes=write_bytes)
    return replace(one, record=replace(one.record, metrics=totals))


def test_a_point_of_the_history_is_a_step() -> None:
    points = (Point(elapsed_ms=1000, vcpu_used=0.5, memory_used_bytes=3 * 2**20),)
    assert steps_of_points(points) == (step(1000, 0.5, 3.0),)
    more = replace(points[0], block_read_bytes=7, block_write_bytes=0, gpu_percent=50.0, gpu_memory_bytes=2**31)
    assert steps_of_points([more]) == (
        step(1000, 0.5, 3.0, block_read_bytes=7, block_write_bytes=0, gpu_percent=50.0, gpu_memory_mb=2048.0),
    )


def test_unknown_values_of_a_point_stay_unknown() -> None:
    assert steps_of_points((Point(elapsed_ms=7, vcpu_used=None, memory_used_bytes=None),)) == (step(7, None, None),)


def test_checkpoints_are_steps_in_the_order_of_time() -> None:
    assert steps_of_checkpoints([checkpoint("a", 2), checkpoint("a", 1, vcpu=None, memory_mb=None)]) == (
        step(60_000, None, None),
        step(120_000, 0.5, 100.0),
    )


def test_the_size_turns_the_percentage_of_a_checkpoint_into_vcpu() -> None:
    interval = Interval(cpu_utilization_percent=Distribution(avg=50.0), memory_used_mb=Distribution(avg=5.0))
    one = report(minute=1, kind="task.checkpoint", metrics=Metrics(vcpu_size=0.5), interval=interval)
    assert steps_of_checkpoints([one]) == (step(60_000, 0.25, 5.0),)


def test_steps_have_the_growth_of_the_totals_between_checkpoints() -> None:
    lines = [io_checkpoint(2, 150, 8), io_checkpoint(1, 100, None), io_checkpoint(3, None, 8), io_checkpoint(4, 175, 9)]
    steps = steps_of_checkpoints(lines)
    assert [(one.block_read_bytes, one.block_write_bytes) for one in steps] == [
        (100, None),
        (50, 8),
        (None, 0),
        (25, 1),
    ]
    assert all(one.gpu_percent is None and one.gpu_memory_mb is None for one in steps)


def test_totals_that_start_again_give_no_negative_growth() -> None:
    steps = steps_of_checkpoints([io_checkpoint(1, 100, 5), io_checkpoint(2, 30, 6)])
    assert [(one.block_read_bytes, one.block_write_bytes) for one in steps] == [(100, 5), (30, 1)]


def test_downsampling_keeps_all_bytes_and_of_the_gpus_the_average_and_the_largest_memory() -> None:
    steps = (
        step(1000, block_read_bytes=5, gpu_percent=10.0, gpu_memory_mb=1.0),
        step(4000, block_read_bytes=7, block_write_bytes=1, gpu_percent=30.0, gpu_memory_mb=3.0),
        step(5000, gpu_memory_mb=2.0),
        step(6000),
    )
    assert downsample(steps, 2) == (
        step(4000, block_read_bytes=12, block_write_bytes=1, gpu_percent=25.0, gpu_memory_mb=3.0),
        step(6000, gpu_memory_mb=2.0),
    )


@given(st.lists(st.none() | st.integers(0, 2**40), max_size=300), st.integers(1, 50))
def test_downsampling_keeps_every_byte(grown_bytes: list[int | None], max_steps: int) -> None:
    steps = [step(1000 * place, block_read_bytes=grown) for place, grown in enumerate(grown_bytes, start=1)]
    total_bytes = sum(grown or 0 for grown in grown_bytes)
    assert sum(one.block_read_bytes or 0 for one in downsample(steps, max_steps)) == total_bytes


def test_downsampling_keeps_the_largest_memory_and_the_average_cpu() -> None:
    steps = (step(1000, 1.0, 10.0), step(4000, 2.0, 30.0), step(5000, None, 20.0), step(6000, 3.0, None))
    assert downsample(steps, 2) == (step(4000, 1.75, 30.0), step(6000, 3.0, 20.0))


@given(st.lists(st.floats(0, 64), max_size=300), st.integers(1, 50))
def test_downsampling_keeps_cpu_time_and_peak(vcpus: list[float], max_steps: int) -> None:
    steps = [step(1000 * place, vcpu, vcpu) for place, vcpu in enumerate(vcpus, start=1)]
    fewer = downsample(steps, max_steps)
    assert len(fewer) <= max_steps
    starts = [0, *(one.elapsed_ms for one in fewer)]
    cpu_ms = sum((one.vcpu_used or 0) * (one.elapsed_ms - start) for one, start in zip(fewer, starts, strict=False))
    assert cpu_ms == pytest.approx(1000 * sum(vcpus))
    assert max((one.memory_used_mb or 0 for one in fewer), default=0) == max(vcpus, default=0)


def test_the_series_of_a_record_is_steps_that_end_with_the_run() -> None:
    series = Series(
        started_at="2026-11-01T06:00:00.000Z",
        step_ms=1000,
        vcpu_used=(0.5, None, 0.7),
        memory_used_mb=(10.0, 20.0),
        neuron_utilization_percent=(None, 50.0, None),
    )
    record = replace(report(metrics=Metrics(duration_ms=2600)).record, series=series)
    assert steps_of_series(record) == (
        step(1000, 0.5, 10.0),
        step(2000, None, 20.0, neuron_percent=50.0),
        step(2600, 0.7, None),
    )
    assert steps_of_series(report().record) == ()


def test_steps_of_any_length_become_a_series_with_gaps() -> None:
    series = series_of_steps("2026-11-01T06:00:00.000Z", (step(1000, 1.0, 5.0), step(3000, None, 7.0), step(4000)))
    assert series is not None
    assert (series.step_ms, series.vcpu_used, series.memory_used_mb) == (
        1000,
        (1.0, None, None, 1.0),
        (5.0, 7.0, 7.0, 10.0),
    )
    assert series_of_steps("", ()) is None

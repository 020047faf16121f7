"""The time series of a run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.aggregation.time_series import RunSeries
from profiler.record.record_model import Metrics, Series
from profiler.runs.step_series import (
    decode_steps,
    downsample,
    encode_steps,
    steps_of_checkpoints,
    steps_of_collected_series,
    steps_of_record,
    with_equal_steps,
)
from tests.fakes import START_NS, seconds
from tests.report_page import checkpoint, report, rows, series_of, step
from tests.values import present


def test_checkpoints_are_steps_in_the_order_of_time() -> None:
    """Checkpoints are steps in the order of time and a time without one is a hole."""
    unmeasured = checkpoint(1, vcpu=None, memory_mb=None)
    expected = (step(60_000, None, None), step(120_000, 0.5, 100.0))
    assert rows(steps_of_checkpoints([checkpoint(2), unmeasured])) == expected

    # The checkpoints of minutes 2 and 3 are missing.
    steps = steps_of_checkpoints([checkpoint(1), checkpoint(4, begun=3, vcpu=0.9)])
    assert rows(steps) == (
        step(60_000, 0.5, 100.0),
        step(180_000, None, None),
        step(240_000, 0.9, 100.0),
    )
    shown = present(with_equal_steps(steps, "2026-11-01T06:00:00.000Z"))
    assert shown.vcpu_used == (0.5, None, None, 0.9)


def test_steps_have_the_growth_of_the_totals_between_checkpoints() -> None:
    """One checkpoint begins where the one before it ended."""
    lines = []
    for minute, read_bytes, write_bytes in ((2, 150, 8), (1, 100, None), (3, None, 8), (4, 175, 9)):
        totals = Metrics(block_read_bytes=read_bytes, block_write_bytes=write_bytes)
        lines.append(checkpoint(minute, begun=minute - 1, metrics=totals))
    steps = steps_of_checkpoints(lines)
    assert steps.block_read_bytes == (100, 50, None, 25)
    assert steps.block_write_bytes == (None, 8, 0, 1)
    assert not steps.gpu_percent


def test_downsampling_keeps_all_bytes_and_of_the_gpus_the_average_and_the_largest_memory() -> None:
    steps = (
        step(1000, block_read_bytes=5, gpu_percent=10.0, gpu_memory_mb=1.0),
        step(4000, block_read_bytes=7, block_write_bytes=1, gpu_percent=30.0, gpu_memory_mb=3.0),
        step(5000, block_write_bytes=2, gpu_memory_mb=2.0),
        step(6000, block_write_bytes=3),
    )
    assert rows(downsample(series_of(steps), 2)) == (
        step(4000, block_read_bytes=12, block_write_bytes=1, gpu_percent=25.0, gpu_memory_mb=3.0),
        step(6000, block_write_bytes=5, gpu_memory_mb=2.0),
    )


@given(st.lists(st.floats(0, 64), max_size=300), st.integers(1, 50))
def test_downsampling_keeps_cpu_time_and_peak(vcpus: list[float], max_steps: int) -> None:
    steps = [step(1000 * place, vcpu, vcpu) for place, vcpu in enumerate(vcpus, start=1)]
    fewer = rows(downsample(series_of(steps), max_steps))
    assert len(fewer) <= max_steps
    starts = [0, *(one.ends_ms for one in fewer)]
    cpu_ms = sum(
        (one.vcpu_used or 0) * (one.ends_ms - start)
        for one, start in zip(fewer, starts, strict=False)
    )
    assert cpu_ms == pytest.approx(1000 * sum(vcpus))
    assert max((one.memory_mb or 0 for one in fewer), default=0) == max(vcpus, default=0)


def test_the_series_of_a_record_is_steps_that_end_with_the_run() -> None:
    series = Series(
        started_at="2026-11-01T06:00:00.000Z",
        step_ms=1000,
        vcpu_used=(0.5, None, 0.7),
        memory_used_mb=(10.0, 20.0),
        neuron_utilization_percent=(None, 50.0, None),
    )
    record = replace(report(metrics=Metrics(duration_ms=2600)).record, series=series)
    assert rows(steps_of_record(record)) == (
        step(1000, 0.5, 10.0),
        step(2000, None, 20.0, neuron_percent=50.0),
        step(2600, 0.7, None),
    )
    assert rows(steps_of_record(report().record)) == ()


def test_steps_of_any_length_become_a_series_with_gaps() -> None:
    steps = series_of((step(1000, 1.0, 5.0), step(3000, None, 7.0), step(4000)))
    series = present(with_equal_steps(steps, "2026-11-01T06:00:00.000Z"))
    assert series.step_ms == 1000
    assert series.vcpu_used == (1.0, None, None, 1.0)
    assert series.memory_used_mb == (5.0, 7.0, 7.0, 10.0)
    assert with_equal_steps(series_of(()), "") is None


def collected_series() -> RunSeries:
    """Two steps of one second and half of a third one."""
    collected = RunSeries(START_NS, seconds(1), 10)
    collected.add_cpu(START_NS, START_NS + seconds(2), seconds(1))
    collected.add_cpu(START_NS + seconds(2), START_NS + seconds(2.5), seconds(0.3))
    collected.add_memory(START_NS + seconds(1), 10, held_ns=seconds(1))
    collected.add_blocks(START_NS + seconds(1.5), 4096, 0)
    return collected


def test_a_step_is_a_row_and_the_last_one_ends_with_the_run() -> None:
    assert steps_of_collected_series(collected_series(), None).ends_ms == [1000, 2000, 3000]
    assert steps_of_collected_series(collected_series(), 10).ends_ms == [10, 1000, 2000]
    assert steps_of_collected_series(RunSeries(START_NS, seconds(1), 10), 5).ends_ms == []
    text = encode_steps(steps_of_collected_series(collected_series(), 2500.4))
    assert text == b"[[1000,0.5,10],[2000,0.5,null,4096,0],[2500,0.6,null]]"
    assert rows(decode_steps(text))[1] == step(
        2000, 0.5, None, block_read_bytes=4096, block_write_bytes=0
    )

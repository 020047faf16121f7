import sys
from collections.abc import Iterator, Sequence
from threading import Thread

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.history.timeline import MAX_POINTS, Point, Timeline, decode_points, encode_points
from profiler.readers.ecs.container_stats import ContainerSample
from tests.fakes import START_NS, sample, seconds

GIB = 2**30
Growth = tuple[int | None, int | None]
GpuReading = tuple[float | None, int | None]


def timeline(*samples: tuple[float, float | None, int | None], max_points: int = MAX_POINTS) -> tuple[Point, ...]:
    """The points of samples given as (seconds after the start, CPU seconds so far, bytes)."""
    collected = Timeline(max_points)
    for at, cpu_seconds, memory_bytes in samples:
        collected.add(sample(START_NS + seconds(at), cpu_seconds, memory_bytes))
    return collected.points(START_NS)


def shown(points: tuple[Point, ...]) -> list[tuple[int, float | None, int | None]]:
    return [(point.elapsed_ms, point.vcpu_used, point.memory_used_bytes) for point in points]


def test_a_point_a_sample() -> None:
    points = timeline((1, 0.5, 10), (2, 2.5, 30), (4, 2.5, 20))
    assert shown(points) == [(1000, 0.5, 10), (2000, 2.0, 30), (4000, 0.0, 20)]


def test_no_samples_no_points() -> None:
    assert timeline() == ()


def test_a_repeated_sample_is_ignored() -> None:
    assert shown(timeline((1, 0.5, 10), (1, 0.5, 99), (0.5, 0.1, 99))) == [(1000, 0.5, 10)]


def test_an_unknown_value_is_none_and_the_counter_continues() -> None:
    points = timeline((1, 1, 10), (2, None, None), (3, 2, None))
    assert shown(points) == [(1000, 1.0, 10), (2000, None, None), (3000, 0.5, None)]


def test_a_counter_that_is_reset_gives_no_negative_usage() -> None:
    assert shown(timeline((1, 5, None), (2, 1, None))) == [(1000, 5.0, None), (2000, 1.0, None)]


def test_neighbours_are_merged_when_the_maximum_is_reached() -> None:
    points = timeline(*((at, at * at / 10, 100 - at) for at in range(1, 6)), max_points=4)
    assert shown(points) == [(2000, 0.2, 99), (4000, 0.6, 97), (5000, 0.9, 95)]


def test_the_resolution_is_the_same_over_the_whole_run() -> None:
    points = timeline(*((at, at, None) for at in range(1, 65)), max_points=10)
    assert [point.elapsed_ms for point in points] == [8000 * step for step in range(1, 9)]


def test_a_run_of_a_day_keeps_its_spike() -> None:
    collected = Timeline()
    for at in range(1, 100_001):
        collected.add(sample(START_NS + seconds(at), at / 2, GIB if at == 33_333 else 1000))
    points = collected.points(START_NS)
    assert len(points) == 100_000 / 16
    assert [point.elapsed_ms for point in points if point.memory_used_bytes == GIB] == [33_344_000]
    assert {point.vcpu_used for point in points} == {0.5}
    assert points[-1].elapsed_ms == 100_000_000


STEPS = st.tuples(
    st.integers(1, 10 * NS_PER_SECOND),
    st.none() | st.integers(0, 64 * NS_PER_SECOND),
    st.none() | st.integers(0, 2**45),
)


@given(st.lists(STEPS, max_size=200), st.integers(1, 20))
@example([(NS_PER_SECOND, None, None)] * 3, 1)
def test_however_long_the_run(steps: list[tuple[int, int | None, int | None]], max_points: int) -> None:
    collected = Timeline(max_points)
    at_ns, cpu_ns = START_NS, 0
    for step_ns, grown_ns, memory_bytes in steps:
        at_ns += step_ns
        cpu_ns += grown_ns or 0
        known_ns = None if grown_ns is None else cpu_ns
        collected.add(ContainerSample(read_ns=at_ns, cpu_ns=known_ns, memory_used_bytes=memory_bytes))
    points = collected.points(START_NS)
    assert len(points) <= max_points
    assert len(points) >= min(len(steps), 1)
    if steps:
        assert points[-1].elapsed_ms == pytest.approx((at_ns - START_NS) / NS_PER_MS, abs=1)
    elapsed = [point.elapsed_ms for point in points]
    assert elapsed == sorted(elapsed)
    seen = [memory_bytes for _, _, memory_bytes in steps if memory_bytes is not None]
    kept = [point.memory_used_bytes for point in points if point.memory_used_bytes is not None]
    assert max(kept, default=None) == max(seen, default=None)
    assert all(point.vcpu_used is None or point.vcpu_used >= 0 for point in points)


@given(st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 64_000)), max_size=300), st.integers(1, 20))
def test_no_cpu_time_is_lost(steps_ms: list[tuple[int, int]], max_points: int) -> None:
    collected = Timeline(max_points)
    at_ms = cpu_ms = 0
    for step_ms, grown_ms in steps_ms:
        at_ms += step_ms
        cpu_ms += grown_ms
        collected.add(sample(START_NS + at_ms * NS_PER_MS, cpu_ms / 1000))
    total_ms, last_ms = 0.0, 0
    for point in collected.points(START_NS):
        assert point.vcpu_used is not None
        total_ms += point.vcpu_used * (point.elapsed_ms - last_ms)
        last_ms = point.elapsed_ms
    assert total_ms == pytest.approx(cpu_ms, abs=1 + at_ms * 1e-5)


def io(*samples: tuple[float, int | None, int | None], max_points: int = MAX_POINTS) -> list[Growth]:
    """Read and written of the points, of samples given as (seconds after the start, read so far, written so far)."""
    collected = Timeline(max_points)
    for at, read_bytes, write_bytes in samples:
        read_ns = START_NS + seconds(at)
        collected.add(ContainerSample(read_ns=read_ns, block_read_bytes=read_bytes, block_write_bytes=write_bytes))
    return [(point.block_read_bytes, point.block_write_bytes) for point in collected.points(START_NS)]


def test_bytes_read_and_written_are_the_growth_of_the_counters() -> None:
    assert io((1, 100, 7), (2, 100, 10), (3, 350, 10)) == [(100, 7), (0, 3), (250, 0)]


def test_unknown_growth_is_added_to_the_next_known_point() -> None:
    assert io((1, 100, None), (2, None, None), (3, 350, 9)) == [(100, None), (None, None), (250, 9)]


def test_a_byte_counter_that_is_reset_loses_nothing() -> None:
    assert io((1, 100, None), (2, 30, None)) == [(100, None), (30, None)]


def test_merged_points_have_the_bytes_of_both() -> None:
    assert io((1, 100, 1), (2, 150, None), (3, 175, 5), (4, None, 6), max_points=2) == [(150, 1), (25, 5)]


COUNTED = st.tuples(st.none() | st.integers(0, 2**40), st.none() | st.integers(0, 2**40))


@given(st.lists(COUNTED, max_size=200), st.integers(1, 20))
def test_no_byte_is_lost(steps: list[tuple[int | None, int | None]], max_points: int) -> None:
    """All points together have what the counters showed last, however often neighbours were merged."""
    samples: list[tuple[float, int | None, int | None]] = []
    totals = [0, 0]
    shown: list[int | None] = [None, None]
    for at, grown in enumerate(steps, start=1):
        totals = [total + (more or 0) for total, more in zip(totals, grown, strict=True)]
        now = [None if more is None else total for total, more in zip(totals, grown, strict=True)]
        shown = [before if value is None else value for before, value in zip(shown, now, strict=True)]
        samples.append((at, now[0], now[1]))
    points = io(*samples, max_points=max_points)
    for column, total_bytes in enumerate(shown):
        known = [growth for point in points if (growth := point[column]) is not None]
        assert (sum(known) if known else None) == total_bytes


def gpus(*samples: tuple[Sequence[GpuReading], float], max_points: int = MAX_POINTS) -> list[GpuReading]:
    """The GPU numbers of the points, of samples given as (what was read before it, seconds after the start)."""
    collected = Timeline(max_points)
    for readings, at in samples:
        for percent, memory_bytes in readings:
            collected.add_gpu(percent, memory_bytes)
        collected.add(sample(START_NS + seconds(at)))
    return [(point.gpu_percent, point.gpu_memory_bytes) for point in collected.points(START_NS)]


def test_a_gpu_reading_belongs_to_the_step_in_which_it_arrives() -> None:
    assert gpus(([(50.0, 10), (80.0, 30)], 1), ([], 2), ([(0.0, 0)], 3)) == [(65.0, 30), (None, None), (0.0, 0)]


def test_unmeasured_gpu_values_are_none() -> None:
    assert gpus(([(None, 10), (40.0, None)], 1), ([(None, None)], 2)) == [(40.0, 10), (None, None)]


def test_merged_points_have_the_mean_of_all_readings_and_the_most_memory() -> None:
    merged = gpus(([(30.0, 5)], 1), ([(60.0, 9), (90.0, 7)], 2), ([], 3), ([(10.0, 1)], 4), max_points=2)
    assert merged == [(60.0, 9), (10.0, 1)]


def test_a_repeated_sample_ends_no_step_of_the_gpus() -> None:
    assert gpus(([(10.0, 1)], 1), ([(20.0, 2)], 1), ([(40.0, 1)], 2)) == [(10.0, 1), (30.0, 2)]


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads switch as often as Python allows."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hasty_threads")
def test_no_reading_of_the_gpus_is_lost_between_two_threads() -> None:
    collected = Timeline()
    readings = 20_000

    def read() -> None:
        for reading in range(readings):
            collected.add_gpu(100.0, reading)

    reader = Thread(target=read)
    reader.start()
    at_ns = START_NS
    while reader.is_alive():
        at_ns += NS_PER_MS
        collected.add(sample(at_ns))
    reader.join()
    collected.add(sample(at_ns + NS_PER_MS))
    counted = sum(mark.gpu.readings for mark in collected._steps)
    assert counted == readings
    assert max(point.gpu_memory_bytes or 0 for point in collected.points(START_NS)) == readings - 1


def test_points_are_kept_as_text_that_sql_can_read() -> None:
    points = timeline((1, 0.5, 10), (2, None, None))
    assert encode_points(points) == b"[[1000,0.5,10],[2000,null,null]]"
    assert decode_points(encode_points(points)) == points


def test_unknown_fields_at_the_end_of_a_point_are_not_written() -> None:
    known = Point(elapsed_ms=1, vcpu_used=None, memory_used_bytes=None, block_read_bytes=4096, block_write_bytes=0)
    points = (known, replace(known, block_read_bytes=None, block_write_bytes=None, gpu_percent=50.5))
    assert encode_points(points) == b"[[1,null,null,4096,0],[1,null,null,null,null,50.5]]"
    assert decode_points(encode_points(points)) == points


def test_points_of_older_and_newer_programs_can_be_read() -> None:
    (old,) = decode_points(b"[[1000,0.5,10]]")
    assert old == Point(elapsed_ms=1000, vcpu_used=0.5, memory_used_bytes=10)
    (new,) = decode_points(b'[[1000,0.5,10,1,2,3.0,4,"later"]]')
    assert (new.block_read_bytes, new.block_write_bytes, new.gpu_percent, new.gpu_memory_bytes) == (1, 2, 3, 4)

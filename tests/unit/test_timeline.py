import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from profiler.points import Point, decode_points, encode_points
from profiler.sources.container_stats import ContainerSample
from profiler.timeline import MOST_POINTS, Timeline
from profiler.times import NS_PER_MS, NS_PER_SECOND
from tests.fakes import START_NS, sample, seconds

GIB = 2**30


def timeline(*samples: tuple[float, float | None, int | None], most_points: int = MOST_POINTS) -> tuple[Point, ...]:
    """The points of samples given as (seconds after the start, CPU seconds so far, bytes)."""
    collected = Timeline(most_points)
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


def test_a_repeated_sample_is_none() -> None:
    assert shown(timeline((1, 0.5, 10), (1, 0.5, 99), (0.5, 0.1, 99))) == [(1000, 0.5, 10)]


def test_what_was_not_measured_is_none_and_the_counter_goes_on() -> None:
    points = timeline((1, 1, 10), (2, None, None), (3, 2, None))
    assert shown(points) == [(1000, 1.0, 10), (2000, None, None), (3000, 0.5, None)]


def test_a_counter_that_begins_again_is_no_negative_use() -> None:
    assert shown(timeline((1, 5, None), (2, 1, None))) == [(1000, 5.0, None), (2000, 1.0, None)]


def test_neighbours_are_merged_when_all_places_are_taken() -> None:
    points = timeline(*((at, at * at / 10, 100 - at) for at in range(1, 6)), most_points=4)
    assert shown(points) == [(2000, 0.2, 99), (4000, 0.6, 97), (5000, 0.9, 95)]


def test_the_resolution_is_the_same_over_the_whole_run() -> None:
    points = timeline(*((at, at, None) for at in range(1, 65)), most_points=10)
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
def test_however_long_the_run(steps: list[tuple[int, int | None, int | None]], most_points: int) -> None:
    collected = Timeline(most_points)
    at_ns, cpu_ns = START_NS, 0
    for step_ns, grown_ns, memory_bytes in steps:
        at_ns += step_ns
        cpu_ns += grown_ns or 0
        known_ns = None if grown_ns is None else cpu_ns
        collected.add(ContainerSample(read_ns=at_ns, cpu_ns=known_ns, memory_used_bytes=memory_bytes))
    points = collected.points(START_NS)
    assert len(points) <= most_points
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
def test_no_cpu_time_is_lost(steps_ms: list[tuple[int, int]], most_points: int) -> None:
    collected = Timeline(most_points)
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


def test_points_are_kept_as_text_that_sql_can_read() -> None:
    points = timeline((1, 0.5, 10), (2, None, None))
    assert encode_points(points) == b"[[1000,0.5,10],[2000,null,null]]"
    assert decode_points(encode_points(points)) == points

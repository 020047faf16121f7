from msgspec.structs import replace

from profiler.aggregation.time_series import DeviceReadings, RunSeries
from profiler.history.history_points import Point, decode_points, encode_points, points_of
from tests.fakes import START_NS, seconds


def series() -> RunSeries:
    """Two steps of one second and half of a third one."""
    collected = RunSeries(START_NS, seconds(1), 10)
    collected.add_cpu(START_NS, START_NS + seconds(2), seconds(1))
    collected.add_cpu(START_NS + seconds(2), START_NS + seconds(2.5), seconds(0.3))
    collected.add_memory(START_NS + seconds(1), 10, held_ns=seconds(1))
    collected.add_blocks(START_NS + seconds(1.5), 4096, 0)
    return collected


def test_a_step_is_a_point_and_the_last_one_ends_with_the_run() -> None:
    assert points_of(series(), 2500.4) == (
        Point(elapsed_ms=1000, vcpu_used=0.5, memory_used_bytes=10),
        Point(elapsed_ms=2000, vcpu_used=0.5, memory_used_bytes=None, block_read_bytes=4096, block_write_bytes=0),
        Point(elapsed_ms=2500, vcpu_used=0.6, memory_used_bytes=None),
    )
    assert [point.elapsed_ms for point in points_of(series(), None)] == [1000, 2000, 3000]
    assert [point.elapsed_ms for point in points_of(series(), 10)] == [10, 1000, 2000]
    assert points_of(RunSeries(START_NS, seconds(1), 10), 5) == ()


def test_the_gpus_have_their_mean_utilization_and_their_memory_together() -> None:
    readings = DeviceReadings()
    for percent in (30.0, 60.111):
        readings.gpu_percent.add(percent)
    readings.gpus_memory_bytes = 7
    collected = series()
    collected.add_devices(START_NS, readings)
    points = points_of(collected, None)
    assert [(point.gpu_percent, point.gpu_memory_bytes) for point in points[:2]] == [(45.06, 7), (None, None)]


def test_points_are_kept_as_text_that_sql_can_read() -> None:
    points = points_of(series(), 2500)
    assert encode_points(points) == b"[[1000,0.5,10],[2000,0.5,null,4096,0],[2500,0.6,null]]"
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

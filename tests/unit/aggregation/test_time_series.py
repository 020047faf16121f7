import math

from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.time_series import RunSeries, SeriesValues
from tests.fakes import seconds

START_NS = seconds(1_700_000_000)
MIB = 1024 * 1024


def series(points: int = 2) -> RunSeries:
    return RunSeries(START_NS, seconds(1), points)


def values(of: RunSeries) -> SeriesValues:
    found = of.values()
    assert found is not None
    return found


def test_nothing_measured_is_no_series() -> None:
    assert series().values() is None


def test_a_step_is_the_mean_of_its_cpu_and_the_maximum_of_its_memory() -> None:
    run = series()
    run.add_cpu(START_NS, START_NS + seconds(2), seconds(1))
    run.add_cpu(START_NS + seconds(3), START_NS + seconds(4), seconds(2))
    for at, size in ((0.2, 10), (0.7, 30), (0.9, 20), (3.5, 5)):
        run.add_memory(START_NS + seconds(at), size * MIB)
    found = values(run)
    assert (found.step_ms, found.started_ns) == (1000, START_NS)
    assert found.vcpu_used == (0.5, 0.5, None, 2.0)
    assert found.memory_used_mb == (30, None, None, 5)
    assert (found.gpu_percent, found.neuron_percent) == (None, None)


def test_neighbours_merge_when_the_run_outgrows_the_buffer() -> None:
    run = series(points=2)
    for second in range(9):
        run.add_cpu(START_NS + seconds(second), START_NS + seconds(second + 1), seconds(second))
        run.add_memory(START_NS + seconds(second), second * MIB)
    found = values(run)
    assert found.step_ms == 4000
    assert found.vcpu_used == (1.5, 5.5, 8.0)
    assert found.memory_used_mb == (3, 7, 8)


def test_devices_are_the_mean_of_all_readings_of_all_devices() -> None:
    run = series(points=1)
    run.add_gpu(START_NS, [0, 100])
    run.add_gpu(START_NS + seconds(2), [])
    run.add_gpu(START_NS + seconds(3), [20])
    run.add_neuron(START_NS + seconds(3), [7])
    found = values(run)
    assert found.gpu_percent == (50, 20)
    assert found.neuron_percent == (None, 7)


def test_three_significant_digits() -> None:
    run = series()
    run.add_cpu(START_NS, START_NS + seconds(3), seconds(1))
    run.add_memory(START_NS, 123_456 * MIB)
    found = values(run)
    assert found.vcpu_used == (0.333, 0.333, 0.333)
    assert found.memory_used_mb == (123_000, None, None)


def test_what_was_measured_before_the_start_counts_from_the_start() -> None:
    run = series()
    run.add_cpu(START_NS - seconds(5), START_NS + seconds(1), seconds(1))
    run.add_cpu(START_NS - seconds(5), START_NS - seconds(4), seconds(1))
    run.add_memory(START_NS - seconds(5), 7 * MIB)
    assert values(run).vcpu_used == (1,)
    assert values(run).memory_used_mb == (7,)


STEPS = st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 10**11), st.integers(0, 10**12)), min_size=1)


@given(steps=STEPS, points=st.integers(1, 240), step_ns=st.integers(1, seconds(10)))
def test_merging_loses_no_cpu_time_and_the_buffer_keeps_its_size(
    steps: list[tuple[int, int, int]], points: int, step_ns: int
) -> None:
    run = RunSeries(START_NS, step_ns, points)
    for offset_ns, length_ns, cpu_ns in steps:
        run.add_cpu(START_NS + offset_ns, START_NS + offset_ns + length_ns, cpu_ns)
    assert run.cpu_ns == sum(cpu_ns for _, _, cpu_ns in steps)
    found = values(run)
    assert found.vcpu_used is not None
    assert len(found.vcpu_used) <= 2 * points
    assert math.log2(found.step_ms * 1e6 / step_ns).is_integer()


@given(readings=st.lists(st.tuples(st.integers(0, 10**13), st.integers(0, 2**50)), min_size=1))
def test_the_largest_memory_is_in_the_series(readings: list[tuple[int, int]]) -> None:
    run = series(points=30)
    for offset_ns, size_bytes in readings:
        run.add_memory(START_NS + offset_ns, size_bytes)
    sizes = values(run).memory_used_mb
    assert sizes is not None
    largest_mb = max(size_bytes for _, size_bytes in readings) / MIB
    assert max(size for size in sizes if size is not None) == float(f"{largest_mb:.3g}")

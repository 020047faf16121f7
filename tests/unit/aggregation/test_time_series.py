import math
from collections.abc import Collection, Iterable

from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.statistics import DeviceReadings
from profiler.aggregation.time_series import RunSeries
from profiler.record.equal_steps import with_columns_of
from profiler.record.record_model import Series
from tests.fakes import seconds
from tests.values import present

START_NS = seconds(1_700_000_000)
MIB = 1024 * 1024


def series(points: int = 2) -> RunSeries:
    return RunSeries(START_NS, seconds(1), points)


def values(of: RunSeries) -> Series:
    return present(of.series_so_far())


def devices(gpus: Iterable[float] = (), cores: Iterable[float] = ()) -> DeviceReadings:
    readings = DeviceReadings()
    for percent in gpus:
        readings.gpu_percent.add_reading(percent)
    for percent in cores:
        readings.neuron_percent.add_reading(percent)
    return readings


def test_a_step_is_the_mean_of_its_cpu_and_the_maximum_of_its_memory() -> None:
    run = series()
    run.add_cpu(START_NS, START_NS + seconds(2), seconds(1))
    run.add_cpu(START_NS + seconds(3), START_NS + seconds(4), seconds(2))
    for at, size in ((0.2, 10), (0.7, 30), (0.9, 20), (3.5, 5)):
        run.add_memory(START_NS + seconds(at), size * MIB)
    found = values(run)
    assert found.step_ms == 1000
    assert found.started_at == "2023-11-14T22:13:20.000Z"
    assert found.vcpu_used == (0.5, 0.5, None, 2.0)
    assert found.memory_used_mb == (30, None, None, 5)
    assert found.gpu_utilization_percent is None
    assert found.neuron_utilization_percent is None


def test_neighbours_merge_when_the_run_outgrows_the_buffer() -> None:
    run = series(points=2)
    for second in range(9):
        run.add_cpu(START_NS + seconds(second), START_NS + seconds(second + 1), seconds(second))
        run.add_memory(START_NS + seconds(second), second * MIB)
    found = values(run)
    assert found.step_ms == 4000
    assert found.vcpu_used == (1.5, 5.5, 8.0)
    assert found.memory_used_mb == (3, 7, 8)


def test_a_reading_of_memory_holds_since_the_one_before() -> None:
    run = series(points=3)
    run.add_memory(START_NS + seconds(3), 10 * MIB, held_ns=seconds(2))
    run.add_memory(START_NS + seconds(4), 5 * MIB, held_ns=seconds(20))
    assert values(run).memory_used_mb == (5, 10, 10, 5)


def test_devices_are_the_mean_of_all_readings_of_all_devices() -> None:
    run = series(points=1)
    run.add_devices(START_NS, devices(gpus=[0, 100]))
    run.add_devices(START_NS + seconds(2), devices())
    run.add_devices(START_NS + seconds(3), devices(gpus=[20], cores=[7]))
    found = values(run)
    assert found.gpu_utilization_percent == (50, 20)
    assert found.neuron_utilization_percent == (None, 7)


def test_what_was_measured_before_the_start_counts_from_the_start_with_three_significant_digits() -> (
    None
):
    run = series()
    run.add_cpu(START_NS - seconds(5), START_NS + seconds(3), seconds(1))
    run.add_cpu(START_NS - seconds(5), START_NS - seconds(4), seconds(1))
    run.add_memory(START_NS - seconds(5), 123_456 * MIB)
    assert values(run).vcpu_used == (0.333,) * 3
    assert values(run).memory_used_mb == (123_000, None, None)


STEPS = st.lists(
    st.tuples(st.integers(0, 10**12), st.integers(1, 10**11), st.integers(0, 10**12)), min_size=1
)


@given(steps=STEPS, points=st.integers(1, 240), step_ms=st.integers(1, 10_000))
def test_merging_loses_no_cpu_time_and_the_buffer_keeps_its_size(
    steps: list[tuple[int, int, int]], points: int, step_ms: int
) -> None:
    run = RunSeries(START_NS, step_ms * 1_000_000, points)
    for offset_ns, length_ns, cpu_ns in steps:
        run.add_cpu(START_NS + offset_ns, START_NS + offset_ns + length_ns, cpu_ns)
    assert sum(used_ns for used_ns, _ in run.cpu.cells) == sum(cpu_ns for _, _, cpu_ns in steps)
    found = values(run)
    assert len(present(found.vcpu_used)) <= 2 * points
    assert math.log2(found.step_ms / step_ms).is_integer()


@given(readings=st.lists(st.tuples(st.integers(0, 10**13), st.integers(0, 2**50)), min_size=1))
def test_the_largest_memory_is_in_the_series(readings: list[tuple[int, int]]) -> None:
    run = series(points=30)
    for offset_ns, size_bytes in readings:
        run.add_memory(START_NS + offset_ns, size_bytes)
    sizes = present(values(run).memory_used_mb)
    largest_mb = max(size_bytes for _, size_bytes in readings) / MIB
    assert max(size for size in sizes if size is not None) == float(f"{largest_mb:.3g}")


def with_finer_columns(
    run: Series | None, finer: RunSeries, names: Collection[str]
) -> Series | None:
    min_step_ms = 0 if run is None else run.step_ms
    added = finer.copy_within_limits(min_step_ms=min_step_ms).series_so_far()
    return with_columns_of(run, added, names)


def test_finer_columns_replace_those_of_a_series_and_are_merged_to_longer_steps() -> None:
    run, finer = series(), series()
    for second in range(4):
        run.add_cpu(START_NS, START_NS + seconds(4), seconds(1))
        run.add_devices(START_NS + seconds(second), devices(gpus=[second]))
    finer.add_cpu(START_NS, START_NS + seconds(2), seconds(4))
    found = with_finer_columns(values(run), finer, ["vcpu_used", "memory_used_mb"])
    assert found == Series(
        started_at=values(run).started_at,
        step_ms=1000,
        vcpu_used=(2, 2, None, None),
        gpu_utilization_percent=(0, 1, 2, 3),
    )
    run.add_devices(START_NS + seconds(7), devices(gpus=[50]))
    found = present(with_finer_columns(values(run), finer, ["vcpu_used"]))
    assert found.step_ms == 2000
    assert found.vcpu_used == (2, None, None, None)


def test_the_other_columns_are_merged_to_longer_steps_of_the_finer_ones() -> None:
    run, finer = series(), series()
    run.add_memory(START_NS, 5 * MIB)
    run.add_memory(START_NS + seconds(1), 7 * MIB)
    for second, percent in ((1, 10), (2, 20), (3, 40)):
        run.add_devices(START_NS + seconds(second), devices(gpus=[percent]))
    finer.add_cpu(START_NS, START_NS + seconds(5), seconds(5))
    found = present(with_finer_columns(values(run), finer, ["vcpu_used"]))
    assert found.step_ms == 2000
    assert found.vcpu_used == (1, 1, 1)
    assert found.memory_used_mb == (7, None, None)
    assert found.gpu_utilization_percent == (10, 30, None)


def test_without_another_series_the_finer_columns_are_the_series() -> None:
    finer = series()
    assert with_finer_columns(None, finer, ["vcpu_used"]) is None
    finer.add_cpu(START_NS, START_NS + seconds(2), seconds(1))
    finer.add_memory(START_NS, MIB)
    alone = with_finer_columns(None, finer, ["vcpu_used"])
    assert alone == Series(started_at=values(finer).started_at, step_ms=1000, vcpu_used=(0.5, 0.5))
    assert with_finer_columns(alone, finer, []) == alone
    other_start = RunSeries(START_NS + 1_000_000, seconds(1), 2)
    other_start.add_cpu(START_NS, START_NS + seconds(2), seconds(1))
    assert with_finer_columns(alone, other_start, ["vcpu_used"]) == alone


def blocks(run: RunSeries) -> list[tuple[int | None, int | None]]:
    length = run.step_count
    return list(zip(run.read.padded_cells(length), run.written.padded_cells(length), strict=True))


def test_bytes_read_and_written_belong_to_their_step_and_unknown_ones_to_none() -> None:
    run = series()
    run.add_blocks(START_NS, 100, None)
    run.add_blocks(START_NS + seconds(0.5), 7, None)
    run.add_blocks(START_NS + seconds(2), 0, 5)
    assert blocks(run) == [(107, None), (None, None), (0, 5)]
    held = series(points=5)  # several steps are spread, and less belongs to the step of its middle
    held.add_blocks(START_NS + seconds(3.1), 10, None, held_ns=seconds(3.1))
    held.add_blocks(START_NS + seconds(4.2), 8, None, held_ns=seconds(1.1))
    held.add_blocks(START_NS + seconds(5.1), 6, 1, held_ns=seconds(0.9))
    assert [read for read, _ in blocks(held)] == [3, 3, 4, 8, 6]


@given(
    st.lists(
        st.tuples(
            *(
                st.integers(0, 10**12),
                st.integers(0, 2**40),
                st.integers(0, 2**40),
                st.integers(0, 5 * 10**9),
            )
        ),
        min_size=1,
    )
)
def test_no_byte_is_lost(steps: list[tuple[int, int, int, int]]) -> None:
    run = series(points=5)
    for offset_ns, read_bytes, written_bytes, held_ns in steps:
        run.add_blocks(START_NS + offset_ns, read_bytes, written_bytes, held_ns=held_ns)
    totals = [sum(column or 0 for column in columns) for columns in zip(*blocks(run), strict=True)]
    assert totals == [
        sum(read for _, read, *_ in steps),
        sum(written for _, _, written, _ in steps),
    ]


def test_the_memory_of_all_gpus_together_is_the_largest_of_the_step() -> None:
    run = series()
    for at, size in ((0.2, 5), (0.7, 9), (1.5, 1)):
        readings = devices()
        readings.gpus_memory_bytes = size
        run.add_devices(START_NS + seconds(at), readings)
    assert run.gpus_memory.cells == [9, 1]


@given(steps=STEPS, points=st.integers(1, 60))
def test_a_finer_series_has_the_values_of_a_coarse_one_after_merging(
    steps: list[tuple[int, int, int]], points: int
) -> None:
    fine, coarse = series(points=240), series(points=points)
    for offset_ns, length_ns, cpu_ns in steps:
        for run in (fine, coarse):
            run.add_cpu(START_NS + offset_ns, START_NS + offset_ns + length_ns, cpu_ns)
            run.add_memory(START_NS + offset_ns + length_ns, cpu_ns, held_ns=length_ns)
    assert fine.copy_within_limits(max_steps=2 * points).series_so_far() == coarse.series_so_far()
    assert fine.step_count <= 480


def test_short_steps_double_until_they_are_the_interval() -> None:
    run = RunSeries(START_NS, seconds(1), 5000, finest_ns=20_000_000)
    lengths = {}
    for at_ns in range(0, seconds(200), 20_000_000):
        run.add_memory(START_NS + at_ns, at_ns)
        lengths[run.step_ns] = run.step_count
    assert lengths == {**{31_250_000 * 2**doubled: 120 for doubled in range(5)}, seconds(1): 200}
    assert run.copy_within_limits(max_steps=120).step_ns == seconds(2)


def written(of: RunSeries) -> list[int | None]:
    return of.written.padded_cells(of.step_count)


def test_the_bytes_written_in_the_steps_do_not_exceed_the_total() -> None:
    run = series(points=4)
    for second, size_bytes in ((1, 300), (2, 0), (3, 100)):
        run.add_blocks(START_NS + seconds(second) - 1, 5, size_bytes, held_ns=1)
    run.lower_written_bytes(101)
    assert written(run) == [75, 0, 25]
    run.lower_written_bytes(1000)
    assert written(run) == [75, 0, 25]
    run.lower_written_bytes(0)
    assert written(run) == [0, 0, 0]

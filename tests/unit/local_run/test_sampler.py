"""The memory of a command's control group and its peak in the record, and the time series of samples and devices."""

from collections.abc import Sequence

import pytest

from profiler.aggregation.process_totals import GroupPeak
from profiler.aggregation.time_series import DeviceReadings
from profiler.collectors.collector import Collector
from profiler.local_run.command_supervisor import CommandExit, ReapedUsage
from profiler.local_run.local_record import MemoryPeak, resolve_peak
from profiler.local_run.sampler import GroupMemory, SampleBuffer
from profiler.readers.cgroup.command_group import CommandCgroup
from profiler.readers.cgroup.hierarchy import MemoryReading
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux.process_tree import ProcessReading

_MIB = 2**20


class _Cgroup(CommandCgroup):
    """A fake group with given readings."""

    def __init__(self, readings: Sequence[MemoryReading | None], *, outside: Sequence[int] = ()) -> None:
        super().__init__()
        self._readings = list(readings)
        self._outside = outside

    def memory(self) -> MemoryReading | None:
        return self._readings.pop(0)

    def memory_peak_bytes(self) -> int | None:
        return 100 * _MIB

    def contains(self, pid: int) -> bool:
        return pid not in self._outside


def _process(pid: int) -> ProcessReading:
    return ProcessReading(pid=pid, started_ticks=1, own_cpu_ns=0, children_cpu_ns=0)


def _reading(used: int, cache: int) -> MemoryReading:
    return MemoryReading(used_bytes=used * _MIB, cache_bytes=cache * _MIB, unmapped_bytes=cache * _MIB)


def test_the_most_cache_seen_and_the_most_memory_are_kept() -> None:
    memory = GroupMemory(_Cgroup([_reading(10, 1), _reading(30, 5), None, _reading(20, 2)]))
    assert memory.read([_process(1)]) == _reading(10, 1)
    assert memory.read([_process(1)]) == _reading(30, 5)
    assert memory.read([_process(1)]) is None
    assert memory.used_peak_bytes == 30 * _MIB
    assert memory.final_peak() == GroupPeak(size_bytes=100 * _MIB, cache_bytes=5 * _MIB)


def test_a_process_outside_of_the_group_invalidates_its_peak() -> None:
    memory = GroupMemory(_Cgroup([_reading(10, 0), _reading(10, 0), _reading(10, 0), None], outside=[2]))
    assert memory.read([_process(1)]) == _reading(10, 0)
    assert memory.read([_process(1), _process(2)]) is None
    assert memory.read([_process(1)]) is None
    assert memory.final_peak() == GroupPeak(size_bytes=100 * _MIB, includes_all_processes=False)


def _ending(largest_rss: int, *, was_only_process: bool = True, written: int = 0) -> CommandExit:
    reaped = ReapedUsage(max_rss_bytes=largest_rss * _MIB, block_write_bytes=written * _MIB)
    return CommandExit(
        exit_code=0, is_stop_requested=False, was_only_process=was_only_process, ignored_sigchld=False, reaped=reaped
    )


def _group_peak(size: int, cache_bytes: int = 0, *, includes_all_processes: bool = True) -> GroupPeak:
    return GroupPeak(size_bytes=size * _MIB, cache_bytes=cache_bytes, includes_all_processes=includes_all_processes)


def test_the_groups_mark_is_the_peak_of_several_processes() -> None:
    peak = resolve_peak(
        50 * _MIB, _ending(40, was_only_process=False), _group_peak(800), had_several_processes=True, floor_bytes=0
    )
    assert peak == MemoryPeak(size_bytes=800 * _MIB, source="kernel")


def test_the_groups_mark_is_known_below_our_own_memory() -> None:
    peak = resolve_peak(None, _ending(20), _group_peak(3), had_several_processes=False, floor_bytes=20 * _MIB)
    assert peak == MemoryPeak(size_bytes=3 * _MIB, source="kernel")


def test_of_one_process_the_larger_mark_counts() -> None:
    peak = resolve_peak(None, _ending(60), _group_peak(55), had_several_processes=False, floor_bytes=20 * _MIB)
    assert peak == MemoryPeak(size_bytes=60 * _MIB, source="kernel")


@pytest.mark.parametrize(
    ("group", "written"),
    [
        (_group_peak(800, 8 * _MIB), 0),
        (_group_peak(800), 8),
        (_group_peak(800, includes_all_processes=False), 0),
        (GroupPeak(), 0),
    ],
    ids=["cache", "a deleted file", "a process outside", "no mark"],
)
def test_a_mark_that_is_not_the_commands_memory_is_not_its_peak(group: GroupPeak, written: int) -> None:
    ending = _ending(40, was_only_process=False, written=written)
    peak = resolve_peak(50 * _MIB, ending, group, had_several_processes=True, floor_bytes=0)
    assert peak == MemoryPeak(size_bytes=50 * _MIB, source="sampled")


def test_cache_below_the_unit_of_the_kernel_does_not_count() -> None:
    ending = _ending(20)
    assert (
        resolve_peak(None, ending, _group_peak(1, 200_000), had_several_processes=False, floor_bytes=2**40).source
        == "kernel"
    )
    assert (
        resolve_peak(None, ending, _group_peak(1, 300_000), had_several_processes=False, floor_bytes=2**40)
        == MemoryPeak()
    )


def test_a_sample_above_the_processs_own_mark_is_sampled() -> None:
    """The working set of a group counts files in use; a process's mark does not."""
    peak = resolve_peak(
        900 * _MIB, _ending(800), _group_peak(950, 100 * _MIB), had_several_processes=False, floor_bytes=0
    )
    assert peak == MemoryPeak(size_bytes=900 * _MIB, source="sampled")


class _Gpu(Collector):
    """A fake GPU with given utilizations."""

    def __init__(self, percents: Sequence[float]) -> None:
        self._percents = list(percents)

    def take_readings(self, into: DeviceReadings) -> None:
        into.gpu_percent.add(self._percents.pop(0))


def _at(second: float) -> int:
    return round(second * 1e9)


def test_readings_of_devices_count_for_the_step_that_ends_with_the_tick() -> None:
    buffer = SampleBuffer(_at(1), _at(1000), series_points=5)
    gpus = [_Gpu([10, 20, 30, 40])]
    buffer.add_devices(gpus, _at(0.5))  # without a sample, nothing is taken
    for tick in (1.001, 2.002):  # ticks are always a little late
        buffer.add(ContainerSample(read_ns=_at(1000 + tick), cpu_ns=0), _at(tick))
        buffer.add_devices(gpus, _at(tick))
    buffer.finish(ContainerSample(read_ns=_at(1002.8), cpu_ns=0), _at(2.8))
    buffer.add_devices(gpus, _at(2.8))
    assert buffer.usage.series is not None
    assert [step.gpu_percent for step in buffer.usage.series.steps()] == [10, 20, 30]


def test_readings_of_devices_before_the_first_step_are_kept_together() -> None:
    buffer = SampleBuffer(_at(1), _at(1000), series_points=5)
    gpus = [_Gpu([10, 20, 30])]
    buffer.add(ContainerSample(read_ns=_at(1001), cpu_ns=0), _at(1))
    for tick in (1, 2):  # the second tick has no sample
        buffer.add_devices(gpus, _at(tick))
    buffer.add(ContainerSample(read_ns=_at(1003), cpu_ns=0), _at(3))
    buffer.add_devices(gpus, _at(3))
    assert buffer.usage.series is not None
    assert [step.gpu_percent for step in buffer.usage.series.steps()] == [15, None, 30]


def test_devices_count_for_all_short_steps_of_their_time() -> None:
    buffer = SampleBuffer(_at(1), _at(1000), series_points=60, finest_ns=_at(0.1))
    for tick in (0.5, 1, 2):
        buffer.add(ContainerSample(read_ns=_at(1000 + tick), cpu_ns=0), _at(tick))
    gpus = [_Gpu([10, 20])]
    for tick in (1, 2):
        buffer.add_devices(gpus, _at(tick))
    assert buffer.usage.series is not None
    assert buffer.usage.series.step_ns == _at(0.125)
    assert [step.gpu_percent for step in buffer.usage.series.steps()] == [10] * 8 + [20] * 8


def test_the_cpu_time_of_a_short_step_is_counted_with_the_one_before() -> None:
    buffer = SampleBuffer(_at(1), _at(0), finest_ns=_at(0.02))
    for second, cpu_ns in ((0.6, 6), (0.7, 8), (0.72, None), (0.78, 9)):
        sample = ContainerSample(read_ns=_at(second), cpu_ns=cpu_ns, memory_used_bytes=1)
        buffer.add_quick(sample, _at(second))
    buffer.add(ContainerSample(read_ns=_at(0.79), cpu_ns=26, memory_used_bytes=2), _at(0.79))  # clock ticks of 10
    buffer.finish(ContainerSample(read_ns=_at(0.8), cpu_ns=28), _at(0.8))
    usage = buffer.usage
    assert usage.samples == 5
    assert usage.run.cpu_seconds == 28 / 1e9
    # The step of 0.01 s alone would be the highest rate.
    assert usage.run.vcpu.maximum == 22 / (0.2 * 1e9)
    assert usage.memory_max_bytes == 2


def test_many_quick_samples_do_not_pile_up() -> None:
    buffer = SampleBuffer(_at(1), _at(0), finest_ns=_at(0.02))
    for number in range(1, 200):
        buffer.add_quick(ContainerSample(read_ns=_at(number / 50), memory_used_bytes=number), _at(number / 50))
    assert buffer.usage.samples >= 100
    buffer.finish(ContainerSample(read_ns=_at(4), cpu_ns=0), _at(4))
    assert buffer.usage.samples == 199

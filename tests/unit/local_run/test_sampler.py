"""The memory of a command's control group and its peak in the record, and the time series of samples and devices."""

from collections.abc import Sequence

from profiler.aggregation.process_totals import GroupPeak
from profiler.aggregation.time_series import DeviceReadings
from profiler.collectors.collector import Collector
from profiler.local_run.sampler import GroupMemory, SampleBuffer
from profiler.readers.cgroup.command_group import CommandCgroup
from profiler.readers.cgroup.hierarchy import MemoryReading
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux.process_tree import ProcessReading
from tests.values import present

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


class _Gpu(Collector):
    """A fake GPU with given utilizations."""

    def __init__(self, percents: Sequence[float]) -> None:
        self._percents = list(percents)

    def take_readings(self, into: DeviceReadings) -> None:
        into.gpu_percent.add(self._percents.pop(0))


def _at(second: float) -> int:
    return round(second * 1e9)


def _sample(second: float, cpu_ns: int | None = 0, memory_bytes: int | None = None) -> ContainerSample:
    return ContainerSample(read_ns=_at(second), cpu_ns=cpu_ns, memory_used_bytes=memory_bytes)


def test_readings_of_devices_count_for_the_step_that_ends_with_the_tick() -> None:
    buffer = SampleBuffer(_at(1), _at(1000), series_points=5)
    gpus = [_Gpu([10, 20, 30, 40])]
    buffer.add_devices(gpus, _at(0.5))  # without a sample, nothing is taken
    buffer.add_quick(_sample(1000.5), _at(0.5))
    for tick in (1.001, 2.002):  # ticks are always a little late
        buffer.add(_sample(1000 + tick), _at(tick))
        buffer.add_devices(gpus, _at(tick))
    buffer.finish(_sample(1002.8), _at(2.8))
    buffer.add_devices(gpus, _at(2.8))
    assert [step[5] for step in present(buffer.usage.series).steps()] == [10, 20, 30]


def test_devices_count_for_all_short_steps_of_their_time() -> None:
    buffer = SampleBuffer(_at(1), _at(1000), series_points=60, finest_ns=_at(0.1))
    for tick in (0.5, 1, 2):
        buffer.add(_sample(1000 + tick), _at(tick))
    gpus = [_Gpu([10, 20])]
    for tick in (1, 2):
        buffer.add_devices(gpus, _at(tick))
    series = present(buffer.usage.series)
    assert (series.step_ns, [step[5] for step in series.steps()]) == (_at(0.125), [10] * 8 + [20] * 8)


def test_the_cpu_time_of_a_short_step_is_counted_with_the_one_before() -> None:
    buffer = SampleBuffer(_at(1), _at(0), finest_ns=_at(0.02))
    for second, cpu_ns in ((0.6, 6), (0.7, 8), (0.72, None), (0.78, 9)):
        buffer.add_quick(_sample(second, cpu_ns, 1), _at(second))
    buffer.add(_sample(0.79, 26, 2), _at(0.79))  # clock ticks of 10
    buffer.finish(_sample(0.8, 28), _at(0.8))
    usage = buffer.usage
    assert (usage.samples, usage.run.cpu_seconds, usage.memory_max_bytes) == (5, 28 / 1e9, 2)
    # The step of 0.01 s alone would be the highest rate.
    assert usage.run.vcpu.maximum == 22 / (0.2 * 1e9)


def test_many_quick_samples_do_not_pile_up() -> None:
    buffer = SampleBuffer(_at(1), _at(0), finest_ns=_at(0.02))
    for number in range(1, 200):
        buffer.add_quick(_sample(number / 50, None, number), _at(number / 50))
    assert buffer.usage.samples >= 100
    buffer.finish(_sample(4), _at(4))
    assert buffer.usage.samples == 199

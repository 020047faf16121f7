"""Three programs on a scripted GPU, from the driver's calls and the batch's threads to the record.

The scripted driver answers as a GPU with this program would: utilization of the last sixth of a second, and GPM's means
since the reading before. The same programs run on a device in ``tests/gpu``.
"""

from collections.abc import Sequence

from msgspec import Struct

from profiler.aggregation.task_record import with_while_idle
from profiler.aggregation.time_breakdown import TimeAccount
from profiler.collectors.collector import with_collected
from profiler.collectors.nvidia.gpu_collector import GpuCollector
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import GpuScope
from profiler.readers.linux.thread_times import ThreadGrowth, ThreadSample
from profiler.readers.linux.waited_target import Wait
from profiler.record.record_model import Container, Gpu, GpuIdle, Metrics, Record
from tests.fake_nvml import FakeGpu, FakeNvml
from tests.fakes import FakeClock, FakeLog, seconds
from tests.values import present

_MULTIPROCESSORS = 132
_WINDOW = 1 / 6
_RUN_SECONDS = 300


class Phase(Struct, frozen=True):
    """A part of a program that repeats: the GPU's multiprocessors that work, and the wait of the only thread."""

    length: float
    multiprocessors: int
    wait: Wait | None = None


class Program:
    """What happens at a time, in seconds since the start."""

    def __init__(self, *phases: Phase) -> None:
        self._phases = phases
        self._period = sum(phase.length for phase in phases)

    def at(self, time: float) -> Phase:
        left = time % self._period
        for phase in self._phases:
            if left < phase.length:
                return phase
            left -= phase.length
        return self._phases[-1]

    def between(self, start: float, end: float, parts: int = 500) -> Sequence[Phase]:
        return [self.at(start + (end - start) * (part + 0.5) / parts) for part in range(parts)]

    def idle_percent(self) -> float:
        """The truth."""
        return 100 * sum(phase.length for phase in self._phases if not phase.multiprocessors) / self._period


def profiled(program: Program) -> tuple[Gpu, GpuIdle]:
    """The record's GPU, and its idle time; a reading every second at odd moments of the program."""
    clock, gpu = FakeClock(), FakeGpu()
    nvml, started_ns = FakeNvml(gpu), clock.wall_ns()
    source = NvmlSource(lambda: nvml.binding, clock)
    collector = GpuCollector(source, GpuScope(("GPU-0",)), clock, FakeLog(), seconds(1), is_required=True)
    offset_ns = started_ns - clock.monotonic_ns()
    account = TimeAccount(
        started_ns, seconds(1), lambda start_ns, end_ns: collector.idle_ns(start_ns - offset_ns, end_ns - offset_ns)
    )
    cpu_seconds = 0.0
    for second in range(_RUN_SECONDS + 1):
        last = program.between(second - 1, second)
        gpu.gpm(sm_active=100 * sum(phase.multiprocessors for phase in last) / len(last) / _MULTIPROCESSORS)
        is_busy = any(phase.multiprocessors for phase in program.between(second - _WINDOW, second))
        gpu.utilization_percent = 100 if is_busy else 0
        run_seconds = sum(phase.wait is None for phase in last) / len(last) if second else 0.0
        cpu_seconds += run_seconds
        now = program.at(second)
        sample = ThreadSample(
            growth=(ThreadGrowth(seconds(run_seconds), 0),), waits={now.wait: 1} if now.wait else {}, sees_calls=True
        )
        account.add(clock.wall_ns(), seconds(cpu_seconds), sample)
        collector.tick()
        clock.advance(1)
    metrics = Metrics(duration_ms=1000 * _RUN_SECONDS)
    record = Record(task_id="1", container=Container(name="batch"), status="success", metrics=metrics)
    account.flush(None)
    record = with_while_idle(with_collected(record, (collector,)), account.idle_breakdown())
    return record.gpus[0], present(record.gpu_idle)


def test_a_matrix_multiplication_and_a_loop_on_one_multiprocessor_are_not_idle_and_differ_in_activity() -> None:
    gpu, idle = profiled(Program(Phase(0.99, _MULTIPROCESSORS), Phase(0.01, 0)))
    assert (present(gpu.sm_active_percent).avg or 0) > 90
    assert (gpu.idle_percent, idle.percent, idle.gpu_hours, idle.waiting_for) == (0, 0, 0, None)
    gpu, idle = profiled(Program(Phase(1, 1)))
    assert (present(gpu.utilization_percent).avg, idle.percent) == (100, 0)
    assert (present(gpu.sm_active_percent).avg or 100) < 5


def test_the_idle_time_of_a_loader_that_sleeps_is_true_and_named() -> None:
    program = Program(Phase(4.1, 0, Wait("sleep")), Phase(2.63, 120))
    gpu, idle = profiled(program)
    assert abs(idle.percent - program.idle_percent()) <= 3
    made = present(idle.waiting_for)
    assert (made.sleep_percent or 0) > 80
    assert (made.covered_percent, idle.percent) == (100, gpu.idle_percent)


def test_the_idle_time_of_a_loader_that_reads_a_file_names_the_file_and_its_cpu_time() -> None:
    """It reads for 3.3 s and decodes on one CPU for 1.7 s, and the GPU works for 2.43 s."""
    disk = Wait("disk", "/data/train.tar")
    program = Program(Phase(3.3, 0, disk), Phase(1.7, 0), Phase(2.43, 120, Wait("other")))
    _, idle = profiled(program)
    assert abs(idle.percent - program.idle_percent()) <= 3
    made = present(idle.waiting_for)
    assert abs((made.disk_percent or 0) - 100 * 3.3 / 5) < 15
    assert abs((made.on_cpu_percent or 0) - 100 * 1.7 / 5) < 15
    assert made.waiting_for[0].target == "/data/train.tar"
    assert made.waiting_for[0].percent == made.disk_percent

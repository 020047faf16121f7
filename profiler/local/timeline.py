"""The series of one run, for charts: a point for every sample, and never more than a fixed number of them.

When all places are taken, neighbours are merged two by two, and from then on every point takes
twice as many samples: the resolution is the same over the whole run, however long it gets.
"""

from threading import Lock

from msgspec import Struct

from profiler.figures import VCPU_DIGITS
from profiler.known import max_known
from profiler.points import Point
from profiler.series import MonotonicCounter
from profiler.sources.container_stats import ContainerSample
from profiler.times import NS_PER_MS

MAX_POINTS = 10_000
_GPU_DIGITS = 2


class _GpuTotals(Struct, frozen=True, gc=False):
    """What was read of the GPUs in a step: sum and number of the percentages, most memory."""

    percent_sum: float = 0.0
    readings: int = 0
    memory_bytes: int | None = None

    @property
    def percent(self) -> float | None:
        return round(self.percent_sum / self.readings, _GPU_DIGITS) if self.readings else None

    def plus(self, other: "_GpuTotals") -> "_GpuTotals":
        return _GpuTotals(
            self.percent_sum + other.percent_sum,
            self.readings + other.readings,
            max_known(self.memory_bytes, other.memory_bytes),
        )


_NO_GPU = _GpuTotals()


class _Step(Struct, frozen=True, gc=False):
    """The end of a point's step: the counters when they were last known, and the step's most memory.

    As counters are kept rather than rates, merging loses no CPU time and no byte, and rounds nothing.
    """

    end_ns: int
    cpu_at_ns: int | None
    cpu_total_ns: int | None
    memory_bytes: int | None
    read_total_bytes: int | None
    write_total_bytes: int | None
    gpu: _GpuTotals


class Timeline:
    """Collects samples; ``add`` is the listener that ``profiler.run.run`` takes.

    ``add_gpu`` may be called from another thread than ``add``.
    """

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._max_points = max_points
        self._steps: list[_Step] = []
        self._samples_per_step = 1
        self._samples_in_last_step = 1
        self._cpu_ns = MonotonicCounter()
        self._read_bytes = MonotonicCounter()
        self._write_bytes = MonotonicCounter()
        self._gpu_lock = Lock()
        self._gpu = _NO_GPU

    def add(self, sample: ContainerSample) -> None:
        """Take a sample; one that is not later than the last is a duplicate."""
        if self._steps and sample.read_ns <= self._steps[-1].end_ns:
            return
        mark = self._make_step(sample)
        if self._samples_in_last_step >= self._samples_per_step and len(self._steps) >= self._max_points:
            self._halve_resolution()
        if self._steps and self._samples_in_last_step < self._samples_per_step:
            self._steps[-1] = _merge(self._steps[-1], mark)
            self._samples_in_last_step += 1
        else:
            self._steps.append(mark)
            self._samples_in_last_step = 1

    def add_gpu(self, percent: float | None, memory_bytes: int | None) -> None:
        """Take a reading of the GPUs: their mean utilization, and the memory that they hold together.

        It belongs to the step that the next sample ends. None: not measured.
        """
        reading = _GpuTotals(percent or 0.0, 0 if percent is None else 1, memory_bytes)
        with self._gpu_lock:
            self._gpu = self._gpu.plus(reading)

    def points(self, started_ns: int) -> tuple[Point, ...]:
        """The series of a run that began at ``started_ns``, when its counters were 0."""
        points = []
        at_ns, total_ns, read_bytes, write_bytes = started_ns, 0, 0, 0
        for mark in self._steps:
            vcpu = None
            if mark.cpu_at_ns is not None and mark.cpu_total_ns is not None and mark.cpu_at_ns > at_ns:
                vcpu = round((mark.cpu_total_ns - total_ns) / (mark.cpu_at_ns - at_ns), VCPU_DIGITS)
                at_ns, total_ns = mark.cpu_at_ns, mark.cpu_total_ns
            points.append(
                Point(
                    elapsed_ms=max(round((mark.end_ns - started_ns) / NS_PER_MS), 0),
                    vcpu_used=vcpu,
                    memory_used_bytes=mark.memory_bytes,
                    block_read_bytes=_increase(mark.read_total_bytes, read_bytes),
                    block_write_bytes=_increase(mark.write_total_bytes, write_bytes),
                    gpu_percent=mark.gpu.percent,
                    gpu_memory_bytes=mark.gpu.memory_bytes,
                )
            )
            read_bytes = read_bytes if mark.read_total_bytes is None else mark.read_total_bytes
            write_bytes = write_bytes if mark.write_total_bytes is None else mark.write_total_bytes
        return tuple(points)

    def _make_step(self, sample: ContainerSample) -> _Step:
        cpu_total_ns = _total(self._cpu_ns, sample.cpu_ns)
        return _Step(
            sample.read_ns,
            None if cpu_total_ns is None else sample.read_ns,
            cpu_total_ns,
            sample.memory_used_bytes,
            _total(self._read_bytes, sample.block_read_bytes),
            _total(self._write_bytes, sample.block_write_bytes),
            self._take_gpu_totals(),
        )

    def _take_gpu_totals(self) -> _GpuTotals:
        with self._gpu_lock:
            gpu, self._gpu = self._gpu, _NO_GPU
        return gpu

    def _halve_resolution(self) -> None:
        marks = self._steps
        pairs = [_merge(first, second) for first, second in zip(marks[::2], marks[1::2], strict=False)]
        left_over = marks[-1:] if len(marks) % 2 else []
        self._steps = pairs + left_over
        self._samples_in_last_step = self._samples_per_step if left_over else 2 * self._samples_per_step
        self._samples_per_step *= 2


def _merge(first: _Step, second: _Step) -> _Step:
    latest_cpu = first if second.cpu_at_ns is None else second
    return _Step(
        second.end_ns,
        latest_cpu.cpu_at_ns,
        latest_cpu.cpu_total_ns,
        max_known(first.memory_bytes, second.memory_bytes),
        first.read_total_bytes if second.read_total_bytes is None else second.read_total_bytes,
        first.write_total_bytes if second.write_total_bytes is None else second.write_total_bytes,
        first.gpu.plus(second.gpu),
    )


def _total(counter: MonotonicCounter, value: int | None) -> int | None:
    """What was counted in all, if it is known at this moment."""
    if value is None:
        return None
    counter.add(value)
    return counter.total


def _increase(total_bytes: int | None, before_bytes: int) -> int | None:
    return None if total_bytes is None else total_bytes - before_bytes

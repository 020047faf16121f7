"""The time series of one run for charts: collects at most a fixed number of points and encodes them as JSON."""

from collections.abc import Iterable
from functools import cache
from threading import Lock

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from profiler.aggregation.statistics import MonotonicCounter
from profiler.core.optional_math import max_known
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.ecs.container_stats import ContainerSample
from profiler.record.units import VCPU_DIGITS

MAX_POINTS = 10_000
_GPU_DIGITS = 2
# The fields of the first version are always written. Later fields are omitted from the end while they are None.
_MIN_ROW_LENGTH = 3


class Point(Struct, frozen=True, kw_only=True, array_like=True):
    """The usage in one step, which ends ``elapsed_ms`` after the start of the run.

    ``vcpu_used`` is the mean over the step, ``memory_used_bytes`` the maximum. ``block_read_bytes``
    and ``block_write_bytes`` are the bytes read and written since the last point with a known value (or
    the start). ``gpu_percent`` is the mean utilization of the GPUs in the step, ``gpu_memory_bytes``
    the maximum of the memory used on all GPUs together.

    The fields are stored in this order. A new field comes last, with None as its default.
    """

    elapsed_ms: int
    vcpu_used: float | None
    memory_used_bytes: int | None
    block_read_bytes: int | None = None
    block_write_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None


_encoder = msgspec.json.Encoder()


@cache
def _decoder() -> msgspec.json.Decoder[tuple[Point, ...]]:
    """The decoder, which is slow to make: it is not for the run that is measured."""
    return msgspec.json.Decoder(tuple[Point, ...])


def encode_points(points: Iterable[Point]) -> bytes:
    """Points as JSON, such as ``[[1000,0.5,1048576],[2000,null,1048576,4096,0]]``."""
    return _encoder.encode([_row(point) for point in points])


def decode_points(text: bytes) -> tuple[Point, ...]:
    """Decode points. Raises ``msgspec.DecodeError`` if the text has another format."""
    return _decoder().decode(text)


def _row(point: Point) -> tuple[float | int | None, ...]:
    row: tuple[float | int | None, ...] = astuple(point)
    length = len(row)
    while length > _MIN_ROW_LENGTH and row[length - 1] is None:
        length -= 1
    return row[:length]


class _GpuTotals(Struct, frozen=True, gc=False):
    """The GPU readings of a step: sum and number of the percentages, maximum of the memory."""

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
    """The end of a step: the last known values of the counters, and the step's memory maximum.

    It stores counters rather than rates, so that merging steps is exact.
    """

    end_ns: int
    cpu_at_ns: int | None
    cpu_total_ns: int | None
    memory_bytes: int | None
    read_total_bytes: int | None
    write_total_bytes: int | None
    gpu: _GpuTotals


class Timeline:
    """Collects the samples of a run. When ``max_points`` is reached, pairs of steps are merged.

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
        """Add a sample. A sample that is not later than the last one is a duplicate and ignored."""
        if self._steps and sample.read_ns <= self._steps[-1].end_ns:
            return
        step = self._make_step(sample)
        if self._samples_in_last_step >= self._samples_per_step and len(self._steps) >= self._max_points:
            self._halve_resolution()
        if self._steps and self._samples_in_last_step < self._samples_per_step:
            self._steps[-1] = _merge(self._steps[-1], step)
            self._samples_in_last_step += 1
        else:
            self._steps.append(step)
            self._samples_in_last_step = 1

    def add_gpu(self, percent: float | None, memory_bytes: int | None) -> None:
        """Add a reading of the GPUs to the step that ends at the next sample.

        Args:
            percent: Mean utilization of the GPUs; None: not measured.
            memory_bytes: Memory used on all GPUs together; None: not measured.
        """
        reading = _GpuTotals(percent or 0.0, 0 if percent is None else 1, memory_bytes)
        with self._gpu_lock:
            self._gpu = self._gpu.plus(reading)

    def points(self, started_ns: int) -> tuple[Point, ...]:
        """The time series. The run started at ``started_ns`` with all counters at 0."""
        points = []
        at_ns, total_ns, read_bytes, write_bytes = started_ns, 0, 0, 0
        for step in self._steps:
            vcpu = None
            if step.cpu_at_ns is not None and step.cpu_total_ns is not None and step.cpu_at_ns > at_ns:
                vcpu = round((step.cpu_total_ns - total_ns) / (step.cpu_at_ns - at_ns), VCPU_DIGITS)
                at_ns, total_ns = step.cpu_at_ns, step.cpu_total_ns
            points.append(
                Point(
                    elapsed_ms=max(round((step.end_ns - started_ns) / NS_PER_MS), 0),
                    vcpu_used=vcpu,
                    memory_used_bytes=step.memory_bytes,
                    block_read_bytes=_increase(step.read_total_bytes, read_bytes),
                    block_write_bytes=_increase(step.write_total_bytes, write_bytes),
                    gpu_percent=step.gpu.percent,
                    gpu_memory_bytes=step.gpu.memory_bytes,
                )
            )
            read_bytes = read_bytes if step.read_total_bytes is None else step.read_total_bytes
            write_bytes = write_bytes if step.write_total_bytes is None else step.write_total_bytes
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
        steps = self._steps
        pairs = [_merge(first, second) for first, second in zip(steps[::2], steps[1::2], strict=False)]
        left_over = steps[-1:] if len(steps) % 2 else []
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
    """Add a value to a counter; returns its total, None if the value is unknown."""
    if value is None:
        return None
    counter.add(value)
    return counter.total


def _increase(total_bytes: int | None, before_bytes: int) -> int | None:
    return None if total_bytes is None else total_bytes - before_bytes

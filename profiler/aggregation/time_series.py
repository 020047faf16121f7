"""The time series of one run for its record: equal steps, constant memory, however long the run is.

The buffer begins with steps of the sampling interval. When the run outgrows it, neighbouring steps are merged and the
step doubles. CPU time is kept as integer nanoseconds per step, so that merging loses nothing.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from profiler.core.timestamps import NS_PER_MS

_SIGNIFICANT_DIGITS = 3
_MIB = 1024 * 1024
_Cell = TypeVar("_Cell")


class SeriesValues(Struct, frozen=True, kw_only=True):
    """The series as plain values: one per step, None where nothing was measured.

    ``vcpu_used`` is the mean of the step, ``memory_used_mb`` its maximum, the devices' utilization is the mean of all
    readings of all devices in the step. A quantity that was never measured is None as a whole.
    """

    started_ns: int
    step_ms: float
    vcpu_used: tuple[float | None, ...] | None = None
    memory_used_mb: tuple[float | None, ...] | None = None
    gpu_percent: tuple[float | None, ...] | None = None
    neuron_percent: tuple[float | None, ...] | None = None


class _Column(Generic[_Cell]):
    """The cells of one quantity. ``empty`` is a cell without a measurement."""

    __slots__ = ("cells", "empty")

    def __init__(self, empty: _Cell) -> None:
        self.empty = empty
        self.cells: list[_Cell] = []

    def reach(self, index: int) -> None:
        """Append empty cells up to ``index``."""
        self.cells.extend([self.empty] * (index + 1 - len(self.cells)))


class RunSeries:
    """Collects the series of one run.

    Args:
        started_ns: The start of the run (wall clock); measurements before it count for the first step.
        step_ns: The first step, the sampling interval.
        points: Half the largest number of steps; at least 1.
    """

    def __init__(self, started_ns: int, step_ns: int, points: int) -> None:
        self._started_ns = started_ns
        self._step_ns = max(step_ns, 1)
        self._capacity = 2 * points
        # (CPU nanoseconds, nanoseconds covered); largest memory; (sum, count) of device readings.
        self._cpu: _Column[tuple[int, int]] = _Column((0, 0))
        self._memory: _Column[int | None] = _Column(None)
        self._gpu: _Column[tuple[float, int]] = _Column((0.0, 0))
        self._neuron: _Column[tuple[float, int]] = _Column((0.0, 0))

    def add_cpu(self, start_ns: int, end_ns: int, cpu_ns: int) -> None:
        """Spread ``cpu_ns`` evenly over the time from ``start_ns`` to ``end_ns``; no CPU time is lost by rounding."""
        start_ns = max(start_ns, self._started_ns)
        if end_ns <= start_ns:
            return
        last = self._index(end_ns - 1)  # first: it may merge
        first = self._index(start_ns)
        self._cpu.reach(last)
        length_ns, spread_ns = end_ns - start_ns, 0
        for index in range(first, last + 1):
            cell_start_ns = max(start_ns, self._started_ns + index * self._step_ns)
            cell_end_ns = min(end_ns, self._started_ns + (index + 1) * self._step_ns)
            until_ns = cpu_ns * (cell_end_ns - start_ns) // length_ns
            used_ns, covered_ns = self._cpu.cells[index]
            self._cpu.cells[index] = (used_ns + until_ns - spread_ns, covered_ns + cell_end_ns - cell_start_ns)
            spread_ns = until_ns

    def add_memory(self, at_ns: int, size_bytes: int) -> None:
        """Count a reading of the memory in use for the step of its time."""
        index = self._index(at_ns)
        self._memory.reach(index)
        before = self._memory.cells[index]
        self._memory.cells[index] = size_bytes if before is None else max(before, size_bytes)

    def add_gpu(self, at_ns: int, percents: Sequence[float]) -> None:
        """Count one reading of each GPU's utilization."""
        self._add_devices(self._gpu, at_ns, percents)

    def add_neuron(self, at_ns: int, percents: Sequence[float]) -> None:
        """Count one reading of each Neuron core's utilization."""
        self._add_devices(self._neuron, at_ns, percents)

    def values(self) -> SeriesValues | None:
        """The series so far; None before the first measurement."""
        length = max(len(column.cells) for column in (self._cpu, self._memory, self._gpu, self._neuron))
        if not length:
            return None
        for reach in (self._cpu.reach, self._memory.reach, self._gpu.reach, self._neuron.reach):
            reach(length - 1)
        return SeriesValues(
            started_ns=self._started_ns,
            step_ms=self._step_ns / NS_PER_MS,
            vcpu_used=_optional(tuple(used / covered if covered else None for used, covered in self._cpu.cells)),
            memory_used_mb=_optional(tuple(None if size is None else size / _MIB for size in self._memory.cells)),
            gpu_percent=_optional(tuple(total / count if count else None for total, count in self._gpu.cells)),
            neuron_percent=_optional(tuple(total / count if count else None for total, count in self._neuron.cells)),
        )

    @property
    def cpu_ns(self) -> int:
        """All CPU time that was added."""
        return sum(used for used, _ in self._cpu.cells)

    def _index(self, at_ns: int) -> int:
        """The step of a moment. Merges until the buffer reaches it."""
        elapsed_ns = max(at_ns - self._started_ns, 0)
        while elapsed_ns // self._step_ns >= self._capacity:
            self._merge()
        return elapsed_ns // self._step_ns

    def _merge(self) -> None:
        self._step_ns *= 2
        self._cpu.cells = [
            (sum(used for used, _ in pair), sum(covered for _, covered in pair))
            for pair in _neighbours(self._cpu.cells)
        ]
        for column in (self._gpu, self._neuron):
            column.cells = [
                (sum(total for total, _ in pair), sum(count for _, count in pair)) for pair in _neighbours(column.cells)
            ]
        self._memory.cells = [
            max((size for size in pair if size is not None), default=None) for pair in _neighbours(self._memory.cells)
        ]

    def _add_devices(self, column: _Column[tuple[float, int]], at_ns: int, percents: Sequence[float]) -> None:
        if not percents:
            return
        index = self._index(at_ns)
        column.reach(index)
        total, count = column.cells[index]
        column.cells[index] = (total + sum(percents), count + len(percents))


def _neighbours(cells: Sequence[_Cell]) -> list[Sequence[_Cell]]:
    return [cells[index : index + 2] for index in range(0, len(cells), 2)]


def _optional(values: tuple[float | None, ...]) -> tuple[float | None, ...] | None:
    """Rounded to three significant digits; None if no step was measured."""
    if all(value is None for value in values):
        return None
    return tuple(None if value is None else float(f"{value:.{_SIGNIFICANT_DIGITS}g}") for value in values)

"""The time series of one run: equal steps, constant memory, however long the run is.

When the run outgrows the buffer, neighbouring steps are merged and the step doubles. CPU time is
kept as integer nanoseconds per step, so that merging loses nothing.
"""

import math
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct, field

from profiler.aggregation.statistics import DeviceReadings
from profiler.core.optional_math import first_known, known_values, max_known, quotient, sum_known
from profiler.core.timestamps import NS_PER_MS, format_ms
from profiler.record.equal_steps import Column, rounded_columns
from profiler.record.record_model import Series
from profiler.record.units import MIB, rounded_number

# The most steps that are shorter than the sampling interval.
_MAX_FINE_STEPS = 120
_Cell = TypeVar("_Cell")
# (nanoseconds on a CPU or waiting for one, nanoseconds covered), or (sum, number of readings).
_Sum: TypeAlias = tuple[float, int]


def _add_sums(first: _Sum, second: _Sum) -> _Sum:
    return first[0] + second[0], first[1] + second[1]


class _QuantityCells(Struct, Generic[_Cell]):
    """The cells of one quantity.

    ``empty`` is a cell without a measurement, ``combine`` makes one cell of two.
    """

    empty: _Cell
    combine: Callable[[_Cell, _Cell], _Cell]
    cells: list[_Cell] = field(default_factory=list)

    def add_cell(self, index: int, cell: _Cell) -> None:
        """Combine a cell with what the step has; the column grows up to it."""
        if index >= len(self.cells):
            self.cells.extend([self.empty] * (index + 1 - len(self.cells)))
        self.cells[index] = self.combine(self.cells[index], cell)

    def padded_cells(self, length: int) -> list[_Cell]:
        """The cells of so many steps, the last ones empty."""
        return self.cells + [self.empty] * (length - len(self.cells))


class RunSeries:
    """Collects the series of one run, in at most ``2 * points`` steps.

    Memory and devices that were read before the start of the run (wall clock) count for the first
    step; CPU time counts from the start on. The first step is the interval, divided by a power of
    two that leaves at least ``finest_ns``.
    """

    def __init__(
        self, started_ns: int, step_ns: int, points: int, finest_ns: int | None = None
    ) -> None:
        self._started_ns = started_ns
        self._interval_ns = max(step_ns, 1)
        self.step_ns = self._interval_ns
        while finest_ns is not None and self.step_ns % 2 == 0 and self.step_ns >= 2 * finest_ns:
            self.step_ns //= 2
        self._capacity = 2 * points
        self.cpu: _QuantityCells[_Sum] = _QuantityCells(
            (0, 0), _add_sums
        )  # with the time that it was measured for
        self.memory: _QuantityCells[int | None] = _QuantityCells(None, max_known)
        self.gpu: _QuantityCells[_Sum] = _QuantityCells((0.0, 0), _add_sums)
        self.gpus_memory: _QuantityCells[float | None] = _QuantityCells(None, max_known)
        self.neuron: _QuantityCells[_Sum] = _QuantityCells((0.0, 0), _add_sums)
        self.read: _QuantityCells[int | None] = _QuantityCells(None, sum_known)
        self.written: _QuantityCells[int | None] = _QuantityCells(None, sum_known)
        self.cpu_wait: _QuantityCells[_Sum] = _QuantityCells((0, 0), _add_sums)
        self.columns: tuple[_QuantityCells[Any], ...] = (
            self.cpu,
            self.cpu_wait,
            self.memory,
            self.gpu,
            self.gpus_memory,
            self.neuron,
            self.read,
            self.written,
        )

    def add_cpu(self, start_ns: int, end_ns: int, cpu_ns: int) -> None:
        """Spread the CPU time that was used between two moments by the wall clock."""
        self.spread_over_steps(self.cpu, start_ns, end_ns, cpu_ns)

    def spread_over_steps(
        self,
        column: _QuantityCells[_Sum],
        start_ns: int,
        end_ns: int,
        sum_ns: int,
        *,
        is_late: bool = False,
    ) -> None:
        """Spread a time evenly, from the start of the run on, without rounding; ``is_late``: of
        a step that is over.
        """
        start_ns = max(start_ns, self._started_ns)
        if end_ns <= start_ns:
            return
        last = self._step_index(end_ns - 1)  # first: it may merge
        first = self._step_index(start_ns)
        if first == last:  # nearly always, once the steps have doubled a few times
            column.add_cell(last, (sum_ns, 0 if is_late else end_ns - start_ns))
            return
        length_ns = end_ns - start_ns
        spread_ns = 0
        for index in range(first, last + 1):
            cell_start_ns = max(start_ns, self._started_ns + index * self.step_ns)
            cell_end_ns = min(end_ns, self._started_ns + (index + 1) * self.step_ns)
            until_ns = sum_ns * (cell_end_ns - start_ns) // length_ns
            column.add_cell(
                index, (until_ns - spread_ns, 0 if is_late else cell_end_ns - cell_start_ns)
            )
            spread_ns = until_ns

    def add_memory(self, at_ns: int, size_bytes: int, *, held_ns: int = 0) -> None:
        """Count a reading of the memory in use for the ``held_ns`` nanoseconds that end at
        ``at_ns``.
        """
        last = self._step_index(at_ns - 1 if held_ns else at_ns)  # it may merge
        first = max((at_ns - held_ns - self._started_ns) // self.step_ns, 0)
        for index in range(first, last + 1):
            self.memory.add_cell(index, size_bytes)

    def add_blocks(
        self, at_ns: int, read_bytes: int | None, written_bytes: int | None, *, held_ns: int = 0
    ) -> None:
        """Spread the bytes over the steps of which most is in the ``held_ns`` before ``at_ns``,
        else of its middle.
        """
        self._step_index(at_ns - 1 if held_ns else at_ns)  # it may merge
        margin_ns = min(self.step_ns, held_ns) // 2
        first = self._step_index(at_ns - held_ns + margin_ns)
        last = self._step_index(at_ns - margin_ns)
        count = last - first + 1
        for column, size_bytes in ((self.read, read_bytes), (self.written, written_bytes)):
            for place in range(count):
                share = None
                if size_bytes is not None:
                    share = size_bytes * (place + 1) // count - size_bytes * place // count
                column.add_cell(first + place, share)

    def add_devices(self, at_ns: int, readings: DeviceReadings, *, around_ns: int = 0) -> None:
        """Count the devices for the step of ``at_ns``, and for those of which most is within
        ``around_ns`` of it.
        """
        windows = readings.gpu_windows
        for window in windows or ():
            length_ns = window.end_ns - window.start_ns
            used_ns = round(window.percent * length_ns)
            self.spread_over_steps(self.gpu, window.start_ns, window.end_ns, used_ns)
        reach_ns = max(around_ns - self.step_ns // 2, 0)
        last = self._step_index(at_ns + reach_ns)
        for index in range(self._step_index(at_ns - reach_ns), last + 1):
            for column, percents in (
                (self.gpu, readings.gpu_percent),
                (self.neuron, readings.neuron_percent),
            ):
                is_known = column is self.gpu and windows is not None
                if percents.weight and not is_known:
                    column.add_cell(index, (percents.total, percents.weight))
            if readings.gpus_memory_bytes is not None:
                self.gpus_memory.add_cell(index, readings.gpus_memory_bytes)

    def memory_mb(self, length: int) -> Column:
        """The memory of each step."""
        return tuple(quotient(size, MIB) for size in self.memory.padded_cells(length))

    def series_so_far(self) -> Series | None:
        """The series so far; None before the first measurement."""
        length = self.step_count
        if not length:
            return None
        return Series(
            started_at=format_ms(self._started_ns),
            step_ms=rounded_number(self.step_ns / NS_PER_MS) or 0,
            **rounded_columns(
                {
                    "memory_used_mb": self.memory_mb(length),
                    "vcpu_used": step_means(self.cpu, length),
                    "gpu_utilization_percent": step_means(self.gpu, length),
                    "neuron_utilization_percent": step_means(self.neuron, length),
                    "cpu_wait": step_means(self.cpu_wait, length),
                }
            ),
        )

    def copy_within_limits(
        self, *, min_step_ms: float = 0, max_steps: int | None = None
    ) -> "RunSeries":
        """The series so far, which does not grow any more with this one: its steps are merged up
        to the limits.
        """
        copied = RunSeries(self._started_ns, self._interval_ns, self._capacity // 2)
        copied.step_ns = self.step_ns
        for column, original in zip(copied.columns, self.columns, strict=True):
            column.cells = original.cells.copy()
        while copied.step_ns < min_step_ms * NS_PER_MS or (
            copied.step_count > first_known(max_steps, math.inf)
        ):
            copied.merge_neighbour_steps()
        return copied

    def lower_written_bytes(self, total_bytes: int) -> None:
        """Lower the bytes written in each step in proportion, if they exceed the total.

        The steps have bytes whose files were deleted later, before they reached a disk. No counter
        shows which steps wrote them.
        """
        counted_bytes = sum(known_values(self.written.cells))
        if counted_bytes <= total_bytes:
            return
        for index, size_bytes in enumerate(self.written.cells):
            if size_bytes is not None:
                self.written.cells[index] = size_bytes * total_bytes // counted_bytes

    def add_other_series(self, other: "RunSeries") -> None:
        """Count the measurements of another series of the same run.

        The shorter steps are merged.
        """
        while self.step_ns < other.step_ns:
            self.merge_neighbour_steps()
        while other.step_ns < self.step_ns:
            other.merge_neighbour_steps()
        for column, added in zip(self.columns, other.columns, strict=True):
            for index, cell in enumerate(added.cells):
                column.add_cell(index, cell)

    @property
    def step_count(self) -> int:
        return max(len(column.cells) for column in self.columns)

    def _step_index(self, at_ns: int) -> int:
        """The step of a moment. Merges until the buffer reaches it."""
        index = (at_ns - self._started_ns) // self.step_ns
        while index >= self._capacity or (
            index >= _MAX_FINE_STEPS and self.step_ns < self._interval_ns
        ):
            self.merge_neighbour_steps()
            index = (at_ns - self._started_ns) // self.step_ns
        return max(index, 0)

    def merge_neighbour_steps(self) -> None:
        """Merge each two neighbouring steps."""
        self.step_ns *= 2
        for column in self.columns:
            cells = column.cells
            column.cells = list(map(column.combine, cells[::2], cells[1::2]))
            if len(cells) % 2:
                column.cells.append(cells[-1])


def step_means(column: _QuantityCells[_Sum], length: int) -> Column:
    """The mean of each step; None where nothing was measured."""
    return tuple(
        total / weight if weight else None for total, weight in column.padded_cells(length)
    )

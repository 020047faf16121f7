"""The time series of one run for its record: equal steps, constant memory, however long the run is.

The buffer begins with steps of the sampling interval. When the run outgrows it, neighbouring steps are merged and the
step doubles. CPU time is kept as integer nanoseconds per step, so that merging loses nothing.
"""

from collections.abc import Collection, Sequence
from typing import Generic, TypeAlias, TypeVar

from profiler.core.optional_math import max_known
from profiler.core.timestamps import NS_PER_MS, format_ms
from profiler.record.model import AverageAndMaximum, Series
from profiler.record.units import MIB, as_number

_SIGNIFICANT_DIGITS = 3
_DIGITS = 3
_MEMORY_COLUMN = "memory_used_mb"
_COLUMNS = ("vcpu_used", _MEMORY_COLUMN, "gpu_utilization_percent", "neuron_utilization_percent")
_Cell = TypeVar("_Cell")
_Total = TypeVar("_Total", int, float)

Column: TypeAlias = tuple[float | None, ...]


class DeviceTotals:
    """The readings of one quantity of all devices: their sum, number and maximum."""

    __slots__ = ("count", "maximum", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.count = 0
        self.maximum: float | None = None

    def add(self, value: float) -> None:
        """Count one reading of one device."""
        self.total += value
        self.count += 1
        self.maximum = value if self.maximum is None else max(self.maximum, value)

    def merge(self, other: "DeviceTotals") -> None:
        """Count the readings of another one, too."""
        self.total += other.total
        self.count += other.count
        self.maximum = max_known(self.maximum, other.maximum)

    def summary(self, *, per: float = 1) -> AverageAndMaximum | None:
        """The mean and the maximum, divided by ``per``; None without a reading."""
        if self.maximum is None:
            return None
        return AverageAndMaximum(
            avg=round(self.total / self.count / per, _DIGITS), max=round(self.maximum / per, _DIGITS)
        )


class DeviceReadings:
    """The readings of all devices since some moment."""

    __slots__ = ("gpu_memory_bytes", "gpu_percent", "neuron_percent")

    def __init__(self) -> None:
        self.gpu_percent = DeviceTotals()
        self.gpu_memory_bytes = DeviceTotals()
        self.neuron_percent = DeviceTotals()

    def merge(self, other: "DeviceReadings") -> None:
        """Count the readings of another one, too."""
        self.gpu_percent.merge(other.gpu_percent)
        self.gpu_memory_bytes.merge(other.gpu_memory_bytes)
        self.neuron_percent.merge(other.neuron_percent)


class _Column(Generic[_Cell]):
    """The cells of one quantity. ``empty`` is a cell without a measurement."""

    __slots__ = ("cells", "empty")

    def __init__(self, empty: _Cell) -> None:
        self.empty = empty
        self.cells: list[_Cell] = []

    def reach(self, index: int) -> None:
        """Append empty cells up to ``index``."""
        if index >= len(self.cells):
            self.cells.extend([self.empty] * (index + 1 - len(self.cells)))


class RunSeries:
    """Collects the series of one run.

    Args:
        started_ns: The start of the run (wall clock). Memory and devices read before it count for the first step; CPU
            time counts from the start on.
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
        """Spread ``cpu_ns`` evenly over the time from ``start_ns`` to ``end_ns``; no CPU time is lost by rounding.

        A step that began before the run counts from the start of the run; one that ended before it is ignored.
        """
        start_ns = max(start_ns, self._started_ns)
        if end_ns <= start_ns:
            return
        last = self._index(end_ns - 1)  # first: it may merge
        first = self._index(start_ns)
        self._cpu.reach(last)
        if first == last:  # nearly always, once the steps have doubled a few times
            used_ns, covered_ns = self._cpu.cells[last]
            self._cpu.cells[last] = (used_ns + cpu_ns, covered_ns + end_ns - start_ns)
            return
        length_ns, spread_ns = end_ns - start_ns, 0
        for index in range(first, last + 1):
            cell_start_ns = max(start_ns, self._started_ns + index * self._step_ns)
            cell_end_ns = min(end_ns, self._started_ns + (index + 1) * self._step_ns)
            until_ns = cpu_ns * (cell_end_ns - start_ns) // length_ns
            used_ns, covered_ns = self._cpu.cells[index]
            self._cpu.cells[index] = (used_ns + until_ns - spread_ns, covered_ns + cell_end_ns - cell_start_ns)
            spread_ns = until_ns

    def add_memory(self, at_ns: int, size_bytes: int, *, held_ns: int = 0) -> None:
        """Count a reading of the memory in use for the ``held_ns`` nanoseconds that end at ``at_ns``."""
        last = self._index(at_ns - 1 if held_ns else at_ns)
        self._memory.reach(last)
        for index in range(self._index(at_ns - held_ns), last + 1):
            before = self._memory.cells[index]
            self._memory.cells[index] = size_bytes if before is None else max(before, size_bytes)

    def add_devices(self, at_ns: int, readings: DeviceReadings) -> None:
        """Count the devices' utilization for the step of ``at_ns``."""
        self._add_devices(self._gpu, at_ns, readings.gpu_percent)
        self._add_devices(self._neuron, at_ns, readings.neuron_percent)

    def values(self, min_step_ms: float = 0) -> Series | None:
        """The series so far; None before the first measurement. Steps shorter than ``min_step_ms`` are merged."""
        while self._step_ns < min_step_ms * NS_PER_MS:
            self._merge()
        length = max(len(column.cells) for column in (self._cpu, self._memory, self._gpu, self._neuron))
        if not length:
            return None
        for reach in (self._cpu.reach, self._memory.reach, self._gpu.reach, self._neuron.reach):
            reach(length - 1)
        return Series(
            started_at=format_ms(self._started_ns),
            step_ms=as_number(self._step_ns / NS_PER_MS) or 0,
            vcpu_used=_optional(tuple(used / covered if covered else None for used, covered in self._cpu.cells)),
            memory_used_mb=_optional(tuple(None if size is None else size / MIB for size in self._memory.cells)),
            gpu_utilization_percent=_optional(
                tuple(total / count if count else None for total, count in self._gpu.cells)
            ),
            neuron_utilization_percent=_optional(
                tuple(total / count if count else None for total, count in self._neuron.cells)
            ),
        )

    @property
    def cpu_ns(self) -> int:
        """All CPU time that was added."""
        return sum(used for used, _ in self._cpu.cells)

    def _index(self, at_ns: int) -> int:
        """The step of a moment. Merges until the buffer reaches it."""
        index = (at_ns - self._started_ns) // self._step_ns
        while index >= self._capacity:
            self._merge()
            index = (at_ns - self._started_ns) // self._step_ns
        return max(index, 0)

    def _merge(self) -> None:
        self._step_ns *= 2
        self._cpu.cells = _merged_sums(self._cpu.cells)
        self._gpu.cells = _merged_sums(self._gpu.cells)
        self._neuron.cells = _merged_sums(self._neuron.cells)
        self._memory.cells = [
            max((size for size in pair if size is not None), default=None) for pair in _neighbours(self._memory.cells)
        ]

    def _add_devices(self, column: _Column[tuple[float, int]], at_ns: int, percents: DeviceTotals) -> None:
        if not percents.count:
            return
        index = self._index(at_ns)
        column.reach(index)
        total, count = column.cells[index]
        column.cells[index] = (total + percents.total, count + percents.count)


def with_columns(series: Series | None, other: RunSeries, names: Collection[str]) -> Series | None:
    """Replace columns of a series by those of another one of the same run.

    Args:
        series: The series; if it has longer steps, the other one is merged to these.
        other: The other series. If it has longer steps, the columns that stay are averaged (memory: the maximum).
        names: The names of the columns.
    """
    columns = other.values(0 if series is None else series.step_ms)
    taken = {} if columns is None else {name: getattr(columns, name) for name in names}
    taken = {name: values for name, values in taken.items() if values is not None}
    if columns is None or not taken:
        return series
    if series is None:
        return Series(started_at=columns.started_at, step_ms=columns.step_ms, **taken)
    if series.started_at != columns.started_at:
        return series
    factor = round(columns.step_ms / series.step_ms)
    kept = {
        name: _coarsen(values, factor, use_maximum=name == _MEMORY_COLUMN)
        for name in _COLUMNS
        if name not in taken and (values := getattr(series, name)) is not None
    }
    length = max(len(values) for values in (*kept.values(), *taken.values()))
    padded = {name: values + (None,) * (length - len(values)) for name, values in {**kept, **taken}.items()}
    return Series(started_at=series.started_at, step_ms=columns.step_ms, **padded)


def _coarsen(values: Column, factor: int, *, use_maximum: bool) -> Column:
    """Combine each ``factor`` values: to their maximum or their mean."""
    parts = [values[index : index + factor] for index in range(0, len(values), factor)]
    known = [[value for value in part if value is not None] for part in parts]
    return tuple(_rounded(max(part) if use_maximum else sum(part) / len(part)) if part else None for part in known)


def _rounded(value: float) -> float:
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")


def _neighbours(cells: Sequence[_Cell]) -> list[Sequence[_Cell]]:
    return [cells[index : index + 2] for index in range(0, len(cells), 2)]


def _merged_sums(cells: Sequence[tuple[_Total, int]]) -> list[tuple[_Total, int]]:
    """Add up the sums and counts of neighbouring cells."""
    return [(sum(total for total, _ in part), sum(count for _, count in part)) for part in _neighbours(cells)]


def _optional(values: Column) -> Column | None:
    """Rounded to three significant digits; None if no step was measured."""
    if all(value is None for value in values):
        return None
    return tuple(None if value is None else _rounded(value) for value in values)

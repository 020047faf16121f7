"""The batch's processes by command: totals and time series."""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.process_tree_usage import TreeMemory, counts_too_little
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.bounded_json_line import MAX_TEXT_LENGTH, truncate_text
from profiler.record.process_rows import OTHER_PROCESSES
from profiler.record.record_model import Process, Series
from profiler.record.units import CPU_SECONDS_DIGITS, bytes_to_mebibytes, format_share

if TYPE_CHECKING:
    from profiler.aggregation.series_by_command import SeriesByCommand

_SHOWN_PER_RANKING = 5
_MAX_SHOWN_OVER_TIME = 8
# Commands with different arguments count as different names: the smallest are dropped.
_MAX_NAMES = 500
_KEPT_PER_RANKING = 100
# A warning is worth more than a mark: see is_notable_cpu.
_MIN_MISSING_NS = 50 * NS_PER_MS
_MIN_MISSING_SHARE = 0.05
_UNREAD = "The CPU time of each process is a lower bound: processes ended before {} of it was read."
_UNREAD_MEMORY = (
    "The memory of {} in the list of processes is a lower bound: how much it held of the shared "
    "memory that it mapped could not be read in time."
)

# A reading of a process with the name of its entry.
_Named = tuple["_ProcessName", ProcessReading]
# How the arguments of a process are shown; None hides them.
ShowArguments = Callable[[ProcessReading], str | None]


class _ProcessName(Struct, frozen=True):
    """Processes with the same command and shown arguments are one entry of the record."""

    command: str
    arguments: str | None

    @property
    def text(self) -> str:
        if self.arguments is None:
            words = self.command
        else:
            words = f"{self.command} {self.arguments}"
        return truncate_text(words, MAX_TEXT_LENGTH)


class _NameTotal(Struct, frozen=True, gc=False):
    """The number and CPU time of the processes of one name."""

    count: int = 0
    cpu_ns: int = 0

    def with_further(self, cpu_ns: int, count: int = 1) -> "_NameTotal":
        """The total with further processes; 0: with more CPU time of the same."""
        return _NameTotal(self.count + count, self.cpu_ns + cpu_ns)


class _ReadingByName(Struct):
    """What one reading shows of each name.

    ``changed`` are the names of which a process began, changed or ended.
    """

    present: dict[tuple[int, int], _Named] = field(default_factory=dict)
    readings: dict[_ProcessName, list[ProcessReading]] = field(default_factory=dict)
    used_ns: dict[_ProcessName, int] = field(default_factory=dict)
    changed: set[_ProcessName] = field(default_factory=set)


class ProcessTotals:
    """Sums up all processes by name.

    A name has only the CPU time that was read of its processes. What a process used after its last
    reading is in no name: it may be that of other processes, which began and ended unseen. What
    one used before it executed another program belongs to its name then.

    ``make_series`` makes the time series of the commands, at the first reading that it has.
    """

    def __init__(
        self,
        show_arguments: ShowArguments = lambda _: None,
        make_series: "Callable[[], SeriesByCommand[_ProcessName]] | None" = None,
    ) -> None:
        self._show_arguments = show_arguments
        self._make_series = make_series
        self._series: SeriesByCommand[_ProcessName] | None = None
        self._held_bytes: dict[_ProcessName, int] = {}
        self._last: Iterable[ProcessReading] = ()
        self._present: dict[tuple[int, int], _Named] = {}
        # The CPU time that present processes used by other names.
        self._earlier_ns: dict[tuple[int, int], int] = {}
        self._ended: dict[_ProcessName, _NameTotal] = {}
        self._dropped = _NameTotal()
        self._memory: dict[_ProcessName, TreeMemory] = {}
        # What ended processes may have held of shared memory in addition.
        self._unread_bytes: dict[_ProcessName, int] = {}
        self._read_cpu_ns = 0
        self._unread_cpu_ns = 0

    def add_reading(
        self, processes: Iterable[ProcessReading], read_ns: int | None = None, *, cpu_ns: int = 0
    ) -> None:
        """Add a reading; only one with a time is in the series.

        ``cpu_ns`` is the CPU time of all processes so far, also of those that ended unread.
        """
        used_ns: Mapping[_ProcessName, int] = {}
        if processes is not self._last:
            self._last = processes
            used_ns = self._add_processes(processes)
        self._read_cpu_ns += sum(used_ns.values())
        unread_ns = max(cpu_ns - self._read_cpu_ns - self._unread_cpu_ns, 0)
        self._unread_cpu_ns += unread_ns
        if self._make_series is not None and read_ns is not None:
            if self._series is None:
                self._series = self._make_series()
            self._series.add_reading(read_ns, used_ns, self._held_bytes, unread_ns=unread_ns)
        if len(self._memory) - len(self._present) > _MAX_NAMES:
            self._drop_smallest_names()

    def _add_processes(self, processes: Iterable[ProcessReading]) -> Mapping[_ProcessName, int]:
        """Add all processes; returns the CPU time that each name has used since the last ones."""
        step = _ReadingByName()
        for process in processes:
            self._add_process(process, step)
        for identity in self._present.keys() - step.present.keys():
            name, last = self._present[identity]
            self._end_process(name, last)
            self._earlier_ns.pop(identity, None)
            step.changed.add(name)
        self._present = step.present
        self._add_memory(step)
        return step.used_ns

    def _add_process(self, process: ProcessReading, step: _ReadingByName) -> None:
        identity = process.identity
        before = self._present.get(identity)
        if before is None:
            kept = process
            name = self._process_name(kept)
            used_ns = kept.own_cpu_ns
            step.changed.add(name)
        else:
            name, last = before
            kept = _with_last_memory(process, last)
            used_ns = kept.own_cpu_ns - last.own_cpu_ns
            if process is not last:
                step.changed.add(name)
            if (kept.name, kept.arguments) != (last.name, last.arguments):
                self._end_process(name, last)
                self._earlier_ns[identity] = last.own_cpu_ns
                name = self._process_name(kept)
                step.changed.add(name)
        if used_ns > 0:
            step.used_ns[name] = step.used_ns.get(name, 0) + used_ns
        step.readings.setdefault(name, []).append(process)
        step.present[identity] = (name, kept)

    def _process_name(self, process: ProcessReading) -> _ProcessName:
        return _ProcessName(process.name, self._show_arguments(process))

    def _end_process(self, name: _ProcessName, process: ProcessReading) -> None:
        self._ended[name] = self._ended.get(name, _NameTotal()).with_further(
            self._cpu_ns_since_last(process)
        )
        _raise_maximum(self._unread_bytes, name, process.unread_shmem_bytes)

    def _cpu_ns_since_last(self, process: ProcessReading) -> int:
        return max(process.own_cpu_ns - self._earlier_ns.get(process.identity, 0), 0)

    def _add_memory(self, step: _ReadingByName) -> None:
        for name in step.changed:
            memory = self._memory.setdefault(name, TreeMemory())
            self._held_bytes[name] = memory.add_reading(step.readings.get(name, ())) or 0
        if self._held_bytes.keys() != step.readings.keys():
            self._held_bytes = {name: self._held_bytes[name] for name in step.readings}

    def largest_process_rows(self) -> tuple[Process, ...]:
        """The five names with the most CPU time and the five with the highest memory peak, by
        descending CPU time, and the row of all other names.
        """
        totals = self._totals_by_name()
        shown = sorted(
            self._top_names(totals, _SHOWN_PER_RANKING), key=lambda name: -totals[name].cpu_ns
        )
        rows = [self._process_row(name, totals[name]) for name in shown]
        hidden = self._dropped
        for name, total in totals.items():
            if name not in shown:
                hidden = hidden.with_further(total.cpu_ns, total.count)
        if hidden.count:
            seconds = round(hidden.cpu_ns / NS_PER_SECOND, CPU_SECONDS_DIGITS)
            rows.append(Process(name=OTHER_PROCESSES, count=hidden.count, cpu_seconds=seconds))
        return tuple(rows)

    def _process_row(self, name: _ProcessName, total: _NameTotal) -> Process:
        memory = self._memory[name]
        holders = None if memory.peak_bytes is None else memory.peak_processes
        return Process(
            name=name.command,
            arguments=name.arguments,
            count=total.count,
            cpu_seconds=round(total.cpu_ns / NS_PER_SECOND, CPU_SECONDS_DIGITS),
            max_memory_used_mb=bytes_to_mebibytes(memory.peak_bytes),
            max_memory_used_processes=holders,
        )

    def unread_process_warnings(self, total_ns: int) -> tuple[str, ...]:
        """A sentence if an important part of ``total_ns`` was never read, and one if the same
        holds for the memory of a listed name.
        """
        warnings: list[str] = []
        missing_ns = total_ns - self._read_cpu_ns
        if missing_ns >= max(_MIN_MISSING_NS, _MIN_MISSING_SHARE * total_ns):
            warnings.append(_UNREAD.format(format_share(missing_ns, total_ns)))
        unread = dict(self._unread_bytes)
        for name, process in self._present.values():
            _raise_maximum(unread, name, process.unread_shmem_bytes)
        names: dict[str, None] = {}
        for name in self._top_names(self._totals_by_name(), _SHOWN_PER_RANKING) if unread else ():
            peak_bytes = self._memory[name].peak_bytes or 0
            if counts_too_little(peak_bytes, peak_bytes + unread.get(name, 0)):
                names[name.command] = None
        if names:
            warnings.append(_UNREAD_MEMORY.format(", ".join(names)))
        return tuple(warnings)

    def with_commands(self, series: Series | None) -> Series | None:
        """Return the run's time series with those of at most eight commands of
        :meth:`largest_process_rows`, and of all others.
        """
        own = self._series
        if series is None or own is None:
            return series
        totals = self._totals_by_name()
        shown = [name for name in self._top_names(totals, _SHOWN_PER_RANKING) if name in own]
        largest = shown[:_MAX_SHOWN_OVER_TIME]
        largest.sort(key=lambda name: -totals[name].cpu_ns)
        return own.with_commands(series, {name: name.text for name in largest})

    def _totals_by_name(self) -> Mapping[_ProcessName, _NameTotal]:
        totals = dict(self._ended)
        for name, process in self._present.values():
            totals[name] = totals.get(name, _NameTotal()).with_further(
                self._cpu_ns_since_last(process)
            )
        return totals

    def _drop_smallest_names(self) -> None:
        kept = set(self._top_names(self._ended, _KEPT_PER_RANKING))
        for name, total in self._ended.items():
            if name not in kept:
                self._dropped = self._dropped.with_further(total.cpu_ns, total.count)
        self._ended = {name: self._ended[name] for name in kept}
        kept.update(name for name, _ in self._present.values())
        self._memory = {name: memory for name, memory in self._memory.items() if name in kept}
        unread = self._unread_bytes
        self._unread_bytes = {name: unread[name] for name in unread if name in kept}

    def _top_names(
        self, totals: Mapping[_ProcessName, _NameTotal], count: int
    ) -> Iterable[_ProcessName]:
        """The largest names by CPU time and by memory peak, alternately."""
        by_cpu = sorted(totals, key=lambda name: -totals[name].cpu_ns)[:count]
        by_peak = sorted(totals, key=lambda name: -(self._memory[name].peak_bytes or 0))[:count]
        return dict.fromkeys(chain.from_iterable(zip(by_cpu, by_peak, strict=True)))


def _raise_maximum(sizes: dict[_ProcessName, int], name: _ProcessName, size_bytes: int) -> None:
    if size_bytes > sizes.get(name, 0):
        sizes[name] = size_bytes


def _with_last_memory(process: ProcessReading, last: ProcessReading) -> ProcessReading:
    """The reading; a zombie has no memory any more, and keeps the last reading's with its
    high-water mark.
    """
    if process.peak_bytes is not None or last.peak_bytes is None:
        return process
    return replace(last, own_cpu_ns=process.own_cpu_ns, children_cpu_ns=process.children_cpu_ns)

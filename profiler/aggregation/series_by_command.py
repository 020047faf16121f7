"""The time series of a run's commands: the largest ones, and all others together, in constant
memory.
"""

from collections.abc import Collection, Hashable, Mapping
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.time_series import RunSeries, columns_of, padded_column
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.activity_model import ProcessSeries
from profiler.record.record_model import Series
from profiler.record.units import as_number

OTHER = "other"
_MAX_COMMANDS = 32
# This many commands with the most CPU time, and with the most memory, are never dropped.
_PROTECTED_PER_RANKING = 8
_DROPPED_AT_ONCE = 8
# A reading of the memory counts for at most this time before it.
_MAX_HELD_NS = 20 * NS_PER_SECOND

_Key = TypeVar("_Key", bound=Hashable)


class _Command(Struct):
    """A command that has its own series.

    Before ``known_from_ns`` it may have been among the others.
    """

    series: RunSeries
    known_from_ns: int
    cpu_ns: int = 0
    peak_bytes: int = 0


class SeriesByCommand(Generic[_Key]):
    """Collects the series of each command. The arguments are those of the run's own series.

    With too many commands, the smallest are merged into the others. A command that is seen again
    later has no values for the time before. ``is_new``: no process is older than the run; else the
    CPU time before it is unknown.
    """

    def __init__(
        self,
        started_ns: int,
        step_ns: int,
        points: int,
        *,
        is_new: bool = True,
        finest_ns: int | None = None,
    ) -> None:
        self._started_ns = started_ns
        self._new_series = partial(RunSeries, started_ns, step_ns, points, finest_ns)
        self._read_ns = started_ns if is_new else None
        self._max_held_ns = step_ns  # the first reading shows nothing of the time before it
        self._whole = self._new_series()
        self._rest = self._new_series()
        self._has_rest = False
        self._commands: dict[_Key, _Command] = {}
        self._dropped: set[_Key] = set()

    def add(
        self, read_ns: int, cpu_ns: Mapping[_Key, int], memory_bytes: Mapping[_Key, int]
    ) -> None:
        """Add a reading: the CPU time of commands since the last one, the memory of each that
        has a process.
        """
        since_ns = self._read_ns
        elapsed_ns = 0 if since_ns is None else max(read_ns - since_ns, 0)
        held_ns = min(elapsed_ns, self._max_held_ns)
        self._read_ns, self._max_held_ns = read_ns, _MAX_HELD_NS
        if self._dropped:
            self._dropped &= memory_bytes.keys()
        if not memory_bytes.keys() <= self._commands.keys():
            self._begin_commands(memory_bytes, since_ns)
        rest_bytes = rest_cpu_ns = 0
        for key, size_bytes in memory_bytes.items():
            command = self._commands.get(key)
            if command is None:
                rest_bytes += size_bytes
                continue
            command.series.add_memory(read_ns, size_bytes, held_ns=held_ns)
            command.peak_bytes = max(command.peak_bytes, size_bytes)
        for key, used_ns in cpu_ns.items():  # also of a command whose last process has ended
            command = self._commands.get(key)
            if command is None:
                rest_cpu_ns += used_ns
                continue
            command.series.add_cpu(read_ns - elapsed_ns, read_ns, used_ns)
            command.cpu_ns += used_ns
        if self._dropped:
            self._rest.add_memory(read_ns, rest_bytes, held_ns=held_ns)
        if rest_cpu_ns:
            self._rest.add_cpu(read_ns - elapsed_ns, read_ns, rest_cpu_ns)
        self._whole.add_memory(read_ns, sum(memory_bytes.values()), held_ns=held_ns)
        self._whole.add_cpu(read_ns - elapsed_ns, read_ns, sum(cpu_ns.values()))

    def __contains__(self, key: _Key) -> bool:
        """Whether a command has its own series."""
        return key in self._commands

    def add_to(self, series: Series, shown: Mapping[_Key, str]) -> Series:
        """The run's series, with shorter steps merged, those of the commands ``shown`` by text,
        and all others'.
        """
        whole = self._whole.copy(min_step_ms=series.step_ms)
        if not whole.length or series.started_at != format_ms(self._started_ns):
            return series
        step_ms = whole.step_ns / NS_PER_MS
        parts = {key: self._commands[key].series.copy(min_step_ms=step_ms) for key in shown}
        entries = [
            (text, parts[key], self._commands[key].known_from_ns) for key, text in shown.items()
        ]
        hidden = [command.series for key, command in self._commands.items() if key not in shown]
        if hidden or self._has_rest:
            others = self._rest.copy(min_step_ms=step_ms)
            for part in hidden:
                others.absorb(part.copy(min_step_ms=step_ms))
            # At least the memory that the shown commands leave of the whole: the largest of several
            # commands is less than all of them held together.
            shown_bytes = [part.memory.padded(whole.length) for part in parts.values()]
            for index, size_bytes in enumerate(whole.memory.cells):
                if size_bytes is not None:
                    others.memory.add(
                        index, max(size_bytes - sum(sizes[index] or 0 for sizes in shown_bytes), 0)
                    )
            entries.append((OTHER, others, self._started_ns))
        columns = columns_of(series, step_ms)
        length = max([whole.length, *(len(values) for values in columns.values())])
        processes = []
        for text, part, known_from_ns in entries:
            _fill_with_zeros(part, whole, (known_from_ns - self._started_ns) // whole.step_ns)
            values = part.values()
            processes.append(
                ProcessSeries(
                    command=text,
                    vcpu_used=padded_column(values.vcpu_used if values else None, length),
                    memory_used_mb=padded_column(values.memory_used_mb if values else None, length),
                )
            )
        padded = {name: padded_column(values, length) for name, values in columns.items()}
        return replace(
            series,
            step_ms=as_number(step_ms) or series.step_ms,
            processes=tuple(processes),
            **padded,
        )

    def _begin_commands(self, present: Mapping[_Key, int], since_ns: int | None) -> None:
        new = [key for key in present if key not in self._commands and key not in self._dropped]
        if len(self._commands) + len(new) > _MAX_COMMANDS:
            self._drop_smallest(present)
            new.sort(key=lambda key: -present[key])
        room = _MAX_COMMANDS - len(self._commands)
        self._dropped.update(new[room:])
        known_from_ns = since_ns if self._has_rest and since_ns is not None else self._started_ns
        for key in new[:room]:
            self._commands[key] = _Command(self._new_series(), known_from_ns)
        self._has_rest = self._has_rest or bool(self._dropped)

    def _drop_smallest(self, present: Collection[_Key]) -> None:
        """Merge the smallest commands into the others, first those that have no process."""
        commands = self._commands
        by_cpu = sorted(commands, key=lambda key: -commands[key].cpu_ns)
        by_memory = sorted(commands, key=lambda key: -commands[key].peak_bytes)
        protected = {*by_cpu[:_PROTECTED_PER_RANKING], *by_memory[:_PROTECTED_PER_RANKING]}
        rank = {key: min(by_cpu.index(key), by_memory.index(key)) for key in commands}
        candidates = sorted(
            commands.keys() - protected, key=lambda key: (key in present, -rank[key])
        )
        for key in candidates[:_DROPPED_AT_ONCE]:
            self._rest.absorb(commands.pop(key).series)
            self._has_rest = True
            if key in present:
                self._dropped.add(key)


def _fill_with_zeros(part: RunSeries, whole: RunSeries, first: int) -> None:
    """Count 0 from the step ``first`` on where the whole was measured and the part was not seen."""
    length = whole.length
    cpu = zip(part.cpu.padded(length), whole.cpu.padded(length), strict=True)
    part.cpu.cells = [
        (used_ns, covered_ns) if index >= first else part.cpu.empty
        for index, ((used_ns, _), (_, covered_ns)) in enumerate(cpu)
    ]
    memory = zip(part.memory.padded(length), whole.memory.padded(length), strict=True)
    part.memory.cells = [
        0 if size is None and whole_size is not None and index >= first else size
        for index, (size, whole_size) in enumerate(memory)
    ]

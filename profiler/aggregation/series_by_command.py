"""The time series of a run's commands: the largest ones, and all others together, in constant
memory.

Commands are read less often than the run:
:mod:`profiler.aggregation.command_series_alignment` puts them on the steps of the run's series.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.command_series_alignment import (
    CommandStepValues,
    RunStepValues,
    process_series,
    remaining_cells,
)
from profiler.aggregation.time_series import RunSeries
from profiler.core.optional_math import excess
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.equal_steps import longest_column_length, padded_series, with_longer_steps
from profiler.record.process_rows import OTHER_PROCESSES, is_notable_cpu
from profiler.record.record_model import Series

_MAX_COMMANDS = 32
# This many commands with the most CPU time, and with the most memory, are never dropped.
_PROTECTED_PER_RANKING = 8
_DROPPED_AT_ONCE = 8
# A reading of the memory counts for at most this time before it.
_MAX_HELD_NS = 20 * NS_PER_SECOND

_Key = TypeVar("_Key", bound=Hashable)


class _CommandSeries(Struct):
    """A command that has its own series, or several.

    Between two readings, a command is taken to have had at least the smaller one (in ``series``)
    and at most the larger one (in ``most``). Before ``known_from_ns`` it may have been among the
    others.
    """

    series: RunSeries
    most: RunSeries
    known_from_ns: int
    cpu_ns: int = 0
    held_bytes: int = 0
    peak_bytes: int = 0

    def add_memory(self, read_ns: int, size_bytes: int | None, held_ns: int) -> None:
        """Add a reading, which is later than the last one by ``held_ns`` or more; None: the command
        has no process.
        """
        now_bytes = size_bytes or 0
        before_bytes = self.held_bytes
        self.held_bytes = now_bytes
        is_held = held_ns > 0 and (before_bytes > 0 or now_bytes > 0)
        if size_bytes is not None:
            self.peak_bytes = max(self.peak_bytes, now_bytes)
            if not is_held or now_bytes > before_bytes:
                self.series.add_memory(read_ns, now_bytes, held_ns=min(held_ns, 1))
        if not is_held:
            return
        self.series.add_memory(read_ns, min(before_bytes, now_bytes), held_ns=held_ns)
        self.most.add_memory(read_ns, max(before_bytes, now_bytes), held_ns=held_ns)

    def add_cpu(self, start_ns: int, end_ns: int, used_ns: int) -> None:
        self.series.add_cpu(start_ns, end_ns, used_ns)
        self.cpu_ns += used_ns

    def add_other(self, other: "_CommandSeries") -> None:
        """Count the readings of another command, which may be of other times."""
        self.series.add_other_series(other.series)
        self.most.add_other_series(other.most)
        self.cpu_ns += other.cpu_ns

    def copy(self, step_ms: float) -> "_CommandSeries":
        """The readings so far, in steps that are at least this long."""
        return replace(
            self,
            series=self.series.copy_within_limits(min_step_ms=step_ms),
            most=self.most.copy_within_limits(min_step_ms=step_ms),
        )

    def step_values(self, length: int, first_step: int = 0) -> CommandStepValues:
        """The values of so many steps, unknown before ``first_step``."""
        least = [size or 0 for size in self.series.memory.padded_cells(length)]
        most = [size or 0 for size in self.most.memory.padded_cells(length)]
        return CommandStepValues(
            cpu_ns=[round(used_ns) for used_ns, _ in self.series.cpu.padded_cells(length)],
            least_bytes=least,
            most_bytes=[max(pair) for pair in zip(least, most, strict=True)],
            first_step=first_step,
        )


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
        self._whole = self._new_command(started_ns)  # of all processes together
        self._rest = self._new_command(started_ns)
        self._has_rest = False
        self._named_ns = 0
        self._commands: dict[_Key, _CommandSeries] = {}
        self._dropped: set[_Key] = set()

    def add_reading(
        self,
        read_ns: int,
        cpu_ns: Mapping[_Key, int],
        memory_bytes: Mapping[_Key, int],
        *,
        unread_ns: int = 0,
    ) -> None:
        """Add a reading: the CPU time of commands since the last one, the memory of each that
        has a process. ``unread_ns`` is the CPU time that no command is known to have used.
        """
        since_ns = self._read_ns
        elapsed_ns = excess(read_ns, since_ns) or 0
        held_ns = min(elapsed_ns, self._max_held_ns)
        self._read_ns = read_ns
        self._max_held_ns = _MAX_HELD_NS
        if self._dropped:
            self._dropped &= memory_bytes.keys()
        if not memory_bytes.keys() <= self._commands.keys():
            self._begin_commands(memory_bytes, since_ns)
        self._add_memory(read_ns, memory_bytes, held_ns)
        start_ns = read_ns - elapsed_ns
        rest_cpu_ns = 0
        for key, used_ns in cpu_ns.items():  # also of a command whose last process has ended
            command = self._commands.get(key)
            if command is None:
                rest_cpu_ns += used_ns
            else:
                command.add_cpu(start_ns, read_ns, used_ns)
        if rest_cpu_ns:
            self._rest.add_cpu(start_ns, read_ns, rest_cpu_ns)
        named_ns = sum(cpu_ns.values())
        self._named_ns += named_ns
        self._whole.add_cpu(start_ns, read_ns, named_ns + unread_ns)

    def _add_memory(self, read_ns: int, memory_bytes: Mapping[_Key, int], held_ns: int) -> None:
        rest_bytes = 0
        least_bytes = 0
        most_bytes = 0
        for key, command in self._commands.items():
            size_bytes = memory_bytes.get(key)
            least_bytes += min(command.held_bytes, size_bytes or 0)
            most_bytes += max(command.held_bytes, size_bytes or 0)
            command.add_memory(read_ns, size_bytes, held_ns)
        for key, size_bytes in memory_bytes.items():
            if key not in self._commands:
                rest_bytes += size_bytes
        least_bytes += min(self._rest.held_bytes, rest_bytes)
        most_bytes += max(self._rest.held_bytes, rest_bytes)
        if self._dropped or self._rest.held_bytes:
            self._rest.add_memory(read_ns, rest_bytes, held_ns)
        whole = self._whole
        now_bytes = sum(memory_bytes.values())
        if not held_ns or now_bytes > least_bytes:
            whole.series.add_memory(read_ns, now_bytes, held_ns=min(held_ns, 1))
        whole.series.add_memory(read_ns, least_bytes, held_ns=held_ns)
        whole.most.add_memory(read_ns, most_bytes, held_ns=held_ns)

    def __contains__(self, key: _Key) -> bool:
        """Whether a command has its own series."""
        return key in self._commands

    def with_commands(self, series: Series, shown: Mapping[_Key, str]) -> Series:
        """The run's series, with shorter steps merged, those of the commands ``shown`` by text,
        and all others'.
        """
        whole = self._whole.copy(series.step_ms)
        if not whole.series.step_count or series.started_at != format_ms(self._started_ns):
            return series
        step_ns = whole.series.step_ns
        step_ms = step_ns / NS_PER_MS
        series = with_longer_steps(series, step_ms)
        length = max(whole.series.step_count, longest_column_length(series))
        series = padded_series(series, length)
        of_run = RunStepValues(
            cpu=whole.series.cpu.padded_cells(length),
            is_read=[size is not None for size in whole.series.memory.padded_cells(length)],
            series=series,
        )
        rows = {}
        for key, text in shown.items():
            command = self._commands[key]
            first_step = (command.known_from_ns - self._started_ns) // step_ns
            rows[text] = command.copy(step_ms).step_values(length, first_step)
        others = self._use_of_others(whole, list(rows.values()), shown, length)
        if others is not None:
            rows[OTHER_PROCESSES] = others
        return replace(series, processes=process_series(of_run, rows))

    def _use_of_others(
        self,
        whole: _CommandSeries,
        rows: Sequence[CommandStepValues],
        shown: Collection[_Key],
        length: int,
    ) -> CommandStepValues | None:
        """What the rows leave of the whole; None if that is nothing but rounding."""
        step_ms = whole.series.step_ns / NS_PER_MS
        hidden = [command for key, command in self._commands.items() if key not in shown]
        whole_ns = sum(used_ns for used_ns, _ in whole.series.cpu.cells)
        unread_seconds = (whole_ns - self._named_ns) / NS_PER_SECOND
        has_hidden = bool(hidden) or self._has_rest
        if not has_hidden and not is_notable_cpu(unread_seconds, whole_ns / NS_PER_SECOND):
            return None
        largest = self._rest.copy(step_ms)
        for command in hidden:
            largest.add_other(command.copy(step_ms))
        return remaining_cells(
            whole.step_values(length), rows, largest.step_values(length), has_memory=has_hidden
        )

    def _new_command(self, known_from_ns: int) -> _CommandSeries:
        return _CommandSeries(self._new_series(), self._new_series(), known_from_ns)

    def _begin_commands(self, present: Mapping[_Key, int], since_ns: int | None) -> None:
        new = [key for key in present if key not in self._commands and key not in self._dropped]
        if len(self._commands) + len(new) > _MAX_COMMANDS:
            self._drop_smallest(present)
            new.sort(key=lambda key: -present[key])
        room = _MAX_COMMANDS - len(self._commands)
        self._dropped.update(new[room:])
        known_from_ns = self._started_ns
        if self._has_rest and since_ns is not None:
            known_from_ns = since_ns
        for key in new[:room]:
            self._commands[key] = self._new_command(known_from_ns)
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
            command = commands.pop(key)
            self._rest.add_other(command)
            self._rest.held_bytes += command.held_bytes
            self._has_rest = True
            if key in present:
                self._dropped.add(key)

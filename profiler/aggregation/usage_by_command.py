"""The batch's processes by command: totals, time series, and out-of-memory kills."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.process_totals import TreeMemory
from profiler.aggregation.statistics import MonotonicCounter
from profiler.core.optional_math import min_known
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.bounded_json_line import MAX_TEXT_LENGTH, truncate_text
from profiler.record.record_model import MemoryKills, Process, Series
from profiler.record.units import CPU_SECONDS_DIGITS, format_percent, mebibytes

if TYPE_CHECKING:
    from profiler.aggregation.series_by_command import SeriesByCommand

_SHOWN_PER_RANKING = 5
_MAX_SHOWN_OVER_TIME = 8
# Commands with different arguments count as different names: the smallest are dropped.
_MAX_NAMES = 500
_KEPT_PER_RANKING = 100
_MAX_KILLED_SHOWN = 5
# The kernel has the CPU time of ended children in two parts, each rounded down to 10 ms.
_MIN_MISSING_NS, _MIN_MISSING_SHARE = 50 * NS_PER_MS, 0.05

_ACTIVE_STATES = ("R", "D")

_Kill = Literal["in container", "on host", "main process"]
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
        words = self.command if self.arguments is None else f"{self.command} {self.arguments}"
        return truncate_text(words, MAX_TEXT_LENGTH)


class _Total(Struct, frozen=True, gc=False):
    """The number and CPU time of the processes of one name."""

    count: int = 0
    cpu_ns: int = 0

    def plus(self, cpu_ns: int) -> "_Total":
        return _Total(self.count + 1, self.cpu_ns + cpu_ns)


class ProcessTotals:
    """Sums up all processes by name.

    What one used before it executed another program belongs to its name then.

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
        self._read_ns: int | None = None
        self._held_bytes: dict[_ProcessName, int] = {}
        self._present: dict[tuple[int, int], tuple[_ProcessName, ProcessReading]] = {}
        self._earlier_ns: dict[
            tuple[int, int], int
        ] = {}  # the CPU time that present processes used by other names
        self._active: set[tuple[int, int]] = (
            set()
        )  # the present processes that ran in the last step
        self._ended: dict[_ProcessName, _Total] = {}
        self._owed_ns: Mapping[tuple[int, int], int] = {}  # by parent: see _unread_ns
        self._memory: dict[_ProcessName, TreeMemory] = {}
        self._read_cpu_ns = 0

    def add(
        self,
        processes: Iterable[ProcessReading],
        read_ns: int | None = None,
        *,
        total_bytes: int | None = None,
    ) -> None:
        """Add a reading; in the series, where it has a time, no command exceeds the
        ``total_bytes`` of all together.
        """
        before, now = self._present, dict[tuple[int, int], tuple[_ProcessName, ProcessReading]]()
        readings: dict[_ProcessName, list[ProcessReading]] = {}
        changed: set[_ProcessName] = set()
        used_ns: dict[_ProcessName, int] = {}
        active: set[tuple[int, int]] = set()
        for process in processes:
            identity = process.identity
            name, last = before.get(identity, (None, None))
            kept = process if last is None else _with_memory_of(process, last)
            if (
                name is None
                or last is None
                or (kept.name, kept.arguments) != (last.name, last.arguments)
            ):
                if name is not None and last is not None:
                    changed.add(name)
                    self._end(name, last)
                    self._earlier_ns[identity] = last.own_cpu_ns
                name = _ProcessName(kept.name, self._show_arguments(kept))
            if process is not last:
                changed.add(name)
            readings.setdefault(name, []).append(process)
            now[identity] = name, kept
            growth_ns = kept.own_cpu_ns - (0 if last is None else last.own_cpu_ns)
            # The first reading shows the time since the start: a shell that waits for its child
            # used some of it.
            has_run = growth_ns > 0 and (last is not None or process.threads > 1)
            if has_run or process.state in _ACTIVE_STATES:
                active.add(identity)
            if growth_ns > 0:
                used_ns[name] = used_ns.get(name, 0) + growth_ns
        ended = before.keys() - now.keys()
        if ended:
            changed.update(self._count_ended(ended, now, read_ns, used_ns))
        else:
            self._owed_ns = {}
        self._read_ns = read_ns
        self._read_cpu_ns += sum(used_ns.values())
        self._add_memory(changed, readings)
        if self._make_series is not None and read_ns is not None:
            self._series = self._series or self._make_series()
            held = self._held_bytes.items()
            self._series.add(
                read_ns, used_ns, {name: min_known(size, total_bytes) or 0 for name, size in held}
            )
        self._present, self._active = now, active
        if len(self._memory) - len(now) > _MAX_NAMES:
            self._drop_smallest()

    def _end(self, name: _ProcessName, process: ProcessReading) -> None:
        self._ended[name] = self._ended.get(name, _Total()).plus(self._cpu_ns(process))

    def _cpu_ns(self, process: ProcessReading) -> int:
        return max(process.own_cpu_ns - self._earlier_ns.get(process.identity, 0), 0)

    def _count_ended(
        self,
        ended: Collection[tuple[int, int]],
        now: Mapping[tuple[int, int], _Named],
        read_ns: int | None,
        used_ns: dict[_ProcessName, int],
    ) -> Iterable[_ProcessName]:
        """Count the processes that ended since the last reading; returns their names."""
        before = self._present
        for identity in ended:
            name, process = before[identity]
            self._end(name, process)
            self._earlier_ns.pop(identity, None)
        step_ns = None if read_ns is None or self._read_ns is None else read_ns - self._read_ns
        unread, self._owed_ns = _unread_ns(before, now, self._active, step_ns, self._owed_ns)
        for name, unread_ns in unread:
            self._ended[name] = replace(
                self._ended[name], cpu_ns=self._ended[name].cpu_ns + unread_ns
            )
            used_ns[name] = used_ns.get(name, 0) + unread_ns
        return {before[identity][0] for identity in ended}

    def _add_memory(
        self,
        changed: Iterable[_ProcessName],
        readings: Mapping[_ProcessName, Sequence[ProcessReading]],
    ) -> None:
        for name in changed:
            self._held_bytes[name] = (
                self._memory.setdefault(name, TreeMemory()).add(readings.get(name, ())) or 0
            )
        if self._held_bytes.keys() != readings.keys():
            self._held_bytes = {name: self._held_bytes[name] for name in readings}

    def top(self) -> tuple[Process, ...]:
        """The five names with the most CPU time and the five with the highest memory peak, by
        descending CPU time.
        """
        totals = self._totals()
        shown = sorted(
            self._top_names(totals, _SHOWN_PER_RANKING), key=lambda name: -totals[name].cpu_ns
        )
        return tuple(
            Process(
                name=name.command,
                arguments=name.arguments,
                count=totals[name].count,
                cpu_seconds=round(totals[name].cpu_ns / NS_PER_SECOND, CPU_SECONDS_DIGITS),
                max_memory_used_mb=mebibytes(memory.peak_bytes),
                max_memory_used_processes=None
                if memory.peak_bytes is None
                else memory.peak_processes,
            )
            for name, memory in ((name, self._memory[name]) for name in shown)
        )

    def warnings(self, total_ns: int) -> tuple[str, ...]:
        """A sentence if a part of ``total_ns`` is missing: of processes that ended unread, or
        several together.
        """
        missing_ns = total_ns - self._read_cpu_ns
        if missing_ns < max(_MIN_MISSING_NS, _MIN_MISSING_SHARE * total_ns):
            return ()
        missing = format_percent(100 * missing_ns / total_ns)
        return (
            (
                f"The CPU time of each process is a lower bound: processes ended before {missing} "
                "of it was read."
            ),
        )

    def with_commands(self, series: Series | None) -> Series | None:
        """Return the run's time series with those of at most eight commands of :meth:`top`, and
        of all others.
        """
        own = self._series
        if series is None or own is None:
            return series
        totals = self._totals()
        shown = [name for name in self._top_names(totals, _SHOWN_PER_RANKING) if name in own][
            :_MAX_SHOWN_OVER_TIME
        ]
        shown.sort(key=lambda name: -totals[name].cpu_ns)
        return own.add_to(series, {name: name.text for name in shown})

    def _totals(self) -> Mapping[_ProcessName, _Total]:
        totals = dict(self._ended)
        for name, process in self._present.values():
            totals[name] = totals.get(name, _Total()).plus(self._cpu_ns(process))
        return totals

    def _drop_smallest(self) -> None:
        kept = set(self._top_names(self._ended, _KEPT_PER_RANKING))
        self._ended = {name: self._ended[name] for name in kept}
        kept.update(name for name, _ in self._present.values())
        self._memory = {name: memory for name, memory in self._memory.items() if name in kept}

    def _top_names(
        self, totals: Mapping[_ProcessName, _Total], count: int
    ) -> Iterable[_ProcessName]:
        """The largest names by CPU time and by memory peak, alternately."""
        by_cpu = sorted(totals, key=lambda name: -totals[name].cpu_ns)[:count]
        by_peak = sorted(totals, key=lambda name: -(self._memory[name].peak_bytes or 0))[:count]
        return dict.fromkeys(chain.from_iterable(zip(by_cpu, by_peak, strict=True)))


def _with_memory_of(process: ProcessReading, last: ProcessReading) -> ProcessReading:
    """The reading; a zombie has no memory any more, and keeps the last reading's with its
    high-water mark.
    """
    if process.peak_bytes is not None or last.peak_bytes is None:
        return process
    return replace(last, own_cpu_ns=process.own_cpu_ns, children_cpu_ns=process.children_cpu_ns)


def _unread_ns(
    before: Mapping[tuple[int, int], _Named],
    now: Mapping[tuple[int, int], _Named],
    active: Container[tuple[int, int]],
    step_ns: int | None,
    owed_ns: Mapping[tuple[int, int], int],
) -> tuple[Sequence[tuple[_ProcessName, int]], Mapping[tuple[int, int], int]]:
    """What processes of one name used between their last reading and their end: their parent has
    it after its wait.

    Those that did not run before it, such as a shell that waits for its child, count only if none
    did. More than the step on each of their threads is of children that were never seen.

    Also returns, by parent, the known CPU time of ended children that the parent does not have yet,
    because it was read before its wait. ``owed_ns`` is that of the last reading.
    """
    gone: dict[tuple[int, int], list[_Named]] = {}
    by_pid = {process.pid: process for _, process in before.values()}
    for identity in before.keys() - now.keys():
        parent: ProcessReading | None = before[identity][1]
        for _ in by_pid:  # up to the nearest that did not end
            parent = (
                by_pid.get(parent.parent_pid) if parent is not None and parent.parent_pid else None
            )
            if parent is not None and parent.identity in now:
                break
        if parent is not None and parent.identity in now:
            gone.setdefault(parent.identity, []).append(before[identity])
    unread, still_owed_ns = list[tuple[_ProcessName, int]](), dict[tuple[int, int], int]()
    for identity, children in gone.items():
        running = [one for one in children if one[1].identity in active] or children
        names = {name for name, _ in running}
        known_ns = owed_ns.get(identity, 0) + sum(
            [
                one.own_cpu_ns + one.children_cpu_ns + owed_ns.get(one.identity, 0)
                for _, one in children
            ]
        )
        unread_ns = (
            now[identity][1].children_cpu_ns - before[identity][1].children_cpu_ns - known_ns
        )
        still_owed_ns[identity] = max(-unread_ns, 0)
        if step_ns is not None:
            unread_ns = min(unread_ns, step_ns * sum([one.threads for _, one in running]))
        if len(names) == 1 and unread_ns > 0:
            unread.append((names.pop(), unread_ns))
    return unread, still_owed_ns


class OomKillTracker(Struct):
    """Attributes increases of the OOM kill counter to processes that ended at the same time.

    A killed process is missing in the reading in which the counter rose, or in the next one. The
    host's counter, for a container whose own is not readable, also counts other tasks: on a host
    with several, a kill is the batch's only if its main process ended then, by SIGKILL.
    ``host_kills`` are all that can be the batch's.
    """

    _in_container: MonotonicCounter = field(default_factory=MonotonicCounter)
    _host_before: int | None = None
    host_kills: Counter[_Kill] = field(default_factory=Counter)
    _pending: int = 0
    _pending_on_host: int = 0
    _victims: list[tuple[_Kill, Process]] = field(default_factory=list)

    def restart(self) -> None:
        """The container has a new control group, whose counter begins at 0."""
        self._in_container.restart()

    def add(
        self,
        in_container: int | None,
        on_host: int | None,
        ended: Sequence[ProcessReading],
        missed_pids: int,
        *,
        has_main_ended: bool = False,
    ) -> None:
        """Add a reading of the kernel's counters of OOM kills: in the container, and on the host
        since its boot.

        ``ended`` have ended since the last reading; ``missed_pids`` started and ended in between.
        """
        kind: _Kill = "in container"
        before, self._host_before = self._host_before, on_host
        if in_container is not None:
            growth = self._in_container.add(in_container)
            new_kills = in_container if growth is None else growth
        else:  # the container's counter is not readable
            kind = "main process" if has_main_ended else "on host"
            new_kills = 0 if on_host is None or before is None else max(on_host - before, 0)
        pending = self._pending + new_kills
        victims = sorted(ended, key=lambda process: -(process.rss_bytes or 0))[:pending]
        attributed = len(victims) or min(pending, missed_pids)
        attributed_on_host = (
            0 if in_container is not None else min(attributed, self._pending_on_host + new_kills)
        )
        self.host_kills[kind] += attributed_on_host
        kind = kind if attributed_on_host else "in container"
        shown = (
            (kind, Process(name=one.name, max_memory_used_mb=mebibytes(one.rss_bytes)))
            for one in victims
        )
        self._victims = [*self._victims, *shown][-_MAX_KILLED_SHOWN:]
        self._pending = min(new_kills, pending - attributed)
        self._pending_on_host = 0 if in_container is not None else self._pending

    def kills(self, *, is_host_dedicated: bool, was_killed: bool) -> MemoryKills | None:
        """The kills so far; None if none can be attributed to the batch, which SIGKILL ended if
        it ``was_killed``.
        """
        kinds: list[_Kill] = ["in container"]
        if is_host_dedicated:
            kinds += ["on host", "main process"]
        elif was_killed:
            kinds += ["main process"]
        count = (self._in_container.total or 0) + sum(self.host_kills[kind] for kind in kinds)
        victims = tuple(process for kind, process in self._victims if kind in kinds)
        return MemoryKills(count=count, processes=victims) if count else None

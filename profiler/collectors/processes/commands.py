"""The batch's processes by command: arguments as they may be shown, totals, and out-of-memory kills."""

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from profiler.aggregation.statistics import MonotonicCounter
from profiler.core.optional_math import max_known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.model import MemoryKills, Process
from profiler.record.units import CPU_SECONDS_DIGITS, mebibytes
from profiler.sources.linux.process_tree import ProcessReading

_MASK = "…"
_SEPARATOR = "[=:]"
# In names of options and variables; "key" alone would hide --key-column and the like.
_SECRET_NAME = re.compile(
    r"pass(?:word|wd|phrase)?$|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential|auth|signature",
    re.IGNORECASE,
)
_NAMED_VALUE = re.compile(rf"(-{{0,2}}[\w.-]+{_SEPARATOR})(.+)", re.DOTALL)
_OPTION = re.compile(r"-{1,2}[\w.-]+")
_USER_IN_ADDRESS = re.compile(r"(\w+://)[^/@\s]+@")
# Keys and tokens: long, of letters and digits, no path, no sentence.
_OPAQUE_TOKEN = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[A-Za-z0-9+_=-]{24,}")


def redact(words: Sequence[str]) -> str:
    """A command line without what looks like a secret.

    Hidden are the values of options and variables whose name speaks of a secret, users and
    passwords in addresses, and long opaque words.
    """
    shown: list[str] = []
    masks_next = False
    for word in words:
        shown.append(_MASK if masks_next and not _OPTION.fullmatch(word) else _redact_word(word))
        masks_next = _OPTION.fullmatch(word) is not None and _is_secret_name(word)
    return " ".join(shown)


def _redact_word(word: str) -> str:
    named = _NAMED_VALUE.fullmatch(word)
    if named is not None and _is_secret_name(named[1][:-1]):
        return named[1] + _MASK
    return _OPAQUE_TOKEN.sub(_MASK, _USER_IN_ADDRESS.sub(rf"\1{_MASK}@", word))


def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


_SHOWN_PER_RANKING = 5
# Commands with other arguments each time are other names each time: the least of them are let go.
_MAX_NAMES = 500
_KEPT_PER_RANKING = 100

# How the arguments of a process are shown, if at all.
ShowArguments = Callable[[ProcessReading], str | None]


class _ProcessKey(Struct, frozen=True):
    command: str
    arguments: str | None


class _Total(Struct, frozen=True, gc=False):
    """What the processes of one name used together, and the highest mark among them."""

    count: int = 0
    cpu_ns: int = 0
    peak_bytes: int | None = None

    def plus(self, process: ProcessReading) -> "_Total":
        peak_bytes = max_known(self.peak_bytes, process.peak_bytes)
        return _Total(self.count + 1, self.cpu_ns + process.own_cpu_ns, peak_bytes)


class ProcessTotals:
    """Follows all processes from reading to reading. What nobody has seen alive is in no total."""

    def __init__(self, show_arguments: ShowArguments = lambda _: None) -> None:
        self._show_arguments = show_arguments
        self._present: dict[tuple[int, int], ProcessReading] = {}
        self._ended: dict[_ProcessKey, _Total] = {}

    def add(self, processes: Iterable[ProcessReading]) -> None:
        """Take a reading of all."""
        now = {process.identity: process for process in processes}
        for identity, before in self._present.items():
            process = now.get(identity)
            if process is None:
                self._count(self._ended, before)
            elif process.peak_bytes is None and before.peak_bytes is not None:
                # It has ended and waits for its parent: its memory is gone, its mark is not.
                now[identity] = before
        self._present = now
        if len(self._ended) > _MAX_NAMES:
            kept = _top_names(self._ended, _KEPT_PER_RANKING)
            self._ended = {name: self._ended[name] for name in kept}

    def top(self) -> tuple[Process, ...]:
        """The five names with the most CPU time and the five with the highest marks; the most CPU time first."""
        totals = dict(self._ended)
        for process in self._present.values():
            self._count(totals, process)
        shown = sorted(_top_names(totals, _SHOWN_PER_RANKING), key=lambda name: -totals[name].cpu_ns)
        return tuple(_shown_totals(name, totals[name]) for name in shown)

    def _count(self, totals: dict[_ProcessKey, _Total], process: ProcessReading) -> None:
        name = _ProcessKey(process.name, self._show_arguments(process))
        totals[name] = totals.get(name, _Total()).plus(process)


def _top_names(totals: dict[_ProcessKey, _Total], count: int) -> set[_ProcessKey]:
    by_cpu = sorted(totals, key=lambda name: -totals[name].cpu_ns)[:count]
    by_peak = sorted(totals, key=lambda name: -(totals[name].peak_bytes or 0))[:count]
    return {*by_cpu, *by_peak}


def _shown_totals(name: _ProcessKey, total: _Total) -> Process:
    return Process(
        name=name.command,
        arguments=name.arguments,
        count=total.count,
        cpu_seconds=round(total.cpu_ns / NS_PER_SECOND, CPU_SECONDS_DIGITS),
        max_memory_used_mb=mebibytes(total.peak_bytes),
    )


_MAX_SHOWN = 5
_MAX_END_FRACTION = 0.1
_MAX_FEW_STEPS = 3


class OomKillCounts(Struct, frozen=True, kw_only=True):
    """The kernel's counters: of the container, since its start; of the machine, since it was started."""

    in_container: int | None = None
    on_host: int | None = None


class OomKillTracker:
    """Matches the rises of a counter with the processes that ended meanwhile.

    A process is seen to end with the reading in which the counter rose, or with the next one.
    """

    def __init__(self) -> None:
        self._in_container = MonotonicCounter()
        self._host_before: int | None = None
        self._host_kills = 0
        self._pending = 0
        self._pending_on_host = 0
        self._steps = 0
        self._steps_with_an_end = 0
        self._victims: list[Process] = []

    def add(self, counted: OomKillCounts, ended: Sequence[ProcessReading], missed_pids: int) -> None:
        """Take a reading: the counters, who has ended since the last one, and how many came and went unseen."""
        by_container = counted.in_container is not None
        new_kills = self._increase(counted)
        pending = self._pending + new_kills
        self._steps += 1
        self._steps_with_an_end += bool(ended or missed_pids)
        victims = sorted(ended, key=lambda process: -(process.rss_bytes or 0))[:pending]
        self._victims = [*self._victims, *(_shown(process) for process in victims)][:_MAX_SHOWN]
        attributed = len(victims) or min(pending, missed_pids)
        if not by_container:
            self._host_kills += min(attributed, self._pending_on_host + new_kills)
        self._pending = min(new_kills, pending - attributed)
        self._pending_on_host = 0 if by_container else self._pending

    def kills(self, *, is_host_dedicated: bool) -> MemoryKills | None:
        """What is known so far; None if nothing was killed, or nothing ties a kill to the batch."""
        count = self._in_container.total or 0
        if is_host_dedicated or self._steps_with_an_end <= max(_MAX_FEW_STEPS, _MAX_END_FRACTION * self._steps):
            count += self._host_kills
        return MemoryKills(count=count, processes=tuple(self._victims)) if count else None

    def _increase(self, counted: OomKillCounts) -> int:
        """How many more there are: in the container, or on the machine where that one is not to be read (any more)."""
        before, self._host_before = self._host_before, counted.on_host
        if counted.in_container is not None:
            growth = self._in_container.add(counted.in_container)
            return counted.in_container if growth is None else growth
        if counted.on_host is None or before is None:
            return 0
        return max(counted.on_host - before, 0)


def _shown(process: ProcessReading) -> Process:
    return Process(name=process.name, max_memory_used_mb=mebibytes(process.rss_bytes))

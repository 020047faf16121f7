"""What a batch's processes used, by the name of their command. Pure, and of constant size."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from profiler.figures import CPU_SECONDS_DIGITS, mebibytes
from profiler.known import max_known
from profiler.record import Process
from profiler.sources.process_tree import ProcessReading
from profiler.times import NS_PER_SECOND

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
        return tuple(_shown(name, totals[name]) for name in shown)

    def _count(self, totals: dict[_ProcessKey, _Total], process: ProcessReading) -> None:
        name = _ProcessKey(process.name, self._show_arguments(process))
        totals[name] = totals.get(name, _Total()).plus(process)


def _top_names(totals: dict[_ProcessKey, _Total], count: int) -> set[_ProcessKey]:
    by_cpu = sorted(totals, key=lambda name: -totals[name].cpu_ns)[:count]
    by_peak = sorted(totals, key=lambda name: -(totals[name].peak_bytes or 0))[:count]
    return {*by_cpu, *by_peak}


def _shown(name: _ProcessKey, total: _Total) -> Process:
    return Process(
        name=name.command,
        arguments=name.arguments,
        count=total.count,
        cpu_seconds=round(total.cpu_ns / NS_PER_SECOND, CPU_SECONDS_DIGITS),
        max_memory_used_mb=mebibytes(total.peak_bytes),
    )

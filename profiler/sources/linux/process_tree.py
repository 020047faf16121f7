"""Reads the processes below one process from ``/proc`` and adds up what they use.

A reading takes a few system calls for each process. CPU time, memory and block I/O of the tree are computed from
successive readings.
"""

import os
import time
from collections.abc import Callable, Container, Iterable, Mapping

from msgspec import Struct

from profiler.core.clock import DutyCycle
from profiler.core.timestamps import NS_PER_SECOND
from profiler.sources.linux import proc
from profiler.sources.linux.proc import BlockBytes

# Reading a PSS walks the process's page tables: at most this share of one core goes into it.
_MAX_PSS_CPU_SHARE = 0.01
# Below this, asking each thread for its children is cheaper than even counting all processes.
_MAX_THREADS_TO_LIST = 64


class ProcessReading(Struct, frozen=True, kw_only=True):
    """One process at one moment.

    ``children_cpu_ns`` is of the children it has waited for. ``rss_bytes`` counts shared pages
    in full, ``share_bytes`` proportionally to those who share them. None: a zombie's memory, and
    ``blocks`` of a process that has ended meanwhile or is not ours to ask. ``arguments`` are empty
    where nobody asked for them.
    """

    pid: int
    started_ticks: int
    own_cpu_ns: int
    children_cpu_ns: int
    name: str = ""
    arguments: tuple[str, ...] = ()
    threads: int = 1
    rss_bytes: int | None = None
    share_bytes: int | None = None
    peak_bytes: int | None = None
    blocks: proc.BlockBytes | None = None

    @property
    def identity(self) -> tuple[int, int]:
        """Process ids are used again; with the start they are unique."""
        return self.pid, self.started_ticks


class ProcessTree:
    """The descendants of one process, without the strangers among its children and theirs.

    A single process's share is its RSS. With several it is the PSS, where the kernel lets us
    read it (``smaps_rollup``: same user); else the RSS without file and shared memory pages.
    PSS is refreshed as its cost allows; until then the pages shared last time are taken off.
    """

    def __init__(self, root_pid: int, unrelated_children: Container[int], monotonic_ns: Callable[[], int]) -> None:
        self._root_pid = root_pid
        self._unrelated_children = unrelated_children
        self._monotonic_ns = monotonic_ns
        self._ns_per_tick = NS_PER_SECOND // os.sysconf("SC_CLK_TCK")
        self._has_children_files = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110
        self._threads = 0
        self._shared_bytes: dict[tuple[int, int], int] = {}
        self._pss_duty_cycle = DutyCycle(_MAX_PSS_CPU_SHARE)

    def read(self) -> tuple[ProcessReading, ...]:
        """All processes of the tree that are there now, each after its parent."""
        stats = self._descendants()
        self._threads = sum(stat.threads for stat in stats.values())
        if len(stats) > 1 and self._pss_duty_cycle.is_due(self._monotonic_ns()):
            return self._read_with_fresh_pss(stats)
        return self._readings(stats)

    def _read_with_fresh_pss(self, stats: dict[int, proc.ProcessStat]) -> tuple[ProcessReading, ...]:
        self._shared_bytes.clear()
        began_ns = self._monotonic_ns()
        readings = self._readings(stats)
        ended_ns = self._monotonic_ns()
        self._pss_duty_cycle.add_cost(ended_ns - began_ns, ended_ns)
        return readings

    def _readings(self, stats: dict[int, proc.ProcessStat]) -> tuple[ProcessReading, ...]:
        several = len(stats) > 1
        return tuple(self._reading(pid, stat, several=several) for pid, stat in stats.items())

    def _reading(self, pid: int, stat: proc.ProcessStat, *, several: bool) -> ProcessReading:
        status = proc.parse_status(proc.read(f"/proc/{pid}/status") or b"")
        share_bytes = status.rss_bytes
        if several and share_bytes is not None:
            share_bytes = max(share_bytes - self._read_shared_bytes((pid, stat.started_ticks), status), 0)
        return ProcessReading(
            pid=pid,
            started_ticks=stat.started_ticks,
            own_cpu_ns=own_cpu_ns(pid, stat.cpu_ticks * self._ns_per_tick),
            children_cpu_ns=stat.children_cpu_ticks * self._ns_per_tick,
            name=stat.name,
            threads=stat.threads,
            rss_bytes=status.rss_bytes,
            share_bytes=share_bytes,
            peak_bytes=status.peak_bytes,
            blocks=proc.parse_io(proc.read(f"/proc/{pid}/io") or b""),
        )

    def _read_shared_bytes(self, identity: tuple[int, int], status: proc.ProcessStatus) -> int:
        """How much of the RSS is counted at others, as last seen."""
        if identity not in self._shared_bytes:
            rss_bytes = status.rss_bytes or 0
            pss_bytes = proc.parse_pss(proc.read(f"/proc/{identity[0]}/smaps_rollup") or b"")
            own_bytes = pss_bytes if pss_bytes is not None else status.anonymous_bytes
            self._shared_bytes[identity] = max(rss_bytes - own_bytes, 0) if own_bytes is not None else 0
        return self._shared_bytes[identity]

    def _descendants(self) -> dict[int, proc.ProcessStat]:
        if not self._has_children_files or (
            self._threads > _MAX_THREADS_TO_LIST and self._threads > len(proc.all_pids())
        ):
            return self._scan_all_processes()
        found: dict[int, proc.ProcessStat] = {}
        pending = list(list_children(self._root_pid, 1))
        while pending:
            pid = pending.pop()
            stat = proc.parse_stat(proc.read(f"/proc/{pid}/stat") or b"")
            if stat is None or pid in found or pid in self._unrelated_children:
                continue
            found[pid] = stat
            pending.extend(list_children(pid, stat.threads))
        return found

    def _scan_all_processes(self) -> dict[int, proc.ProcessStat]:
        stats: dict[int, proc.ProcessStat] = {}
        below: dict[int, list[int]] = {}
        for pid in proc.all_pids():
            stat = proc.parse_stat(proc.read(f"/proc/{pid}/stat") or b"")
            if stat is not None:
                stats[pid] = stat
                below.setdefault(stat.parent_pid, []).append(pid)
        found: dict[int, proc.ProcessStat] = {}
        pending = list(below.get(self._root_pid, ()))
        while pending:
            pid = pending.pop()
            if pid not in found and pid not in self._unrelated_children:
                found[pid] = stats[pid]
                pending.extend(below.get(pid, ()))
        return found


def list_children(pid: int, threads: int) -> tuple[int, ...]:
    """The children of a process; each thread has a list of those it forked."""
    if threads == 1:
        return proc.parse_pids(proc.read(f"/proc/{pid}/task/{pid}/children") or b"")
    try:
        thread_ids = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  names, many times a second
    except OSError:
        return ()
    lists = (proc.read(f"/proc/{pid}/task/{thread_id}/children") or b"" for thread_id in thread_ids)
    return tuple(child for children in lists for child in proc.parse_pids(children))


def own_cpu_ns(pid: int, fallback_ns: int) -> int:
    """CPU time of all threads of a process, ended ones too; ``fallback_ns`` once it is gone.

    Exact, while ``/proc/PID/stat`` shows ticks of 10 ms. Anybody may ask for it.
    """
    try:
        # The clock as ``clock_getcpuclockid`` makes it (CPUCLOCK_SCHED).
        return time.clock_gettime_ns(~pid << 3 | 2)
    except OSError:
        return fallback_ns


# A parent's children time is shown in whole ticks, user and system apart.
_ROUNDING_NS = 20_000_000


class TreeCpu:
    """The CPU time of a tree from readings of its processes: it never falls and loses nobody."""

    def __init__(self) -> None:
        self._previous: Mapping[tuple[int, int], ProcessReading] = {}
        self._reaped_ns = 0
        self._unreaped_ns = 0
        self.total_ns = 0

    def add(self, processes: Iterable[ProcessReading], reaped_ns: int) -> int:
        """The total now; ``reaped_ns`` is what this process itself has waited for so far.

        Who is gone must have been added to somebody's children time. What is missing there was
        reaped by nobody (a parent that ignores SIGCHLD) and is kept at its last known value.
        """
        now = {process.identity: process for process in processes}
        before = self._previous
        gone = [_cpu_ns(process) for identity, process in before.items() if identity not in now]
        handed_over_ns = max(reaped_ns - self._reaped_ns, 0) + sum(
            max(process.children_cpu_ns - before[identity].children_cpu_ns, 0)
            for identity, process in now.items()
            if identity in before
        )
        self._unreaped_ns += max(sum(gone) - len(gone) * _ROUNDING_NS - handed_over_ns, 0)
        self._previous, self._reaped_ns = now, reaped_ns
        present_ns = sum(_cpu_ns(process) for process in now.values())
        self.total_ns = max(self.total_ns, present_ns + reaped_ns + self._unreaped_ns)
        return self.total_ns


def _cpu_ns(process: ProcessReading) -> int:
    return process.own_cpu_ns + process.children_cpu_ns


class TreeMemory:
    """The memory of a tree now, and its peak: with the kernel's high-water marks between readings.

    Between two readings the tree may have held the mark of one process that rose plus what the
    others held at the smaller end. Two rises are never added: nobody saw them together.
    """

    def __init__(self) -> None:
        self._previous: Mapping[tuple[int, int], ProcessReading] = {}
        self.peak_bytes: int | None = None

    def add(self, processes: Iterable[ProcessReading]) -> int | None:
        """The tree's memory now; None if no process has any (all are zombies)."""
        now = {process.identity: process for process in processes}
        shares = [process.share_bytes for process in now.values() if process.share_bytes is not None]
        if not shares:
            return None
        held_by = {
            identity: _held_through_step(self._previous.get(identity), process) for identity, process in now.items()
        }
        held_bytes = sum(held_by.values())
        with_new_marks = (
            _high_water_bytes(self._previous.get(identity), process) + held_bytes - held_by[identity]
            for identity, process in now.items()
            if _has_new_high_water_mark(self._previous.get(identity), process)
        )
        marks = (process.peak_bytes or 0 for process in now.values())  # the tree held no less than one of it did
        self.peak_bytes = max(self.peak_bytes or 0, sum(shares), *marks, *with_new_marks)
        self._previous = now
        return sum(shares)


def _held_through_step(before: ProcessReading | None, now: ProcessReading) -> int:
    """What a process held at both ends of a step, as far as is known."""
    if before is None:
        return 0
    return min(before.share_bytes or 0, now.share_bytes or 0)


def _has_new_high_water_mark(before: ProcessReading | None, now: ProcessReading) -> bool:
    """Whether the mark is new; a lower one belongs to a program executed since."""
    return now.peak_bytes is not None and (before is None or before.peak_bytes != now.peak_bytes)


def _high_water_bytes(before: ProcessReading | None, now: ProcessReading) -> int:
    """The high-water mark less the pages that are counted at others.

    Where somebody let go of shared pages since the last reading, more of them is counted at the others than
    was when the mark was set: as much again as the process's own part of them has changed.
    """
    ends = [max((end.rss_bytes or 0) - (end.share_bytes or 0), 0) for end in (before, now) if end is not None]
    return max((now.peak_bytes or 0) - max(ends) - (max(ends) - min(ends)), 0)


class TreeBlocks:
    """The total of a tree: it never falls.

    A process's counters hold those of the children it has waited for, and a parent is read before
    its children: nobody is counted twice. Who ended between the two readings is in neither, so
    that moment's sum is not known; the next one holds it.
    """

    def __init__(self) -> None:
        self._unreaped = BlockBytes(read_bytes=0, write_bytes=0)
        self._total = self._unreaped

    def add(self, processes: Iterable[ProcessReading], reaped: BlockBytes) -> BlockBytes | None:
        """The total now; ``reaped`` is what this process itself has waited for so far. None: not known now."""
        blocks = [process.blocks for process in processes]
        known = [one for one in blocks if one is not None]
        if len(known) < len(blocks):
            return None
        read_bytes = reaped.read_bytes + sum(one.read_bytes for one in known)
        write_bytes = reaped.write_bytes + sum(one.write_bytes for one in known)
        # Less than before: somebody ended whom nobody waited for. What that one had is kept.
        self._unreaped = BlockBytes(
            read_bytes=max(self._unreaped.read_bytes, self._total.read_bytes - read_bytes),
            write_bytes=max(self._unreaped.write_bytes, self._total.write_bytes - write_bytes),
        )
        self._total = BlockBytes(
            read_bytes=read_bytes + self._unreaped.read_bytes, write_bytes=write_bytes + self._unreaped.write_bytes
        )
        return self._total

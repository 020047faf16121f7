"""Reads the descendants of one process from ``/proc`` and adds up what they use.

:class:`ProcessTree` reads them, with a few system calls for each process. :class:`TreeCpu`, :class:`TreeMemory` and
:class:`TreeBlocks` compute the totals of the tree from successive readings.
"""

import os
import time
from collections.abc import Callable, Container, Iterable, Mapping

from msgspec import Struct

from profiler.core.clock import DutyCycle
from profiler.readers.linux import proc
from profiler.readers.linux.proc import BlockBytes

# The kernel walks the page tables of the process to compute its PSS. This limits the cost to a share of one core.
_MAX_PSS_CPU_SHARE = 0.01
# Up to this number of threads, reading each thread's children is cheaper than listing all processes.
_MAX_THREADS_TO_LIST = 64
# The kernel rounds the CPU time of children to whole ticks, user and system time separately.
_MAX_ROUNDING_NS = 20_000_000


class ProcessReading(Struct, frozen=True, kw_only=True):
    """One process at one moment.

    ``children_cpu_ns`` is the CPU time of the children it has waited for. ``rss_bytes`` counts
    shared pages in full, ``share_bytes`` in proportion to the number of processes that share them.
    The memory of a zombie is None, and so are the ``blocks`` of a process that has ended meanwhile or
    belongs to another user. ``name`` has the script of an interpreter, unless the ``arguments`` are read; they
    are empty unless the reader was configured to read them.
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
        """Unique, unlike the pid alone: the kernel reuses pids."""
        return self.pid, self.started_ticks


class ProcessTree:
    """The descendants of one process, without unrelated children and their descendants.

    The share of a single process is its RSS. With several processes it is the PSS if it is readable
    (``smaps_rollup``: processes of the same user), else the anonymous memory. The PSS is refreshed as
    often as its cost allows. In between, the share is the RSS minus the pages that were shared at the
    last refresh.
    """

    def __init__(self, root_pid: int, unrelated_children: Container[int], monotonic_ns: Callable[[], int]) -> None:
        self._root_pid = root_pid
        self._unrelated_children = unrelated_children
        self._monotonic_ns = monotonic_ns
        self._ns_per_tick = proc.ns_per_tick()
        self._has_children_files = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110
        self._threads = 0
        self._shared_bytes: dict[tuple[int, int], int] = {}
        self._names: dict[tuple[int, int, str], str] = {}
        self._pss_duty_cycle = DutyCycle(_MAX_PSS_CPU_SHARE)

    def read(self) -> tuple[ProcessReading, ...]:
        """All processes of the tree, each after its parent."""
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
        known = self._names
        keys = [(pid, stat.started_ticks, stat.name) for pid, stat in stats.items()]
        self._names = {key: known.get(key) or proc.read_name(f"/proc/{key[0]}", key[2]) for key in keys}
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
            name=self._names[pid, stat.started_ticks, stat.name],
            threads=stat.threads,
            rss_bytes=status.rss_bytes,
            share_bytes=share_bytes,
            peak_bytes=status.peak_bytes,
            blocks=proc.parse_io(proc.read(f"/proc/{pid}/io") or b""),
        )

    def _read_shared_bytes(self, identity: tuple[int, int], status: proc.ProcessStatus) -> int:
        """The part of the RSS that other processes' shares count, at the last refresh."""
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
        children: dict[int, list[int]] = {}
        for pid in proc.all_pids():
            stat = proc.parse_stat(proc.read(f"/proc/{pid}/stat") or b"")
            if stat is not None:
                stats[pid] = stat
                children.setdefault(stat.parent_pid, []).append(pid)
        found: dict[int, proc.ProcessStat] = {}
        pending = list(children.get(self._root_pid, ()))
        while pending:
            pid = pending.pop()
            if pid not in found and pid not in self._unrelated_children:
                found[pid] = stats[pid]
                pending.extend(children.get(pid, ()))
        return found


def list_children(pid: int, threads: int) -> tuple[int, ...]:
    """The children of a process. The kernel has one list for each thread: the children that it forked."""
    if threads == 1:
        return proc.parse_pids(proc.read(f"/proc/{pid}/task/{pid}/children") or b"")
    try:
        thread_ids = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  faster; called many times a second
    except OSError:
        return ()
    lists = (proc.read(f"/proc/{pid}/task/{thread_id}/children") or b"" for thread_id in thread_ids)
    return tuple(child for children in lists for child in proc.parse_pids(children))


def own_cpu_ns(pid: int, fallback_ns: int) -> int:
    """CPU time of a process, its ended threads included; ``fallback_ns`` if it has ended.

    This clock is exact, while ``/proc/PID/stat`` has ticks of 10 ms. It is readable for every user.
    """
    try:
        # The clock id as clock_getcpuclockid(3) computes it (CPUCLOCK_SCHED).
        return time.clock_gettime_ns(~pid << 3 | 2)
    except OSError:
        return fallback_ns


class TreeCpu:
    """The CPU time of a tree, computed from readings of its processes. It never falls and includes ended processes."""

    def __init__(self) -> None:
        self._previous: Mapping[tuple[int, int], ProcessReading] = {}
        self._reaped_ns = 0
        self._unreaped_ns = 0
        self.total_ns = 0

    def add(self, processes: Iterable[ProcessReading], reaped_ns: int) -> int:
        """Add a reading.

        The CPU time of a process that has ended is normally part of the children's time of the parent that waited for
        it. If no process waited for it (its parent ignores SIGCHLD), its last known value is kept.

        Args:
            processes: All processes of the tree.
            reaped_ns: The CPU time of all children that this process itself has waited for so far.

        Returns:
            The total of the tree in nanoseconds.
        """
        now = {process.identity: process for process in processes}
        before = self._previous
        gone = [_cpu_ns(process) for identity, process in before.items() if identity not in now]
        handed_over_ns = max(reaped_ns - self._reaped_ns, 0) + sum(
            max(process.children_cpu_ns - before[identity].children_cpu_ns, 0)
            for identity, process in now.items()
            if identity in before
        )
        self._unreaped_ns += max(sum(gone) - len(gone) * _MAX_ROUNDING_NS - handed_over_ns, 0)
        self._previous, self._reaped_ns = now, reaped_ns
        present_ns = sum(_cpu_ns(process) for process in now.values())
        self.total_ns = max(self.total_ns, present_ns + reaped_ns + self._unreaped_ns)
        return self.total_ns


def _cpu_ns(process: ProcessReading) -> int:
    return process.own_cpu_ns + process.children_cpu_ns


class TreeMemory:
    """The memory of several processes together and its peak, which takes the kernel's high-water marks into account.

    When the high-water mark of a process has risen between two readings, the candidate for the peak is this mark plus
    the memory that the others held at both readings. Two rises are never added: nothing shows that they happened at
    the same time. ``peak_processes`` held the memory of the peak. ``largest_mark_bytes`` is that of one process alone.
    """

    def __init__(self) -> None:
        self._previous: Mapping[tuple[int, int], ProcessReading] = {}
        self.peak_bytes: int | None = None
        self.peak_processes = 0
        self.largest_mark_bytes: int | None = None

    def add(self, processes: Iterable[ProcessReading]) -> int | None:
        """Add a reading; returns the memory in bytes, or None if no process has any (all are zombies)."""
        now = {process.identity: process for process in processes}
        shares = [process.share_bytes for process in now.values() if process.share_bytes is not None]
        before, self._previous = self._previous, now
        if not shares:
            return None
        held = {identity: _held_through_step(before.get(identity), process) for identity, process in now.items()}
        held_bytes, holders = sum(held.values()), sum(size > 0 for size in held.values())
        with_new_marks = (
            (
                _high_water_bytes(before.get(identity), process) + held_bytes - held[identity],
                holders + (held[identity] == 0),
            )
            for identity, process in now.items()
            if _has_new_high_water_mark(before.get(identity), process)
        )
        # The processes together held at least as much as each of them.
        mark_bytes = max((process.peak_bytes or 0 for process in now.values()), default=0)
        self.largest_mark_bytes = max(self.largest_mark_bytes or 0, mark_bytes)
        peak_bytes, number = max((sum(shares), len(shares)), (mark_bytes, 1), *with_new_marks)
        if peak_bytes > (self.peak_bytes or 0) or self.peak_bytes is None:
            self.peak_bytes, self.peak_processes = peak_bytes, number
        return sum(shares)


def _held_through_step(before: ProcessReading | None, now: ProcessReading) -> int:
    """The memory that a process held at both ends of a step: the smaller of the two, 0 for a new process."""
    if before is None:
        return 0
    return min(before.share_bytes or 0, now.share_bytes or 0)


def _has_new_high_water_mark(before: ProcessReading | None, now: ProcessReading) -> bool:
    """Whether the mark changed; a lower one means that the process has executed another program."""
    return now.peak_bytes is not None and (before is None or before.peak_bytes != now.peak_bytes)


def _high_water_bytes(before: ProcessReading | None, now: ProcessReading) -> int:
    """The high-water mark without the pages that other processes' shares count.

    The number of these pages at the time of the mark is unknown, only that at both ends of the step. If it changed,
    another process has released shared pages (or mapped them), and the others' shares have changed by as much again.
    Therefore the larger number and the difference are both subtracted.
    """
    ends = [max((end.rss_bytes or 0) - (end.share_bytes or 0), 0) for end in (before, now) if end is not None]
    return max((now.peak_bytes or 0) - max(ends) - (max(ends) - min(ends)), 0)


class TreeBlocks:
    """The block I/O of a tree. It never falls.

    The counters of a process include those of the children it has waited for. A parent is read before its
    children, so nothing is counted twice. A process that ends between these two reads is in neither;
    the total is then unknown, and the next reading includes it.
    """

    def __init__(self) -> None:
        self._unreaped = BlockBytes(read_bytes=0, write_bytes=0)
        self._total = self._unreaped

    def add(self, processes: Iterable[ProcessReading], reaped: BlockBytes) -> BlockBytes | None:
        """Add a reading.

        Args:
            processes: All processes of the tree.
            reaped: The block I/O of all children that this process itself has waited for so far.

        Returns:
            The total of the tree; None if it is unknown this time.
        """
        blocks = [process.blocks for process in processes]
        known = [one for one in blocks if one is not None]
        if len(known) < len(blocks):
            return None
        read_bytes = reaped.read_bytes + sum(one.read_bytes for one in known)
        write_bytes = reaped.write_bytes + sum(one.write_bytes for one in known)
        # A sum below the last total means that a process ended and no process waited for it: its part is kept.
        self._unreaped = BlockBytes(
            read_bytes=max(self._unreaped.read_bytes, self._total.read_bytes - read_bytes),
            write_bytes=max(self._unreaped.write_bytes, self._total.write_bytes - write_bytes),
        )
        self._total = BlockBytes(
            read_bytes=read_bytes + self._unreaped.read_bytes, write_bytes=write_bytes + self._unreaped.write_bytes
        )
        return self._total

"""Reads the processes below one process from ``/proc``, a few system calls for each.

Listing the children of each thread costs what the tree costs, not what the machine runs; where
the kernel does not offer that list, or the tree has very many threads, all processes are looked
through instead.
"""

import os
import time
from collections.abc import Callable, Container

from msgspec import Struct

from profiler.sources import proc
from profiler.sources.budget import DutyCycle
from profiler.times import NS_PER_SECOND

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

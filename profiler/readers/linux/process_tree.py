"""Reads the descendants of one process from ``/proc``, with a few system calls for each."""

import os
import time
from collections.abc import Callable, Container

from msgspec import Struct

from profiler.core.clock import DutyCycle
from profiler.readers.linux import proc

# The kernel walks the page tables of the process to compute its PSS. This limits the cost to a share of one core.
_MAX_PSS_CPU_SHARE = 0.01
# Up to this number of threads, reading each thread's children is cheaper than listing all processes.
_MAX_THREADS_TO_LIST = 64


class ProcessReading(Struct, frozen=True, kw_only=True):
    """One process at one moment.

    ``children_cpu_ns`` is the CPU time of the children it has waited for. ``rss_bytes`` counts
    shared pages in full, ``share_bytes`` in proportion to the number of processes that share them.
    The memory of a zombie is None, and so are the ``blocks`` of a process that has ended meanwhile or
    belongs to another user. ``name`` has the script of an interpreter, unless the ``arguments`` are read; they
    are empty unless the reader was configured to read them. ``state`` is the letter of the main thread's state.
    """

    pid: int
    started_ticks: int
    own_cpu_ns: int
    children_cpu_ns: int
    name: str = ""
    arguments: tuple[str, ...] = ()
    threads: int = 1
    state: str = ""
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

    def identities(self) -> tuple[tuple[int, int], ...]:
        """The identities of all processes of the tree, without reading anything else of them."""
        return tuple((pid, stat.started_ticks) for pid, stat in self._descendants().items())

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
            state=stat.state,
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
        descendants: dict[int, proc.ProcessStat] = {}
        pending = list(list_children(self._root_pid, 1))
        while pending:
            pid = pending.pop()
            stat = proc.parse_stat(proc.read(f"/proc/{pid}/stat") or b"")
            if stat is None or pid in descendants or pid in self._unrelated_children:
                continue
            descendants[pid] = stat
            pending.extend(list_children(pid, stat.threads))
        return descendants

    def _scan_all_processes(self) -> dict[int, proc.ProcessStat]:
        stats: dict[int, proc.ProcessStat] = {}
        children: dict[int, list[int]] = {}
        for pid in proc.all_pids():
            stat = proc.parse_stat(proc.read(f"/proc/{pid}/stat") or b"")
            if stat is not None:
                stats[pid] = stat
                children.setdefault(stat.parent_pid, []).append(pid)
        descendants: dict[int, proc.ProcessStat] = {}
        pending = list(children.get(self._root_pid, ()))
        while pending:
            pid = pending.pop()
            if pid not in descendants and pid not in self._unrelated_children:
                descendants[pid] = stats[pid]
                pending.extend(children.get(pid, ()))
        return descendants


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

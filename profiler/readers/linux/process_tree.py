"""Reads the descendants of one process from ``/proc``, with a few system calls each; more often, their memory alone."""

import os
import time
from collections.abc import Callable, Collection, Container, Iterable

from msgspec import Struct

from profiler.core.clock import DutyCycle
from profiler.readers.linux import proc

# Up to this number of threads, reading each thread's children is cheaper than listing all processes. Beyond it, listing
# one thread's children costs as much as the entries of this many processes.
_MAX_THREADS_TO_LIST, _PROCESSES_PER_THREAD = 64, 8
# Beyond this number of processes and threads, a reading costs too much.
_MAX_THREADS = 64
# Positions in /proc/PID/statm, in pages.
_SIZE, _RESIDENT, _SHARED, _DATA = 0, 1, 2, 5


class ProcessReading(Struct, frozen=True, kw_only=True):
    """One process at one moment; the memory of a zombie is None, and so are the ``blocks`` of another user.

    ``rss_bytes`` counts shared pages in full, ``share_bytes`` in proportion to the number of processes that share them.
    ``anonymous_bytes`` is the part of the RSS that is neither file nor shared memory. ``name`` has the script of an
    interpreter, unless the ``arguments`` are read. ``state`` is the letter of the main thread's state.
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
    anonymous_bytes: int | None = None
    share_bytes: int | None = None
    peak_bytes: int | None = None
    blocks: proc.BlockBytes | None = None

    @property
    def identity(self) -> tuple[int, int]:
        """Unique, unlike the pid alone: the kernel reuses pids."""
        return self.pid, self.started_ticks


class ProcessTree:
    """The descendants of one process, without unrelated children and their descendants.

    The share of a single process is its RSS. With several processes it is the PSS if it is readable (``smaps_rollup``:
    processes of the same user), else the anonymous memory. The PSS is refreshed as often as its cost allows
    (``has_exact_shares``). In between, the share is the RSS minus the pages that were shared at the last refresh, and
    for a new process what no other process maps: the shares of the others still hold the rest.
    """

    def __init__(self, root_pid: int, unrelated_children: Container[int], monotonic_ns: Callable[[], int]) -> None:
        self._root_pid = root_pid
        self._unrelated_children = unrelated_children
        self._monotonic_ns = monotonic_ns
        self._ns_per_tick = proc.ns_per_tick()
        self._has_children_files = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110
        self._threads = 0
        self._others: Collection[int] = ()
        self._walked: tuple[int, ...] = ()
        self._last_pid = 0
        self._shared_bytes: dict[tuple[int, int], int] = {}
        self._names: dict[tuple[int, int], tuple[proc.ProcessStat, str]] = {}
        # The kernel walks the page tables of the process to compute its PSS: at most this share of one core.
        self._pss_duty_cycle = DutyCycle(0.01)
        self.has_exact_shares = False

    def read(self) -> tuple[ProcessReading, ...]:
        """All processes of the tree, each after its parent."""
        stats = self._descendants()
        self._threads = sum(stat.threads for stat in stats.values())
        is_due = self._pss_duty_cycle.is_due(self._monotonic_ns())
        self.has_exact_shares = is_due or len(stats) == 1
        if len(stats) <= 1 or not is_due:
            return self._readings(stats)
        self._shared_bytes.clear()
        began_ns = self._monotonic_ns()
        readings = self._readings(stats)
        ended_ns = self._monotonic_ns()
        self._pss_duty_cycle.add_cost(ended_ns - began_ns, ended_ns)
        return readings

    def identities(self) -> tuple[tuple[int, int], ...]:
        """The identities of all processes of the tree. Nothing else is read."""
        return tuple((pid, stat.started_ticks) for pid, stat in self._descendants().items())

    def _readings(self, stats: dict[int, proc.ProcessStat]) -> tuple[ProcessReading, ...]:
        several = len(stats) > 1
        names = {}
        for pid, stat in stats.items():
            before, name = self._names.get((pid, stat.started_ticks), (None, ""))
            if before is None or proc.may_run_another_program(before, stat):
                name = proc.read_name(f"/proc/{pid}", stat.name)
            names[pid, stat.started_ticks] = stat, name
        self._names = names
        return tuple(self._reading(pid, stat, several=several) for pid, stat in stats.items())

    def _reading(self, pid: int, stat: proc.ProcessStat, *, several: bool) -> ProcessReading:
        status = proc.parse_status(proc.read(f"/proc/{pid}/status") or b"")
        share_bytes, identity = status.rss_bytes, (pid, stat.started_ticks)
        if not several:
            self._shared_bytes = {identity: 0}
        elif share_bytes is not None:
            share_bytes = max(share_bytes - self._read_shared_bytes(identity, status), 0)
        return ProcessReading(
            pid=pid,
            started_ticks=stat.started_ticks,
            own_cpu_ns=own_cpu_ns(pid, stat.cpu_ticks * self._ns_per_tick),
            children_cpu_ns=stat.children_cpu_ticks * self._ns_per_tick,
            name=self._names[identity][1],
            threads=stat.threads,
            state=stat.state,
            rss_bytes=status.rss_bytes,
            anonymous_bytes=status.anonymous_bytes,
            share_bytes=share_bytes,
            peak_bytes=status.peak_bytes,
            blocks=proc.parse_io(proc.read(f"/proc/{pid}/io") or b""),
        )

    def _read_shared_bytes(self, identity: tuple[int, int], status: proc.ProcessStatus) -> int:
        """The part of the RSS that other processes' shares count, at the last refresh."""
        if identity not in self._shared_bytes:
            rss_bytes = status.rss_bytes or 0
            rollup = proc.read(f"/proc/{identity[0]}/smaps_rollup") or b""
            own_bytes = proc.bytes_after(rollup, b"Pss:") if self.has_exact_shares else proc.parse_private(rollup)
            own_bytes = status.anonymous_bytes if own_bytes is None else own_bytes
            self._shared_bytes[identity] = max(rss_bytes - own_bytes, 0) if own_bytes is not None else 0
        return self._shared_bytes[identity]

    def _descendants(self) -> dict[int, proc.ProcessStat]:
        if not self._has_children_files or self._threads > _MAX_THREADS_TO_LIST:
            pids = proc.all_pids()
            if not self._has_children_files or len(pids) < _PROCESSES_PER_THREAD * self._threads:
                return self._search(pids)
        return self._walk()

    def _walk(self) -> dict[int, proc.ProcessStat]:
        """Read the lists of children, from the root down, and the last walk's processes that are in none.

        When a thread ends, its children move to another thread's list, which may have been read already.
        """
        descendants: dict[int, proc.ProcessStat] = {}
        for first_pids in (list_children(self._root_pid, 1), *((pid,) for pid in self._walked)):
            pending = list(first_pids)
            while pending:
                pid = pending.pop()
                if pid in descendants or pid in self._unrelated_children:
                    continue
                stat = proc.parse_stat(proc.read(f"/proc/{pid}/stat") or b"")
                if stat is not None and (stat.parent_pid == self._root_pid or stat.parent_pid in descendants):
                    descendants[pid] = stat
                    pending.extend(list_children(pid, stat.threads))
        self._walked = tuple(descendants)
        return descendants

    def _search(self, pids: Collection[int]) -> dict[int, proc.ProcessStat]:
        """Search all processes except the others of the last search: none of those becomes a descendant.

        After the largest id the kernel begins again at small ones, which may then be new processes.
        """
        children: dict[int, list[int]] = {}
        last_pid = proc.read_last_pid() or 0
        others = self._others if last_pid >= self._last_pid > 0 else ()
        self._last_pid = last_pid
        read = ((pid, proc.parse_stat(proc.read(f"/proc/{pid}/stat") or b"")) for pid in pids if pid not in others)
        stats = {pid: stat for pid, stat in read if stat is not None}
        for pid, stat in stats.items():
            children.setdefault(stat.parent_pid, []).append(pid)
        descendants: dict[int, proc.ProcessStat] = {}
        pending = list(children.get(self._root_pid, ()))
        while pending:
            pid = pending.pop()
            if pid not in descendants and pid not in self._unrelated_children:
                descendants[pid] = stats[pid]
                pending.extend(children.get(pid, ()))
        self._others = set(pids).difference(descendants)
        return descendants


def list_children(pid: int, threads: int) -> tuple[int, ...]:
    """The children of a process. The kernel has one list for each thread: the children that it forked."""
    if threads == 1:
        return proc.parse_pids(proc.read(f"/proc/{pid}/task/{pid}/children") or b"")
    lists = (proc.read(f"/proc/{pid}/task/{thread}/children") or b"" for thread in proc.all_pids(f"/proc/{pid}/task"))
    return tuple(child for children in lists for child in proc.parse_pids(children))


def own_cpu_ns(pid: int, fallback_ns: int) -> int:
    """CPU time of a process and its ended threads, by an exact clock that every user can read; else the fallback."""
    try:
        # The clock id as clock_getcpuclockid(3) computes it (CPUCLOCK_SCHED).
        return time.clock_gettime_ns(~pid << 3 | 2)
    except OSError:
        return fallback_ns


class _Known(Struct, frozen=True, gc=False):
    """A process whose memory was read. ``is_new``: it was not read together with all others."""

    threads: int
    own_bytes: int
    anonymous_bytes: int
    is_new: bool


class QuickMemory:
    """Reads the memory of the descendants of one process, without unrelated children and their descendants.

    A lower bound: the last reading, its anonymous growth since, and new ones' private memory. Nothing counts twice.

    ``has_changed``: other processes than at the last :meth:`follow`. ``largest_bytes``: the largest process in it.
    """

    def __init__(self, root_pid: int, unrelated_children: Container[int]) -> None:
        self._root_pid = root_pid
        self._unrelated_children = unrelated_children
        self._has_children_files = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._known: dict[int, _Known] = {}
        self.has_changed = False
        self.largest_bytes = 0

    def follow(self, processes: Iterable[ProcessReading]) -> None:
        """Continue from a reading of the whole tree."""
        self._known = {
            process.pid: _Known(process.threads, process.share_bytes or 0, process.anonymous_bytes or 0, is_new=False)
            for process in processes
        }

    def read(self) -> int | None:
        """The memory in bytes; None if no process has any, or if the reading would cost too much."""
        if not self._has_children_files or sum([known.threads for known in self._known.values()]) > _MAX_THREADS:
            return None
        found: dict[int, tuple[int, ...]] = {}
        total_bytes = new_processes = 0
        pending: list[tuple[int, tuple[int, ...]]] = [(pid, ()) for pid in list_children(self._root_pid, 1)]
        while pending:
            pid, parent = pending.pop()
            # The sizes of the process in bytes; none after its end.
            fields = tuple([int(word) * self._page_bytes for word in (proc.read(f"/proc/{pid}/statm") or b"").split()])
            if not fields or pid in found or pid in self._unrelated_children:
                continue
            found[pid] = fields
            known = self._known.get(pid)
            if known is None or (known.is_new and _anonymous(fields) < known.anonymous_bytes):
                known = self._look_at(pid, fields, parent)
            new_processes += known.is_new
            total_bytes += max(known.own_bytes + _anonymous(fields) - known.anonymous_bytes, 0)
            pending.extend([(child, fields) for child in list_children(pid, known.threads)])
        self.has_changed = bool(new_processes) or len(found) != len(self._known)
        self.largest_bytes = max([fields[_RESIDENT] for fields in found.values()], default=0)
        if len(found) == 1:  # the process shares memory with no other
            total_bytes = self.largest_bytes
        return total_bytes or None

    def _look_at(self, pid: int, fields: tuple[int, ...], parent: tuple[int, ...]) -> _Known:
        """Read a new process. A fork may have only its parent's memory until it allocates some or executes."""
        stat = proc.parse_stat(proc.read(f"/proc/{pid}/stat") or b"")
        threads = 1 if stat is None else stat.threads
        if parent and (fields[_SIZE], fields[_DATA]) == (parent[_SIZE], parent[_DATA]):
            return _Known(threads, 0, _anonymous(fields), is_new=True)
        own_bytes = proc.parse_private(proc.read(f"/proc/{pid}/smaps_rollup") or b"")
        anonymous_bytes = _anonymous(fields)
        known = _Known(threads, anonymous_bytes if own_bytes is None else own_bytes, anonymous_bytes, is_new=True)
        self._known[pid] = known
        return known


def _anonymous(fields: tuple[int, ...]) -> int:
    return max(fields[_RESIDENT] - fields[_SHARED], 0)

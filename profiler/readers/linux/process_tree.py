"""Reads the descendants of one process from ``/proc``, with a few system calls each; more often,
their memory alone.
"""

import os
import time
from collections.abc import Callable, Collection, Container, Iterable
from typing import TypeVar

from msgspec import Struct

from profiler.core.optional_math import difference, first_known, min_known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.linux import proc
from profiler.readers.linux.undivided_memory import is_fork, lacks_memory_parts, with_memory_parts
from profiler.readers.linux.vforked import are_sizes_between, has_parents_memory, read_statm_pages
from profiler.readers.memory_usage import is_notable

# Up to this number of threads, reading each thread's children is cheaper than listing all
# processes. Beyond it, listing one thread's children costs as much as the entries of this many
# processes.
_MAX_THREADS_TO_LIST = 64
_PROCESSES_PER_THREAD = 8
# Beyond this number of processes and threads, a reading costs too much.
_MAX_THREADS = 64
# After this time, the states of processes that have not run are read, too.
_ALL_READ_NS = 10 * NS_PER_SECOND
# Positions in /proc/PID/statm.
_SIZE = 0
_RESIDENT = 1
_SHARED = 2
_DATA = 5
_Fallback = TypeVar("_Fallback", int, None)
# Of each thread in the kernel: on x86-64 and ARM64 at least.
_STACK_BYTES = 16 * 2**10


class ProcessReading(Struct, frozen=True, kw_only=True):
    """One process at one moment; None is the memory of a zombie and, in a tree, of one that has
    its parent's (:mod:`vforked`), and so are the ``blocks`` of another user.

    ``rss_bytes`` counts each mapping of a page, ``share_bytes`` each page once, for one of the
    processes that share it, and none of files or freed lazily (:class:`MemoryShares`), which are
    ``lazily_freed_bytes``. ``anonymous_bytes`` is the part of the RSS that is neither file nor
    shared memory, ``shmem_bytes`` that in shared memory and tmpfs, of which the share may lack the
    ``unread_shmem_bytes``; ``swap_bytes``, ``page_table_bytes`` and ``huge_page_bytes`` are in
    addition to it. ``locked_bytes``: what the process has locked, present or not.
    ``open_files_bound``: the most files that it may have open.
    ``name`` has the script of an interpreter, unless the ``arguments`` are read. ``state`` and
    ``blocks_signals`` are the main thread's. ``shows_function``: the kernel shows this user the
    function in which a thread waits.
    ``is_forked``: the process has not executed a program. ``children_faults`` counts the children
    that it has waited for.
    """

    pid: int
    started_ticks: int
    own_cpu_ns: int
    children_cpu_ns: int
    name: str = ""
    arguments: tuple[str, ...] = ()
    threads: int = 1
    state: str = ""
    blocks_signals: bool = False
    shows_function: bool = False
    virtual_bytes: int = 0
    rss_bytes: int | None = None
    anonymous_bytes: int | None = None
    shmem_bytes: int | None = None
    share_bytes: int | None = None
    unread_shmem_bytes: int = 0
    lazily_freed_bytes: int = 0
    peak_bytes: int | None = None
    swap_bytes: int | None = None
    page_table_bytes: int | None = None
    huge_page_bytes: int | None = None
    locked_bytes: int | None = None
    open_files_bound: int = 0
    blocks: proc.ProcessBlockBytes | None = None
    parent_pid: int = 0
    is_forked: bool = False
    faults: int = 0
    children_faults: int = 0

    @property
    def kernel_bytes(self) -> int:
        """What the kernel certainly has for the process: page tables, and the threads' stacks; 0
        of one without memory, and in gVisor.
        """
        if self.page_table_bytes is None:
            return 0
        return self.page_table_bytes + self.threads * _STACK_BYTES

    @property
    def identity(self) -> tuple[int, int]:
        """Unique, unlike the pid alone: the kernel reuses pids."""
        return self.pid, self.started_ticks


class _TreeProcess(Struct, gc=False):
    """A process at its last reading.

    ``ran_ns`` is its CPU time before; None if unknown. ``is_due``: its state is read again, also if
    it has not run.
    """

    ran_ns: int | None
    stat: proc.ProcessStat
    reading: ProcessReading | None = None
    children: tuple[int, ...] | None = None
    is_read: bool = False
    is_due: bool = False

    def is_same(self, stat: proc.ProcessStat) -> bool:
        """Whether nothing can have changed of a process that has not run and has this state: as
        much memory is resident, up to the few pages for each CPU that ``stat`` lacks. gVisor, which
        knows no page tables, counts CPU time in ticks.
        """
        reading = self.reading
        return stat == self.stat and reading is not None and reading.page_table_bytes is not None


class ProcessTree:
    """The descendants of one process, without unrelated children and their descendants.

    Of one that was not on a CPU, the state and the children are read again after ten seconds: its
    memory may be another, and it may have adopted children. Until then, nobody is searched for as
    long as no id is assigned. ``last_pid`` is the id that was assigned last before the processes
    were read, None if unknown. ``has_hidden``: this user sees nothing
    of a process in ``/proc``, as with the mount option hidepid. A ``/proc`` of another pid
    namespace shows none of them.
    """

    def __init__(
        self,
        root_pid: int,
        unrelated_children: Container[int],
        monotonic_ns: Callable[[], int],
        read_last_pid: Callable[[], int | None] = proc.read_last_pid,
    ) -> None:
        self._root_pid = root_pid
        self._unrelated_children = unrelated_children
        self._monotonic_ns = monotonic_ns
        self._read_last_pid = read_last_pid
        self._ns_per_tick = proc.ns_per_tick()
        self._shows_own_pids = proc.shows_own_pids()
        children_file = f"/proc/self/task/{os.getpid()}/children"
        self._has_children_files = os.path.exists(children_file)  # noqa: PTH110
        self._threads = 0
        self._others: Collection[int] = ()
        self.last_pid: int | None = None
        self._processes: dict[int, _TreeProcess] = {}
        self._all_due_ns = 0
        self.has_hidden = False

    def read_all(self) -> tuple[ProcessReading, ...]:
        """All processes of the tree, each after its parent.

        The share of the memory is not known yet.
        """
        stats = self._find_descendants()
        self._threads = sum([stat.threads for stat in stats.values()])
        return tuple([self._process_reading(pid, self._processes[pid]) for pid in stats])

    def identities(self) -> tuple[tuple[int, int], ...]:
        return tuple((pid, stat.started_ticks) for pid, stat in self._find_descendants().items())

    def _process_reading(self, pid: int, process: _TreeProcess) -> ProcessReading:
        before = process.reading
        stat = process.stat
        if before is not None and process.is_read:
            return before
        process.is_read = True
        if before is None:
            name = _read_name(pid, stat.name)
        else:
            name = before.name
        status = proc.parse_status(proc.read_or_none(f"/proc/{pid}/status") or b"")
        is_forked = stat.is_forked
        has_own_memory = before is not None and before.rss_bytes is not None
        if is_forked and not has_own_memory and has_parents_memory(pid, stat.parent_pid):
            status = proc.ProcessStatus()
        if lacks_memory_parts(status):
            status = with_memory_parts(status, f"/proc/{pid}")
            is_forked = is_forked or is_fork(f"/proc/{pid}", f"/proc/{stat.parent_pid}")
        cpu_ns = process.ran_ns
        if cpu_ns is None:
            cpu_ns = stat.cpu_ticks * self._ns_per_tick
        reading = ProcessReading(
            pid=pid,
            started_ticks=stat.started_ticks,
            own_cpu_ns=cpu_ns,
            children_cpu_ns=stat.children_cpu_ticks * self._ns_per_tick,
            name=name,
            threads=stat.threads,
            state=stat.state,
            blocks_signals=stat.blocks_signals,
            shows_function=stat.stack_start != 0,
            virtual_bytes=stat.virtual_bytes,
            rss_bytes=status.rss_bytes,
            anonymous_bytes=status.anonymous_bytes,
            shmem_bytes=status.shmem_bytes,
            peak_bytes=status.peak_bytes,
            swap_bytes=status.swap_bytes,
            page_table_bytes=status.page_table_bytes,
            huge_page_bytes=status.huge_page_bytes,
            locked_bytes=status.locked_bytes,
            open_files_bound=status.open_files_bound,
            blocks=proc.parse_io(proc.read_or_none(f"/proc/{pid}/io") or b""),
            parent_pid=stat.parent_pid,
            is_forked=is_forked,
            faults=stat.faults,
            children_faults=stat.children_faults,
        )
        if before == reading:  # the same object shows that nothing has changed
            return before
        process.reading = reading
        return reading

    def _stat_if_alive(self, pid: int, *, is_again: bool = False) -> proc.ProcessStat | None:
        """The state of a process; None if it has ended.

        ``is_again``: read it, even if the process has not run.
        """
        process = self._processes.get(pid)
        ran_ns = own_cpu_ns(pid, None)
        has_run = process is None or ran_ns is None or ran_ns != process.ran_ns
        if process is not None and not (has_run or is_again or process.is_due):
            return process.stat
        stat = proc.parse_stat(proc.read_or_none(f"/proc/{pid}/stat") or b"")
        if stat is None:
            return None
        if process is not None and not has_run and process.is_same(stat):
            process.children = None
            process.is_due = False
            return stat
        reading = None
        if process is not None and not _has_another_program(process.stat, stat):
            reading = process.reading
        self._processes[pid] = _TreeProcess(ran_ns, stat, reading)
        return stat

    def _child_pids(self, pid: int) -> tuple[int, ...]:
        process = self._processes[pid]
        if process.children is None:
            process.children = list_children(pid, process.stat.threads)
        return process.children

    def _find_descendants(self) -> dict[int, proc.ProcessStat]:
        if not self._shows_own_pids:
            return {}
        last_pid_before = self.last_pid
        # Who searches once needs no id. It is read first: who begins later gets another one.
        self.last_pid = self._read_last_pid() if self._processes else None
        now_ns = self._monotonic_ns()
        if now_ns >= self._all_due_ns:
            self._all_due_ns = now_ns + _ALL_READ_NS
            for process in self._processes.values():
                process.is_due = True
        elif self.last_pid is not None and self.last_pid == last_pid_before:
            known = self._known_if_none_has_ended()
            if known is not None:
                return known
        descendants = None
        if not self._has_children_files or self._threads > _MAX_THREADS_TO_LIST:
            pids = proc.numeric_entries()
            if not self._has_children_files or len(pids) < _PROCESSES_PER_THREAD * self._threads:
                descendants = self._search_all_processes(pids, last_pid_before)
        if descendants is None:
            descendants = self._walk_child_lists()
        if tuple(self._processes) != tuple(descendants):
            self._processes = {pid: self._processes[pid] for pid in descendants}
        return descendants

    def _known_if_none_has_ended(self) -> dict[int, proc.ProcessStat] | None:
        """The descendants of the last search; None if one has ended, or was adopted."""
        stats: dict[int, proc.ProcessStat] = {}
        for pid, process in tuple(self._processes.items()):
            stat = self._stat_if_alive(pid)
            if stat is None or stat.parent_pid != process.stat.parent_pid:
                return None
            if stat.parent_pid == self._root_pid and pid in self._unrelated_children:
                return None
            stats[pid] = stat
        return stats

    def _walk_child_lists(self) -> dict[int, proc.ProcessStat]:
        """Read the lists of children, then the last processes: a child may move to a list that
        was read already.
        """
        descendants: dict[int, proc.ProcessStat] = {}
        children = list_children(self._root_pid, 1)
        beginnings = [[pid for pid in children if pid not in self._unrelated_children]]
        beginnings += [[pid] for pid in self._processes]
        for first_pids in beginnings:
            pending = list(first_pids)
            while pending:
                pid = pending.pop()
                if pid in descendants:
                    continue
                stat = self._stat_if_alive(pid)
                if stat is None and pid not in self._unrelated_children:
                    self.has_hidden = self.has_hidden or _process_exists(pid)
                if stat is not None and not (
                    stat.parent_pid == self._root_pid or stat.parent_pid in descendants
                ):
                    stat = self._stat_if_alive(pid, is_again=True)
                if stat is not None and (
                    stat.parent_pid in descendants or self._is_child_of_root(pid, stat)
                ):
                    descendants[pid] = stat
                    pending.extend(self._child_pids(pid))
        return descendants

    def _is_child_of_root(self, pid: int, stat: proc.ProcessStat) -> bool:
        return stat.parent_pid == self._root_pid and pid not in self._unrelated_children

    def _stats_of(self, pids: Iterable[int]) -> dict[int, proc.ProcessStat]:
        stats: dict[int, proc.ProcessStat] = {}
        for pid in pids:
            stat = self._stat_if_alive(pid)
            if stat is not None:
                stats[pid] = stat
        return stats

    def _search_all_processes(
        self, pids: Collection[int], last_pid_before: int | None
    ) -> dict[int, proc.ProcessStat]:
        """Search all processes except the others of the last search, unless the kernel begins at
        small ids again.
        """
        children: dict[int, list[int]] = {}
        others: Collection[int] = ()
        if first_known(difference(self.last_pid, last_pid_before), -1) >= 0:
            others = self._others
        known = tuple(self._processes)
        stats = self._stats_of(pid for pid in pids if pid not in others)
        for pid in known:
            stat = stats.get(pid)
            if stat is None or stat.parent_pid == self._root_pid:
                continue
            if stat.parent_pid not in stats:
                stats[pid] = self._stat_if_alive(pid, is_again=True) or stat
        for pid, stat in stats.items():
            children.setdefault(stat.parent_pid, []).append(pid)
        descendants: dict[int, proc.ProcessStat] = {}
        pending = [
            pid
            for pid in children.get(self._root_pid, ())
            if self._is_child_of_root(pid, stats[pid])
        ]
        while pending:
            pid = pending.pop()
            if pid not in descendants:
                descendants[pid] = stats[pid]
                pending.extend(children.get(pid, ()))
        self._others = set(pids).difference(descendants)
        return descendants


def _is_fork(stat: proc.ProcessStat, folder: str) -> bool:
    """Whether a process has executed no program; gVisor's state does not say it."""
    return stat.is_forked or is_fork(folder, f"/proc/{stat.parent_pid}")


def _process_exists(pid: int) -> bool:
    """Whether a process exists, also one of another user; not a thread."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _read_name(pid: int, comm: str) -> str:
    from profiler.readers.linux.program_names import (
        read_name_with_script,  # short runs do without it
    )

    return read_name_with_script(f"/proc/{pid}", comm)


def inherited_bytes(process: ProcessReading, parent: ProcessReading | None) -> int:
    """The most anonymous memory that a fork can have inherited: its and its parent's mark,
    unless it was adopted.
    """
    of_parent = None
    if parent is not None and parent.name == process.name:
        of_parent = _mark_bytes(parent)
    return min_known(_mark_bytes(process), of_parent) or 0


def _mark_bytes(process: ProcessReading) -> int | None:
    """The high-water mark; in gVisor, which has none, the memory now."""
    return first_known(process.peak_bytes, process.rss_bytes)


def _has_another_program(before: proc.ProcessStat, now: proc.ProcessStat) -> bool:
    is_same_process = (before.started_ticks, before.is_forked) == (now.started_ticks, now.is_forked)
    return not is_same_process or proc.may_run_another_program(before, now)


def list_children(pid: int, threads: int) -> tuple[int, ...]:
    """The children of a process.

    The kernel has one list for each thread: the children that it forked.
    """
    if threads == 1:
        return proc.parse_child_pids(proc.read_or_none(f"/proc/{pid}/task/{pid}/children") or b"")
    children: list[int] = []
    for thread in proc.numeric_entries(f"/proc/{pid}/task"):
        text = proc.read_or_none(f"/proc/{pid}/task/{thread}/children") or b""
        children.extend(proc.parse_child_pids(text))
    return tuple(children)


def own_cpu_ns(pid: int, fallback_ns: _Fallback) -> int | _Fallback:
    """CPU time of a process and its ended threads, by an exact clock that every user can read;
    else the fallback.
    """
    try:
        # The clock id as clock_getcpuclockid(3) computes it (CPUCLOCK_SCHED).
        return time.clock_gettime_ns(~pid << 3 | 2)
    except OSError:
        return fallback_ns


class _KnownMemory(Struct, frozen=True, gc=False):
    """A process whose memory was read. ``is_new``: it was not read together with all others."""

    threads: int
    own_bytes: int
    anonymous_bytes: int
    mapped_bytes: int
    is_new: bool


def _read_file_bytes(pid: int) -> int:
    """What a process maps of files; 0 if unknown."""
    return proc.bytes_after(proc.read_or_none(f"/proc/{pid}/status") or b"", b"RssFile:") or 0


class QuickMemoryReader:
    """Reads the memory of the descendants of one process, without unrelated children and their
    descendants.

    A lower bound: the last reading without what was unmapped since, its anonymous growth, and new
    ones' private memory.
    ``has_changed``: other processes than at the last :meth:`reset_baseline`. ``mapped_bytes``: the
    most that one maps of files and shared memory. ``file_bytes``: the most of files that one was
    seen to map since the last :meth:`reset_baseline`, if notable. ``pids``: its processes.
    """

    def __init__(self, root_pid: int, unrelated_children: Container[int]) -> None:
        self._root_pid = root_pid
        self._unrelated_children = unrelated_children
        children_file = f"/proc/self/task/{os.getpid()}/children"
        self._has_children_files = os.path.exists(children_file)  # noqa: PTH110
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._known: dict[int, _KnownMemory] = {}
        self.has_changed = False
        self.mapped_bytes = 0
        self.file_bytes = 0
        self.pids: Collection[int] = ()

    def reset_baseline(self, processes: Iterable[ProcessReading]) -> None:
        """Continue from a reading of the whole tree."""
        self.file_bytes = 0
        self._known = {
            process.pid: _KnownMemory(
                process.threads,
                process.share_bytes or 0,
                process.anonymous_bytes or 0,
                (process.rss_bytes or 0) - (process.anonymous_bytes or 0),
                is_new=False,
            )
            for process in processes
        }

    def estimate_held_bytes(self) -> int | None:
        """The memory in bytes; None if no process has any, or if the reading would cost too
        much.
        """
        threads = sum([known.threads for known in self._known.values()])
        if not self._has_children_files or threads > _MAX_THREADS:
            return None
        sizes: dict[int, tuple[int, ...]] = {}
        total_bytes = 0
        new_processes = 0
        pending: list[tuple[int, int, tuple[int, ...]]] = [
            (pid, self._root_pid, ()) for pid in list_children(self._root_pid, 1)
        ]
        while pending:
            pid, parent_pid, parent = pending.pop()
            fields = read_statm_pages(pid)
            if not fields or pid in sizes or pid in self._unrelated_children:
                continue
            sizes[pid] = fields
            known = self._known.get(pid)
            if known is None or (
                known.is_new and self._anonymous_bytes(fields) < known.anonymous_bytes
            ):
                known = self._read_new_process(pid, fields, parent_pid, parent)
            new_processes += known.is_new
            held_bytes = known.own_bytes + self._anonymous_bytes(fields) - known.anonymous_bytes
            mapped_bytes = fields[_SHARED] * self._page_bytes
            if is_notable(mapped_bytes - max(known.mapped_bytes, self.file_bytes), mapped_bytes):
                self.file_bytes = max(self.file_bytes, _read_file_bytes(pid))
            held_bytes -= max(known.mapped_bytes - mapped_bytes, 0)
            may_be_parents = held_bytes > 0 and not known.own_bytes
            if not (
                may_be_parents and are_sizes_between(fields, parent, read_statm_pages(parent_pid))
            ):
                total_bytes += max(held_bytes, 0)
            pending.extend([(child, pid, fields) for child in list_children(pid, known.threads)])
        self.pids = sizes.keys()
        mapped_pages = max([fields[_SHARED] for fields in sizes.values()], default=0)
        self.mapped_bytes = mapped_pages * self._page_bytes
        self.has_changed = bool(new_processes) or len(sizes) != len(self._known)
        return total_bytes or None

    def _anonymous_bytes(self, fields: tuple[int, ...]) -> int:
        return max(fields[_RESIDENT] - fields[_SHARED], 0) * self._page_bytes

    def _read_new_process(
        self, pid: int, fields: tuple[int, ...], parent_pid: int, parent: tuple[int, ...]
    ) -> _KnownMemory:
        """Read a new process.

        A fork may have only its parent's memory until it allocates some or executes; if its private
        memory is not readable, nothing shows what it has allocated.
        """
        folder = f"/proc/{pid}"
        stat = proc.parse_stat(proc.read_or_none(f"{folder}/stat") or b"")
        threads = 1
        if stat is not None:
            threads = stat.threads
        is_like_parent = parent and (fields[_SIZE], fields[_DATA]) == (parent[_SIZE], parent[_DATA])
        if is_like_parent or are_sizes_between(fields, parent, read_statm_pages(parent_pid)):
            return _KnownMemory(threads, 0, self._anonymous_bytes(fields), 0, is_new=True)
        rollup = proc.read_or_none(f"{folder}/smaps_rollup") or b""
        private_bytes = proc.parse_private_anonymous_bytes(rollup)
        # It may have allocated some since its sizes were read.
        later_bytes = proc.bytes_after(rollup, b"Anonymous:") or 0
        anonymous_bytes = max(self._anonymous_bytes(fields), later_bytes)
        if private_bytes is None and (stat is None or _is_fork(stat, folder)):
            private_bytes = 0
        own_bytes = min_known(private_bytes, anonymous_bytes) or 0
        known = _KnownMemory(threads, own_bytes, anonymous_bytes, 0, is_new=True)
        self._known[pid] = known
        return known

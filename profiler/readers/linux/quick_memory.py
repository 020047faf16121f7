"""The memory of a process tree between two readings of it, with a few system calls for each process.

A lower bound: the last reading, its anonymous growth since, and new ones' private memory. Nothing counts twice.
"""

import os
from collections.abc import Container, Iterable

from msgspec import Struct

from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import ProcessReading, list_children

# Beyond this number of processes and threads, a reading costs too much.
_MAX_THREADS = 64
# Positions in /proc/PID/statm, in pages.
_SIZE, _RESIDENT, _SHARED, _DATA = 0, 1, 2, 5


class _Known(Struct, frozen=True, gc=False):
    """A process whose memory was read. ``is_new``: it was not read together with all others."""

    threads: int
    own_bytes: int
    anonymous_bytes: int
    is_new: bool


class QuickMemory:
    """Reads the memory of the descendants of one process, without unrelated children and their descendants.

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
            fields = self._read_fields(pid)
            if fields is None or pid in found or pid in self._unrelated_children:
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

    def _read_fields(self, pid: int) -> tuple[int, ...] | None:
        """The sizes of a process in bytes; None after its end."""
        try:
            fields = tuple([int(word) * self._page_bytes for word in (proc.read(f"/proc/{pid}/statm") or b"").split()])
        except ValueError:
            return None
        return fields if len(fields) > _DATA else None


def _anonymous(fields: tuple[int, ...]) -> int:
    return max(fields[_RESIDENT] - fields[_SHARED], 0)

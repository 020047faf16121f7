"""Processes that began since all were read: a look that waited for the next reading would not know
whose work a thread waits for, and short ones would never be seen.
"""

from collections.abc import Callable, Collection

from profiler.core.optional_math import difference
from profiler.readers.linux import proc
from profiler.readers.linux.process_threads import ProcessThreads
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.reading_turns import MAX_ASKED
from profiler.readers.linux.thread_counters import FollowedThread, ReadingNumberAndTime
from profiler.readers.linux.wait_reader import ENDED_STATES
from profiler.readers.linux.wait_types import BlockedThread
from profiler.readers.linux.watched_processes import WatchedProcesses

# The children of each thread are listed if there are no more threads, else of so many.
_MAX_PARENTS = 8
_FIRST_PID = 1


class NewProcesses:
    """Finds new processes, and follows them.

    ``is_of_batch``: whether a process is the batch's whose parent has ended. ``last_pid`` is the id
    that was assigned last before the processes were read, None if unknown. ``able_on_machine``: so
    many threads of the whole machine could run when that was asked in this look, None if unknown.
    """

    def __init__(self, processes: WatchedProcesses, is_of_batch: Callable[[int], bool]) -> None:
        self._folder = processes.folder
        self._processes = processes
        self._is_of_batch = is_of_batch
        self._load = proc.LoadFile(processes.folder)
        self.last_pid: int | None = None
        self._may_be_any: bool | None = None  # None: not asked in this look
        self.able_on_machine: int | None = None

    def begin_look(self) -> None:
        self._may_be_any = None
        self.able_on_machine = None

    def may_have_begun(self) -> bool:
        """Whether an id was assigned since the processes were read; asked once in a look, together
        with the number of threads of the machine that can run.
        """
        if self._may_be_any is None:
            able, newest = self._load.able_threads_and_last_pid()
            self.able_on_machine = difference(able, 1)  # without the calling one
            self._may_be_any = newest is None or newest != self.last_pid
        return self._may_be_any

    def may_miss_child(self, process: ProcessThreads, blocked: BlockedThread) -> bool:
        """Whether a thread may have a child that began since the processes were read, and matters:
        it waits for it, is told of its end by a signal, or asks again and again whether it has
        ended, which no thread of a pool does.
        """
        if blocked.may_wait_for_children:
            return True
        may_ask = blocked.may_ask_for_children and len(process.threads) <= _MAX_PARENTS
        return (may_ask or blocked.may_be_told_of_child) and self.may_have_begun()

    def follow_all(self, last: ReadingNumberAndTime, *, sees_calls: bool) -> None:
        """Follow the processes that began since the processes were read, and whose parents have
        ended: a double fork leaves its work to one, for which others wait at a pipe or a socket.
        The kernel gives it to the first process of a container, or to the one that started that,
        at the latest to the first one of all. Without system calls nobody knows who waits for a
        child: then follow all.
        """
        if not self.may_have_begun():
            return
        parents = self._adopters()
        if not sees_calls:
            parents = {*parents, *self._processes.by_pid}
        for pid in self._new_children_of(parents):
            if not self._is_of_batch(pid):
                continue
            process = self.follow_living(pid, last)
            if process is not None:
                process.is_refused = not sees_calls

    def _adopters(self) -> Collection[int]:
        found: set[int] = set()
        known = self._processes.by_pid
        for pid, process in known.items():
            parent = process.reading.parent_pid
            if parent not in known:
                found.update((pid, parent or _FIRST_PID))
        return found

    def _new_children_of(self, parents: Collection[int]) -> Collection[int]:
        """The unknown ones of these processes' first threads, which adopt; of many, the last."""
        pids: set[int] = set()
        for parent in parents:
            path = f"{self._folder}/{parent}/task/{parent}/children"
            pids.update(proc.parse_child_pids(proc.read_or_none(path) or b""))
        return sorted(pids.difference(self._processes.by_pid))[-MAX_ASKED:]

    def follow_living(self, pid: int, last: ReadingNumberAndTime) -> ProcessThreads | None:
        """Follow a process that began since the processes were read; None if it has ended."""
        stat = proc.parse_stat(proc.read_or_none(f"{self._folder}/{pid}/stat") or b"")
        if stat is None or stat.state in ENDED_STATES:
            return None
        reading = ProcessReading(
            pid=pid,
            started_ticks=stat.started_ticks,
            own_cpu_ns=0,
            children_cpu_ns=0,
            threads=stat.threads,
            state=stat.state,
            parent_pid=stat.parent_pid,
        )
        return self._processes.add(reading, last)

    def children_of_threads(
        self, process: ProcessThreads, parents: Collection[FollowedThread]
    ) -> Collection[int]:
        """The children of these threads, and of the others of their process: if these are many, of
        those that ran last. In Java, another thread starts a child than waits for it.
        """
        if len(process.threads) <= _MAX_PARENTS:
            parents = process.threads.values()
        else:
            latest = sorted(process.threads.values(), key=lambda thread: -thread.ran_after_ns)
            parents = dict.fromkeys((*parents, *latest[:_MAX_PARENTS]))
        pids: list[int] = []
        for thread in parents:
            pids += proc.parse_child_pids(proc.read_or_none(f"{thread.path}/children") or b"")
        return pids

    def close(self) -> None:
        self._load.close()

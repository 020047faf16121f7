"""What is known of waits between two looks: which threads can run, which wait for something since a
short time or for the lock of a file, and which processes have threads that are to be asked again.
"""

from collections.abc import Iterable

from profiler.readers.linux.process_threads import ProcessThreads
from profiler.readers.linux.thread_counters import FollowedThread
from profiler.readers.linux.wait_reader import ENDED


class KnownWaits:
    """What the threads did when they were asked last.

    ``to_ask`` are the processes with threads that have run since, by their ids. ``able`` are the
    threads that could run. ``new`` are those that waited, by their processes, until a look finds
    whether their group is frozen.
    """

    def __init__(self) -> None:
        self.to_ask: dict[int, ProcessThreads] = {}
        self.able: set[FollowedThread] = set()
        self.new: dict[int, dict[FollowedThread, None]] = {}
        self._for_file_locks: dict[FollowedThread, ProcessThreads] = {}

    def add_new(self, thread: FollowedThread, pid: int) -> None:
        """Note a thread whose wait has begun since the last look."""
        self.new.setdefault(pid, {})[thread] = None

    def note(self, process: ProcessThreads, thread: FollowedThread, *, is_same_wait: bool) -> None:
        """Note what a thread does that was asked; ``is_same_wait``: it has not run since it was
        asked before.
        """
        blocked = thread.blocked
        if blocked is not None and blocked.is_for_file_lock:
            self._for_file_locks[thread] = process
        elif self._for_file_locks:
            self._for_file_locks.pop(thread, None)
        if blocked is None:
            self.able.add(thread)
            return
        self.able.discard(thread)
        is_known = blocked.is_hidden or blocked.is_stopped or blocked is ENDED
        if not (is_known or is_same_wait):
            self.add_new(thread, process.reading.pid)

    def end(self, thread: FollowedThread, pid: int) -> None:
        """End what is known of a thread that has run."""
        if self.able:
            self.able.discard(thread)
        if pid in self.new:
            self.new[pid].pop(thread, None)

    def forget_thread(self, thread: FollowedThread, pid: int) -> None:
        """Forget a thread that has ended."""
        self._for_file_locks.pop(thread, None)
        self.end(thread, pid)

    def forget(self, ended: ProcessThreads) -> None:
        """Forget a process that has ended, and ask who waits for the lock of a file that it held
        who holds it now.
        """
        pid = ended.reading.pid
        for thread, process in tuple(self._for_file_locks.items()):
            if process is ended:
                del self._for_file_locks[thread]
            elif thread.blocked is not None and pid in thread.blocked.helper_pids:
                thread.is_postponed = True
                process.seen = process.threads.values()
                self.to_ask[process.reading.pid] = process
        self.to_ask.pop(pid, None)
        for thread in ended.threads.values():
            self.end(thread, pid)

    def ask_all(self, processes: Iterable[ProcessThreads]) -> None:
        """Ask all threads again: a group of version 1 is frozen while none of them runs."""
        for process in processes:
            process.seen = process.threads.values()
            process.was_sleeping = False
            for thread in process.seen:
                thread.is_stale = True
            self.to_ask[process.reading.pid] = process

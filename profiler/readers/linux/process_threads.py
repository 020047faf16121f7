"""A process whose threads are read, and what is known of it between two looks."""

from collections.abc import Collection

from msgspec import Struct

from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.thread_counters import FollowedThread, ReadingNumberAndTime


class ProcessThreads(Struct, eq=False):
    """One process with its threads, by their ids.

    ``reading`` is the newest reading of the process; ``state`` is that of its first thread, as of
    this reading or of a look after it. ``is_refused``: its system calls are not readable.

    Which threads a look reads: all threads were known last at ``still_at``; ``left`` are those to
    be read until all are known again, and ``busiest`` are read in each look until then.
    ``has_run``: it was on a CPU since the first of its threads was read. ``seen`` are the threads
    that may be asked what they wait for. ``was_sleeping``: its only thread was, when its state was
    noted last.

    ``folder_file`` is the open folder of its threads, if there are several and files are left.

    What the kernel counted: ``clock_ns`` is its CPU time at the last look, when it had
    ``thread_count`` threads; ``read_ns`` is what was read of it by threads, ``unread_ns`` that of
    threads that ended before they were read. ``later_ns`` was noted of threads that are left for
    later looks, as far as these were not read since.
    """

    reading: ProcessReading
    started_ticks: int
    still_at: ReadingNumberAndTime
    threads: dict[int, FollowedThread] = {}
    left: list[FollowedThread] = []
    thread_count: int = 1
    seen: Collection[FollowedThread] = ()
    has_run: bool = False
    is_refused: bool = False
    was_sleeping: bool = False
    clock_ns: int | None = None
    read_ns: int = 0
    unread_ns: int = 0
    later_ns: int = 0
    busiest: list[FollowedThread] = []
    state: str = ""
    folder_file: int | None = None

    @property
    def shows_only_state(self) -> bool:
        """Whether the state of the process is all that can be known of its waits."""
        if not self.is_refused or self.reading.threads != 1 or self.left:
            return False
        return len(self.threads) == 1

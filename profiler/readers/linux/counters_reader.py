"""Which counters of threads a look reads: those of the processes that have run, as far as its
budget allows, and what of their CPU time no thread has shown.
"""

from collections.abc import Iterable, Sequence
from heapq import nlargest

from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux import proc
from profiler.readers.linux.known_waits import KnownWaits
from profiler.readers.linux.look import PresentLook, ThreadSeen
from profiler.readers.linux.process_threads import ProcessThreads
from profiler.readers.linux.reading_turns import (
    CHECKED_THREADS,
    AsleepReadings,
    LookBudget,
    ThreadTurns,
)
from profiler.readers.linux.thread_counters import (
    FollowedThread,
    ReadingNumberAndTime,
    ThreadTimeGrowth,
    open_thread,
)
from profiler.readers.linux.wait_reader import SLEEP_STATE
from profiler.readers.linux.watched_processes import WatchedProcesses
from profiler.readers.linux.working_threads import WorkingThreads

# So many threads of a process are read in each look, also if to read all takes several looks.
_MAX_BUSIEST = 8
# CPU time of a process that no thread has: a clock that was read earlier than the threads differs
# by less.
_MIN_UNREAD_NS = 20 * NS_PER_MS


class CountersReader:
    """Reads the counters of threads, and finds those that have begun or ended.

    ``is_counting``: a thread has run, so that the kernel counts.
    """

    def __init__(
        self,
        processes: WatchedProcesses,
        turns: ThreadTurns,
        asleep: AsleepReadings,
        working: WorkingThreads,
        waits: KnownWaits,
    ) -> None:
        self._processes = processes
        self._turns = turns
        self._asleep = asleep
        self._working = working
        self._waits = waits
        self.is_counting = False

    def due_processes(
        self, now: ReadingNumberAndTime, *, is_required: bool
    ) -> list[ProcessThreads]:
        """The processes whose threads may have run or are new, and are read now; those that take
        several readings come last, and first at every other look, so that they are read at all.
        """
        due: list[ProcessThreads] = []
        in_turn: list[ProcessThreads] = []
        threads = 0
        has_left = False
        for process in self._processes.changed.values():
            if process.is_refused and process.reading.threads > 1 and not is_required:
                in_turn.append(process)
                threads += process.reading.threads
            else:
                due.append(process)
                has_left = has_left or bool(process.left)
        if has_left and len(due) > 1:
            place = 1 if now.number % 2 else -1
            due.sort(key=lambda process: place * (bool(process.left) and not process.is_refused))
        has_turn = not in_turn or self._turns.begin_if_due(threads, now.number)
        self._turns.are_left_out = not has_turn
        return due + in_turn if has_turn else due

    def read_due(
        self,
        due: Sequence[ProcessThreads],
        budget: LookBudget,
        look: PresentLook,
        *,
        is_required: bool,
    ) -> None:
        """Read the counters of these processes' threads, as far as the budget allows."""
        for process in due:
            if not process.is_refused:
                process.seen = ()
            if budget.is_spent:
                continue
            if (
                process.is_refused
                and process.shows_only_state
                and self._read_only_thread(process, look)
            ):
                budget.allows_threads()
                continue
            if is_required or not process.is_refused or process.reading.threads == 1:
                self.read_remaining_threads(process, budget, look, None)
            elif self._turns.left > 0:
                self._turns.left -= self.read_remaining_threads(
                    process, budget, look, self._turns.left
                )

    def _read_only_thread(self, process: ProcessThreads, look: PresentLook) -> bool:
        """Read the counters of a process with one thread; returns False after the thread's end."""
        (thread,) = process.threads.values()
        reading = process.reading
        try:
            grown = thread.read_growth(process.still_at, look.now, reading.pid)
        except (ProcessLookupError, ValueError):
            self._end_thread(process, thread, look)
            return False
        if grown is not None:
            self._note_growth(process, thread, grown, look)
        process.has_run = False
        process.still_at = look.now
        del self._processes.changed[reading.pid]
        if grown is not None and reading.state == SLEEP_STATE:
            self._asleep.regulars[reading.pid] = process
        is_sleeping_again = (
            process.was_sleeping
            and reading.state == SLEEP_STATE
            and reading.blocks_signals == thread.sleeps_unsignalled
        )
        thread.is_stale = not is_sleeping_again
        if is_sleeping_again:
            look.seen.append(ThreadSeen(thread.thread_id, reading.pid, thread.blocked))
        else:
            self._waits.to_ask[reading.pid] = process
        return True

    def read_remaining_threads(
        self, process: ProcessThreads, budget: LookBudget, look: PresentLook, limit: int | None
    ) -> int:
        """Read the threads that are left, up to a ``limit``; returns how many were read."""
        pid = process.reading.pid
        is_first = not process.left
        before = len(look.growth)
        busiest = process.busiest
        if is_first:
            process.has_run = False
            process.left = list(reversed(process.threads.values()))
            busiest = []
        read = self._read_threads(process, busiest, look)
        has_looked = False
        while process.left or not has_looked:
            if not process.left:
                has_looked = True
                process.left = self._find_threads(process, look)
                continue
            together = CHECKED_THREADS if limit is None else min(CHECKED_THREADS, limit - len(read))
            next_ones = process.left[-together:] if together else []
            if not next_ones or not budget.allows_threads(len(next_ones)):
                break
            del process.left[-together:]
            next_ones.reverse()
            if busiest:
                next_ones = [thread for thread in next_ones if thread not in busiest]
            read += self._read_threads(process, next_ones, look)
        is_known = not process.left and (is_first or not process.has_run)
        if is_known:
            process.still_at = look.now
            del self._processes.changed[pid]
            self._note_unread(process, look)
        elif not process.is_refused:
            _note_later(process, look)
            _note_busiest(process, look.growth[before:])
        process.seen = process.threads.values() if is_known or process.is_refused else read
        self._waits.to_ask[pid] = process
        return len(read)

    def read_last(self, look: PresentLook) -> None:
        """Read the counters of all threads that were seen, for the last time."""
        changed = self._processes.changed
        for pid, process in self._processes.by_pid.items():
            if pid not in changed:
                process.still_at = look.before
            self._read_threads(process, tuple(process.threads.values()), look)

    def _note_unread(self, process: ProcessThreads, look: PresentLook) -> None:
        """Note the CPU time of threads that ended unread."""
        if process.clock_ns is None or process.thread_count == 1:
            return
        unread_ns = process.clock_ns - process.read_ns - process.unread_ns
        noted_ns = process.later_ns
        process.later_ns = 0
        if unread_ns >= _MIN_UNREAD_NS:
            process.unread_ns += unread_ns
            look.unread_run_ns += max(unread_ns - noted_ns, 0)
            self._working.peeks.rest_ns += unread_ns
            self._working.peeks.missed_ns += unread_ns

    def _end_thread(
        self, process: ProcessThreads, thread: FollowedThread, look: PresentLook
    ) -> None:
        """Close the files of a thread that has ended."""
        del process.threads[thread.thread_id]
        thread.close()
        self._waits.forget_thread(thread, process.reading.pid)
        self._working.forget(thread)
        look.ended.append(thread.thread_id)

    def _read_threads(
        self, process: ProcessThreads, threads: Iterable[FollowedThread], look: PresentLook
    ) -> list[FollowedThread]:
        """Read the counters of threads; returns those that have not ended."""
        read: list[FollowedThread] = []
        pid = process.reading.pid
        since = process.still_at
        now = look.now
        for thread in threads:
            try:
                grown = thread.read_growth(since, now, pid)
            except (ProcessLookupError, ValueError):
                if process.threads.get(thread.thread_id) is thread:
                    self._end_thread(process, thread, look)
                continue  # else its end was seen in an earlier look
            if grown is not None:
                self._note_growth(process, thread, grown, look)
            read.append(thread)
        return read

    def _note_growth(
        self,
        process: ProcessThreads,
        thread: FollowedThread,
        grown: ThreadTimeGrowth,
        look: PresentLook,
    ) -> None:
        run_ns = grown.run_ns
        process.read_ns += run_ns
        if grown.steps > 1 and process.later_ns:
            process.later_ns = max(process.later_ns - run_ns, 0)
        if run_ns:
            self.is_counting = True
        look.growth.append(grown)
        self._waits.end(thread, grown.process)
        self._working.note_run(thread, grown, look)

    def _find_threads(self, process: ProcessThreads, look: PresentLook) -> list[FollowedThread]:
        """The new threads of a process, if the number of the known ones is not the process's."""
        known = process.threads
        reading = process.reading
        if len(known) == process.thread_count:
            # A state may have changed without a run: a signal has stopped the process.
            if len(known) == 1:
                next(iter(known.values())).is_stale = True
            return []
        folder = f"{self._processes.folder}/{reading.pid}/task"
        appeared = []
        thread_ids = [reading.pid]
        if process.thread_count > 1:
            thread_ids = proc.numeric_entries(folder)
        for thread_id in thread_ids:
            if thread_id not in known:
                known[thread_id] = open_thread(
                    thread_id, f"{folder}/{thread_id}", self._processes.files, look.before
                )
                appeared.append(known[thread_id])
        return appeared


def _note_later(process: ProcessThreads, look: PresentLook) -> None:
    """Note the CPU time of threads that are left for the next looks."""
    if process.clock_ns is None:
        return
    left_ns = process.clock_ns - process.read_ns - process.unread_ns
    look.later_run_ns += max(left_ns - process.later_ns, 0)
    process.later_ns = max(left_ns, 0)


def _note_busiest(process: ProcessThreads, growth: Sequence[ThreadTimeGrowth]) -> None:
    """Note which threads ran or waited for a CPU most, of those that were read in this look; if
    these are too few, also those that were noted before.
    """
    busiest = nlargest(_MAX_BUSIEST, growth, key=_busy_share)
    ids = dict.fromkeys([grown.thread for grown in busiest])
    ids.update(dict.fromkeys([thread.thread_id for thread in process.busiest]))
    threads = [process.threads[each] for each in ids if each in process.threads]
    process.busiest = threads[:_MAX_BUSIEST]


def _busy_share(grown: ThreadTimeGrowth) -> float:
    """The share of the time for which a thread could run."""
    return (grown.run_ns + grown.wait_ns) / max(grown.span_ns, 1)


def certainly_busiest(
    growth: Sequence[ThreadTimeGrowth], least_ns: float
) -> ThreadTimeGrowth | None:
    """A thread that certainly could run for so long in each of its steps; None if none could."""
    for grown in growth:
        if 0 < least_ns <= (grown.run_ns + grown.wait_ns) / grown.steps:
            return grown
    return None

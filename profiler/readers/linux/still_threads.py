"""What may have changed of threads that have not run since they were asked, or were not asked: the
group of one that waits was frozen, or one waits for a CPU.
"""

from collections.abc import Collection

from profiler.core.look_times import GOLDEN_PART
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.linux.known_waits import KnownWaits
from profiler.readers.linux.look import PresentLook, ThreadSeen
from profiler.readers.linux.new_clients import may_have_client
from profiler.readers.linux.poll_outcome import (
    WorkBeginBounds,
    did_timeout_end_poll,
    first_arrival_before_ns,
    has_ended_before_timeout,
    what_came,
)
from profiler.readers.linux.reading_turns import LookBudget
from profiler.readers.linux.thread_counters import FollowedThread
from profiler.readers.linux.wait_reader import (
    INTERRUPTIBLE_KINDS,
    RUNNABLE_STATE,
    SLEEP_STATE,
    kernel_function,
)
from profiler.readers.linux.wait_types import STOPPED, BlockedThread
from profiler.readers.linux.waited_target import WaitResolver
from profiler.readers.linux.watched_processes import WatchedProcesses
from profiler.readers.linux.working_threads import MAX_STATES, WorkingThreads

# A thread that has not run for so long is hardly ever found while it waits for a CPU: its state is
# not read any more. What it waited is counted when it runs.
_LONG_ASLEEP_NS = 10 * NS_PER_SECOND
# The kernel functions in which threads of a frozen group of version 2 are; compilers put one into
# the other.
_FROZEN_IN = (b"do_freezer_trap", b"get_signal")


class StillThreads:
    """Looks at threads that have not run."""

    def __init__(
        self,
        processes: WatchedProcesses,
        resolver: WaitResolver,
        working: WorkingThreads,
        waits: KnownWaits,
    ) -> None:
        self._processes = processes
        self._resolver = resolver
        self._working = working
        self._waits = waits

    def look_for_frozen(self, look: PresentLook, budget: LookBudget) -> None:
        """Look which threads that wait since an earlier look are in a frozen group of version 2
        that is not the one of the first process: the kernel shows them in their calls, as if they
        slept. Waits that are over by now are not looked at, and none a second time.

        All threads of a process are frozen together, those in interruptible sleeps at once. So one
        of these that is not says it of all, and nobody looks at a process that has just run.
        """
        have_run = {grown.process for grown in look.growth}
        new_waits = self._waits.new
        for pid in [pid for pid in new_waits if pid not in have_run]:
            threads = new_waits[pid]
            while threads and budget.allows_threads():
                thread, _ = threads.popitem()
                if thread.is_stale:
                    continue
                if kernel_function(thread) in _FROZEN_IN:
                    _note_frozen(thread, pid, look)
                elif thread.blocked is not None and thread.blocked.wait.kind in INTERRUPTIBLE_KINDS:
                    threads.clear()
            if not threads:
                del new_waits[pid]

    def look_for_able(self, look: PresentLook, budget: LookBudget) -> None:
        """Look for threads that can run, though they have not run since they were blocked, or were
        not read; those that were asked in this look have said what they do.

        Those that work, and then those that ran last, are the likeliest to be able to run.
        """
        working = self._working
        asked = {seen.thread for seen in look.seen}
        workers = self._unasked_threads(working.workers, asked, look)
        others = self._unasked_threads(working.others, asked, look)
        count = 0
        for thread, pid in (workers + others)[:MAX_STATES]:
            # The cost of asking counts: to read the states of many others makes looks dear.
            if count == len(workers):
                budget.allows_threads(len(asked))
            if not budget.allows_threads():
                break
            count += 1
            before = thread.blocked
            if thread.read_state().letter == RUNNABLE_STATE:
                thread.blocked = None
                look.seen.append(self._thread_woken_now(thread, pid, before, look))
        left_workers = max(len(workers) - count, 0)
        left_others = len(workers) + len(others) - count - left_workers
        if left_workers or left_others:
            look.asked_share = working.peeks.share_of_work(
                1 - left_workers / max(len(working.workers), 1),
                1 - left_others / max(len(working.others), 1),
            )

    def _unasked_threads(
        self, threads: dict[FollowedThread, int], asked: Collection[int], look: PresentLook
    ) -> list[tuple[FollowedThread, int]]:
        """Those of the threads that may be able to run, with their processes, and were not asked,
        in turn: if not all can be, each is as likely to be.
        """
        since_ns = look.now.at_ns - _LONG_ASLEEP_NS
        changed = self._processes.changed
        unasked = [
            (thread, pid)
            for thread, pid in threads.items()
            if thread.thread_id not in asked
            and (thread.ran_after_ns >= since_ns or pid in changed)
            and not (thread.blocked and thread.blocked.is_hidden)
        ]
        first = int(look.before.number * GOLDEN_PART % 1 * len(unasked))
        return unasked[first:] + unasked[:first]

    def _thread_woken_now(
        self, thread: FollowedThread, pid: int, before: BlockedThread | None, look: PresentLook
    ) -> ThreadSeen:
        """A thread that can run, and has not run yet: its wait ended since the last look."""
        if before is None:
            return ThreadSeen(thread.thread_id, pid, None)
        now_ns = look.now.at_ns
        arrivals = self._resolver.read_arrivals(before)
        timed_out: bool | None = False
        if before.may_go_on:
            begin = WorkBeginBounds(look.before.at_ns, now_ns, is_known=False, worked_ns=0)
            timed_out = did_timeout_end_poll(before, arrivals, begin, now_ns)
        return ThreadSeen(
            thread.thread_id,
            pid,
            None,
            what_came(arrivals, timed_out=timed_out),
            has_ended_before_timeout(before, None, now_ns),
            timed_out,
            may_have_client(self._processes.folder, pid, thread, before, None),
            came_before_ns=first_arrival_before_ns(arrivals),
        )


def _note_frozen(thread: FollowedThread, pid: int, look: PresentLook) -> None:
    """Note a thread whose group is frozen, if it sleeps."""
    if thread.read_state().letter != SLEEP_STATE:
        return
    thread.blocked, thread.is_postponed = STOPPED, False
    # It has not run since it was asked, as it does when it is frozen.
    look.seen.append(ThreadSeen(thread.thread_id, pid, STOPPED, is_correction=True))
    look.has_other_waits = True

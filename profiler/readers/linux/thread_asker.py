"""Asks the threads that have run what they wait for now, and how the wait before has ended; and the
children of those that wait for one, if they began since the processes were read.

A thread that has not been on a CPU is still blocked in the same call, and not asked again.
"""

from collections.abc import Collection, Sequence

from profiler.readers.linux.counters_reader import CountersReader
from profiler.readers.linux.known_waits import KnownWaits
from profiler.readers.linux.look import PresentLook, ThreadSeen
from profiler.readers.linux.new_clients import may_have_client
from profiler.readers.linux.new_processes import NewProcesses
from profiler.readers.linux.poll_outcome import (
    ConnectionArrival,
    did_timeout_end_poll,
    first_arrival_before_ns,
    has_ended_before_timeout,
    was_due_as_work_began,
    what_came,
)
from profiler.readers.linux.process_threads import ProcessThreads
from profiler.readers.linux.reading_turns import MAX_ASKED, LookBudget, ThreadTurns
from profiler.readers.linux.thread_counters import FollowedThread
from profiler.readers.linux.wait_reader import (
    DISK_BY_STATE,
    ENDED,
    HIDDEN_DISK,
    RUNNABLE_STATE,
    SLEEP_STATE,
    TRACED_STATE,
    BlockedReader,
)
from profiler.readers.linux.wait_types import MEMORY, STOPPED, BlockedThread
from profiler.readers.linux.waited_target import WaitResolver
from profiler.readers.linux.watched_processes import WatchedProcesses


class ThreadAsker:
    """Asks threads, and notes what they do now."""

    def __init__(
        self,
        processes: WatchedProcesses,
        resolver: WaitResolver,
        blocked: BlockedReader,
        waits: KnownWaits,
        *,
        counters: CountersReader,
        new_processes: NewProcesses,
        turns: ThreadTurns,
    ) -> None:
        self._processes = processes
        self._resolver = resolver
        self._blocked = blocked
        self._waits = waits
        self._counters = counters
        self._new_processes = new_processes
        self._turns = turns

    def ask_threads_that_ran(
        self, look: PresentLook, budget: LookBudget, *, is_fresh: bool
    ) -> None:
        """Ask the threads that have run what they wait for now, as many as the budget allows."""
        to_ask = self._waits.to_ask
        left = MAX_ASKED
        for process in tuple(to_ask.values()):
            if process.shows_only_state:
                if not self._note_state(process, look):
                    del to_ask[process.reading.pid]
            else:
                if left > 0 and not (is_fresh or budget.is_spent):
                    _read_state(process)
                left -= self._ask_threads(process, left, look, budget)

    def _note_state(self, process: ProcessThreads, look: PresentLook) -> bool:
        """Note what the only thread waits for, by the state that was read with the process; returns
        whether it is to be asked again.
        """
        (thread,) = process.threads.values()
        self._ask_thread(process, thread, look)
        process.was_sleeping = process.reading.state == SLEEP_STATE
        return thread.is_postponed

    def _ask_threads(
        self, process: ProcessThreads, most: int, look: PresentLook, budget: LookBudget
    ) -> int:
        """Ask the threads of a process, at most so many; returns how many were asked."""
        asked = 0
        is_open = False
        parents: list[FollowedThread] = []
        may_go_on = not (process.is_refused or look.is_group_frozen)
        may_go_on = may_go_on and process.state in (SLEEP_STATE, RUNNABLE_STATE)
        for thread in process.seen:
            if not (thread.is_stale or thread.is_postponed or _may_others_add_watches(thread)):
                continue
            if asked < most and budget.allows_threads():
                if not (may_go_on and self._is_in_same_call(process, thread, look)):
                    self._ask_thread(process, thread, look)
                asked += not process.is_refused  # reading a state costs little
                blocked = thread.blocked
                if blocked is not None and self._new_processes.may_miss_child(process, blocked):
                    parents.append(thread)
            is_open = is_open or thread.is_stale or thread.is_postponed
        process.was_sleeping = False
        if not is_open:
            del self._waits.to_ask[process.reading.pid]
        if parents:
            asked += self._look_at_children(process, parents, most - asked, look, budget)
        if any(one.blocked is not None and one.blocked.wait.kind == "child" for one in parents):
            look.parents.append(process)
        return asked

    def _look_at_children(
        self,
        process: ProcessThreads,
        parents: Collection[FollowedThread],
        most: int,
        look: PresentLook,
        budget: LookBudget,
    ) -> int:
        """Look at the children of these threads that began since the processes were read; returns
        how many were asked.
        """
        asked = 0
        for pid in self._new_processes.children_of_threads(process, parents):
            if pid in self._processes.by_pid or asked >= most or not budget.allows_threads():
                continue
            child = self._new_processes.follow_living(pid, look.before)
            if child is None:
                continue
            child.is_refused = process.is_refused
            self._counters.read_remaining_threads(child, budget, look, None)
            asked += 1 + self._ask_threads(child, most - asked, look, budget)
        return asked

    def _is_in_same_call(
        self, process: ProcessThreads, thread: FollowedThread, look: PresentLook
    ) -> bool:
        """Whether a thread that ran is in the same call again, in which each thread waits for the
        same; then this is noted. Most threads of most programs do so: it takes a third of the time.
        """
        blocked = thread.blocked
        if blocked is None or not thread.is_stale or not thread.is_in_read_call:
            return False
        if thread.call is None or self._resolver.unconditional_wait(thread.call) is not blocked:
            return False
        pid = process.reading.pid
        thread.is_stale = thread.is_postponed = False
        self._waits.add_new(thread, pid)
        look.seen.append(ThreadSeen(thread.thread_id, pid, blocked))
        return True

    def _ask_thread(
        self, process: ProcessThreads, thread: FollowedThread, look: PresentLook
    ) -> None:
        """Ask a thread what it does now, and whether something came in its wait before."""
        arrivals: Sequence[ConnectionArrival] = ()
        before = thread.blocked
        is_same_wait = not (thread.is_stale or thread.is_postponed)
        is_same_sleep = not thread.is_stale and before in DISK_BY_STATE
        if is_same_sleep and thread.has_run:
            thread.is_postponed = False
            return  # as it was when it was asked
        if before is not None and before.connections and thread.is_stale:
            arrivals = self._resolver.read_arrivals(before)
        now_ns = look.now.at_ns
        blocked = self._blocked.read_blocked_thread(process, thread, now_ns)
        self._note_wait(process, thread, blocked, look)
        if is_same_wait and _has_unchanged_watched_connections(before, blocked):
            return  # with how much the wait began is known
        if look.is_group_frozen and blocked is not ENDED:
            blocked = STOPPED
        thread.is_stale = False
        thread.blocked = blocked
        self._waits.note(process, thread, is_same_wait=is_same_wait)
        if blocked is ENDED:
            look.ended.append(thread.thread_id)
            return
        pid = process.reading.pid
        is_stopped = blocked is not None and blocked.is_stopped  # a signal ended the wait
        was_woken = False
        was_due: bool | None = None
        timed_out: bool | None = False
        if before is not None and before.may_time_out and not is_stopped:
            begin = thread.work_begin_bounds(now_ns, is_able=blocked is None)
            was_woken = has_ended_before_timeout(before, begin, now_ns)
            was_due = was_due_as_work_began(before, begin)
            if before.may_go_on:
                timed_out = did_timeout_end_poll(before, arrivals, begin, now_ns)
        has_client = None
        if not is_same_wait:
            has_client = may_have_client(self._processes.folder, pid, thread, before, blocked)
        # What comes until the thread runs may come on any connection that it watched.
        adds = is_same_wait and before is not None and bool(before.connections)
        seen = ThreadSeen(
            thread.thread_id,
            pid,
            blocked,
            what_came(arrivals, timed_out=timed_out) if arrivals else (),
            was_woken,
            timed_out,
            has_client,
            is_correction=adds or is_same_sleep,
            came_before_ns=first_arrival_before_ns(arrivals),
            was_due=was_due,
        )
        look.seen.append(seen)

    def _note_wait(
        self,
        process: ProcessThreads,
        thread: FollowedThread,
        blocked: BlockedThread | None,
        look: PresentLook,
    ) -> None:
        """Note whether a thread waits for something else than before, and waits for a disk."""
        if blocked is not None and blocked.wait != thread.last_wait:
            thread.last_wait = blocked.wait
            look.has_other_waits = True
        if process.is_refused and (blocked is HIDDEN_DISK or blocked is MEMORY):
            self._turns.note_disk(look.before.number)


def _read_state(process: ProcessThreads) -> None:
    """Read whether a process has been stopped since its reading, or goes on: its threads show the
    same calls. Beside a tracer such as strace, one of both can run at any moment, so that the state
    of the reading stays.
    """
    first = process.threads.get(process.reading.pid)
    if first is None or process.state == TRACED_STATE:
        return
    state = first.read_state().letter
    if state != TRACED_STATE:
        process.state = state


def _has_unchanged_watched_connections(
    before: BlockedThread | None, now: BlockedThread | None
) -> bool:
    """Whether a thread that has not run watches the same connections, and children or pipes."""
    if before is None or now is None or before.wait != now.wait:
        return False
    if before.otherwise != now.otherwise:
        return False
    return [each.stream for each in before.connections] == [each.stream for each in now.connections]


def _may_others_add_watches(thread: FollowedThread) -> bool:
    """Whether a thread that has not run may watch more by now."""
    return thread.blocked is not None and thread.blocked.others_add

"""The present waits of all threads of a run, look by look, and the work that each held back.

Each thread has one :class:`ThreadHistory`. A thread that has run is asked what it does now. The
answer ends its wait and begins another one; :mod:`same_wait` says whether both are for the same
thing. The CPU time between two waits belongs to both (:mod:`work_between_waits`), and so does that
of children (:mod:`children_work`). The waits that were over together (:mod:`joint_ends`), and the
events then (:mod:`run_events`), say which thread ended the wait of which.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from profiler.aggregation.asking_sleeps import note_sleeps
from profiler.aggregation.changed_waits import ChangedWaits
from profiler.aggregation.children_work import ChildrenWork, counts_helpers_work
from profiler.aggregation.joint_ends import JointEnds
from profiler.aggregation.most_work import MostWork
from profiler.aggregation.run_events import RunEvents
from profiler.aggregation.same_wait import (
    is_plain_wait,
    knows_more_helpers,
    same_plain_wait_before,
    shows_same_wait,
)
from profiler.aggregation.thread_history import ThreadHistory
from profiler.aggregation.thread_wait import MIN_WORK_NS, ThreadWait
from profiler.aggregation.wait_attribution import LookDivision
from profiler.aggregation.wait_proofs import is_timer_without_clients
from profiler.aggregation.work_between_waits import (
    add_work_between_waits,
    note_end,
    note_unseen_waits,
    note_what_followed_question,
    note_woken_before,
    work_until,
)
from profiler.readers.linux.look import ThreadSeen, ThreadsLook


class ThreadWaits:
    """Follows the threads of a run; memory grows with their number only."""

    def __init__(self) -> None:
        self._threads: dict[int, ThreadHistory] = {}
        self._work = ChildrenWork()
        self._most_work: defaultdict[int, MostWork] = defaultdict(MostWork)  # by process
        self._joint_ends = JointEnds()
        self._events = RunEvents(self._threads)
        self._for_timers: set[int] = set()  # processes whose loops waited so last
        self._read_whole = 0  # the last look that left no thread for later ones
        self.number = 0

    @property
    def children(self) -> Mapping[int, Collection[int]]:
        """The children of each process."""
        return self._work.children

    def add_look(self, look: ThreadsLook) -> ChangedWaits:
        """Add a look; returns what it changed."""
        self.number += 1
        change = ChangedWaits()
        self._note_child_ends(look.ended)
        for pid in self._work.follow(look.processes):
            self._for_timers.discard(pid)
            self._events.forget(pid)
            self._most_work.pop(pid, None)
        self._events.note_arrivals(look.seen, self.number)
        ran = self._note_growth(look, change)
        for thread_id in look.ended:
            thread = self._threads.pop(thread_id, None)
            if thread is not None:
                self._end_thread(thread, change)
        self._events.note_timeouts(look.seen, change.over, self.number)
        for seen in look.seen:
            if not self._add_same_plain_wait(seen, change):
                self._add_seen(seen, change)
        if look.sees_calls:
            for thread_id, thread in ran.items():
                if thread.present is None and thread_id in self._threads:
                    self._add_unasked(thread_id, thread, change)
        self._joint_ends.note_ends(change.over, self._threads)
        if not look.is_behind:
            self._read_whole = self.number
        return change

    def _note_child_ends(self, ended: Iterable[int]) -> None:
        """Note the processes of which a child has ended, by its first thread."""
        for thread_id in ended:
            parent = self._work.parent_of(thread_id)
            if parent is not None:
                self._events.note_end_of_child(parent, self.number)

    def _note_growth(self, look: ThreadsLook, change: ChangedWaits) -> Mapping[int, ThreadHistory]:
        """End the waits of the threads that ran; returns these."""
        ran: dict[int, ThreadHistory] = {}
        for grown in look.growth or ():
            thread = self._threads.get(grown.thread)
            if thread is None:
                thread = self._threads[grown.thread] = ThreadHistory(grown.process)
            thread.steps = grown.steps
            thread.able_ns = grown.run_ns + grown.wait_ns
            thread.run_ns += grown.run_ns
            thread.slices = grown.slices
            self._work.add(grown.process, grown.run_ns)
            ran[grown.thread] = thread
        for thread in ran.values():
            if thread.present is not None and not thread.present.is_unasked:
                self._end_present_wait(thread, change)
        self._events.note_ends(change.over, self.number)
        return ran

    def end_all(self) -> ChangedWaits:
        """All threads have ended, as those of a container that is restarted."""
        self.number += 1
        change = ChangedWaits()
        for thread in self._threads.values():
            self._end_thread(thread, change)
        self._threads.clear()
        return change

    def held_back_ns(self) -> Mapping[int, float]:
        """The work that the present wait of each thread holds back, by what is known now."""
        present = [thread.present for thread in self._threads.values()]
        waits = [wait for wait in present if wait is not None]
        return LookDivision(waits, self.children).held_back_ns()

    def _add_unasked(self, thread_id: int, thread: ThreadHistory, change: ChangedWaits) -> None:
        """Add that a thread has run, and nobody asked what it does now."""
        thread.present = ThreadWait(
            thread=thread_id,
            process=thread.process,
            blocked=None,
            begun=self.number,
            is_unasked=True,
            is_known=True,
        )
        change.begun.append(thread.present)

    def _add_seen(self, seen: ThreadSeen, change: ChangedWaits) -> None:
        """Add what a thread does now."""
        thread = self._threads.get(seen.thread)
        is_first = thread is None
        if thread is None:
            thread = self._threads[seen.thread] = ThreadHistory(seen.process)
        present = thread.present
        if present is not None and present.is_unasked:
            self._end_present_wait(thread, change)
            present = None
        if present is not None:
            if shows_same_wait(present.blocked, seen.blocked):
                return
            if seen.is_correction or knows_more_helpers(present.blocked, seen.blocked):
                present.blocked = seen.blocked
                change.repeated.append(present)
                return
            self._end_present_wait(thread, change)
        wait = ThreadWait(
            thread=seen.thread,
            process=seen.process,
            blocked=seen.blocked,
            begun=self.number,
            run_ns=thread.run_ns,
            process_ns=self._work.cpu_ns(seen.process),
            slices=thread.slices,
            before_ns=thread.run_ns,
            end_counts=thread.end_counts,
            is_first=is_first or (thread.last is None and present is None),
            is_plain=is_plain_wait(seen.blocked),
            is_of_asker=thread.only_asked_again,
            timed_ends=thread.timed_ends,
            poll_ends=thread.poll_ends_of(seen.blocked),
            awaited=thread.awaited,
            most_work=self._most_work[seen.process],
        )
        thread.present = wait
        change.begun.append(wait)
        before = thread.last
        if before is not None:
            note_end(before, thread, seen, change)
        thread.has_worked = False
        if seen.blocked is None:
            thread.has_worked = before is not None and wait.run_ns - before.run_ns >= MIN_WORK_NS
            return
        if counts_helpers_work(seen.blocked):
            wait.helpers_ns = self._work.helpers_ns(wait.process)
        thread.note_whether_asleep(wait)
        thread.last = wait
        if before is not None:
            note_woken_before(before, wait)
            _note_work(before, work_until(before, wait))
            add_work_between_waits(before, wait, thread, change)
            note_unseen_waits(before, wait, thread.works)
            self._events.count_awaited(before, wait, thread)
            thread.count_timed_end(before, wait)
            self._note_asking(before, wait, change)
            before.count_poll_end()
            self._note_timer(before)
        wait.was_for_timer = wait.process in self._for_timers

    def _add_same_plain_wait(self, seen: ThreadSeen, change: ChangedWaits) -> bool:
        """Add a plain wait as :meth:`_add_seen` does if it is the same as the one before; returns
        whether it is.
        """
        thread = self._threads.get(seen.thread)
        before = None if thread is None else same_plain_wait_before(thread, seen)
        if thread is None or before is None:
            return False
        wait = ThreadWait(
            thread=before.thread,
            process=before.process,
            blocked=before.blocked,
            begun=self.number,
            run_ns=thread.run_ns,
            slices=thread.slices,
            end_counts=thread.end_counts,
            is_plain=True,
            was_for_timer=before.process in self._for_timers,
            awaited=thread.awaited,
            most_work=before.most_work,
        )
        thread.present = thread.last = wait
        thread.has_worked = False
        thread.note_whether_asleep(wait)
        change.begun.append(wait)
        before.is_end_seen = before.is_known = True
        before.after_ns = work_ns = work_until(before, wait)
        _note_work(before, work_ns)
        self._note_asking(before, wait, change)
        wait.before_ns = work_ns or before.before_ns
        note_unseen_waits(before, wait, thread.works)
        self._events.count_awaited(before, wait, thread)
        change.known.append(before)
        return True

    def _note_asking(self, before: ThreadWait, wait: ThreadWait, change: ChangedWaits) -> None:
        """Note of two sleeps whether the thread asked in between whether a child has ended."""
        if wait.process not in self.children:
            return
        first = note_sleeps(before, wait)
        if first is not None:
            change.repeated.append(first)

    def _note_timer(self, before: ThreadWait) -> None:
        """Note of a loop's wait whether it was for a timer: so is the last one, as nothing follows
        it.
        """
        blocked = before.blocked
        is_loops = blocked and (blocked.may_go_on or blocked.is_timeout_of_listeners)
        if is_loops and before.is_known and before.is_decided_at_end:
            if before.was_ended_by_timer or is_timer_without_clients(before):
                self._for_timers.add(before.process)
            elif not before.is_end_unclear:
                self._for_timers.discard(before.process)

    def _end_present_wait(self, thread: ThreadHistory, change: ChangedWaits) -> None:
        """The thread has run, or does something else."""
        wait = thread.present
        if wait is None:
            return
        thread.present = None
        wait.over = self.number
        wait.over_since = max(self.number - thread.steps + 1, wait.begun)
        change.over.append(wait)
        if wait.is_plain and thread.earlier is None:
            return
        if wait.blocked is None:
            wait.is_known = True
            change.known.append(wait)
            return
        if counts_helpers_work(wait.blocked):
            wait.helped_ns = max(self._work.helpers_ns(wait.process) - wait.helpers_ns, 0)
        if thread.earlier is not None:
            earlier = thread.earlier
            change.note_what_followed(earlier, work_until(earlier, wait) + wait.helped_ns)
            thread.earlier = None

    def _end_thread(self, thread: ThreadHistory, change: ChangedWaits) -> None:
        """The thread has ended."""
        thread.steps = self.number - self._read_whole
        self._end_present_wait(thread, change)
        last = thread.last
        if last is not None:
            # One that dies as its process does may be seen to run before it has ended, but not to
            # have worked.
            has_run = thread.run_ns > last.run_ns
            if last.over is not None and not thread.has_worked:
                last.was_cut = last.over >= self.number - 1 or not has_run
            last.after_ns = thread.run_ns - last.run_ns
            last.is_last = True
            change.note_known(last)
        note_what_followed_question(thread, last, change)


def _note_work(before: ThreadWait, work_ns: int) -> None:
    """Note what a thread did after a wait."""
    if before.most_work is not None:
        before.most_work.add(work_ns, thread=before.thread, begun=before.begun)

"""The present waits of all threads of a run, look by look, and the work that each held back."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.awaited_events import (
    ANY_CONNECTION,
    END_OF_CHILD,
    TIMEOUT_OF_LOOP,
    AwaitedEvents,
    Event,
    ProcessEvents,
)
from profiler.aggregation.thread_wait import (
    MAX_LITTLE_NS,
    MIN_WORK_NS,
    NO_ENDS,
    EndCounts,
    ThreadWait,
    TimedEnds,
)
from profiler.aggregation.unseen_waits import WorkByKind
from profiler.aggregation.wait_attribution import LookDivision
from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.look import ProcessSeen, ThreadSeen, ThreadsLook
from profiler.readers.linux.wait_types import BlockedThread

# Their work counts for whoever waits for them. That of the other threads of a process does not: of
# those that wait for a lock, most wait for a task, and who works weighs for itself.
_WITH_WORK = "children"
# To ask again whether a lock is free takes less CPU time than this, and to hand out a task more.
_MAX_ASKING_AGAIN_NS = NS_PER_MS // 10
# A thread that ran once may have waited for a CPU meanwhile.
_MAX_SLICES_OF_RUN = 2
# A thread that was seen to wait for something else between its sleeps does so again, unless it was
# seen to sleep so many times as often since.
_TIMES_AS_MANY_SLEEPS = 3


class ChangedWaits(Struct, frozen=True):
    """What a look changed: the waits that begin with it, those that are over, and those of which
    all is known now. ``repeated`` are those of which the thread's next look says more,
    ``earliest_begin`` is the first look of which all this says more.
    """

    begun: list[ThreadWait] = field(default_factory=list)
    over: list[ThreadWait] = field(default_factory=list)
    known: list[ThreadWait] = field(default_factory=list)
    repeated: list[ThreadWait] = field(default_factory=list)

    @property
    def earliest_begin(self) -> int | None:
        changed = [*self.over, *self.known, *self.repeated]
        return min([wait.begun for wait in changed], default=None)


class _FollowedThread(Struct, eq=False):
    """One thread: how many looks its last growth covers, and for how long it could run then; its
    present wait, its last one in which it was blocked, which may be the present one, and the one
    before that if it is not known yet what followed it; the one after which it asked for an answer
    that has not come yet; whether timeouts have ended waits after which it only asked again; how
    its waits for a limited time have ended; how many of its waits for something else than threads
    are over, and how many of these with waits of threads of its process that work; whether it was
    seen to work since its last wait; how often it was seen to sleep since it waited for something
    else but threads, and the most of these sleeps before; what ends its waits for others; what it
    used beside its waits of each kind.
    """

    process: int
    steps: int = 1
    run_ns: int = 0
    able_ns: int = 0
    slices: bytes = b"0"
    present: ThreadWait | None = None
    last: ThreadWait | None = None
    earlier: ThreadWait | None = None
    asked: ThreadWait | None = None
    only_asked_again: bool = False
    timed_ends: TimedEnds | None = None
    end_counts: EndCounts = NO_ENDS
    has_worked: bool = False
    sleeps: int = 0
    most_sleeps: int = 0
    awaited: AwaitedEvents | None = None
    works: WorkByKind = field(default_factory=WorkByKind)

    def note_end_counts(self, over: ThreadWait) -> None:
        """Note in a wait that is over, and in the present one, how many were over so far."""
        for wait in (over, self.present):
            if wait is not None:
                wait.end_counts = self.end_counts

    def note_whether_asleep(self, wait: ThreadWait) -> None:
        """Note whether the thread sleeps, or waits for something else but threads."""
        if wait.is_sleep:
            self.sleeps += 1
            wait.is_of_worker = self.sleeps < _TIMES_AS_MANY_SLEEPS * self.most_sleeps
        elif wait.blocked is not None and wait.blocked.helpers != "threads":
            self.most_sleeps = max(self.most_sleeps, self.sleeps)
            self.sleeps = 0


class ThreadWaits:
    """Follows the threads of a run; memory grows with their number only."""

    def __init__(self) -> None:
        self._threads: dict[int, _FollowedThread] = {}
        self._processes: Mapping[int, ProcessSeen] = {}
        self._cpu_ns: Counter[int] = Counter()  # of each process's threads that were read
        self._comers: Mapping[int, Sequence[ThreadWait]] = {}  # as of the last look
        self._ends: Sequence[ThreadWait] = ()  # those that may have ended others
        self._for_timers: set[int] = set()  # processes whose loops waited so last
        self._events: dict[int, ProcessEvents] = {}  # by process
        self._told_of_timeouts: Collection[int] = ()  # processes with threads that are told now
        self._read_whole = 0  # the last look that left no thread for later ones
        self.children: Mapping[int, Collection[int]] = {}
        self.number = 0

    def add_look(self, look: ThreadsLook) -> ChangedWaits:
        """Add a look; returns what it changed."""
        self.number += 1
        change = ChangedWaits()
        self._note_child_ends(look.ended)
        if look.processes is not self._processes:
            self._follow_processes(look.processes)
        self._note_arrivals(look.seen)
        ran = self._note_growth(look, change)
        for thread_id in look.ended:
            thread = self._threads.pop(thread_id, None)
            if thread is not None:
                self._end_thread(thread, change)
        self._told_of_timeouts = {wait.process for wait in change.over if wait.is_told_of_timeouts}
        self._note_timeouts(look.seen)
        for seen in look.seen:
            if not self._add_same_plain_wait(seen, change):
                self._add_seen(seen, change)
        if look.sees_calls:
            for thread_id, thread in ran.items():
                if thread.present is None and thread_id in self._threads:
                    self._add_unasked(thread_id, thread, change)
        self._note_enders(change)
        if not look.is_behind:
            self._read_whole = self.number
        return change

    def _note_arrivals(self, seen: Iterable[ThreadSeen]) -> None:
        """Note to which processes something has come, on which connections, and how long ago."""
        for each in seen:
            if not any(each.came):
                continue
            thread = self._threads.get(each.thread)
            connections = thread.last.connections if thread and thread.last else ()
            events = self._events_of(each.process)
            before_ns = first_known(each.came_before_ns, math.inf)
            events.note(ANY_CONNECTION, self.number, before_ns)
            for connection, came in zip(connections, each.came, strict=False):
                if came and connection.stream:
                    events.note(connection.stream, self.number, before_ns)

    def _note_child_ends(self, ended: Iterable[int]) -> None:
        """Note the processes of which a child has ended."""
        for thread_id in ended:
            child = self._processes.get(thread_id)  # by its first thread
            if child is not None:
                events = self._events_of(child.parent)
                events.note(END_OF_CHILD, self.number)

    def _events_of(self, pid: int) -> ProcessEvents:
        events = self._events.get(pid)
        if events is None:
            events = self._events[pid] = ProcessEvents()
        return events

    def _note_ended_sleeps(self, over: Collection[ThreadWait]) -> None:
        """Note which threads have slept, or waited for something else that is certain, and what
        happened as the waits of others ended.
        """
        for wait in over:
            blocked = wait.blocked
            if blocked is None or blocked.connections or blocked.has_timeout:
                continue
            if blocked.is_certain:
                self._events_of(wait.process).note(wait.thread, self.number)
        for wait in over:
            events_now = self._events.get(wait.process)
            if events_now is None or not _may_be_told(wait.blocked):
                continue
            thread = self._threads.get(wait.thread)
            if thread is not None:
                worked_ns = thread.run_ns - wait.run_ns
                wait.ended_with = events_now.before(self.number, worked_ns)
                wait.may_be_told = events_now.may_have_come(self.number, thread.able_ns)

    def _note_timeouts(self, seen: Iterable[ThreadSeen]) -> None:
        """Note which timeouts have ended waits of loops, and whom that told: before all that the
        threads do now, as any of them may be one that was told.
        """
        for each in seen:
            thread = self._threads.get(each.thread)
            before = None if thread is None else thread.last
            if before is None or before.over is None or before.is_end_seen:
                continue
            if not _has_loops_timeout_ended(before, each):
                continue
            events = self._events.setdefault(before.process, ProcessEvents())
            events.note(TIMEOUT_OF_LOOP, before.over)
            if before.over == self.number:
                before.has_told = before.process in self._told_of_timeouts

    def _note_enders(self, change: ChangedWaits) -> None:
        """Note which waits for somebody to come were over with waits for other threads, or one look
        before: who was woken may have waited for a CPU. Count of each thread how often its waits
        were over, and how often so with those of threads that work and wait for others of the
        process.
        """
        comers: dict[int, list[ThreadWait]] = {}
        pools: list[ThreadWait] = []
        ends: list[ThreadWait] = []
        working: set[int] = set()
        for wait in change.over:
            blocked = wait.blocked
            if blocked is None:
                continue
            is_for_threads = blocked.waits_for_any_thread
            if blocked.may_be_idle:
                comers.setdefault(wait.process, []).append(wait)
            elif is_for_threads:
                pools.append(wait)
            if not is_for_threads or (blocked.wait.kind == "sleep" and not wait.was_woken):
                ends.append(wait)
                self._count_end(wait)
            elif wait.held_back_work_ns >= MIN_WORK_NS:
                working.add(wait.process)
        if working:
            self._count_ends_with_workers(working, (*self._ends, *ends))
        self._ends = ends
        before = self._comers
        if comers or before:
            for wait in pools:
                wait.enders = (*comers.get(wait.process, ()), *before.get(wait.process, ()))
        self._comers = comers

    def _count_end(self, over: ThreadWait) -> None:
        """Count that a wait of a thread is over."""
        thread = self._threads.get(over.thread)
        if thread is None:
            return
        counts = thread.end_counts
        thread.end_counts = EndCounts(counts.ends + 1, counts.with_workers)
        thread.note_end_counts(over)

    def _count_ends_with_workers(
        self, working: Collection[int], ends: Iterable[ThreadWait]
    ) -> None:
        """Count of each thread that its waits were over with those of workers of its process."""
        for over in {wait.thread: wait for wait in ends if wait.process in working}.values():
            thread = self._threads.get(over.thread)
            if thread is None:
                continue
            counts = thread.end_counts
            thread.end_counts = EndCounts(counts.ends, counts.with_workers + 1)
            thread.note_end_counts(over)

    def _note_growth(
        self, look: ThreadsLook, change: ChangedWaits
    ) -> Mapping[int, _FollowedThread]:
        """End the waits of the threads that ran; returns these."""
        ran: dict[int, _FollowedThread] = {}
        for grown in look.growth or ():
            thread = self._threads.get(grown.thread)
            if thread is None:
                thread = self._threads[grown.thread] = _FollowedThread(grown.process)
            thread.steps = grown.steps
            thread.able_ns = grown.run_ns + grown.wait_ns
            thread.run_ns += grown.run_ns
            thread.slices = grown.slices
            self._cpu_ns[grown.process] += grown.run_ns
            ran[grown.thread] = thread
        for thread in ran.values():
            if thread.present is not None and not thread.present.is_unasked:
                self._end_present_wait(thread, change)
        self._note_ended_sleeps(change.over)
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

    def _follow_processes(self, processes: Mapping[int, ProcessSeen]) -> None:
        self._processes = processes
        children: dict[int, list[int]] = {}
        for pid, process in processes.items():
            children.setdefault(process.parent, []).append(pid)
        self.children = children
        for pid in self._cpu_ns.keys() - processes.keys():
            del self._cpu_ns[pid]
            self._for_timers.discard(pid)
            self._events.pop(pid, None)

    def _add_unasked(self, thread_id: int, thread: _FollowedThread, change: ChangedWaits) -> None:
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
            thread = self._threads[seen.thread] = _FollowedThread(seen.process)
        present = thread.present
        if present is not None and present.is_unasked:
            self._end_present_wait(thread, change)
            present = None
        if present is not None:
            if _shows_same_wait(present.blocked, seen.blocked):
                return
            if seen.is_correction or _knows_more_helpers(present.blocked, seen.blocked):
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
            slices=thread.slices,
            before_ns=thread.run_ns,
            end_counts=thread.end_counts,
            is_first=is_first or (thread.last is None and present is None),
            is_plain=_is_plain(seen.blocked),
            is_of_asker=thread.only_asked_again,
            timed_ends=thread.timed_ends,
            awaited=thread.awaited,
        )
        thread.present = wait
        change.begun.append(wait)
        before = thread.last
        if before is not None:
            _note_end(before, thread, seen, change)
        thread.has_worked = False
        if seen.blocked is None:
            thread.has_worked = before is not None and wait.run_ns - before.run_ns >= MIN_WORK_NS
            return
        if seen.blocked.helpers == _WITH_WORK:
            wait.helpers_ns = self._helpers_cpu_ns(wait)
        thread.note_whether_asleep(wait)
        thread.last = wait
        if before is not None:
            _note_woken_before(before, wait)
            _add_work_between_waits(before, wait, thread, change)
            before.note_unseen_until(wait, thread.works)
            self._count_awaited(before, wait, thread)
            self._count_timed_end(before, wait, thread)
            self._note_asking(before, wait, change)
            self._note_timer(before)
        wait.was_for_timer = wait.process in self._for_timers

    def _count_awaited(self, before: ThreadWait, wait: ThreadWait, thread: _FollowedThread) -> None:
        """Count what happened beside the wait of a thread for others, which may tell it of that."""
        events, over = self._events.get(before.process), before.over
        if events is None or over is None or not _may_be_told(before.blocked):
            return
        if thread.awaited is None:
            thread.awaited = AwaitedEvents()
        before.awaited = wait.awaited = thread.awaited
        has_worked = wait.run_ns - before.run_ns >= MIN_WORK_NS
        ended_with: list[Event] | None = None
        if has_worked:
            ended_with = [*before.ended_with]
            if before.was_due and not before.may_be_told:
                ended_with = []
            if over in events.looks.get(TIMEOUT_OF_LOOP, ()):  # it is asked after it has run
                ended_with.append(TIMEOUT_OF_LOOP)
        looks_in_vain = range(before.begun + 1, over + 1 - has_worked)
        thread.awaited.count_wait(events, looks_in_vain, ended_with, own=before.thread)

    def _count_timed_end(
        self, before: ThreadWait, wait: ThreadWait, thread: _FollowedThread
    ) -> None:
        """Count how a wait for a limited time has ended which others might have ended."""
        is_early = before.was_woken or before.was_due is False
        is_due = before.was_due and not before.is_told_as_due
        if not (is_early or is_due) or wait.run_ns - before.run_ns < MIN_WORK_NS:
            return
        if thread.timed_ends is None:
            thread.timed_ends = TimedEnds()
        if is_early:
            thread.timed_ends.woken += 1
        else:
            thread.timed_ends.due += 1
        before.timed_ends = wait.timed_ends = thread.timed_ends

    def _add_same_plain_wait(self, seen: ThreadSeen, change: ChangedWaits) -> bool:
        """Add a plain wait as :meth:`_add_seen` does if it is the same as the one before; returns
        whether it is.
        """
        thread = self._threads.get(seen.thread)
        before = None if thread is None else _same_plain_wait_before(thread, seen)
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
        )
        thread.present = thread.last = wait
        thread.has_worked = False
        thread.note_whether_asleep(wait)
        change.begun.append(wait)
        before.is_end_seen = before.is_known = True
        before.after_ns = work_ns = before.work_until(wait)
        self._note_asking(before, wait, change)
        wait.before_ns = work_ns or before.before_ns
        before.note_unseen_until(wait, thread.works)
        self._count_awaited(before, wait, thread)
        change.known.append(before)
        return True

    def _note_asking(self, before: ThreadWait, wait: ThreadWait, change: ChangedWaits) -> None:
        """Note of two sleeps whether the thread asked in between whether a child has ended."""
        if wait.process not in self.children:
            return
        first = before.sleep_on(wait)
        if first is not None:
            change.repeated.append(first)

    def _note_timer(self, before: ThreadWait) -> None:
        """Note of a loop's wait whether it was for a timer: so is the last one, as nothing follows
        it.
        """
        is_loops = before.blocked is not None and before.blocked.may_go_on
        if is_loops and before.is_known and before.is_decided_at_end:
            if before.was_ended_by_timer:
                self._for_timers.add(before.process)
            elif not before.is_end_unclear:
                self._for_timers.discard(before.process)

    def _end_present_wait(self, thread: _FollowedThread, change: ChangedWaits) -> None:
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
        if wait.blocked.helpers == _WITH_WORK:
            wait.helped_ns = max(self._helpers_cpu_ns(wait) - wait.helpers_ns, 0)
        if thread.earlier is not None:
            earlier = thread.earlier
            _note_what_followed(earlier, earlier.work_until(wait) + wait.helped_ns, change)
            thread.earlier = None

    def _end_thread(self, thread: _FollowedThread, change: ChangedWaits) -> None:
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
            _note_earlier_known(last, change)
        _note_what_followed_question(thread, last, change)

    def _helpers_cpu_ns(self, wait: ThreadWait) -> int:
        """The CPU time so far of the children for which a thread waits, and of theirs."""
        process = self._processes.get(wait.process)
        total_ns = 0 if process is None else process.children_cpu_ns
        pending = list(self.children.get(wait.process, ()))
        seen = {wait.process}  # an id that was given anew while all were read may make a circle
        while pending:
            pid = pending.pop()
            if pid in seen:
                continue
            seen.add(pid)
            total_ns += self._cpu_ns[pid] + self._processes[pid].children_cpu_ns
            pending.extend(self.children.get(pid, ()))
        return total_ns


def _may_be_told(blocked: BlockedThread | None) -> bool:
    """Whether any other thread of the process may have ended a wait."""
    if not blocked or (blocked.helpers != "threads" and not blocked.has_timeout):
        return False
    is_loops = blocked.is_timeout_of_own_wake_up or blocked.is_timeout_of_listeners
    return blocked.waits_for_any_thread or is_loops


def _same_plain_wait_before(thread: _FollowedThread, seen: ThreadSeen) -> ThreadWait | None:
    """The wait before of a thread that has run, if it was plain and the thread waits for the same
    again: nothing else is to be known of both than what the thread used in between.
    """
    last = thread.last
    if last is None or seen.blocked is not last.blocked or not last.is_plain:
        return None
    if thread.present is not None or thread.earlier is not None:
        return None
    return None if last.is_known or seen.was_woken else last


def _is_plain(blocked: BlockedThread | None) -> bool:
    """Whether how a wait ended says nothing about it, nor what others did meanwhile."""
    if not blocked or blocked.until_ns is not None:
        return False
    return not blocked.connections and blocked.helpers != _WITH_WORK


def _shows_same_wait(before: BlockedThread | None, now: BlockedThread | None) -> bool:
    """Whether a thread that has not run says the same: its timeout, which may be one of the wall
    clock, is measured anew.
    """
    if before is None or now is None:
        return before is now
    if before == now:
        return True
    return before == replace(now, until_ns=before.until_ns, until_within_ns=before.until_within_ns)


def _knows_more_helpers(before: BlockedThread | None, now: BlockedThread | None) -> bool:
    """Whether a thread that has not run says the same, and a process that is new shares the memory
    for which it waits.
    """
    if before is None or now is None or before.helpers != "memory":
        return False
    return _shows_same_wait(replace(before, helper_pids=now.helper_pids), now)


def _note_end(
    before: ThreadWait, thread: _FollowedThread, seen: ThreadSeen, change: ChangedWaits
) -> None:
    """What a thread shows of how its wait before ended."""
    if not before.is_end_seen:
        before.is_end_seen = True
        if before.follows_woken:
            change.repeated.append(before)
    # Who waits again without a run was asked twice in the same wait.
    if seen.was_woken and (seen.blocked is None or thread.run_ns > before.run_ns):
        before.was_woken, before.is_plain = True, False
        change.repeated.append(before)
    if seen.was_due is not None:
        before.was_due, before.is_plain = seen.was_due, False
        change.repeated.append(before)
    if seen.timed_out is not False:
        before.timed_out = seen.timed_out
        change.repeated.append(before)
    if seen.has_client is not None:
        before.has_client = before.has_client or seen.has_client
        change.repeated.append(before)
    if seen.came and not before.came:  # else it was seen between both waits
        before.came = seen.came
        change.repeated.append(before)


def _has_loops_timeout_ended(before: ThreadWait, seen: ThreadSeen) -> bool:
    """Whether a timeout has ended the wait of a loop, as its thread shows."""
    blocked = before.blocked
    if not blocked or not blocked.has_timeout:
        return False
    is_own = blocked.is_timeout_of_own_wake_up and blocked.until_ns is not None
    return bool(seen.timed_out) or (is_own and not seen.was_woken)


def _note_woken_before(before: ThreadWait, wait: ThreadWait) -> None:
    """Note of a wait whether the one for the same before was over before its timeout."""
    has_run = wait.run_ns > before.run_ns
    was_woken = before.was_woken
    if not has_run or _is_asked_again(before, wait):
        was_woken = before.follows_woken
    wait.follows_woken = was_woken and _shows_same_wait(before.blocked, wait.blocked)
    wait.is_plain = wait.is_plain and not wait.follows_woken


def _add_work_between_waits(
    before: ThreadWait, wait: ThreadWait, thread: _FollowedThread, change: ChangedWaits
) -> None:
    """Add the work between two waits of a thread to both."""
    wait.had_come = before.came is not None and any(before.came)
    if _is_answer_still_owed(before, wait):
        before.next_owed = wait
    if before.timed_out and _gives_up_answer(before, wait):
        before.timed_out = False
    work_ns = before.work_until(wait)
    wait.before_ns = work_ns + before.helped_ns
    if not wait.before_ns:  # the state has changed without a run
        wait.before_ns = before.before_ns
    if thread.earlier is not None:
        earlier = thread.earlier
        _note_what_followed(earlier, earlier.work_until(before) + before.helped_ns, change)
        thread.earlier = None
    has_come = not before.came or any(came is not False for came in before.came)
    if _is_asked_again(before, wait):
        before.repeat_without_work(wait)
        wait.is_of_asker = thread.only_asked_again = True
    elif not has_come and work_ns < MIN_WORK_NS and _asks_at_timeout(before, wait):
        _note_what_followed_question(thread, None, change)
        before.after_ns, thread.asked = work_ns, before
    elif _does_wait_go_on(before, wait, MAX_LITTLE_NS if has_come else MIN_WORK_NS):
        _note_same_wait(before, wait, has_come=has_come, change=change)
    elif wait.blocked is not None and wait.blocked.helpers == _WITH_WORK:
        thread.earlier = before
    else:
        _note_what_followed(before, work_ns + wait.helped_ns, change)
    if before.is_known:
        _note_what_followed_question(thread, before, change)


def _note_same_wait(
    before: ThreadWait, wait: ThreadWait, *, has_come: bool, change: ChangedWaits
) -> None:
    """The thread waits on the same connections after little work: for the same, unless it was woken
    to ask.
    """
    if has_come:
        before.repeat_after_work(wait)
    elif _was_woken_to_ask(before, wait):
        _note_what_followed(before, before.work_until(wait), change)
    else:
        before.repeat_without_work(wait)


def _is_asked_again(before: ThreadWait, wait: ThreadWait) -> bool:
    """Whether a timeout ended the wait of a thread that works for other threads of its process, and
    it only asked again, as who enters a monitor of Java does until it is free; or that of one which
    waits for its own wake-up, as a client of gRPC, or for clients of which none has connected.
    """
    blocked = before.blocked
    if not blocked or blocked.until_ns is None or before.was_woken or before.has_told:
        return False
    is_loops = blocked.is_timeout_of_own_wake_up or (
        blocked.is_timeout_of_listeners and not before.has_client
    )
    times = max(int(wait.slices) - int(before.slices), 1)  # between two looks
    most_ns = MIN_WORK_NS if is_loops else min(times * _MAX_ASKING_AGAIN_NS, MIN_WORK_NS)
    if wait.run_ns - before.run_ns >= most_ns:
        return False
    if not is_loops:
        if blocked.wait.kind != "sleep" or not blocked.waits_for_any_thread:
            return False
        if before.before_ns < MIN_WORK_NS:
            return False
    return _shows_same_wait(blocked, wait.blocked)


def _was_woken_to_ask(before: ThreadWait, wait: ThreadWait) -> bool:
    """Whether neither the timeout nor something that came ended the loop's wait, and it waits for
    an answer now, but waited for nobody's before: another thread has woken it to send a question,
    as that which uses an HTTP client of Java.
    """
    blocked, now = before.blocked, wait.blocked
    if not blocked or not now or blocked.until_ns is None:
        return False
    return before.timed_out is False and now.awaits_answer and not blocked.awaits_answer


def _asks_at_timeout(before: ThreadWait, wait: ThreadWait) -> bool:
    """Whether a timeout ended the loop's wait, and it waits for an answer now, but waited for
    nobody's before: it has slept, and then asked.
    """
    blocked, now = before.blocked, wait.blocked
    if not blocked or not now or not before.timed_out:
        return False
    if int(wait.slices) - int(before.slices) > _MAX_SLICES_OF_RUN:
        return False  # something else may have woken it since, as a message
    return now.awaits_answer and not blocked.awaits_answer


def _note_what_followed_question(
    thread: _FollowedThread, answered: ThreadWait | None, change: ChangedWaits
) -> None:
    """What followed the timeout at which the thread asked: also the work with the answer, if that
    ended a wait.
    """
    asked = thread.asked
    if asked is None:
        return
    thread.asked = None
    if answered is not None and answered.has_owed_answer_come:
        work_ns = first_known(answered.after_ns, 0)
        asked.after_ns = first_known(asked.after_ns, 0) + work_ns
    _note_earlier_known(asked, change)


def _is_answer_still_owed(before: ThreadWait, wait: ThreadWait) -> bool:
    """Whether an answer for which the thread has waited is owed in its next wait, too."""
    if not before.blocked or not wait.blocked:
        return False
    owed = {each.stream: each.received_bytes for each in before.blocked.connections if each.owes}
    return any(
        each.owes and each.stream and owed.get(each.stream) == each.received_bytes
        for each in wait.blocked.connections
    )


def _gives_up_answer(before: ThreadWait, wait: ThreadWait) -> bool:
    """Whether a thread does not wait any more for an answer that was owed: the timeout was that of
    this wait, and no timer's beside it.
    """
    if not before.blocked or not wait.blocked or not before.blocked.awaits_answer:
        return False
    kept = {each.stream for each in wait.blocked.connections}
    owed = [each for each in before.blocked.connections if each.awaits_answer]
    return not any(each.stream in kept for each in owed)


def _does_wait_go_on(before: ThreadWait, wait: ThreadWait, most_ns: int) -> bool:
    """Whether the thread goes on waiting for the same after less work than this, as clients do that
    let a signal end their waits, and loops with timers.
    """
    blocked, now = before.blocked, wait.blocked
    if not blocked or not now or not blocked.may_go_on or before.has_told:
        return False
    if wait.run_ns - before.run_ns >= most_ns:
        return False
    return _shows_same_wait(blocked, _with_connections_of(blocked, now))


def _with_connections_of(before: BlockedThread, now: BlockedThread) -> BlockedThread:
    """The wait as if nothing had come on its connections, or been sent, since the other one."""
    if [each.stream for each in before.connections] != [each.stream for each in now.connections]:
        return now
    return replace(now, connections=before.connections, may_be_idle=before.may_be_idle)


def _note_what_followed(wait: ThreadWait, after_ns: int, change: ChangedWaits) -> None:
    """What followed a wait: the thread's run, and the work of others in its next wait."""
    if wait.is_known:
        return
    wait.after_ns = after_ns
    _note_earlier_known(wait, change)


def _note_earlier_known(wait: ThreadWait, change: ChangedWaits) -> None:
    """What followed a wait is known, and so what followed those before for the same answer."""
    wait.is_known = True
    change.known.append(wait)
    for poll in () if wait.repeated is None else wait.repeated.before:
        poll.is_known = True
        change.known.append(poll)

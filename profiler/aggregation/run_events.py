"""What happens in the processes of a run at each look, and beside which waits of their threads."""

import math
from collections.abc import Collection, Iterable, Mapping

from profiler.aggregation.awaited_events import (
    ANY_CONNECTION,
    END_OF_CHILD,
    TIMEOUT_OF_LOOP,
    AwaitedEvents,
    Event,
    ProcessEvents,
)
from profiler.aggregation.thread_history import ThreadHistory
from profiler.aggregation.thread_wait import MIN_WORK_NS, ThreadWait
from profiler.aggregation.wait_proofs import is_told_of_timeouts
from profiler.core.optional_math import first_known
from profiler.readers.linux.look import ThreadSeen
from profiler.readers.linux.wait_types import BlockedThread


class RunEvents:
    """The events of each process; ``threads`` are those of the run."""

    def __init__(self, threads: Mapping[int, ThreadHistory]) -> None:
        self._threads = threads
        self._events: dict[int, ProcessEvents] = {}  # by process

    def forget(self, pid: int) -> None:
        """A process has gone."""
        self._events.pop(pid, None)

    def note_arrivals(self, seen: Iterable[ThreadSeen], look: int) -> None:
        """Note to which processes something has come, on which connections, and how long ago."""
        for each in seen:
            if not any(each.came):
                continue
            thread = self._threads.get(each.thread)
            connections = thread.last.connections if thread and thread.last else ()
            events = self._events_of(each.process)
            before_ns = first_known(each.came_before_ns, math.inf)
            events.note(ANY_CONNECTION, look, before_ns)
            for connection, came in zip(connections, each.came, strict=False):
                if came:  # one that the kernel does not know is any
                    events.note(connection.stream, look, before_ns)

    def note_end_of_child(self, parent: int, look: int) -> None:
        """Note that a child of a process has ended."""
        self._events_of(parent).note(END_OF_CHILD, look)

    def note_ends(self, over: Collection[ThreadWait], look: int) -> None:
        """Note which threads have slept, or waited for something else that is certain, and what
        happened as the waits of others ended.
        """
        for wait in over:
            blocked = wait.blocked
            if blocked is None or blocked.connections or blocked.has_timeout:
                continue
            if blocked.is_certain:
                self._events_of(wait.process).note(wait.thread, look)
        for wait in over:
            events_now = self._events.get(wait.process)
            if events_now is None or not _may_be_told(wait.blocked):
                continue
            thread = self._threads.get(wait.thread)
            if thread is not None:
                worked_ns = thread.run_ns - wait.run_ns
                wait.ended_with = events_now.before(look, worked_ns)
                wait.may_be_told = events_now.may_have_come(look, thread.able_ns)

    def note_timeouts(
        self, seen: Iterable[ThreadSeen], over: Iterable[ThreadWait], look: int
    ) -> None:
        """Note which timeouts have ended waits of loops, and whom that told, of the waits that are
        over: before all that the threads do now, as any of them may be one that was told.
        """
        told = {wait.process for wait in over if is_told_of_timeouts(wait)}
        for each in seen:
            thread = self._threads.get(each.thread)
            before = None if thread is None else thread.last
            if before is None or before.over is None or before.is_end_seen:
                continue
            if not _has_loops_timeout_ended(before, each):
                continue
            self._events_of(before.process).note(TIMEOUT_OF_LOOP, before.over)
            if before.over == look:
                before.has_told = before.process in told

    def count_awaited(self, before: ThreadWait, wait: ThreadWait, thread: ThreadHistory) -> None:
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

    def _events_of(self, pid: int) -> ProcessEvents:
        events = self._events.get(pid)
        if events is None:
            events = self._events[pid] = ProcessEvents()
        return events


def _may_be_told(blocked: BlockedThread | None) -> bool:
    """Whether any other thread of the process may have ended a wait."""
    if not blocked or (blocked.helpers != "threads" and not blocked.has_timeout):
        return False
    is_loops = blocked.is_timeout_of_own_wake_up or blocked.is_timeout_of_listeners
    return blocked.waits_for_any_thread or is_loops


def _has_loops_timeout_ended(before: ThreadWait, seen: ThreadSeen) -> bool:
    """Whether a timeout has ended the wait of a loop, as its thread shows."""
    blocked = before.blocked
    if not blocked or not blocked.has_timeout:
        return False
    is_own = blocked.is_timeout_of_own_wake_up and blocked.until_ns is not None
    return bool(seen.timed_out) or (is_own and not seen.was_woken)

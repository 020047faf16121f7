"""What proves what ended a wait: its timeout, something that came, or another event of its process.

A thread that others may wake never says what woke it. Its timeout did if work began just then, and
what happens at most ends of its waits did (:mod:`awaited_events`).
"""

from collections.abc import Collection, Sequence

from profiler.aggregation.awaited_events import Event
from profiler.aggregation.thread_wait import MIN_WORK_NS, ThreadWait
from profiler.core.optional_math import first_known


def is_told_of_arrival(wait: ThreadWait) -> bool:
    """Whether the wait was over as something came to a thread of the process, and what comes is
    what the thread waits for; if nobody saw what followed, it is what it always waits for.
    """
    last = wait.last_repeated_wait
    if last.awaited is None:
        return False
    return last.awaited.are_arrivals(None if last.after_ns is None else last.ended_with)


def is_told_as_due(wait: ThreadWait) -> bool:
    """Whether what the thread waits for may have come as its timeout was due."""
    return wait.may_be_told and is_told_of_arrival(wait)


def usual_ends(wait: ThreadWait, ends: Sequence[ThreadWait]) -> Sequence[ThreadWait]:
    """Those of the waits that may have ended this one with which the waits of its thread mostly
    end, and those of which that is not known; all if there are none of the first.
    """
    awaited = wait.last_repeated_wait.awaited
    if awaited is None:
        return ends
    return [ends[place] for place in awaited.likely_places([_events_at_end(end) for end in ends])]


def _events_at_end(wait: ThreadWait) -> Collection[Event]:
    """What happens as the wait ends: something comes, or the thread has slept."""
    return (wait.thread, *[connection.stream for connection in wait.connections])


def is_for_children(wait: ThreadWait) -> bool:
    """Whether the end of a child is what the thread waits for, though another one is told."""
    awaited = wait.last_repeated_wait.awaited
    return awaited is not None and awaited.are_ends_of_children


def is_told_of_timeouts(wait: ThreadWait) -> bool:
    """Whether the timeouts of loops, other threads of its process, are what the thread waits
    for.
    """
    blocked = wait.blocked
    if wait.awaited is None or blocked is None or blocked.until_ns is not None:
        return False
    return blocked.waits_for_any_thread and wait.awaited.are_timeouts


def is_beside_arrivals(wait: ThreadWait) -> bool:
    """Whether what comes to the threads of the process is not what the thread waits for."""
    awaited = wait.last_repeated_wait.awaited
    return awaited is not None and awaited.has_others_arrivals


def has_slept(wait: ThreadWait) -> bool:
    """Whether its timeout ended a wait that another thread might have ended, and work followed:
    that began as the timeout was due, or the thread always waits for times, or it has never
    only asked again.
    """
    last = wait.last_repeated_wait
    blocked = last.blocked
    if not blocked or blocked.until_ns is None or blocked.wait.kind != "sleep":
        return False
    if wait.is_of_loop or last.was_woken:
        return False
    if last.timed_ends and last.timed_ends.are_for_times:
        return first_known(last.after_ns, MIN_WORK_NS) >= MIN_WORK_NS
    if not last.is_end_seen or last.is_last or first_known(last.after_ns, 0) < MIN_WORK_NS:
        return False
    if last.was_due and not is_told_as_due(last):
        return True
    return not (last.is_of_asker or is_told_of_arrival(last))


def is_asked_in_vain(wait: ThreadWait) -> bool:
    """Whether timeouts ended the waits before for the same, and work followed the last one
    only: something else may have ended that. If nobody saw what followed, as at the end of a run,
    it is so of a thread that others mostly tell before its timeouts.
    """
    last = wait.last_repeated_wait
    if not last.polls.timeouts:
        return False
    if last.is_work_after_unknown:
        return last.timed_ends is not None and last.timed_ends.are_for_others
    return first_known(last.after_ns, 0) >= MIN_WORK_NS


def is_timer_without_clients(wait: ThreadWait) -> bool:
    """Whether work followed a limited wait for clients, of which none has connected: it was one
    for the loop's own timers and threads. If nobody saw what followed, it was that of which the
    last such wait of its process was.
    """
    blocked = wait.blocked
    if not blocked or not blocked.is_timeout_of_listeners:
        return False
    last = wait.last_repeated_wait
    if last.is_unfollowed:
        return last.was_for_timer
    return first_known(last.after_ns, 0) >= MIN_WORK_NS and last.has_client is False

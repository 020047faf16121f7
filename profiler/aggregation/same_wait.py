"""Whether two waits of a thread, one after the other, are for the same, or one wait goes on."""

from msgspec.structs import replace

from profiler.aggregation.children_work import counts_helpers_work
from profiler.aggregation.thread_history import ThreadHistory
from profiler.aggregation.thread_wait import MIN_WORK_NS, ThreadWait
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.look import ThreadSeen
from profiler.readers.linux.wait_types import BlockedThread

# To ask again whether a lock is free takes less CPU time than this, and to hand out a task more.
_MAX_ASKING_AGAIN_NS = NS_PER_MS // 10
# A thread that ran once may have waited for a CPU meanwhile.
_MAX_SLICES_OF_RUN = 2


def is_plain_wait(blocked: BlockedThread | None) -> bool:
    """Whether how a wait ended says nothing about it, nor what others did meanwhile."""
    if not blocked or blocked.until_ns is not None:
        return False
    return not blocked.connections and not counts_helpers_work(blocked)


def same_plain_wait_before(thread: ThreadHistory, seen: ThreadSeen) -> ThreadWait | None:
    """The wait before of a thread that has run, if it was plain and the thread waits for the same
    again: nothing else is to be known of both than what the thread used in between.
    """
    last = thread.last
    if last is None or seen.blocked is not last.blocked or not last.is_plain:
        return None
    if thread.present is not None or thread.earlier is not None:
        return None
    return None if last.is_known or seen.was_woken else last


def shows_same_wait(before: BlockedThread | None, now: BlockedThread | None) -> bool:
    """Whether a thread that has not run says the same: its timeout, which may be one of the wall
    clock, is measured anew.
    """
    if before is None or now is None:
        return before is now
    if before == now:
        return True
    return before == replace(now, until_ns=before.until_ns, until_within_ns=before.until_within_ns)


def knows_more_helpers(before: BlockedThread | None, now: BlockedThread | None) -> bool:
    """Whether a thread that has not run says the same, and a process that is new shares the memory
    for which it waits.
    """
    if before is None or now is None or before.helpers != "memory":
        return False
    return shows_same_wait(replace(before, helper_pids=now.helper_pids), now)


def is_asked_again(before: ThreadWait, wait: ThreadWait) -> bool:
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
        if before.before_ns < MIN_WORK_NS and not before.is_of_asker:
            return False
    return shows_same_wait(blocked, wait.blocked)


def does_wait_go_on(before: ThreadWait, wait: ThreadWait, most_ns: int) -> bool:
    """Whether the thread goes on waiting for the same after less work than this, as clients do that
    let a signal end their waits, and loops with timers.
    """
    blocked, now = before.blocked, wait.blocked
    if not blocked or not now or not blocked.may_go_on or before.has_told:
        return False
    if wait.run_ns - before.run_ns >= most_ns:
        return False
    return shows_same_wait(blocked, _with_connections_of(blocked, now))


def _with_connections_of(before: BlockedThread, now: BlockedThread) -> BlockedThread:
    """The wait as if nothing had come on its connections, or been sent, since the other one."""
    if [each.stream for each in before.connections] != [each.stream for each in now.connections]:
        return now
    return replace(now, connections=before.connections, may_be_idle=before.may_be_idle)


def was_woken_to_ask(before: ThreadWait, wait: ThreadWait) -> bool:
    """Whether neither the timeout nor something that came ended the loop's wait, and it waits for
    an answer now, but waited for nobody's before: another thread has woken it to send a question,
    as that which uses an HTTP client of Java.
    """
    blocked, now = before.blocked, wait.blocked
    if not blocked or not now or blocked.until_ns is None:
        return False
    return before.timed_out is False and now.awaits_answer and not blocked.awaits_answer


def asks_at_timeout(before: ThreadWait, wait: ThreadWait) -> bool:
    """Whether a timeout ended the loop's wait, and it waits for an answer now, but waited for
    nobody's before: it has slept, and then asked. Another thread that worked may have asked.
    """
    blocked, now = before.blocked, wait.blocked
    if not blocked or not now or not before.timed_out:
        return False
    others_ns = wait.process_ns - before.process_ns - (wait.run_ns - before.run_ns)
    if others_ns >= MIN_WORK_NS:
        return False
    if int(wait.slices) - int(before.slices) > _MAX_SLICES_OF_RUN:
        return False  # something else may have woken it since, as a message
    return now.awaits_answer and not blocked.awaits_answer


def is_answer_still_owed(before: ThreadWait, wait: ThreadWait) -> bool:
    """Whether an answer for which the thread has waited is owed in its next wait, too."""
    if not before.blocked or not wait.blocked:
        return False
    owed = {each.stream: each.received_bytes for each in before.blocked.connections if each.owes}
    return any(
        each.owes and each.stream and owed.get(each.stream) == each.received_bytes
        for each in wait.blocked.connections
    )


def gives_up_answer(before: ThreadWait, wait: ThreadWait) -> bool:
    """Whether a thread does not wait any more for an answer that was owed: the timeout was that of
    this wait, and no timer's beside it.
    """
    if not before.blocked or not wait.blocked or not before.blocked.awaits_answer:
        return False
    kept = {each.stream for each in wait.blocked.connections}
    owed = [each for each in before.blocked.connections if each.awaits_answer]
    return not any(each.stream in kept for each in owed)

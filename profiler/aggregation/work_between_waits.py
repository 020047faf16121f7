"""What followed a wait of a thread, as its next wait tells: how it ended, and the work after it."""

from profiler.aggregation.asking_sleeps import asks_until
from profiler.aggregation.changed_waits import ChangedWaits
from profiler.aggregation.children_work import counts_helpers_work
from profiler.aggregation.same_wait import (
    asks_at_timeout,
    does_wait_go_on,
    gives_up_answer,
    is_answer_still_owed,
    is_asked_again,
    shows_same_wait,
    was_woken_to_ask,
)
from profiler.aggregation.thread_history import ThreadHistory
from profiler.aggregation.thread_wait import MAX_LITTLE_NS, MIN_WORK_NS, ThreadWait
from profiler.aggregation.unseen_waits import WorkByKind
from profiler.core.optional_math import first_known
from profiler.readers.linux.look import ThreadSeen


def work_until(before: ThreadWait, following: ThreadWait) -> int:
    """What the thread used between this wait and the following one; of a thread that sleeps
    again and again, between two of these sleeps.
    """
    work_ns = following.run_ns - before.run_ns
    if not asks_until(before, following):
        return work_ns
    return work_ns // (int(following.slices) - int(before.slices))


def note_unseen_waits(before: ThreadWait, following: ThreadWait, works: WorkByKind) -> None:
    """Note of this wait and the following one of the thread what says which part of the work in
    between is theirs.
    """
    first, second = before.blocked, following.blocked
    if first is None or second is None or not works.may_tell(first, second):
        return
    if asks_until(before, following):
        return
    times_on_cpu = int(following.slices) - int(before.slices)
    around = works.add_work(first, second, following.run_ns - before.run_ns, times_on_cpu)
    before.around_after = following.around_before = around


def note_end(
    before: ThreadWait, thread: ThreadHistory, seen: ThreadSeen, change: ChangedWaits
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


def note_woken_before(before: ThreadWait, wait: ThreadWait) -> None:
    """Note of a wait whether the one for the same before was over before its timeout."""
    has_run = wait.run_ns > before.run_ns
    was_woken = before.was_woken
    if not has_run or is_asked_again(before, wait):
        was_woken = before.follows_woken
    wait.follows_woken = was_woken and shows_same_wait(before.blocked, wait.blocked)
    wait.is_plain = wait.is_plain and not wait.follows_woken


def add_work_between_waits(
    before: ThreadWait, wait: ThreadWait, thread: ThreadHistory, change: ChangedWaits
) -> None:
    """Add the work between two waits of a thread to both."""
    wait.had_come = before.came is not None and any(before.came)
    if is_answer_still_owed(before, wait):
        before.next_owed = wait
    if before.timed_out and gives_up_answer(before, wait):
        before.timed_out = False
    work_ns = work_until(before, wait)
    wait.before_ns = work_ns + before.helped_ns
    if not wait.before_ns:  # the state has changed without a run
        wait.before_ns = before.before_ns
    if thread.earlier is not None:
        earlier = thread.earlier
        change.note_what_followed(earlier, work_until(earlier, before) + before.helped_ns)
        thread.earlier = None
    has_come = not before.came or any(came is not False for came in before.came)
    if is_asked_again(before, wait):
        before.repeat_without_work(wait)
        wait.is_of_asker = thread.only_asked_again = True
    elif not has_come and work_ns < MIN_WORK_NS and asks_at_timeout(before, wait):
        note_what_followed_question(thread, None, change)
        before.after_ns, thread.asked = work_ns, before
    elif does_wait_go_on(before, wait, MAX_LITTLE_NS if has_come else MIN_WORK_NS):
        _note_same_wait(before, wait, has_come=has_come, change=change)
    elif wait.blocked is not None and counts_helpers_work(wait.blocked):
        thread.earlier = before
    else:
        change.note_what_followed(before, work_ns + wait.helped_ns)
    if before.is_known:
        note_what_followed_question(thread, before, change)


def _note_same_wait(
    before: ThreadWait, wait: ThreadWait, *, has_come: bool, change: ChangedWaits
) -> None:
    """The thread waits on the same connections after little work: for the same, unless it was woken
    to ask.
    """
    if has_come:
        before.repeat_after_work(wait)
    elif was_woken_to_ask(before, wait):
        change.note_what_followed(before, work_until(before, wait))
    else:
        before.repeat_without_work(wait)


def note_what_followed_question(
    thread: ThreadHistory, answered: ThreadWait | None, change: ChangedWaits
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
    change.note_known(asked)

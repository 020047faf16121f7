"""Whether one thread ran, or began to wait, while another one waited: so it may have ended that."""

from profiler.aggregation.thread_wait import MIN_WORK_NS, ThreadWait
from profiler.core.optional_math import all_known, first_known


def did_not_run_in(wait: ThreadWait, other: ThreadWait, since: int | None = None) -> bool:
    """Whether the thread did not run while the other one waited, or ``since`` this look."""
    since = first_known(since, other.begun)
    if wait.polled_since > since and not wait.is_first:
        return _begins_as_may_end(wait, other)
    over = wait.last_repeated_wait.over
    if over is None:
        return True
    other_end = other.end
    if other_end is None or over < first_known(other.earliest_end, other_end):
        return False
    return over <= other_end or not _polled_in_vain_between(wait, since, other_end)


def is_likely_for(wait: ThreadWait, other: ThreadWait, since: int, work_ns: float) -> bool:
    """Whether the thread did not run in vain since this look while the other one waited: its
    wait held back so much work.
    """
    return work_ns >= MIN_WORK_NS or did_not_run_in(wait, other, since)


def may_have_ended(wait: ThreadWait, other: ThreadWait) -> bool:
    """Whether the thread has run again before the wait of the other one was over; the end of
    its process ends all, unless the other one waits again. One that waited until then, and not
    since a later look than the other one, is not what that one waited for.
    """
    last = wait.last_repeated_wait
    both = all_known(first_known(last.over_since, last.over), other.end)
    if both is None:
        return False
    if last.was_cut and not other.is_followed_by_wait:
        if other.was_cut or wait.begun < other.begun:
            return False
        if wait.begun == other.begun and wait.process == other.process:
            return False
    over, other_end = both
    return over <= other_end or _begins_as_may_end(wait, other)


def may_have_woken(wait: ThreadWait, other: ThreadWait, work_ns: float) -> bool:
    """Whether the thread may have ended the wait of the other one when its own was over, or
    after that, as it held back so much work; who waited for a CPU ran one look later.
    """
    if other.end is None or not may_have_ended(wait, other):
        return False
    over = _last_turn_before(wait, other.end - 1).over
    if over is None:
        return False
    return over >= other.end - 1 or work_ns >= MIN_WORK_NS


def has_timer_that_ended(wait: ThreadWait, other: ThreadWait) -> bool:
    """Whether a timeout, and nothing that came, ended one of these waits before the same look
    as that of the other thread; or one look before, if the thread has not run since. What came
    on its only connection came after the answer.
    """
    end = other.end
    poll: ThreadWait | None = wait
    while end is not None and poll is not None and poll.over is not None:
        following = poll.next_poll
        runs_at = None if following is None else following.over
        is_last_run = poll.over == end - 1 and (runs_at is None or runs_at > end)
        if poll.over == end or is_last_run:
            came = poll.came or ()
            return bool(poll.timed_out) and (len(came) == 1 or not any(came))
        poll = following
    return False


def _polled_in_vain_between(wait: ThreadWait, since: int, look: int) -> bool:
    """Whether a timeout ended a poll after the look ``since`` and before this one, and the
    thread only asked again.
    """
    if wait.polls.timeouts and wait.begun > since:
        return True
    return wait.over is not None and wait.over < look


def _begins_as_may_end(wait: ThreadWait, other: ThreadWait) -> bool:
    """Whether this wait began at a look at which that of the other thread may have been over,
    as it was left for later looks: it may wait for this one anew.
    """
    last = other.last_repeated_wait
    if last.over_since is None or last.over is None:
        return False
    return last.over_since <= wait.polled_since < last.over


def _last_turn_before(wait: ThreadWait, look: int) -> ThreadWait:
    """The last of these waits, or that of a later one which was over at this look or after it:
    the work before was little.
    """
    wait = wait.last_repeated_wait
    while wait.over is not None and wait.over < look and wait.next_turn is not None:
        wait = wait.next_turn.last_repeated_wait
    return wait

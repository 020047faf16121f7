"""What ended a poll for a limited time: its timeout, or what came.

The work that followed says when it ended. Connections say of this moment how long ago something
came last.
"""

from collections.abc import Sequence

from msgspec import Struct

from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.wait_types import BlockedThread

# The kernel counts how long ago something came in ticks of up to 10 ms, and a timeout may be late.
ARRIVAL_SLACK_NS = 12 * NS_PER_MS
# A timeout that is known as well as this is that of the moment at which the work began, though
# something may have come then, too.
_MAX_UNKNOWN_NS = 100 * NS_PER_MS


class ConnectionArrival(Struct, frozen=True, gc=False):
    """What has come on one connection since a wait was seen first: in how many segments, and how
    long ago the last one; and how many segments were ``sent``. ``came`` is None where this is not
    known. ``is_closed``: the kernel knew the connection then, and does not any more. ``is_answer``:
    something was sent, and nothing since the last that came, and never has something come on it
    without that.
    """

    came: bool | None
    segments: int | None = None
    sent: int | None = None
    before_ns: int = 0
    is_closed: bool = False
    is_answer: bool = False


class WorkBeginBounds(Struct, frozen=True, gc=False):
    """Within which time the work after a poll has begun; ``is_known``: the thread still works, so
    that both ends are the same moment. ``worked_ns`` is the CPU time since: other polls, before
    which the thread waited for a CPU, may have followed with little work; it was so often on a CPU
    (``turns``). ``is_of_able``: the thread can still run.
    """

    first_ns: int
    last_ns: int
    is_known: bool
    worked_ns: int
    is_of_able: bool = False
    turns: int = 1

    @property
    def has_only_asked(self) -> bool:
        """Whether the thread used so little each time that it may only have asked again."""
        return self.worked_ns < self.turns * NS_PER_MS


def did_timeout_end_poll(
    blocked: BlockedThread,
    arrivals: Sequence[ConnectionArrival],
    begin: WorkBeginBounds,
    now_ns: int,
) -> bool | None:
    """Whether its timeout ended the last poll before the work; None if that cannot be told.

    Runtimes such as tokio divide a long timeout: after the one of this poll came another one. A
    client's timer closes its idle connections.
    """
    until_ns = blocked.until_ns
    if until_ns is None:
        return None if any(arrival.came for arrival in arrivals) else False
    if begin.last_ns < until_ns - ARRIVAL_SLACK_NS:
        return False
    if any(arrival.came is None and not arrival.is_closed for arrival in arrivals):
        return False
    if _has_owed_answer_come_by(now_ns - until_ns + ARRIVAL_SLACK_NS, blocked, arrivals):
        return False
    within_ns = first_known(blocked.until_within_ns, _MAX_UNKNOWN_NS)
    if not any(_may_have_come(arrival, begin, now_ns) for arrival in arrivals):
        # Of a client that asks again and again, the answer may end one of the next polls.
        may_only_ask = blocked.until_within_ns is None and blocked.awaits_answer
        return not (may_only_ask and begin.has_only_asked)
    was_due = begin.is_known and begin.last_ns <= until_ns + within_ns + ARRIVAL_SLACK_NS
    has_come = any(_has_certainly_come(arrival, begin, now_ns) for arrival in arrivals)
    has_timed_out = was_due and within_ns < _MAX_UNKNOWN_NS and not has_come
    # Who waits for no answer, and asks, does so after the wait.
    has_asked = not blocked.awaits_answer and all(map(_has_only_answers, arrivals))
    return True if has_timed_out or has_asked else None


def has_ended_before_timeout(
    blocked: BlockedThread, begin: WorkBeginBounds | None, now_ns: int
) -> bool:
    """Whether another thread ended a wait before its timeout: it was over before that, or more work
    followed than there was time for since.
    """
    if blocked.until_ns is None or blocked.connections:
        return False
    worked_ns = 0 if begin is None else max(begin.worked_ns - ARRIVAL_SLACK_NS, 0)
    return now_ns - worked_ns < blocked.until_ns


def was_due_as_work_began(blocked: BlockedThread, begin: WorkBeginBounds) -> bool | None:
    """Whether a wait that others may end was due to end as the work after it began, or began
    before; None if that cannot be told.
    """
    if blocked.until_ns is None or blocked.until_within_ns != 0 or blocked.connections:
        return None
    after_ns = begin.last_ns - blocked.until_ns
    if after_ns < -ARRIVAL_SLACK_NS:
        return False
    return True if begin.is_of_able and after_ns <= ARRIVAL_SLACK_NS else None


def what_came(
    arrivals: Sequence[ConnectionArrival], *, timed_out: bool | None
) -> tuple[bool | None, ...]:
    """On which connections of a poll something has come; nothing on those that a timer closed."""
    return tuple(
        [False if timed_out and arrival.is_closed else arrival.came for arrival in arrivals]
    )


def first_arrival_before_ns(arrivals: Sequence[ConnectionArrival]) -> int | None:
    """How long ago something came first; None if nothing did, or something did several times."""
    came = [arrival for arrival in arrivals if arrival.came]
    if not came or any(arrival.segments != 1 for arrival in came):
        return None
    return max(arrival.before_ns for arrival in came)


def _may_have_come(arrival: ConnectionArrival, begin: WorkBeginBounds, now_ns: int) -> bool:
    """Whether something may have come on a connection when most of the work began."""
    last_ns = now_ns - arrival.before_ns
    if not arrival.came or last_ns < begin.first_ns - ARRIVAL_SLACK_NS:
        return False
    return arrival.segments != 1 or last_ns <= now_ns - begin.worked_ns + ARRIVAL_SLACK_NS


def _has_owed_answer_come_by(
    before_ns: int, blocked: BlockedThread, arrivals: Sequence[ConnectionArrival]
) -> bool:
    """Whether an answer that was owed had come by so long before now, or the program has closed at
    its end.
    """
    if blocked.awaits_answer and any(arrival.is_closed for arrival in arrivals):
        return True
    pairs = zip(blocked.connections, arrivals, strict=False)
    return any(
        connection.owes and arrival.came and arrival.before_ns > before_ns
        for connection, arrival in pairs
    )


def _has_only_answers(arrival: ConnectionArrival) -> bool:
    """Whether no more has come on a connection than was asked since, or the end of an answer."""
    if not arrival.came:
        return not arrival.is_closed
    if arrival.is_answer:
        return True
    return arrival.segments is not None and 0 < arrival.segments <= first_known(arrival.sent, 0)


def _has_certainly_come(arrival: ConnectionArrival, begin: WorkBeginBounds, now_ns: int) -> bool:
    """Whether something is known to have come when the work began."""
    came_after_ns = now_ns - arrival.before_ns - begin.last_ns
    return bool(arrival.came) and abs(came_after_ns) <= ARRIVAL_SLACK_NS

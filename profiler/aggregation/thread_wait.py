"""One wait of a thread, those before it for the same, and the work that it held back.

A loop waits again and again for the same: a timer of another task ends its poll, or something comes
that it only looks at. The poll before its work says what it waited for.
"""

from collections import deque
from collections.abc import Collection, Sequence

from msgspec import Struct

from profiler.aggregation.awaited_events import AwaitedEvents, Event
from profiler.aggregation.end_counts import NO_ENDS, EndCounts, PollEnds, TimedEnds
from profiler.aggregation.most_work import MostWork
from profiler.aggregation.unseen_waits import WorkAroundKind
from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.wait_types import BlockedThread, Connection

# A poll that its timeout ends, and so much work after it, is the sleep of a loop.
MIN_WORK_NS = NS_PER_MS
# With more work than this, what came was not only looked at.
MAX_LITTLE_NS = 3 * NS_PER_MS
# More waits one after the other for the same are settled.
_MAX_POLLS = 512


class EarlierPolls(Struct, frozen=True, gc=False):
    """The waits of a thread for the same before one: ``little_ns`` of work in so many ``turns``
    with what came and after so many ``timeouts``. The first of those that timeouts ended, one after
    the other, began with the look ``since``; None if there are none.
    """

    little_ns: int = 0
    turns: int = 0
    timeouts: int = 0
    since: int | None = None


_NO_POLLS = EarlierPolls()


class _RepeatedWaits(Struct, eq=False):
    """Waits of a thread for the same, one after the other: the ``newest``, and those before it as
    far as they are not settled.
    """

    newest: "ThreadWait"
    before: deque["ThreadWait"]


class Sleeps(Struct, eq=False):
    """Sleeps of a thread one after the other, with hardly any work in between: since the ``first``.

    ``is_asking``: between two looks there were several of them.
    """

    first: "ThreadWait"
    is_asking: bool = False


class ThreadWait(Struct, eq=False, kw_only=True):
    """One wait of a thread, from the look that saw it first (``begun``) to the first look before
    which the thread has run (``over``); if the thread was left for later looks, it may have been
    over from the look ``over_since`` on.

    The thread: ``blocked`` is None while it can run, and ``counted_ns`` what is counted already of
    how long it waits for a CPU. ``is_unasked``: it has run, and nobody asked what it does now; then
    ``blocked`` is None, too. ``is_first``: it was not seen before. ``is_plain``: the wait has
    neither connections nor a known timeout, nobody ended it before one, and nobody works for it
    whose work counts, so that only the thread's own run before and after it matters.
    ``is_of_worker``: the thread waits for something else now and then. ``is_of_asker``: timeouts
    have ended waits of the thread after which it only asked again. ``timed_ends`` are those of its
    waits for a limited time, ``poll_ends`` those of its polls, ``awaited`` is what ends its waits
    for others.

    The work: ``run_ns`` is the thread's CPU time before the wait, in so many ``slices``,
    ``process_ns`` that of all threads of its process.
    ``before_ns`` is what it used when it ran last, and those who worked for it in the wait before;
    ``after_ns`` the same of when it runs next, None until that is known. ``around_before`` and
    ``around_after`` say which part of that belongs to this wait, if others that no look saw may
    have been in between. ``is_known``: nothing later changes it. ``sleeps``: those of a process
    that has children, one after the other, with hardly any work in between. ``most_work`` is what
    the threads of its process do after their waits.

    The end: ``came`` says of each connection whether something came, ``had_come`` of any one of the
    wait before. ``was_woken``: it was over before its timeout; ``was_due``: whether the work after
    it began with that, or before, None if that is not known; ``is_end_seen``: the thread was asked
    after it, and ``follows_woken``: the wait before for the same was woken. ``timed_out``: its
    timeout ended it, None if something that came may have. ``has_told``: one that waits for
    timeouts of other threads of its process was woken then. ``has_client``: whether anybody may
    have connected until its end, None if nobody asked. ``ended_with``: what happened in its process
    then, ``may_be_told``: something may have come as work began. ``is_last``: the thread has ended
    since, ``was_cut``: before the next look. ``enders`` are the waits of its process for somebody
    to come that were over with this one: one of these threads may have woken it. ``end_counts`` are
    those of the thread so far.

    The waits for the same: ``next_poll`` follows as a timeout ended this one, and ``next_turn``
    after little work. ``repeated`` are these waits, and ``polls`` is the sum of those before this
    one. ``was_for_timer``: the last such waits of its process before were for a timer.
    """

    thread: int
    process: int
    blocked: BlockedThread | None
    begun: int

    counted_ns: int = 0
    is_unasked: bool = False
    is_first: bool = False
    is_plain: bool = False
    is_of_worker: bool = False
    is_of_asker: bool = False
    timed_ends: TimedEnds | None = None
    poll_ends: PollEnds | None = None
    awaited: AwaitedEvents | None = None

    run_ns: int = 0
    process_ns: int = 0
    slices: bytes = b"0"
    helpers_ns: int = 0
    helped_ns: int = 0
    before_ns: int = 0
    around_before: WorkAroundKind | None = None
    after_ns: int | None = None
    around_after: WorkAroundKind | None = None
    is_known: bool = False
    sleeps: Sleeps | None = None
    most_work: MostWork | None = None

    over: int | None = None
    over_since: int | None = None
    came: Sequence[bool | None] | None = None
    had_come: bool = False
    was_woken: bool = False
    was_due: bool | None = None
    is_end_seen: bool = False
    follows_woken: bool = False
    timed_out: bool | None = False
    has_told: bool = False
    has_client: bool | None = None
    ended_with: Collection[Event] = ()
    may_be_told: bool = False
    is_last: bool = False
    was_cut: bool = False
    enders: Sequence["ThreadWait"] = ()
    end_counts: EndCounts = NO_ENDS

    next_poll: "ThreadWait | None" = None
    next_turn: "ThreadWait | None" = None
    next_owed: "ThreadWait | None" = None
    repeated: _RepeatedWaits | None = None
    polls: EarlierPolls = _NO_POLLS
    was_for_timer: bool = False

    def repeat_without_work(self, following: "ThreadWait") -> None:
        """The thread waits again for the same, as nothing came."""
        self.next_poll = following
        self._repeat_as(following)
        polls = self.polls
        following.polls = EarlierPolls(
            polls.little_ns, polls.turns, polls.timeouts + 1, self.polled_since
        )
        following.before_ns = max(following.before_ns, self.before_ns)
        following.is_first = self.is_first
        following.had_come = self.had_come

    def repeat_after_work(self, following: "ThreadWait") -> None:
        """The thread waits again for the same, after little work with what came."""
        self.after_ns = following.run_ns - self.run_ns
        self.next_turn = following
        self._repeat_as(following)
        polls = self.polls
        turns = polls.turns + (self.came is not None and any(self.came))
        following.polls = EarlierPolls(polls.little_ns + self.after_ns, turns, polls.timeouts)

    @property
    def is_asking(self) -> bool:
        """Whether the thread sleeps until it asks again whether a child has ended: of these sleeps,
        several were between two looks, though each look may have seen one of the others.
        """
        return self.sleeps is not None and self.sleeps.is_asking

    @property
    def polled_since(self) -> int:
        """The look that saw first this wait, or those for the same that timeouts ended before."""
        return first_known(self.polls.since, self.begun)

    @property
    def is_woken(self) -> bool:
        """Whether the wait was over before its timeout; if nobody saw its end, as often that of a
        run's last wait, whether the wait before for the same was.
        """
        last = self.last_repeated_wait
        return last.was_woken or (last.follows_woken and not last.is_end_seen)

    @property
    def connections(self) -> Sequence[Connection]:
        """The connections on which something may come; none of a thread that can run."""
        return () if self.blocked is None else self.blocked.connections

    @property
    def end(self) -> int | None:
        """The look before which the thread has run, and does not wait for the same any more."""
        return self.last_repeated_wait.over

    @property
    def earliest_end(self) -> int | None:
        """The first look before which the thread may have run, if it was left for later ones."""
        last = self.last_repeated_wait
        return first_known(last.over_since, last.over)

    @property
    def is_sleep(self) -> bool:
        """Whether the thread sleeps, and no other one may wake it."""
        return self.blocked is not None and self.blocked.may_ask_for_children

    @property
    def is_for_disk(self) -> bool:
        """Whether the thread waits for a disk."""
        return self.blocked is not None and self.blocked.wait.kind == "disk"

    def _repeat_as(self, following: "ThreadWait") -> None:
        if self.repeated is None:
            self.repeated = _RepeatedWaits(self, deque(maxlen=_MAX_POLLS))
        self.repeated.before.append(self)
        self.repeated.newest = following
        following.repeated = self.repeated

    @property
    def was_ended_by_timer(self) -> bool:
        """Whether a timeout ended the last of these waits, and the thread worked more then than
        with all that came. Where that may have ended it, too, it is an answer that was owed, or
        what has not ended waits before, after which the thread did little.
        """
        wait = self._newest_repeated
        if wait.is_unfollowed:
            return wait.was_for_timer and wait.is_without_owed_answer
        wait = self._deciding_wait
        polls = wait.polls
        may_have_timed_out = wait.timed_out is None and not wait.has_owed_answer_come
        if wait.is_of_arrivals or wait.part_of_timeouts is not None:
            may_have_timed_out = False
        has_timed_out = wait.timed_out or (may_have_timed_out and polls.turns > polls.timeouts)
        return has_timed_out and wait.is_decided_at_end

    @property
    def is_unfollowed(self) -> bool:
        """Whether the wait is over and no other one of the thread is known that followed it."""
        return self.is_last or self.is_work_after_unknown

    @property
    def is_work_after_unknown(self) -> bool:
        """Whether the wait is over and nobody saw what the thread used then, as at a run's end."""
        return self.over is not None and self.after_ns is None

    @property
    def has_owed_answer_come(self) -> bool:
        """Whether something came on a connection of this wait on which an answer was owed."""
        pairs = zip(self.connections, self.came or (), strict=False)
        return any(came and connection.owes for connection, came in pairs)

    @property
    def is_end_unclear(self) -> bool:
        """Whether a timeout may have ended the last of these waits, or something that came, and
        both end such waits; where that is not known, an answer that was owed then is what the
        thread waited for.
        """
        wait = self._deciding_wait
        if wait.timed_out is not None or not wait.is_decided_at_end or wait.is_of_arrivals:
            return False
        if wait.part_of_timeouts is not None:
            return True
        return wait.is_without_owed_answer and wait.polls.turns == wait.polls.timeouts

    @property
    def is_of_arrivals(self) -> bool:
        """Whether hardly any such wait of the thread was ended by a timeout, if it worked then."""
        return self.poll_ends is not None and self.poll_ends.are_arrivals

    @property
    def part_of_timeouts(self) -> float | None:
        """The part of such waits of the thread that timeouts ended, if something that came ended
        others.
        """
        wait = self._deciding_wait
        return None if wait.poll_ends is None else wait.poll_ends.part_of_timeouts

    def count_poll_end(self) -> None:
        """Count what certainly ended a poll after which the thread worked."""
        if self.poll_ends is None or not (self.is_known and self.is_decided_at_end):
            return
        if self.timed_out:
            self.poll_ends.timeouts += 1
        elif self.timed_out is False and self.has_come:
            self.poll_ends.arrivals += 1

    @property
    def _newest_repeated(self) -> "ThreadWait":
        return self if self.repeated is None else self.repeated.newest

    @property
    def is_without_owed_answer(self) -> bool:
        """Whether no answer is owed on its connections."""
        return self.blocked is not None and not self.blocked.awaits_answer

    @property
    def is_decided_at_end(self) -> bool:
        """Whether the thread worked more after this last wait than after those before."""
        if self.after_ns is None or self.is_last:
            return False
        return self.has_told or self.after_ns >= max(MIN_WORK_NS, self.polls.little_ns)

    @property
    def _deciding_wait(self) -> "ThreadWait":
        """The wait of which the end says what this one held back: that of a timer, if the thread
        has only looked at what came before.
        """
        wait = self._newest_repeated
        if wait.timed_out is False or not wait.is_decided_at_end:
            return self.last_repeated_wait
        return wait

    @property
    def last_repeated_wait(self) -> "ThreadWait":
        """The last wait for the same, of which the end says what all held back."""
        wait = self
        while wait.next_poll is not None:
            wait = wait.next_poll
        return wait

    def last_for_answer(self, until: int) -> "ThreadWait":
        """The last wait for the answer that is owed in this one, of those that began before the
        look ``until``.
        """
        wait = self
        while wait.next_owed is not None and wait.next_owed.begun < until:
            wait = wait.next_owed
        return wait

    @property
    def following_work_ns(self) -> int:
        """The work that followed, by what was before as long as it is not known."""
        last = self.last_repeated_wait
        return first_known(last.after_ns, last.before_ns)

    @property
    def held_back_work_ns(self) -> int:
        """The work that this wait held back; at least 1, so that equal threads share.

        The timeout of a loop, which may be one of many timers, held back what followed. The sleeps
        of who asks again and again hold back no work: that before was for what it asks, and that
        after waited for the answer. What belongs to a wait that no look saw is not this one's. A
        thread that nobody needs holds back nothing.
        """
        if self._is_left_behind:
            return 1
        deciding = self._deciding_wait
        if deciding is not self:
            return deciding.held_back_work_ns
        after_ns, before_ns = self.after_ns, self.before_ns
        if self.around_before is not None:
            before_ns = round(self.around_before.part_before * before_ns)
        if after_ns is None:
            # Who asks in vain has hardly worked since it asked before, and may go on so.
            asks_on = self.is_of_loop and self.polls.timeouts and self.over is None
            return 1 if asks_on else 1 + before_ns
        if self.is_asking:
            return 1 + min(self.before_ns, after_ns)
        if self.around_after is not None:
            after_ns = round(self.around_after.part_after * after_ns)
        if after_ns >= before_ns or (not self.is_woken and self.is_of_loop):
            return 1 + after_ns
        return 1 + before_ns

    @property
    def _is_left_behind(self) -> bool:
        """Whether the thread waits for others of its process, none has woken it, or only the end of
        the process, and one of them did as much after a wait meanwhile as it did before: it is one
        of a pool that nobody needs, as those of OpenBLAS after they have begun.
        """
        blocked, most_work = self.blocked, self.most_work
        if blocked is None or most_work is None or self.after_ns:
            return False
        if blocked.until_ns is not None or not blocked.waits_for_any_thread:
            return False
        if self.over is not None and not self.was_cut:
            return False
        return most_work.has_as_much(self.before_ns, other_than=self.thread, since=self.begun)

    @property
    def is_of_loop(self) -> bool:
        """Whether a loop waits for its own wake-up, for a limited time."""
        return self.blocked is not None and self.blocked.is_timeout_of_event_loop

    @property
    def is_followed_by_wait(self) -> bool:
        """Whether the thread waits again, for something else, after this wait."""
        last = self.last_repeated_wait
        return last.after_ns is not None and not last.is_last

    @property
    def has_come(self) -> bool:
        """Whether something came on a connection of this wait."""
        came = self.last_repeated_wait.came
        return came is not None and any(came)

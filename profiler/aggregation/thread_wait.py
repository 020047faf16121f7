"""One wait of a thread, those before it for the same, and the work that it held back.

A loop waits again and again for the same: a timer of another task ends its poll, or something comes
that it only looks at. The poll before its work says what it waited for.
"""

from collections import deque
from collections.abc import Collection, Sequence

from msgspec import Struct

from profiler.aggregation.awaited_events import AwaitedEvents, Event
from profiler.aggregation.unseen_waits import WorkAroundKind, WorkByKind
from profiler.core.optional_math import all_known, first_known
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.wait_types import BlockedThread, Connection

# A poll that its timeout ends, and so much work after it, is the sleep of a loop.
MIN_WORK_NS = NS_PER_MS
# With more work than this, what came was not only looked at.
MAX_LITTLE_NS = 3 * NS_PER_MS
# Who sleeps again and again, and used less than this each time, asks whether others have ended:
# what it used between two looks was not after one of these sleeps.
_MAX_ASKING_NS = NS_PER_MS // 2
# Who waits for times is seldom woken, and who is told by others seldom just at its timeout.
_TIMES_AS_MANY_DUE = 3
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


class EndCounts(Struct, frozen=True, gc=False):
    """How many waits of a thread for something else than threads are over so far, and how many of
    these ended with waits of threads of its process that work.
    """

    ends: int = 0
    with_workers: int = 0


class TimedEnds(Struct, eq=False):
    """How many waits of a thread for others for a limited time are over so far after which it
    worked as their timeouts ended (``due``), or before (``woken``).
    """

    due: int = 0
    woken: int = 0

    @property
    def are_for_times(self) -> bool:
        """Whether the thread waits for times to come, and hardly ever for others."""
        return self.due > _TIMES_AS_MANY_DUE * self.woken


_NO_POLLS = EarlierPolls()
NO_ENDS = EndCounts()


class _RepeatedWaits(Struct, eq=False):
    """Waits of a thread for the same, one after the other: the ``newest``, and those before it as
    far as they are not settled.
    """

    newest: "ThreadWait"
    before: deque["ThreadWait"]


class _Sleeps(Struct, eq=False):
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
    waits for a limited time, ``awaited`` is what ends its waits for others.

    The work: ``run_ns`` is the thread's CPU time before the wait, in so many ``slices``.
    ``before_ns`` is what it used when it ran last, and those who worked for it in the wait before;
    ``after_ns`` the same of when it runs next, None until that is known. ``around_before`` and
    ``around_after`` say which part of that belongs to this wait, if others that no look saw may
    have been in between. ``is_known``: nothing later changes it. ``sleeps``: those of a process
    that has children, one after the other, with hardly any work in between.

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
    awaited: AwaitedEvents | None = None

    run_ns: int = 0
    slices: bytes = b"0"
    helpers_ns: int = 0
    helped_ns: int = 0
    before_ns: int = 0
    around_before: WorkAroundKind | None = None
    after_ns: int | None = None
    around_after: WorkAroundKind | None = None
    is_known: bool = False
    sleeps: _Sleeps | None = None

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

    def work_until(self, following: "ThreadWait") -> int:
        """What the thread used between this wait and the following one; of a thread that sleeps
        again and again, between two of these sleeps.
        """
        work_ns = following.run_ns - self.run_ns
        if not self.asks_until(following):
            return work_ns
        return work_ns // (int(following.slices) - int(self.slices))

    def note_unseen_until(self, following: "ThreadWait", works: WorkByKind) -> None:
        """Note of this wait and the following one of the thread what says which part of the work in
        between is theirs.
        """
        before, after = self.blocked, following.blocked
        if before is None or after is None or not works.may_tell(before, after):
            return
        if self.asks_until(following):
            return
        times_on_cpu = int(following.slices) - int(self.slices)
        around = works.add_work(before, after, following.run_ns - self.run_ns, times_on_cpu)
        self.around_after = following.around_before = around

    def asks_until(self, following: "ThreadWait") -> bool:
        """Whether the thread sleeps again and again until the following wait, and does hardly
        anything in between.
        """
        return int(following.slices) - int(self.slices) > 1 and self._sleeps_until(following)

    def _sleeps_until(self, following: "ThreadWait") -> bool:
        """Whether the thread sleeps, and sleeps again after hardly any work."""
        if following.is_of_worker:  # others have taken the CPU, or a lock, from it in between
            return False
        if not (self.is_sleep and following.is_sleep):
            return False
        slices = int(following.slices) - int(self.slices)
        return following.run_ns - self.run_ns < slices * _MAX_ASKING_NS

    def sleep_on(self, following: "ThreadWait") -> "ThreadWait | None":
        """Note whether the thread asks whether a child has ended, and sleeps until it asks again;
        returns the first of these sleeps if that is new of them.
        """
        if not self._sleeps_until(following):
            return None
        if self.sleeps is None:
            self.sleeps = _Sleeps(self)
        following.sleeps = self.sleeps
        if self.sleeps.is_asking or not self.asks_until(following):
            return None
        self.sleeps.is_asking = True
        return self.sleeps.first

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
    def is_told_of_arrival(self) -> bool:
        """Whether the wait was over as something came to a thread of the process, and what comes is
        what the thread waits for; if nobody saw what followed, it is what it always waits for.
        """
        last = self.last_repeated_wait
        if last.awaited is None:
            return False
        return last.awaited.are_arrivals(None if last.after_ns is None else last.ended_with)

    def likely_ends(self, ends: Sequence["ThreadWait"]) -> Sequence["ThreadWait"]:
        """Those of the waits that may have ended this one with which the waits of its thread mostly
        end, and those of which that is not known; all if there are none of the first.
        """
        awaited = self.last_repeated_wait.awaited
        if awaited is None or len(ends) == 1:
            return ends
        return [ends[place] for place in awaited.likely_places([end.events for end in ends])]

    @property
    def events(self) -> Collection[Event]:
        """What happens as the wait ends: something comes, or the thread has slept."""
        return (self.thread, *[connection.stream for connection in self.connections])

    @property
    def connections(self) -> Sequence[Connection]:
        """The connections on which something may come; none of a thread that can run."""
        return () if self.blocked is None else self.blocked.connections

    @property
    def is_told_as_due(self) -> bool:
        """Whether what the thread waits for may have come as its timeout was due."""
        return self.may_be_told and self.is_told_of_arrival

    @property
    def is_for_children(self) -> bool:
        """Whether the end of a child is what the thread waits for, though another one is told."""
        awaited = self.last_repeated_wait.awaited
        return awaited is not None and awaited.are_ends_of_children

    @property
    def is_told_of_timeouts(self) -> bool:
        """Whether the timeouts of loops, other threads of its process, are what the thread waits
        for.
        """
        blocked = self.blocked
        if self.awaited is None or blocked is None or blocked.until_ns is not None:
            return False
        return blocked.waits_for_any_thread and self.awaited.are_timeouts

    @property
    def is_beside_arrivals(self) -> bool:
        """Whether what comes to the threads of the process is not what the thread waits for."""
        awaited = self.last_repeated_wait.awaited
        return awaited is not None and awaited.has_others_arrivals

    @property
    def has_slept(self) -> bool:
        """Whether its timeout ended a wait that another thread might have ended, and work followed:
        that began as the timeout was due, or the thread always waits for times, or it has never
        only asked again.
        """
        last = self.last_repeated_wait
        blocked = last.blocked
        if not blocked or blocked.until_ns is None or blocked.wait.kind != "sleep":
            return False
        if self.is_of_loop or last.was_woken:
            return False
        if last.timed_ends and last.timed_ends.are_for_times:
            return first_known(last.after_ns, MIN_WORK_NS) >= MIN_WORK_NS
        if not last.is_end_seen or last.is_last or first_known(last.after_ns, 0) < MIN_WORK_NS:
            return False
        if last.was_due and not last.is_told_as_due:
            return True
        return not (last.is_of_asker or last.is_told_of_arrival)

    @property
    def is_asked_in_vain(self) -> bool:
        """Whether timeouts ended the waits before for the same, and work followed the last one
        only: something else may have ended that.
        """
        last = self.last_repeated_wait
        return bool(last.polls.timeouts) and first_known(last.after_ns, 0) >= MIN_WORK_NS

    @property
    def is_timer_without_clients(self) -> bool:
        """Whether work followed a limited wait for clients, of which none has connected: it was one
        for the loop's own timers and threads.
        """
        blocked = self.blocked
        if not blocked or not blocked.is_timeout_of_listeners:
            return False
        last = self.last_repeated_wait
        has_worked = first_known(last.after_ns, 0) >= MIN_WORK_NS and not last.is_last
        return has_worked and last.has_client is False

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
        if wait.is_last or (wait.over is not None and wait.after_ns is None):
            return wait.was_for_timer and wait.is_without_owed_answer
        wait = self._deciding_wait
        polls = wait.polls
        may_have_timed_out = wait.timed_out is None and not wait.has_owed_answer_come
        has_timed_out = wait.timed_out or (may_have_timed_out and polls.turns > polls.timeouts)
        return has_timed_out and wait.is_decided_at_end

    @property
    def has_owed_answer_come(self) -> bool:
        """Whether something came on a connection of this wait on which an answer was owed."""
        pairs = zip(self.connections, self.came or (), strict=False)
        return any(came and connection.owes for connection, came in pairs)

    @property
    def is_end_unclear(self) -> bool:
        """Whether a timeout may have ended the last of these waits, or something that came; an
        answer that was owed then is what the thread waited for.
        """
        wait = self._deciding_wait
        is_unknown = wait.timed_out is None and wait.polls.turns == wait.polls.timeouts
        return is_unknown and wait.is_without_owed_answer and wait.is_decided_at_end

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

    def has_timer_that_ended(self, other: "ThreadWait") -> bool:
        """Whether a timeout, and nothing that came, ended one of these waits before the same look
        as that of the other thread; or one look before, if the thread has not run since. What came
        on its only connection came after the answer.
        """
        end = other.end
        poll: ThreadWait | None = self
        while end is not None and poll is not None and poll.over is not None:
            following = poll.next_poll
            runs_at = None if following is None else following.over
            is_last_run = poll.over == end - 1 and (runs_at is None or runs_at > end)
            if poll.over == end or is_last_run:
                came = poll.came or ()
                return bool(poll.timed_out) and (len(came) == 1 or not any(came))
            poll = following
        return False

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
        after waited for the answer. What belongs to a wait that no look saw is not this one's.
        """
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
    def is_of_loop(self) -> bool:
        """Whether a loop waits for its own wake-up, for a limited time."""
        return self.blocked is not None and self.blocked.is_timeout_of_event_loop

    def did_not_run_in(self, other: "ThreadWait", since: int | None = None) -> bool:
        """Whether the thread did not run while the other one waited, or ``since`` this look."""
        since = first_known(since, other.begun)
        if self.polled_since > since and not self.is_first:
            return self._begins_as_may_end(other)
        over = self.last_repeated_wait.over
        if over is None:
            return True
        other_end = other.end
        if other_end is None or over < first_known(other.earliest_end, other_end):
            return False
        return over <= other_end or not self._polled_in_vain_between(since, other_end)

    def _polled_in_vain_between(self, since: int, look: int) -> bool:
        """Whether a timeout ended a poll after the look ``since`` and before this one, and the
        thread only asked again.
        """
        if self.polls.timeouts and self.begun > since:
            return True
        return self.next_poll is not None and self.over is not None and self.over < look

    def may_have_ended(self, other: "ThreadWait") -> bool:
        """Whether the thread has run again before the wait of the other one was over; the end of
        its process ends all, unless the other one waits again. One that waited until then, and not
        since a later look than the other one, is not what that one waited for.
        """
        last = self.last_repeated_wait
        both = all_known(first_known(last.over_since, last.over), other.end)
        if both is None:
            return False
        if last.was_cut and not other.is_followed_by_wait:
            if other.was_cut or self.begun < other.begun:
                return False
            if self.begun == other.begun and self.process == other.process:
                return False
        over, other_end = both
        return over <= other_end or self._begins_as_may_end(other)

    def _begins_as_may_end(self, other: "ThreadWait") -> bool:
        """Whether this wait began at a look at which that of the other thread may have been over,
        as it was left for later looks: it may wait for this one anew.
        """
        last = other.last_repeated_wait
        if last.over_since is None or last.over is None:
            return False
        return last.over_since <= self.polled_since < last.over

    def _last_turn_before(self, look: int) -> "ThreadWait":
        """The last of these waits, or that of a later one which was over at this look or after it:
        the work before was little.
        """
        wait = self.last_repeated_wait
        while wait.over is not None and wait.over < look and wait.next_turn is not None:
            wait = wait.next_turn.last_repeated_wait
        return wait

    def may_have_woken(self, other: "ThreadWait", work_ns: float) -> bool:
        """Whether the thread may have ended the wait of the other one when its own was over, or
        after that, as it held back so much work; who waited for a CPU ran one look later.
        """
        if other.end is None or not self.may_have_ended(other):
            return False
        over = self._last_turn_before(other.end - 1).over
        if over is None:
            return False
        return over >= other.end - 1 or work_ns >= MIN_WORK_NS

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

    def is_likely_for(self, other: "ThreadWait", since: int, work_ns: float) -> bool:
        """Whether the thread did not run in vain since this look while the other one waited: its
        wait held back so much work.
        """
        return work_ns >= MIN_WORK_NS or self.did_not_run_in(other, since)

"""One wait of a thread, those before it for the same, and the work that it held back."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.aggregation.asking_sleeps import asks_until, note_sleeps
from profiler.aggregation.end_counts import PollEnds
from profiler.aggregation.most_work import MostWork
from profiler.aggregation.thread_wait import EarlierPolls, ThreadWait
from profiler.aggregation.wait_order import (
    did_not_run_in,
    has_timer_that_ended,
    may_have_ended,
    may_have_woken,
)
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.wait_types import BlockedThread, Wait
from tests.looked_run import CONNECTION, DISK, LOCK, NETWORK, POLL, SLEEP

OWN_WAKE_UP = replace(SLEEP, has_timeout=True)

made = partial(ThreadWait, thread=1, process=1, begun=1)


class TestRepeatedPolls:
    @pytest.mark.parametrize("is_first", [True, False])
    def test_who_polls_in_vain_has_not_run_since_its_first_poll(self, *, is_first: bool) -> None:
        """A thread that was not seen before that may have waited for longer."""
        polls = [made(blocked=POLL, begun=begun) for begun in (3, 5, 7)]
        polls[0].is_first = is_first
        polls[0].repeat_without_work(polls[1])
        polls[1].repeat_without_work(polls[2])
        assert did_not_run_in(polls[2], made(blocked=LOCK, begun=3))
        assert did_not_run_in(polls[2], made(blocked=LOCK, begun=2)) is is_first

    def test_who_polls_in_vain_until_a_wait_is_over_has_not_run_in_it(self) -> None:
        polls = [made(blocked=POLL, begun=3, over=5), made(blocked=POLL, begun=5, over=9)]
        polls[0].repeat_without_work(polls[1])
        assert did_not_run_in(polls[1], made(blocked=LOCK, begun=3, over=9))
        assert not did_not_run_in(polls[1], made(blocked=LOCK, begun=3, over=8))

    def test_who_is_new_and_waits_for_longer_has_not_run_meanwhile(self) -> None:
        new = made(blocked=POLL, begun=5, over=9, is_first=True)
        assert did_not_run_in(new, made(blocked=LOCK, begun=3, over=8))

    def test_a_timeout_that_told_others_decides_without_work_of_its_own(self) -> None:
        poll = made(blocked=POLL, timed_out=True, after_ns=0)
        assert not poll.was_ended_by_timer
        poll.has_told = True
        assert poll.was_ended_by_timer

    @pytest.mark.parametrize(
        ("timed_out", "after_ms", "held_back_ms"),
        [(True, 50, 50), (False, 50, 1), (True, 0.5, 1)],
        ids=["its timeout", "something came", "no work"],
    )
    def test_the_timeout_before_the_work_says_what_all_polls_held_back(
        self, *, timed_out: bool, after_ms: float, held_back_ms: float
    ) -> None:
        first = made(blocked=POLL)
        last = made(blocked=POLL, begun=2, run_ns=NS_PER_MS, timed_out=timed_out)
        first.repeat_after_work(last)
        last.after_ns = round(after_ms * NS_PER_MS)
        assert first.held_back_work_ns == held_back_ms * NS_PER_MS + 1

    def test_a_later_poll_may_be_the_one_that_ended_as_an_answer_came(self) -> None:
        first = made(blocked=POLL, over=3, timed_out=True, came=(False,))
        second = made(blocked=POLL, begun=3, over=6, timed_out=True, came=(False,))
        first.repeat_without_work(second)
        assert has_timer_that_ended(first, made(blocked=NETWORK, over=6))
        assert not has_timer_that_ended(first, made(blocked=NETWORK, over=9))

    @pytest.mark.parametrize(
        ("turns", "timeouts", "after_ms", "is_last", "is_unclear"),
        [
            (0, 0, 2, False, True),
            (1, 1, 2, False, True),
            (0, 1, 2, False, False),
            (1, 0, 2, False, False),
            (0, 0, 0.5, False, False),
            (0, 0, 2, True, False),
        ],
    )
    def test_what_ended_the_poll_before_its_work_is_not_known(
        self, turns: int, timeouts: int, after_ms: float, *, is_last: bool, is_unclear: bool
    ) -> None:
        """It is known if one of both ended more of the polls before, and little if no work
        followed.
        """
        poll = made(
            blocked=POLL, timed_out=None, polls=EarlierPolls(0, turns, timeouts), is_last=is_last
        )
        poll.after_ns = round(after_ms * NS_PER_MS)
        assert poll.is_end_unclear is is_unclear

    @pytest.mark.parametrize(
        ("owes", "came", "is_timer"),
        [(False, True, True), (True, True, False), (True, False, True)],
        ids=["a row", "an answer", "an answer to others"],
    )
    def test_an_answer_that_was_owed_ended_the_poll_if_its_timer_may_have(
        self, *, owes: bool, came: bool, is_timer: bool
    ) -> None:
        """The timer of Node's collector ends a poll now and then, in which no row did before."""
        other, mine = CONNECTION, replace(CONNECTION, owes=owes)
        poll = made(
            blocked=replace(POLL, connections=(other, mine)),
            came=(True, came),
            timed_out=None,
            polls=EarlierPolls(0, 1, 0),
            after_ns=4 * NS_PER_MS,
        )
        assert poll.was_ended_by_timer is is_timer


class TestPollEnds:
    @pytest.mark.parametrize(
        ("ends", "are_arrivals", "part"),
        [
            (PollEnds(), False, None),
            (PollEnds(timeouts=2), False, None),
            (PollEnds(arrivals=1), True, None),
            (PollEnds(timeouts=1, arrivals=3), False, 0.25),
            (PollEnds(timeouts=1, arrivals=4), True, None),
        ],
        ids=["none yet", "timers", "arrivals", "both", "hardly a timer"],
    )
    def test_timers_have_a_part_of_those_that_arrivals_end_too(
        self, ends: PollEnds, *, are_arrivals: bool, part: float | None
    ) -> None:
        assert ends.are_arrivals is are_arrivals
        assert ends.part_of_timeouts == part

    @pytest.mark.parametrize(
        ("known", "counted"),
        [
            ({"timed_out": True}, (1, 0)),
            ({"timed_out": False, "came": (True,)}, (0, 1)),
            ({"timed_out": False, "came": (False,)}, (0, 0)),
            ({"timed_out": None, "came": (True,)}, (0, 0)),
            ({"timed_out": True, "after_ns": 1}, (0, 0)),
            ({"timed_out": True, "is_known": False}, (0, 0)),
        ],
        ids=["timer", "came", "something else", "either", "little work", "not known yet"],
    )
    def test_only_certain_ends_with_work_count(
        self, known: dict[str, Any], counted: tuple[int, int]
    ) -> None:
        ends = PollEnds()
        usual: dict[str, Any] = {"blocked": POLL, "is_known": True, "after_ns": 2 * NS_PER_MS}
        made(poll_ends=ends, **{**usual, **known}).count_poll_end()
        assert (ends.timeouts, ends.arrivals) == counted

    @pytest.mark.parametrize(
        ("ends", "is_timer"), [(PollEnds(), True), (PollEnds(1, 1), False), (PollEnds(0, 1), False)]
    )
    def test_what_ended_other_polls_says_more_than_what_came_in_vain(
        self, ends: PollEnds, *, is_timer: bool
    ) -> None:
        poll = made(blocked=POLL, timed_out=None, after_ns=2 * NS_PER_MS, poll_ends=ends)
        poll.polls = EarlierPolls(turns=1)
        assert poll.was_ended_by_timer is is_timer

    @pytest.mark.parametrize(
        ("ends", "is_unclear"),
        [(PollEnds(), True), (PollEnds(1, 1), True), (PollEnds(0, 1), False)],
    )
    def test_an_end_is_unclear_unless_hardly_a_timer_ends_such_polls(
        self, ends: PollEnds, *, is_unclear: bool
    ) -> None:
        poll = made(blocked=POLL, timed_out=None, after_ns=2 * NS_PER_MS, poll_ends=ends)
        assert poll.is_end_unclear is is_unclear


class TestHeldBackWork:
    def test_a_loop_that_asks_in_vain_has_hardly_worked_and_a_client_has(self) -> None:
        known = partial(made, polls=EarlierPolls(timeouts=2), before_ns=5 * NS_PER_MS)
        assert known(blocked=OWN_WAKE_UP).held_back_work_ns == 1
        assert known(blocked=POLL).held_back_work_ns == 5 * NS_PER_MS + 1

    def test_the_timeout_of_a_loop_that_was_woken_held_back_no_less_than_others(self) -> None:
        known = partial(made, blocked=OWN_WAKE_UP, before_ns=5 * NS_PER_MS, after_ns=NS_PER_MS)
        assert known().held_back_work_ns == NS_PER_MS + 1
        assert known(was_woken=True).held_back_work_ns == 5 * NS_PER_MS + 1

    def test_sleeps_in_which_a_thread_asks_begin_after_its_wait_for_something_else(self) -> None:
        asked, first, last = made(blocked=NETWORK), made(blocked=SLEEP), made(blocked=SLEEP)
        last.slices = b"100"
        assert note_sleeps(asked, first) is None
        assert note_sleeps(first, last) is first
        assert [wait.is_asking for wait in (asked, first, last)] == [False, True, True]

    @pytest.mark.parametrize(
        ("before", "after", "asks"),
        [(SLEEP, SLEEP, True), (SLEEP, DISK, False), (DISK, SLEEP, False)],
    )
    def test_only_who_sleeps_before_and_after_asks_again_and_again(
        self, before: BlockedThread, after: BlockedThread, *, asks: bool
    ) -> None:
        first, last = made(blocked=before), made(blocked=after, begun=2, slices=b"100")
        assert asks_until(first, last) is asks


class TestLeftBehind:
    @pytest.mark.parametrize(
        ("known", "is_left_behind"),
        [
            ({}, True),
            ({"over": 3, "was_cut": True}, True),
            ({"over": 3}, False),
            ({"after_ns": 1}, False),
            ({"blocked": replace(LOCK, until_ns=9)}, False),
            ({"blocked": DISK}, False),
            ({"blocked": None}, False),
            ({"thread": 2}, False),
            ({"begun": 3}, False),
            ({"before_ns": 6 * NS_PER_MS}, False),
        ],
        ids=[
            "waits on",
            "until the end of the process",
            "woken",
            "worked",
            "for a time",
            "for a disk",
            "can run",
            "did that work itself",
            "began later",
            "did more",
        ],
    )
    def test_who_is_not_woken_while_another_one_does_as_much_held_nothing_back(
        self, known: dict[str, Any], *, is_left_behind: bool
    ) -> None:
        most_work = MostWork()
        most_work.add(5 * NS_PER_MS, thread=2, begun=2)
        for _ in range(30):
            most_work.add(1, thread=2, begun=2)
        usual: dict[str, Any] = {
            "thread": 1,
            "begun": 1,
            "blocked": LOCK,
            "before_ns": 5 * NS_PER_MS,
        }
        wait = ThreadWait(process=1, most_work=most_work, **{**usual, **known})
        assert (wait.held_back_work_ns == 1) is is_left_behind


class TestEnds:
    def test_a_wait_like_one_that_was_woken_was_so_if_nobody_saw_its_end(self) -> None:
        timed = BlockedThread(wait=Wait("sleep"), helpers="threads", until_ns=9)
        assert made(blocked=timed, follows_woken=True).is_woken
        assert not made(blocked=timed, follows_woken=True, is_end_seen=True).is_woken

    def test_the_end_of_the_process_ended_the_waits_of_all_its_threads(self) -> None:
        cut = partial(made, is_last=True, was_cut=True, over=9)
        bystander = cut(blocked=SLEEP, begun=5)
        assert not may_have_ended(bystander, cut(blocked=LOCK, begun=4))
        assert may_have_ended(bystander, made(blocked=LOCK, begun=4, over=9))
        assert not may_have_ended(bystander, made(blocked=LOCK, begun=5, over=9))

    def test_what_follows_the_last_wait_is_no_wait(self) -> None:
        ended = partial(made, blocked=LOCK, after_ns=NS_PER_MS, over=9)
        assert ended().is_followed_by_wait
        assert not ended(is_last=True).is_followed_by_wait

    @pytest.mark.parametrize(
        ("over", "work_ns", "may"),
        [(7, 0, True), (6, 0, True), (5, 0, False), (5, NS_PER_MS, True), (8, NS_PER_MS, False)],
    )
    def test_who_woke_a_thread_ran_with_it_or_one_look_before_or_worked_first(
        self, over: int, work_ns: int, *, may: bool
    ) -> None:
        waker = made(blocked=SLEEP, over=over)
        assert may_have_woken(waker, made(blocked=LOCK, over=7), work_ns) is may

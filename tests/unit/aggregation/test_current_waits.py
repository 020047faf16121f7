"""The waits of all threads of a run, look by look."""

from collections.abc import Mapping

import pytest
from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.changed_waits import ChangedWaits
from profiler.aggregation.current_waits import ThreadWaits
from profiler.aggregation.end_counts import EndCounts
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.look import ProcessSeen, ThreadSeen, ThreadsLook
from profiler.readers.linux.thread_counters import ThreadTimeGrowth
from profiler.readers.linux.wait_types import BlockedThread
from tests.looked_run import CHILD, LISTENS, LOCK, NETWORK, POLL, SLEEP, TIMED_FUTEX

_ALONE = {1: ProcessSeen(0, 0)}
OWN_WAKE_UP = replace(SLEEP, has_timeout=True, until_ns=1)


class Ran(Struct, frozen=True):
    """How long a thread ran before a look, and what it waits for then."""

    blocked: BlockedThread
    run_ms: float = 2
    came: tuple[bool | None, ...] = ()
    timed_out: bool | None = False
    was_woken: bool = False


class Looks:
    """The looks at one process."""

    def __init__(self) -> None:
        self.waits = ThreadWaits()

    def add(
        self, ran: Mapping[int, Ran], processes: Mapping[int, ProcessSeen] = _ALONE
    ) -> ChangedWaits:
        growth = [
            ThreadTimeGrowth(round(each.run_ms * NS_PER_MS), 0, thread=thread, process=1)
            for thread, each in ran.items()
        ]
        seen = [
            ThreadSeen(thread, 1, each.blocked, each.came, each.was_woken, each.timed_out)
            for thread, each in ran.items()
        ]
        return self.waits.add_look(
            ThreadsLook(growth=growth, seen=seen, processes=processes, sees_calls=True)
        )


def test_who_may_have_woken_a_thread_of_a_pool_ran_before_the_same_look_or_the_one_before() -> None:
    looks = Looks()
    looks.add({1: Ran(LOCK), 2: Ran(LISTENS), 3: Ran(LISTENS), 4: Ran(LISTENS)})
    looks.add({4: Ran(LISTENS)})
    looks.add({2: Ran(LISTENS)})
    over = {wait.thread: wait for wait in looks.add({1: Ran(LOCK), 3: Ran(LISTENS)}).over}
    assert {wait.thread for wait in over[1].enders} == {2, 3}


def test_what_children_used_that_their_parent_has_waited_for_held_it_back() -> None:
    looks = Looks()
    looks.add({1: Ran(CHILD)})
    reaped = {1: ProcessSeen(0, 50 * NS_PER_MS)}
    (wait,) = looks.add({1: Ran(SLEEP)}, reaped).over
    assert wait.helped_ns == 50 * NS_PER_MS


def test_what_children_used_in_the_wait_for_them_followed_the_wait_before() -> None:
    looks = Looks()
    (asked,) = looks.add({1: Ran(NETWORK)}).begun
    assert not looks.add({1: Ran(CHILD)}).known
    reaped = {1: ProcessSeen(0, 50 * NS_PER_MS)}
    assert looks.add({1: Ran(SLEEP)}, reaped).known[0] is asked
    assert asked.after_ns == 52 * NS_PER_MS


def test_children_that_have_gone_unreaped_used_nothing() -> None:
    looks = Looks()
    looks.add({1: Ran(CHILD)}, {**_ALONE, 2: ProcessSeen(1, 50 * NS_PER_MS)})
    (wait,) = looks.add({1: Ran(SLEEP)}).over
    assert wait.helped_ns == 0


def test_processes_that_seem_to_be_each_others_children_are_counted_once() -> None:
    """The id of a parent that has ended was given anew while all processes were read."""
    looks = Looks()
    circle = {1: ProcessSeen(2, 0), 2: ProcessSeen(1, 5)}
    looks.add({1: Ran(CHILD)}, circle)
    (wait,) = looks.add({1: Ran(SLEEP)}, {**circle, 2: ProcessSeen(1, 9)}).over
    assert wait.helped_ns == 4


@pytest.mark.parametrize(
    ("last", "was_for_timer"),
    [
        (Ran(SLEEP, came=(True,)), False),
        (Ran(SLEEP, came=(True,), timed_out=None), True),
        (Ran(SLEEP, 0.5, came=(True,)), True),
    ],
    ids=["something came", "nobody knows", "no work followed"],
)
def test_the_last_wait_of_a_loop_is_for_a_timer_if_the_last_known_one_was(
    last: Ran, *, was_for_timer: bool
) -> None:
    looks = Looks()
    for _ in range(3):
        looks.add({1: Ran(POLL, came=(False,), timed_out=True)})
    looks.add({1: last})
    (begun,) = looks.add({1: Ran(POLL)}).begun
    assert begun.was_for_timer is was_for_timer


def test_only_sleeps_since_a_thread_waited_for_something_else_but_threads_count() -> None:
    """A worker that waits for a lock in between does not do so for its work."""
    looks = Looks()
    for blocked in (SLEEP, SLEEP, NETWORK, SLEEP, LOCK):
        looks.add({1: Ran(blocked)})
    of_worker = [wait.is_of_worker for _ in range(6) for wait in looks.add({1: Ran(SLEEP)}).begun]
    assert of_worker == [True, True, True, True, False, False]


def test_timers_that_others_ended_and_threads_that_hardly_worked_are_no_ends() -> None:
    looks = Looks()
    looks.add({1: Ran(LOCK), 2: Ran(TIMED_FUTEX), 3: Ran(NETWORK)})
    looks.add({1: Ran(LOCK, 0.1), 3: Ran(NETWORK)})
    over = {wait.thread: wait for wait in looks.add({1: Ran(LOCK, 0.1), 3: Ran(NETWORK)}).over}
    assert over[3].end_counts == EndCounts(2, 1)


def test_a_wait_that_changes_without_a_run_was_not_woken_and_follows_the_same_work() -> None:
    looks = Looks()
    looks.add({1: Ran(OWN_WAKE_UP, 5)})
    change = looks.add({1: Ran(SLEEP, 0, was_woken=True)})
    assert not change.over[0].was_woken
    assert change.begun[0].before_ns == 5 * NS_PER_MS


@pytest.mark.parametrize(
    ("following", "follows_woken"),
    [(Ran(OWN_WAKE_UP, was_woken=True), True), (Ran(SLEEP, was_woken=True), False)],
)
def test_only_a_wait_for_the_same_follows_one_that_was_woken(
    following: Ran, *, follows_woken: bool
) -> None:
    looks = Looks()
    looks.add({1: Ran(OWN_WAKE_UP)})
    change = looks.add({1: following})
    assert change.over[0].was_woken
    assert change.begun[0].follows_woken is follows_woken


MONITOR = replace(TIMED_FUTEX, until_ns=1)  # of Java


@pytest.mark.parametrize(
    ("first", "following", "asks_again"),
    [
        (Ran(MONITOR), Ran(MONITOR, 0.05), True),
        (Ran(MONITOR), Ran(MONITOR, 0.5), False),
        (Ran(MONITOR, 0.5), Ran(MONITOR, 0.05), False),
        (Ran(MONITOR), Ran(MONITOR, 0.05, was_woken=True), False),
        (Ran(MONITOR), Ran(NETWORK, 0.05), False),
        (Ran(replace(LOCK, until_ns=1)), Ran(replace(LOCK, until_ns=1), 0.05), False),
        (Ran(replace(SLEEP, until_ns=1)), Ran(replace(SLEEP, until_ns=1), 0.05), False),
    ],
    ids=["asks", "works", "had no work", "woken", "something else", "a lock", "a sleep"],
)
def test_who_works_for_other_threads_asks_again_and_again_whether_it_may_go_on(
    first: Ran, following: Ran, *, asks_again: bool
) -> None:
    looks = Looks()
    looks.add({1: first})
    (over,) = looks.add({1: following}).over
    assert (over.next_poll is not None) is asks_again


OTHER_POLL = replace(POLL, connections=(replace(POLL.connections[0], stream=b"2"),))


@pytest.mark.parametrize(
    ("following", "goes_on"),
    [
        (Ran(POLL, 2, came=(True,)), True),
        (Ran(POLL, 4, came=(True,)), False),
        (Ran(POLL, 2, came=(False,)), False),
        (Ran(POLL, 0.5, came=(False,)), True),
        (Ran(OTHER_POLL, 0.5, came=(False,)), False),
    ],
)
def test_a_loop_goes_on_waiting_after_little_work_with_what_came_and_hardly_any_without(
    following: Ran, *, goes_on: bool
) -> None:
    looks = Looks()
    looks.add({1: Ran(POLL)})
    (over,) = looks.add({1: following}).over
    assert (over.repeated is not None) is goes_on


def test_who_polls_for_rows_waits_for_them_though_nothing_came_in_its_last_poll() -> None:
    """The present wait of which nobody knows the end: a row came before these polls."""
    looks = Looks()
    looks.add({1: Ran(POLL)})
    for polls in (Ran(POLL, 9, came=(True,)), Ran(POLL, 0.05, came=(False,))):
        (begun,) = looks.add({1: polls}).begun
        assert begun.had_come


SERVED = replace(POLL, connections=(replace(POLL.connections[0], stream=b"1"),))
ASKS = replace(SERVED, connections=(replace(SERVED.connections[0], owes=True),))


@pytest.mark.parametrize(
    ("answer", "after_ms"),
    [(Ran(SERVED, 5, came=(True,)), 5.5), (Ran(SERVED, 5, came=(False,), timed_out=True), 0.5)],
    ids=["the answer came", "given up"],
)
def test_the_work_with_the_answer_followed_the_sleep_after_which_a_loop_asked(
    answer: Ran, after_ms: float
) -> None:
    looks = Looks()
    (slept,) = looks.add({1: Ran(SERVED)}).begun
    change = looks.add({1: Ran(ASKS, 0.5, came=(False,), timed_out=True)})
    assert change.over == [slept]
    assert slept not in change.known
    assert slept in looks.add({1: answer}).known
    assert slept.after_ns == after_ms * NS_PER_MS


@pytest.mark.parametrize(
    ("following", "is_known", "goes_on"),
    [
        (Ran(ASKS, 0.5, came=(False,), timed_out=True), False, False),
        (Ran(ASKS, 5, came=(False,), timed_out=True), True, False),
        (Ran(ASKS, 0.5, came=(True,), timed_out=True), False, True),
    ],
    ids=["only asks", "works", "something came"],
)
def test_a_loop_only_asks_after_its_sleep_if_it_does_not_work_and_nothing_came(
    following: Ran, *, is_known: bool, goes_on: bool
) -> None:
    looks = Looks()
    looks.add({1: Ran(SERVED)})
    change = looks.add({1: following})
    assert (change.over == change.known) is is_known
    assert (change.over[0].next_turn is not None) is goes_on

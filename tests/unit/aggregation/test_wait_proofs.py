"""What proves what ended a wait of a thread."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.aggregation.awaited_events import (
    ANY_CONNECTION,
    END_OF_CHILD,
    TIMEOUT_OF_LOOP,
    AwaitedEvents,
    Event,
    EventCounts,
)
from profiler.aggregation.end_counts import TimedEnds
from profiler.aggregation.thread_wait import ThreadWait
from profiler.aggregation.wait_proofs import (
    has_slept,
    is_beside_arrivals,
    is_for_children,
    is_told_as_due,
    is_told_of_timeouts,
)
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.wait_types import BlockedThread
from tests.looked_run import LOCK, NETWORK, SLEEP, TIMED_FUTEX

TIMED = replace(TIMED_FUTEX, until_ns=1)
OWN_WAKE_UP = replace(SLEEP, has_timeout=True, until_ns=1)

made = partial(ThreadWait, thread=1, process=1, begun=1)


def awaited(event: Event, *counts: int) -> AwaitedEvents:
    return AwaitedEvents({event: EventCounts(*counts)})


ARRIVALS = awaited(ANY_CONNECTION, 8, 8, 16, 0)
BY_ARRIVAL: dict[str, Any] = {"awaited": ARRIVALS, "ended_with": (ANY_CONNECTION,)}


class TestHasSlept:
    @pytest.mark.parametrize(
        ("known", "slept"),
        [
            ({}, True),
            ({"blocked": LOCK}, False),
            ({"blocked": replace(LOCK, until_ns=1)}, False),
            ({"blocked": TIMED_FUTEX}, False),
            ({"blocked": OWN_WAKE_UP}, False),
            ({"was_woken": True}, False),
            ({"is_end_seen": False}, False),
            ({"is_last": True}, False),
            ({"after_ns": NS_PER_MS // 2}, False),
            ({"after_ns": None}, False),
        ],
        ids=[
            "work followed",
            "lock",
            "lock for a time",
            "unknown time",
            "loop",
            "woken",
            "end not seen",
            "thread ended",
            "little work",
            "work unknown",
        ],
    )
    def test_work_that_followed_its_timeout_proves_it(
        self, known: dict[str, Any], *, slept: bool
    ) -> None:
        wait = {"blocked": TIMED, "is_end_seen": True, "after_ns": 2 * NS_PER_MS, **known}
        assert has_slept(made(**wait)) is slept

    @pytest.mark.parametrize(
        ("known", "slept"),
        [
            ({"is_of_asker": True}, False),
            (BY_ARRIVAL, False),
            ({"was_due": True, "is_of_asker": True}, True),
            ({"was_due": True, **BY_ARRIVAL}, True),
            ({"was_due": True, "may_be_told": True, **BY_ARRIVAL}, False),
            ({"was_due": True, "may_be_told": True}, True),
        ],
        ids=["asker", "told", "due", "due, and told before", "told as due", "nothing awaited"],
    )
    def test_who_is_told_or_asks_again_has_slept_only_if_work_began_as_it_was_due(
        self, known: dict[str, Any], *, slept: bool
    ) -> None:
        wait = made(blocked=TIMED, is_end_seen=True, after_ns=2 * NS_PER_MS, **known)
        assert has_slept(wait) is slept

    @pytest.mark.parametrize(
        ("ends", "after_ns", "slept"),
        [
            (TimedEnds(due=4, woken=1), 2 * NS_PER_MS, True),
            (TimedEnds(due=3, woken=1), 2 * NS_PER_MS, False),
            (TimedEnds(due=4, woken=1), None, True),
            (TimedEnds(due=4, woken=1), NS_PER_MS // 2, False),
        ],
        ids=["for times", "also for others", "its last wait", "little work"],
    )
    def test_who_always_waits_for_times_has_slept_also_if_something_came(
        self, ends: TimedEnds, after_ns: int | None, *, slept: bool
    ) -> None:
        wait = made(
            blocked=TIMED, is_end_seen=True, after_ns=after_ns, timed_ends=ends, **BY_ARRIVAL
        )
        assert has_slept(wait) is slept


class TestAwaitedEvents:
    @pytest.mark.parametrize("may_be_told", [True, False])
    def test_who_waits_for_arrivals_is_told_as_due_if_something_may_have_come(
        self, *, may_be_told: bool
    ) -> None:
        wait = partial(made, blocked=TIMED, after_ns=1, may_be_told=may_be_told)
        assert is_told_as_due(wait(**BY_ARRIVAL)) is may_be_told
        assert not is_told_as_due(wait())

    @pytest.mark.parametrize(("ended", "expected"), [(6, True), (3, False)])
    def test_ends_of_children_must_end_most_waits(self, ended: int, *, expected: bool) -> None:
        wait = made(blocked=LOCK, awaited=awaited(END_OF_CHILD, 8, ended, 16, 1))
        assert is_for_children(wait) is expected
        assert not is_for_children(made(blocked=LOCK))

    @pytest.mark.parametrize(("ended", "expected"), [(3, True), (8, False)])
    def test_what_comes_in_vain_is_for_others(self, ended: int, *, expected: bool) -> None:
        wait = made(blocked=LOCK, awaited=awaited(ANY_CONNECTION, 8, ended, 16, 4))
        assert is_beside_arrivals(wait) is expected
        assert not is_beside_arrivals(made(blocked=LOCK))

    @pytest.mark.parametrize(
        ("blocked", "ended", "expected"),
        [(LOCK, 8, True), (LOCK, 3, False), (TIMED, 8, False), (NETWORK, 8, False)],
        ids=["told", "seldom", "may time out itself", "waits for no thread"],
    )
    def test_who_waits_for_any_thread_without_a_time_may_be_told_of_timeouts(
        self, blocked: BlockedThread, ended: int, *, expected: bool
    ) -> None:
        wait = made(blocked=blocked, awaited=awaited(TIMEOUT_OF_LOOP, 8, ended, 16, 0))
        assert is_told_of_timeouts(wait) is expected
        assert not is_told_of_timeouts(made(blocked=blocked))

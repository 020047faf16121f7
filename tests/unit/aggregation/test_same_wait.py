"""Whether two waits of a thread, one after the other, are for the same, or one wait goes on."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.aggregation.same_wait import (
    asks_at_timeout,
    does_wait_go_on,
    is_answer_still_owed,
    is_asked_again,
)
from profiler.aggregation.thread_wait import MIN_WORK_NS, ThreadWait
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.wait_types import BlockedThread, Connection
from tests.looked_run import NETWORK, POLL, SLEEP

SERVER = Connection("10.0.3.9:5432", received_bytes=7, stream=b"server")
ASKED = replace(SERVER, owes=True)
OWN_WAKE_UP = replace(SLEEP, has_timeout=True)

made = partial(ThreadWait, thread=1, process=1, begun=1)


def polls(*connections: Connection) -> BlockedThread:
    return replace(POLL, connections=connections)


@pytest.mark.parametrize(
    ("blocked", "has_told", "goes_on"),
    [(POLL, False, True), (POLL, True, False), (NETWORK, False, False), (SLEEP, False, False)],
    ids=["poll", "its timeout told others", "receives", "sleeps"],
)
def test_only_a_poll_that_has_told_nobody_goes_on_after_little_work(
    blocked: BlockedThread, *, has_told: bool, goes_on: bool
) -> None:
    before = made(blocked=blocked, has_told=has_told)
    assert does_wait_go_on(before, made(blocked=blocked, run_ns=1), MIN_WORK_NS) is goes_on


@pytest.mark.parametrize(("until_ns", "again"), [(1, True), (None, False)])
def test_a_loop_asks_again_only_at_a_timeout_that_is_known(
    until_ns: int | None, *, again: bool
) -> None:
    before = made(blocked=replace(OWN_WAKE_UP, until_ns=until_ns))
    assert is_asked_again(before, made(blocked=before.blocked, run_ns=1)) is again


@pytest.mark.parametrize(
    ("known", "now", "asks"),
    [
        ({}, ASKED, True),
        ({"timed_out": False}, ASKED, False),
        ({}, SERVER, False),
        ({"blocked": polls(ASKED)}, ASKED, False),
        ({"slices": b"1"}, ASKED, True),
        ({"slices": b"0"}, ASKED, False),
        ({"process_ns": -NS_PER_MS}, ASKED, False),
    ],
    ids=[
        *("asks", "something came", "asks nobody", "had asked before", "ran twice", "ran often"),
        "another one may have asked",
    ],
)
def test_a_loop_that_asks_at_its_timeout_has_slept_before(
    known: dict[str, Any], now: Connection, *, asks: bool
) -> None:
    before = made(**{"blocked": polls(SERVER), "timed_out": True, "slices": b"2", **known})
    assert asks_at_timeout(before, made(blocked=polls(now), slices=b"3")) is asks


@pytest.mark.parametrize(
    ("before", "now", "owed"),
    [
        (ASKED, ASKED, True),
        (ASKED, SERVER, False),
        (SERVER, ASKED, False),
        (ASKED, replace(ASKED, received_bytes=8), False),
        (ASKED, replace(ASKED, stream=b"other"), False),
        (replace(ASKED, stream=b""), replace(ASKED, stream=b""), False),
    ],
    ids=["same", "came", "asked now", "asked anew", "another server", "unknown to the kernel"],
)
def test_an_answer_is_owed_still_if_nothing_came_on_its_connection(
    before: Connection, now: Connection, *, owed: bool
) -> None:
    found = is_answer_still_owed(made(blocked=polls(before)), made(blocked=polls(now)))
    assert found is owed

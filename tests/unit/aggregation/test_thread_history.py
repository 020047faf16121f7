"""One thread, followed from look to look."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.aggregation.awaited_events import ANY_CONNECTION, AwaitedEvents, EventCounts
from profiler.aggregation.thread_history import ThreadHistory
from profiler.aggregation.thread_wait import ThreadWait
from profiler.core.timestamps import NS_PER_MS
from tests.looked_run import NETWORK, POLL, SLEEP, TIMED_FUTEX

TOLD: dict[str, Any] = {
    "awaited": AwaitedEvents({ANY_CONNECTION: EventCounts(8, 8, 16, 0)}),
    "may_be_told": True,
}

made = partial(ThreadWait, thread=1, process=1, begun=1, blocked=TIMED_FUTEX)


@pytest.mark.parametrize(
    ("known", "work_ms", "counted"),
    [
        ({"was_due": True}, 2, (1, 0)),
        ({"was_due": False}, 2, (0, 1)),
        ({"was_woken": True}, 2, (0, 1)),
        ({"was_woken": True, "was_due": True}, 2, (0, 1)),
        ({}, 2, None),
        ({"was_due": True}, 0.5, None),
        ({"was_due": True, **TOLD}, 2, None),
    ],
    ids=["due", "before", "woken", "woken and due", "unknown", "no work", "told as due"],
)
def test_only_ends_with_work_and_of_a_known_moment_count(
    known: dict[str, Any], work_ms: float, counted: tuple[int, int] | None
) -> None:
    thread = ThreadHistory(1)
    before, following = made(**known), made(run_ns=round(work_ms * NS_PER_MS))
    thread.count_timed_end(before, following)
    ends = thread.timed_ends
    assert (None if ends is None else (ends.due, ends.woken)) == counted
    assert before.timed_ends is following.timed_ends is ends


def test_polls_for_an_owed_answer_are_counted_for_themselves_and_no_other_waits() -> None:
    thread = ThreadHistory(1)
    owing = replace(POLL, connections=(replace(POLL.connections[0], owes=True),))
    assert thread.poll_ends_of(POLL) is thread.poll_ends_of(POLL)
    assert thread.poll_ends_of(POLL) is not thread.poll_ends_of(owing)
    for blocked in (SLEEP, NETWORK, None):
        assert thread.poll_ends_of(blocked) is None

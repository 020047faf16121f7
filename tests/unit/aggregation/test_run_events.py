"""What happens in the processes of a run, and beside which waits of their threads."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.aggregation.awaited_events import (
    ANY_CONNECTION,
    TIMEOUT_OF_LOOP,
    AwaitedEvents,
    Event,
    EventCounts,
)
from profiler.aggregation.run_events import RunEvents
from profiler.aggregation.thread_history import ThreadHistory
from profiler.aggregation.thread_wait import ThreadWait
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.look import ThreadSeen
from profiler.readers.linux.wait_types import BlockedThread, Connection
from tests.looked_run import DISK, IDLE, LOCK, NETWORK, POLL, SLEEP, TIMED_FUTEX

LOOK = 5
OWN_WAKE_UP = replace(SLEEP, has_timeout=True, until_ns=1)
SERVERS = (
    Connection("10.0.3.9:5432", received_bytes=7, stream=b"rows"),
    Connection("10.0.3.9:6379", received_bytes=7, stream=b"answers"),
    Connection("10.0.3.9:7", received_bytes=7),  # unknown to the kernel
)

made = partial(ThreadWait, process=1, begun=1)
FOR_TIMEOUTS = AwaitedEvents({TIMEOUT_OF_LOOP: EventCounts(8, 8, 16, 0)})


class Process:
    """A process with one thread that may be told, and others."""

    def __init__(self, *others: ThreadWait, told: BlockedThread = LOCK) -> None:
        self.told = made(thread=1, blocked=told, over=LOOK, ended_with=())
        waits = (self.told, *others)
        self.threads = {wait.thread: ThreadHistory(1, last=wait) for wait in waits}
        self.events = RunEvents(self.threads)

    def counted(self, run_ns: int = 2 * NS_PER_MS) -> dict[Event, tuple[int, int]]:
        """At how many ends of the told thread each event happened, of how many."""
        thread = self.threads[1]
        following = made(thread=1, blocked=self.told.blocked, run_ns=run_ns)
        self.events.count_awaited(self.told, following, thread)
        counts = {} if thread.awaited is None else thread.awaited.counts
        return {event: (each.ends_with_event, each.ends) for event, each in counts.items()}


class TestTimeouts:
    @pytest.mark.parametrize(
        ("blocked", "seen", "known", "has_told"),
        [
            (POLL, {"timed_out": True}, {}, True),
            (POLL, {}, {}, False),
            (replace(POLL, until_ns=1), {}, {}, False),
            (TIMED_FUTEX, {"timed_out": True}, {}, False),
            (OWN_WAKE_UP, {}, {}, True),
            (OWN_WAKE_UP, {"was_woken": True}, {}, False),
            (replace(OWN_WAKE_UP, until_ns=None), {}, {}, False),
            (POLL, {"timed_out": True}, {"is_end_seen": True}, False),
            (POLL, {"timed_out": True}, {"over": LOOK - 1}, False),
        ],
        ids=[
            "a poll's",
            "something came",
            "something came in a limited poll",
            "no loop's",
            "that of its own wake-up",
            "woken",
            "unknown time",
            "seen before",
            "one look before",
        ],
    )
    def test_a_loops_timeout_tells_who_waits_for_timeouts(
        self, blocked: BlockedThread, seen: dict[str, Any], known: dict[str, Any], *, has_told: bool
    ) -> None:
        loop = made(**{"thread": 2, "blocked": blocked, "over": LOOK, **known})
        process = Process(loop)
        process.told.awaited = FOR_TIMEOUTS
        process.events.note_timeouts([ThreadSeen(2, 1, SLEEP, **seen)], [process.told], LOOK)
        assert loop.has_told is has_told

    @pytest.mark.parametrize(("over", "counted"), [(LOOK, {TIMEOUT_OF_LOOP: (1, 1)}), (None, {})])
    def test_one_that_has_not_run_since_has_told_nobody(
        self, over: int | None, counted: dict[Event, tuple[int, int]]
    ) -> None:
        process = Process(made(thread=2, blocked=POLL, over=over))
        seen = ThreadSeen(2, 1, SLEEP, timed_out=True)
        process.events.note_timeouts([seen, ThreadSeen(9, 1, SLEEP)], [], LOOK)
        assert process.counted() == counted


class TestArrivals:
    def test_what_came_is_noted_for_all_connections_and_for_each_that_is_known(self) -> None:
        polls = replace(POLL, connections=SERVERS)
        process = Process(made(thread=2, blocked=polls, over=LOOK))
        process.events.note_arrivals([ThreadSeen(2, 1, polls, (True, False, True))], LOOK)
        process.events.note_ends([process.told], LOOK)
        assert process.counted() == {ANY_CONNECTION: (1, 1), b"rows": (1, 1)}

    def test_what_came_to_a_thread_of_which_no_wait_was_seen_is_noted_for_the_process(self) -> None:
        process = Process()
        process.threads[2] = ThreadHistory(1)
        process.events.note_arrivals([ThreadSeen(2, 1, POLL, (True,))], LOOK)
        process.events.note_ends([process.told], LOOK)
        assert process.counted() == {ANY_CONNECTION: (1, 1)}


class TestEnds:
    @pytest.mark.parametrize(
        ("blocked", "is_event"),
        [
            (SLEEP, True),
            (DISK, True),
            (NETWORK, True),
            (IDLE, False),
            (replace(NETWORK, connections=SERVERS), False),
            (OWN_WAKE_UP, False),
            (LOCK, False),
        ],
    )
    def test_who_waited_for_something_certain_may_have_told_others(
        self, blocked: BlockedThread, *, is_event: bool
    ) -> None:
        other = made(thread=2, blocked=blocked, over=LOOK)
        process = Process(other)
        process.events.note_ends([other, process.told], LOOK)
        assert process.counted() == ({2: (1, 1)} if is_event else {})

    @pytest.mark.parametrize("told", [NETWORK, replace(LOCK, helper_thread=2)])
    def test_who_waits_for_no_thread_or_for_one_is_not_told(self, told: BlockedThread) -> None:
        process = Process(told=told)
        process.events.note_end_of_child(1, LOOK)
        process.events.note_ends([process.told], LOOK)
        assert not process.told.ended_with
        assert process.counted() == {}

    @pytest.mark.parametrize(
        ("known", "ends"),
        [
            ({}, (1, 1)),
            ({"was_due": True}, (0, 1)),
            ({"was_due": True, "may_be_told": True}, (1, 1)),
        ],
        ids=["told", "its own timeout", "told as it was due"],
    )
    def test_what_happened_as_its_own_timeout_was_due_did_not_end_its_wait(
        self, known: dict[str, Any], ends: tuple[int, int]
    ) -> None:
        process = Process(told=replace(TIMED_FUTEX, until_ns=1))
        process.events.note_arrivals([ThreadSeen(2, 1, POLL, (True,))], LOOK)
        process.events.note_ends([process.told], LOOK)
        process.told.may_be_told = False
        for name, value in known.items():
            setattr(process.told, name, value)
        assert process.counted() == {ANY_CONNECTION: ends}

    def test_who_did_not_work_then_went_on_waiting(self) -> None:
        process = Process()
        process.events.note_arrivals([ThreadSeen(2, 1, POLL, (True,))], LOOK)
        assert process.counted(run_ns=0) == {ANY_CONNECTION: (0, 0)}

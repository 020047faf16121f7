"""What is known of waits, and who is asked again."""

from profiler.readers.linux.known_waits import KnownWaits
from profiler.readers.linux.process_threads import ProcessThreads
from profiler.readers.linux.thread_counters import (
    FollowedThread,
    ReadingNumberAndTime,
    ThreadFiles,
)
from profiler.readers.linux.wait_types import STOPPED, BlockedThread, Wait
from tests import fakes

FIRST = ReadingNumberAndTime(0, 0)


def process_that_waits(pid: int, blocked: BlockedThread | None) -> ProcessThreads:
    """A process with one thread."""
    thread = FollowedThread(pid, f"/proc/{pid}/task/{pid}", ThreadFiles(), FIRST, blocked=blocked)
    reading = fakes.process(pid, started_ticks=1)
    return ProcessThreads(reading, reading.started_ticks, FIRST, threads={pid: thread})


def lock_held_by(pid: int) -> BlockedThread:
    return BlockedThread(wait=Wait("lock"), helpers="pipe", helper_pids=frozenset({pid}))


def note(waits: KnownWaits, process: ProcessThreads, *, is_same_wait: bool = False) -> None:
    for thread in process.threads.values():
        waits.note(process, thread, is_same_wait=is_same_wait)


def test_who_waits_for_the_lock_of_a_file_is_asked_again_when_its_holder_has_ended() -> None:
    waits = KnownWaits()
    waiting, other = (
        process_that_waits(pid, lock_held_by(held_by)) for pid, held_by in ((7, 8), (9, 5))
    )
    for process in (waiting, other):
        note(waits, process)
    waits.forget(process_that_waits(8, None))
    assert waits.to_ask == {7: waiting}
    assert [thread.is_postponed for thread in waiting.seen] == [True]


def test_who_has_ended_or_waits_no_longer_for_a_lock_is_not_asked_for_its_next_holder() -> None:
    waits = KnownWaits()
    ended = process_that_waits(7, lock_held_by(8))
    goes_on = process_that_waits(9, lock_held_by(8))
    for process in (ended, goes_on):
        note(waits, process)
    waits.forget(ended)
    goes_on.threads[9].blocked = BlockedThread(wait=Wait("sleep"))
    note(waits, goes_on)
    waits.forget(process_that_waits(8, None))
    assert not waits.to_ask


def test_a_wait_is_new_until_its_thread_has_run() -> None:
    waits = KnownWaits()
    sleeping = process_that_waits(7, BlockedThread(wait=Wait("sleep")))
    note(waits, sleeping, is_same_wait=True)
    note(waits, process_that_waits(8, STOPPED))
    assert not waits.new
    note(waits, sleeping)
    (thread,) = sleeping.threads.values()
    assert waits.new == {7: {thread: None}}
    waits.end(thread, 7)
    assert waits.new == {7: {}}


def test_a_thread_can_run_until_it_waits_runs_or_ends() -> None:
    waits = KnownWaits()
    working = process_that_waits(7, None)
    (thread,) = working.threads.values()
    note(waits, working)
    assert waits.able == {thread}
    thread.blocked = BlockedThread(wait=Wait("sleep"))
    note(waits, working)
    assert not waits.able
    thread.blocked = None
    note(waits, working)
    waits.forget_thread(thread, 7)
    assert not waits.able

"""Threads: ticks on a fake clock, and the hand-over of a final reading between real threads."""

import os
import threading
from collections.abc import Callable, Sequence

import pytest

from profiler.core.threads import PeriodicReadingThread, StoppableThread, Waiter, WakeEvent
from profiler.core.timestamps import NEVER_NS, NS_PER_SECOND
from tests.fakes import FakeClock, seconds
from tests.values import present
from tools.waiting import LIMIT_SECONDS


class FakeWaiter(Waiter):
    """Lets the fake clock pass instead of waiting; ``events`` are cut-short waits: (at, True
    after an event).
    """

    def __init__(self, clock: FakeClock, *events: tuple[float, bool]) -> None:
        self._clock = clock
        self._events = list(events)
        self.on_wait: Callable[[], object] = lambda: None

    def wait(self, seconds: float) -> bool:
        assert seconds > 0
        assert threading.current_thread().name == "reader"
        end_ns = self._clock.now_ns + round(seconds * NS_PER_SECOND)
        if self._events and self._events[0][0] * NS_PER_SECOND < end_ns:
            at, is_event = self._events.pop(0)
            self._clock.now_ns = round(at * NS_PER_SECOND)
            self.on_wait()
            return is_event
        self._clock.now_ns = end_ns
        return False

    def wake(self) -> None: ...


def readings(
    *events: tuple[float, bool],
    until: float,
    on_wait: Callable[[PeriodicReadingThread], object] = lambda _: None,
    due: Sequence[float] = (),
    done: list[float] | None = None,
) -> list[tuple[float, bool]]:
    """When a reader read that ends by itself at ``until``, and whether the reading was complete;
    ``done`` gets when it did what is ``due`` between them.
    """
    clock, found, closed = FakeClock(), [], threading.Event()
    waiter = FakeWaiter(clock, *events)

    def read(*, is_complete: bool) -> bool:
        at = clock.now_ns / seconds(1)
        if at < until:
            found.append((at, is_complete))
        return at < until

    left = [seconds(at) for at in due]

    def between() -> float:
        if left and left[0] <= clock.now_ns:
            (done or []).append(left.pop(0) / seconds(1))
        return left[0] if left else NEVER_NS

    reader = PeriodicReadingThread(
        "reader",
        read,
        closed.set,
        waiter=waiter,
        clock=clock,
        interval_ns=seconds(1),
        between=between,
    )
    waiter.on_wait = lambda: on_wait(reader)
    reader.start()
    assert closed.wait(LIMIT_SECONDS)
    return found


def test_the_reading_after_an_event_or_a_request_is_complete_and_the_grid_stays() -> None:
    events = readings((1.5, True), until=4)
    assert events == [(0, False), (1, False), (1.5, True), (2, False), (3, False)]
    # As if another thread requested it while the reader waits; nobody waits for the reading here.
    requested = readings((1.25, False), until=3, on_wait=lambda reader: reader.final_reading(0))
    assert requested == [(0, False), (1, False), (1.25, True), (2, False)]


def test_what_is_due_between_two_readings_is_done_then_and_the_grid_stays() -> None:
    done: list[float] = [0.0]
    events = readings((1.5, True), until=4, due=(0.3, 1.4, 2, 2.9), done=done)
    assert events == [(0, False), (1, False), (1.5, True), (2, False), (3, False)]
    assert done == [0.0, 0.3, 1.4, 2, 2.9]
    woken = readings((0.2, False), until=2, due=(0.3,), done=done)
    assert woken == [(0, False), (0.2, False), (1, False)]


def reader_of(
    read: Callable[..., bool], close: Callable[[], None] = lambda: None
) -> PeriodicReadingThread:
    """A reader that reads again only on request."""
    return PeriodicReadingThread(
        "reader", read, close, waiter=Waiter(), clock=FakeClock(), interval_ns=seconds(600)
    )


def test_a_reading_that_hangs_delays_nothing_and_counts_as_missing() -> None:
    release, called = threading.Event(), threading.Event()
    completed: list[bool] = []

    def read(*, is_complete: bool) -> bool:
        called.set()
        release.wait()
        completed.append(is_complete)
        return True

    reader = reader_of(read)
    reader.start()
    assert called.wait(LIMIT_SECONDS)
    assert not reader.wait_for_first_reading(0.01)
    assert not reader.final_reading(0.01)
    assert not reader.stop(0.01)
    release.set()
    assert reader.stop(LIMIT_SECONDS)
    completed.clear()
    prompt = reader_of(read)  # a final reading cuts its wait short and is waited for
    prompt.start()
    assert prompt.wait_for_first_reading(LIMIT_SECONDS)
    assert prompt.final_reading(LIMIT_SECONDS)
    assert completed == [False, True]
    assert prompt.stop(LIMIT_SECONDS)


def test_a_thread_starts_once_and_not_after_a_stop() -> None:
    started: list[str] = []
    thread = StoppableThread("once", lambda: started.append("a"), lambda: None, FakeClock())
    assert not thread.is_started
    thread.start()
    thread.start()
    assert thread.stop(LIMIT_SECONDS)
    stopped = StoppableThread("never", lambda: started.append("b"), lambda: None, FakeClock())
    assert stopped.stop(LIMIT_SECONDS)
    stopped.start()
    assert started == ["a"]
    assert stopped.is_started is False


def fail_at_the_end(*, is_complete: bool) -> bool:
    if is_complete:
        raise ValueError("two\nlines " + "x" * 1000)
    return True


def test_an_error_in_a_reading_ends_the_thread_and_is_known() -> None:
    closes: list[bool] = []
    reader = reader_of(fail_at_the_end, lambda: closes.append(True))
    reader.start()
    assert reader.wait_for_first_reading(LIMIT_SECONDS)
    assert reader.failure is None
    assert reader.final_reading(LIMIT_SECONDS)
    assert reader.failure is not None, "who waited finds the failure"
    assert reader.stop(LIMIT_SECONDS)
    assert closes == [True]
    assert reader.final_reading(3600), "nobody waits for a thread that has failed"
    assert reader.wait_for_first_reading(3600)
    sentence = reader.failure.sentence("GPU values")
    assert "The collection of GPU values stopped at 2025-" in sentence
    assert "(ValueError: two lines xxx" in sentence
    assert len(sentence) < 400


@pytest.mark.usefixtures("no_threads")
def test_a_thread_that_the_system_does_not_start_has_failed() -> None:
    """A thread that the system does not start has failed and nobody waits for it."""
    reader = reader_of(fail_at_the_end)
    reader.start()
    assert present(reader.failure).reason == "the system starts no further thread"
    assert reader.final_reading(3600)
    assert reader.wait_for_first_reading(3600)
    assert reader.stop(3600)


def test_an_event_that_is_set_after_its_end_reaches_no_other_file() -> None:
    """The thread that waits may have closed it at the same moment."""
    event = WakeEvent()
    number = event.fileno()
    event.close()
    other = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        assert other == number
        event.set()
        event.close()
        with pytest.raises(BlockingIOError):
            os.eventfd_read(other)
    finally:
        os.close(other)

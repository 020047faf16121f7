"""Calls with a deadline, in real threads."""

import threading

import pytest

from profiler.core.background_call import BackgroundCall, RepeatedCall, run_with_timeout
from profiler.core.clock import SystemClock
from profiler.core.timestamps import NS_PER_SECOND
from tests.fakes import FakeClock
from tools.waiting import LIMIT_SECONDS, wait_until


def test_a_call_returns_its_result_or_none_after_the_timeout() -> None:
    assert run_with_timeout(LIMIT_SECONDS, lambda: 5) == 5
    never = threading.Event()
    assert run_with_timeout(0, never.wait) is None
    never.set()
    with pytest.raises(ZeroDivisionError):
        run_with_timeout(LIMIT_SECONDS, lambda: 1 // 0)


def test_the_result_of_a_background_call_can_be_looked_at_without_waiting() -> None:
    may_return = threading.Event()
    call = BackgroundCall(
        lambda: may_return.wait(LIMIT_SECONDS) and threading.current_thread().daemon,
        SystemClock(),
        0,
    )
    assert call.is_over  # its time
    assert call.result_so_far() is None
    assert call.result() is None
    may_return.set()
    wait_until(lambda: call.result_so_far() is not None, "the result")
    assert call.result() is True
    assert (
        BackgroundCall(lambda: threading.Event().wait(0.05), SystemClock(), LIMIT_SECONDS).result()
        is False
    )  # waited for


@pytest.mark.usefixtures("no_threads")
def test_a_call_is_made_at_once_if_no_thread_can_be_started() -> None:
    assert run_with_timeout(LIMIT_SECONDS, lambda: 5) == 5
    call = BackgroundCall(lambda: 6, SystemClock(), 0)
    assert call.is_over
    assert call.result() == 6
    assert call.result_so_far() == 6


def test_a_repeated_call_is_made_until_it_has_a_result() -> None:
    """After the deadline, too, and with pauses."""
    answers = iter([None] * 9 + [7])
    clock = FakeClock()
    started_ns = clock.monotonic_ns()
    call = RepeatedCall(lambda: next(answers), clock, 0)
    wait_until(lambda: not call.is_running, "the result")
    assert call.result() == 7
    pauses = [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert clock.monotonic_ns() - started_ns == sum(pauses) * NS_PER_SECOND


@pytest.mark.usefixtures("no_threads")
def test_a_repeated_call_is_made_once_if_no_thread_can_be_started() -> None:
    calls: list[None] = []
    assert RepeatedCall(lambda: calls.append(None), FakeClock(), 0).result() is None
    assert len(calls) == 1

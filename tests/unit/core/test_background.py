"""Calls in threads of their own, with a deadline."""

import threading

import pytest

from profiler.core.background import BackgroundCall, run_with_timeout
from profiler.core.clock import SystemClock
from tests.waiting import wait_until


def test_a_call_returns_its_result_or_none_after_the_timeout() -> None:
    assert run_with_timeout(10, lambda: 5) == 5
    never = threading.Event()
    assert run_with_timeout(0, never.wait) is None
    never.set()
    with pytest.raises(ZeroDivisionError):
        run_with_timeout(10, lambda: 1 // 0)


def test_the_result_of_a_background_call_can_be_looked_at_without_waiting() -> None:
    may_return = threading.Event()
    call = BackgroundCall(lambda: may_return.wait(30), SystemClock(), 0)
    assert call.is_over  # its time
    assert call.result_so_far() is None
    assert call.result() is None
    may_return.set()
    wait_until(lambda: call.result_so_far() is not None, 10, "the result")
    assert call.result() is True


def test_a_background_call_is_over_when_it_has_returned() -> None:
    may_return = threading.Event()
    call = BackgroundCall(lambda: may_return.wait(30), SystemClock(), 60)
    assert not call.is_over
    may_return.set()
    wait_until(lambda: call.is_over, 10, "the end of the call")
    assert call.result_so_far() is True


@pytest.mark.usefixtures("no_threads")
def test_a_call_is_made_at_once_if_no_thread_can_be_started() -> None:
    assert run_with_timeout(10, lambda: 5) == 5
    call = BackgroundCall(lambda: 6, SystemClock(), 0)
    assert call.is_over
    assert (call.result(), call.result_so_far()) == (6, 6)

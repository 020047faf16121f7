"""Calls in threads of their own, with a deadline."""

import threading

import pytest

from profiler.core.background import run_with_timeout


def test_a_call_returns_its_result_or_none_after_the_timeout() -> None:
    assert run_with_timeout(10, lambda: 5) == 5
    never = threading.Event()
    assert run_with_timeout(0, never.wait) is None
    never.set()
    with pytest.raises(ZeroDivisionError):
        run_with_timeout(10, lambda: 1 // 0)

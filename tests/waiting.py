"""Waits for a condition, with a deadline and a description of what is waited for."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_STEP_SECONDS = 0.02


class WaitTimeoutError(AssertionError):
    """What was waited for did not happen in time; an assertion, so that a test fails and does not err."""


def wait_until(predicate: Callable[[], T | None], seconds: float, what: str) -> T:
    """Return the first truthy answer of `predicate`, or raise when `seconds` have passed.

    `what` completes the sentence "waited N s for …", so that a failure can be read without the code.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise WaitTimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(_STEP_SECONDS)

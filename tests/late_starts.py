"""Threads and processes that begin late, as on a busy machine: a test that passes waits for what it
asks for.

    LATE=threads make test     a thread runs 150 ms after its start
    LATE=starters make test    who starts a thread goes on 100 ms later, so that the thread runs first
    LATE=processes make test   who starts a process goes on 100 ms later
    LATE=waits make test       threads take turns at each wait
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any


def begin_late(what: str) -> None:
    """Until the end of this process. Raises KeyError for an unknown word."""
    _MODES[what]()


def _delay_threads() -> None:
    start = threading.Thread.start

    def start_late(thread: threading.Thread) -> None:
        thread.run = _between(thread.run, before_seconds=0.15)  # type: ignore[method-assign]
        start(thread)

    threading.Thread.start = start_late  # type: ignore[method-assign, assignment]


def _delay_starters() -> None:
    _replace(threading.Thread, "start", after_seconds=0.1)


def _delay_after_processes() -> None:
    _replace(subprocess.Popen, "__init__", after_seconds=0.1)


def _take_turns() -> None:
    sys.setswitchinterval(1e-6)
    _replace(threading.Thread, "join", before_seconds=0.0005)
    for method in ("wait", "set", "clear", "is_set"):
        _replace(threading.Event, method, before_seconds=0.0005, after_seconds=0.0002)


def _replace(owner: type, name: str, **delays: float) -> None:
    setattr(owner, name, _between(getattr(owner, name), **delays))


def _between(
    function: Callable[..., Any], before_seconds: float = 0, after_seconds: float = 0
) -> Callable[..., Any]:
    sleep = time.sleep  # a test may replace it

    @wraps(function)
    def delayed(*args: Any, **named: Any) -> Any:
        sleep(before_seconds)
        result = function(*args, **named)
        sleep(after_seconds)
        return result

    return delayed


_MODES = {
    "threads": _delay_threads,
    "starters": _delay_starters,
    "processes": _delay_after_processes,
    "waits": _take_turns,
}

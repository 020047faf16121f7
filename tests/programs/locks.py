"""Threads of one process that wait for a lock which another one of them holds while it works.

python -m tests.programs.locks SHAPE SECONDS WORK PORT

In all shapes but one, a thread that sleeps beside them has nothing to do with the lock.
"""

import functools
import sys
import threading
import time
from collections.abc import Callable

from tests.programs.phases import (
    compute,
    phase,
    rounds,
    sleep,
    started,
    time_whole,
    write_down,
)
from tests.programs.pools import ask

_WORKERS = 3
_WORK_SECONDS = 0.9
_PIECES = 5
_LITTLE_SECONDS = 0.05
Work = Callable[[float], None]
_compute = functools.partial(compute, kind="python")


def _download(seconds: float) -> None:
    ask(sys.argv[4], seconds, 0.001)


WORKS: dict[str, Work] = {
    "sleep": sleep,
    "network": _download,
    "compute": lambda seconds: _compute(seconds / _WORKERS),
}


def _start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=time_whole, args=(work,))
    thread.start()
    return thread


def _sleep_beside(seconds: float) -> None:
    """A thread that nobody waits for: it sleeps until the end, and does not time itself."""
    threading.Thread(target=time.sleep, args=(seconds + 60,), daemon=True).start()


def _holder(lock: threading.Lock, work: Callable[[], None], until: float) -> threading.Thread:
    """A thread that holds the lock while it works, again and again."""

    def do() -> None:
        while time.monotonic() < until:
            with lock:
                work()
            # Else it would take the lock again before the thread that waits for it.
            with phase("sleep"):
                time.sleep(0.01)

    return _start(do)


def _take_now_and_then(lock: threading.Lock, seconds: float) -> None:
    """The main thread takes the lock for a moment again and again."""
    for _ in rounds(seconds):
        with phase("others"):
            lock.acquire()
        _compute(_LITTLE_SECONDS)
        lock.release()
        with phase("sleep"):
            time.sleep(0.01)


def one_holder(seconds: float, work: Work) -> None:
    """The main thread needs the lock for a moment, which another one holds while it works."""
    lock = threading.Lock()
    holder = _holder(lock, lambda: work(_WORK_SECONDS), time.monotonic() + seconds)
    _take_now_and_then(lock, seconds)
    holder.join()


def in_pieces(seconds: float, work: Work) -> None:
    """The holder works in several pieces, and so runs while it is waited for."""

    def pieces() -> None:
        for _ in range(_PIECES):
            work(_WORK_SECONDS / _PIECES)
            _compute(0.005)

    lock = threading.Lock()
    _sleep_beside(seconds)
    holder = _holder(lock, pieces, time.monotonic() + seconds)
    _take_now_and_then(lock, seconds)
    holder.join()


def in_turns(seconds: float, work: Work) -> None:
    """Threads take turns to hold the lock, and the main thread waits for their end."""
    lock = threading.Lock()
    _sleep_beside(seconds)
    until = time.monotonic() + seconds

    def do() -> None:
        while time.monotonic() < until:
            with lock:
                work(_WORK_SECONDS / _WORKERS)
            _compute(0.02)

    for thread in [_start(do) for _ in range(_WORKERS)]:
        with phase("others"):
            thread.join()


def chain(seconds: float, work: Work) -> None:
    """The main thread waits for a thread that waits for another one's lock."""
    first, second = threading.Lock(), threading.Lock()
    _sleep_beside(seconds)
    until = time.monotonic() + seconds

    def hold_first() -> None:
        while time.monotonic() < until:
            with first, second:
                _compute(0.005)
            with phase("sleep"):
                time.sleep(0.01)

    threads = [_holder(second, lambda: work(_WORK_SECONDS), until), _start(hold_first)]
    for _ in rounds(seconds):
        with phase("others"):
            first.acquire()
        _compute(_LITTLE_SECONDS)
        first.release()
        with phase("sleep"):
            time.sleep(0.01)
    for thread in threads:
        thread.join()


SHAPES: dict[str, Callable[[float, Work], None]] = {
    function.__name__: function for function in (one_holder, in_pieces, in_turns, chain)
}


def main() -> None:
    started()
    time_whole(lambda: SHAPES[sys.argv[1]](float(sys.argv[2]), WORKS[sys.argv[3]]))
    write_down()


if __name__ == "__main__":
    main()

"""Processes that wait for each other by locks in shared memory.

python -m tests.programs.shared_locks PROGRAM SECONDS WHERE WORK [WORK_SECONDS]

WHERE is the port of a server, or the path of a file on a slow disk.
"""

import ctypes
import functools
import mmap
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable

from tests.programs.phases import (
    compute,
    forget,
    phase,
    rounds,
    sleep,
    started,
    time_whole,
    write_down,
)
from tests.programs.pools import ask
from tests.simulation.known_programs import read_disk

_WORKERS = 3
_processes = multiprocessing.get_context("fork")


def _read(seconds: float) -> None:
    with phase("disk"):
        read_disk(seconds)


WORKS: dict[str, Callable[[float], None]] = {
    "sleep": sleep,
    "network": lambda seconds: ask(sys.argv[3], seconds),
    "compute": lambda seconds: compute(seconds / _WORKERS),
    "disk": _read,
}
Work = Callable[[], None]


def _start(work: Work) -> multiprocessing.process.BaseProcess:
    def in_child() -> None:
        forget()
        time_whole(work)
        write_down()

    child = _processes.Process(target=in_child)
    child.start()
    return child


def joinable_queue(seconds: float, work: Work) -> None:
    """The parent waits until all tasks are done."""
    tasks = _processes.JoinableQueue()

    def do() -> None:
        while tasks.get():
            work()
            tasks.task_done()

    children = [_start(do) for _ in range(_WORKERS)]
    for _ in rounds(seconds):
        with phase("python"):
            for _ in children:
                tasks.put("task")
        with phase("others"):
            tasks.join()
        compute(0.1)
    for _ in children:
        tasks.put("")
    for child in children:
        child.join()


def event(seconds: float, work: Work, timeout_seconds: float | None = None) -> None:
    """The parent waits until a child says that it has worked."""
    is_wanted = _processes.Semaphore(0)
    is_over = _processes.Event()
    has_worked = _processes.Event()

    def do() -> None:
        while is_wanted.acquire() and not is_over.is_set():
            work()
            has_worked.set()

    child = _start(do)
    for _ in rounds(seconds):
        has_worked.clear()
        is_wanted.release()
        with phase("others"):
            has_worked.wait(timeout_seconds)
        compute(0.1)
    is_over.set()
    is_wanted.release()
    child.join()


timed_event = functools.partial(event, timeout_seconds=30)


def held_lock(seconds: float, work: Work) -> None:
    """Three processes take turns to hold a lock, and work meanwhile."""
    lock = _processes.Lock()
    end = time.monotonic() + seconds

    def do() -> None:
        while time.monotonic() < end:
            with lock:
                work()
            compute(0.02)

    children = [_start(do) for _ in range(_WORKERS)]
    for child in children:
        with phase("others"):
            child.join()


def semaphore_in_memory(seconds: float, work: Work) -> None:
    """A semaphore of the C library in memory that a child shares."""
    library = ctypes.CDLL(None, use_errno=True)
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    semaphores = [ctypes.byref(ctypes.c_char.from_buffer(memory, 64 * n)) for n in range(2)]
    for each in semaphores:
        library.sem_init(each, 1, 0)
    is_wanted, has_worked = semaphores

    def do() -> None:
        while not library.sem_wait(is_wanted) and not memory[-1]:
            work()
            library.sem_post(has_worked)

    child = _start(do)
    for _ in rounds(seconds):
        library.sem_post(is_wanted)
        with phase("others"):
            library.sem_wait(has_worked)
        compute(0.1)
    memory[-1] = 1
    library.sem_post(is_wanted)
    child.join()


def nobody_releases(seconds: float, _: Work) -> None:
    """Two processes wait for a semaphore that nobody releases in time."""
    semaphore = _processes.Semaphore(0)

    def release(*_: object) -> None:
        semaphore.release()
        semaphore.release()

    def wait() -> None:
        with phase("lock"):
            semaphore.acquire()

    child = _start(wait)
    signal.signal(signal.SIGALRM, release)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    wait()
    with phase("others"):
        child.join()


PROGRAMS: dict[str, Callable[[float, Work], None]] = {
    "joinable_queue": joinable_queue,
    "event": event,
    "timed_event": timed_event,
    "held_lock": held_lock,
    "semaphore_in_memory": semaphore_in_memory,
    "nobody_releases": nobody_releases,
}


def main() -> None:
    started()
    work_seconds = float(sys.argv[5]) if sys.argv[5:] else 0.9
    work = functools.partial(WORKS[sys.argv[4]], work_seconds)
    time_whole(lambda: PROGRAMS[sys.argv[1]](float(sys.argv[2]), work))
    write_down()


if __name__ == "__main__":
    main()

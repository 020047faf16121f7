"""Work that one thread hands to another one: what the first waited for, the run waited for.

python -m tests.programs.handed_on SOURCE SECONDS COMPUTE WAIT PORT [ROW_SECONDS]

A thread of a pool computes for ``COMPUTE`` seconds of CPU time, then asks the source for the next
task, which comes after ``WAIT`` seconds. With ``ROW_SECONDS``, a row comes so often to another
thread, which does nothing with it.
"""

import asyncio
import os
import queue
import sched
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.programs.phases import compute, phase, started, write_down

_LEVELS = 4  # of the wheel of a timer


def _receive_rows(port: str, seconds: str) -> None:
    connection = socket.create_connection(("127.0.0.1", int(port)))
    connection.sendall(f"ROWS {seconds}\n".encode())

    def receive() -> None:
        while connection.recv(1):
            pass

    threading.Thread(target=receive, daemon=True).start()


def _worker(
    seconds: float, compute_seconds: float, kind: str, ask: Callable[[], None]
) -> "tuple[threading.Thread, queue.SimpleQueue[object]]":
    """A thread that computes for each task, and asks for the next one until the time is over."""
    tasks = queue.SimpleQueue[object]()
    end = time.monotonic() + seconds

    def work() -> None:
        while time.monotonic() < end:
            ask()
            with phase(kind):
                tasks.get()
            compute(compute_seconds)

    thread = threading.Thread(target=work, daemon=True)
    return thread, tasks


def selector(
    seconds: float, compute_seconds: float, wait_seconds: float, port: str, *, timeout: float = 0
) -> None:
    """A thread receives what comes on connections; the main thread waits for the end."""
    connection = socket.create_connection(("127.0.0.1", int(port)))
    question = f"{wait_seconds}\n".encode()
    worker, tasks = _worker(
        seconds, compute_seconds, "network", lambda: connection.sendall(question)
    )
    watched = selectors.DefaultSelector()
    watched.register(connection, selectors.EVENT_READ)

    def receive() -> None:
        while True:
            for _ in watched.select(timeout or None):
                tasks.put(connection.recv(1))

    threading.Thread(target=receive, daemon=True).start()
    worker.start()
    worker.join()


def selector_with_timeout(
    seconds: float, compute_seconds: float, wait_seconds: float, port: str
) -> None:
    selector(seconds, compute_seconds, wait_seconds, port, timeout=0.5)


def woken_selector(seconds: float, compute_seconds: float, wait_seconds: float, port: str) -> None:
    """A thread is woken to ask on a kept connection, as that of an HTTP client of Java; between its
    questions, the main thread sleeps.
    """
    connection = socket.create_connection(("127.0.0.1", int(port)))
    woken, waking = socket.socketpair()
    watched = selectors.DefaultSelector()
    for watched_socket in (connection, woken):
        os.set_blocking(watched_socket.fileno(), False)
        watched.register(watched_socket, selectors.EVENT_READ)
    answers, nobody_sets = queue.SimpleQueue[bytes](), threading.Event()

    def receive() -> None:
        while True:
            for key, _ in watched.select(3):
                if key.fileobj is connection:
                    answers.put(connection.recv(1))
                else:
                    connection.sendall(woken.recv(64))

    threading.Thread(target=receive, daemon=True).start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        waking.sendall(f"{wait_seconds}\n".encode())
        with phase("network"):
            answers.get()
        compute(compute_seconds)
        with phase("sleep"):
            nobody_sets.wait(wait_seconds)
        compute(compute_seconds)


def loop(seconds: float, compute_seconds: float, wait_seconds: float, port: str) -> None:
    """An event loop receives, and its pool computes."""

    async def main() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            writer.write(f"{wait_seconds}\n".encode())
            with phase("network"):
                await reader.readexactly(1)
            await asyncio.to_thread(compute, compute_seconds)

    asyncio.run(main())


def timer(seconds: float, compute_seconds: float, wait_seconds: float, _port: str) -> None:
    """A thread sleeps until a task is due, and a thread of a pool computes."""
    due = queue.SimpleQueue[object]()
    worker, tasks = _worker(seconds, compute_seconds, "sleep", lambda: due.put(None))

    def wait() -> None:
        while True:
            due.get()
            time.sleep(wait_seconds)
            tasks.put(None)

    threading.Thread(target=wait, daemon=True).start()
    worker.start()
    worker.join()


def scheduler(seconds: float, compute_seconds: float, wait_seconds: float, _port: str) -> None:
    """The main thread runs a schedule, and hands each task to a pool of four, as a scheduler of
    jobs does.
    """
    end = time.monotonic() + seconds
    schedule = sched.scheduler(time.monotonic, time.sleep)
    is_done = threading.Event()
    with ThreadPoolExecutor(4) as pool:

        def work() -> None:
            compute(compute_seconds)
            is_done.set()

        while time.monotonic() < end:
            is_done.clear()
            with phase("sleep"):
                schedule.enter(wait_seconds, 1, pool.submit, (work,))
                schedule.run()
            is_done.wait()


def wheel(seconds: float, compute_seconds: float, wait_seconds: float, port: str) -> None:
    """A loop looks again and again whether its timer is due, beside a connection that is kept for
    later, as tokio does.
    """
    kept = socket.create_connection(("127.0.0.1", int(port)))
    kept.sendall(b"0\n")
    kept.recv(1)
    watched = selectors.DefaultSelector()
    watched.register(kept, selectors.EVENT_READ)
    end = time.monotonic() + seconds

    def work() -> None:
        while time.monotonic() < end:
            with phase("sleep"):
                due = time.monotonic() + wait_seconds
                while (left := due - time.monotonic()) > 0:
                    watched.select(min(left, wait_seconds / _LEVELS))
            compute(compute_seconds)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


SOURCES: dict[str, Callable[[float, float, float, str], None]] = {
    function.__name__: function
    for function in (
        *(selector, selector_with_timeout, woken_selector),
        *(loop, wheel, timer, scheduler),
    )
}


def main() -> None:
    started()
    seconds, compute_seconds, wait_seconds = map(float, sys.argv[2:5])
    if len(sys.argv) > 6:
        _receive_rows(sys.argv[5], sys.argv[6])
    SOURCES[sys.argv[1]](seconds, compute_seconds, wait_seconds, sys.argv[5])
    write_down()
    os._exit(0)  # the threads would wait for ever


if __name__ == "__main__":
    main()

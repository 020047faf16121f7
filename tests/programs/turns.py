"""Threads and processes that compute and wait in turn, together.

python -m tests.programs.turns PROGRAM SECONDS [ARGUMENT …]
"""

import contextlib
import fcntl
import functools
import http.server
import mmap
import os
import queue
import random
import select
import signal
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence

from tests.programs.phases import compute, forget, phase, run_child, sleep, started, write_down
from tests.simulation.known_programs import read_disk, read_disk_by_ring

_WORK_SECONDS = 0.002  # of a thread of a pool, after each of its waits
_BLOCK = bytes(range(256)) * 64
_READ_BYTES = 120 << 10


def _connect(port: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _ask(connection: socket.socket, seconds: float) -> None:
    """Receive the answer, which comes after this time."""
    with phase("network"):
        connection.sendall(f"{seconds}\n".encode())
        connection.recv(1)


def _in_threads(works: Sequence[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _pool(
    seconds: float,
    wait: Callable[[socket.socket, random.Random], None],
    port: str,
    threads: int = 16,
) -> None:
    """Equal threads, each of which computes for a moment after each wait."""
    end = time.monotonic() + seconds

    def work(number: int) -> None:
        randomness, connection = random.Random(number), _connect(port)
        while time.monotonic() < end:
            wait(connection, randomness)

    _in_threads([functools.partial(work, number) for number in range(threads)])


def pool_of_network_and_sleep(seconds: float, port: str, share: str, threads: str = "16") -> None:
    """Each thread waits for the network for this share of its time, and sleeps for the rest."""
    network_seconds = float(share)

    def wait(connection: socket.socket, randomness: random.Random) -> None:
        whole = randomness.uniform(0.2, 0.6)
        _ask(connection, whole * network_seconds)
        compute(_WORK_SECONDS)
        sleep(whole * (1 - network_seconds))
        compute(_WORK_SECONDS)

    _pool(seconds, wait, port, int(threads))


def pool_of_network_and_disk(seconds: float, port: str, path: str, times: str = "0") -> None:
    """The disk gives a block after some time; each thread waits for the network in between, for so
    many times as long if that is given.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    blocks = os.fstat(descriptor).st_size // _READ_BYTES

    def wait(connection: socket.socket, randomness: random.Random) -> None:
        began = time.monotonic()
        with phase("disk"), mmap.mmap(-1, _READ_BYTES) as buffer:
            os.preadv(descriptor, [buffer], randomness.randrange(blocks) * _READ_BYTES)
        read_seconds = time.monotonic() - began
        compute(_WORK_SECONDS)
        _ask(connection, float(times) * read_seconds or randomness.uniform(0.4, 1.2))
        compute(_WORK_SECONDS)

    _pool(seconds, wait, port)


def pool_of_child_and_network(seconds: float, port: str) -> None:
    """Each of four threads waits for a child that sleeps, and then for a server."""

    def wait(connection: socket.socket, randomness: random.Random) -> None:
        run_child("sleep", "sleep", str(randomness.uniform(0.3, 1.3)))
        compute(_WORK_SECONDS)
        _ask(connection, randomness.uniform(0.1, 0.3))
        compute(_WORK_SECONDS)

    _pool(seconds, wait, port, 4)


def compute_together(seconds: float, compute_seconds: str, sleep_seconds: str) -> None:
    """Two processes compute at the same time, and sleep when both have computed."""
    ready, told = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        forget()
    mine, theirs = (told[0], ready[1]) if pid == 0 else (ready[0], told[1])
    for _ in range(round(seconds / (float(compute_seconds) + float(sleep_seconds)))):
        compute(float(compute_seconds))
        with phase("any"):  # while the other one computes
            os.write(theirs, b".")
            os.read(mine, 1)
        sleep(float(sleep_seconds))
    if pid == 0:
        write_down()
        os._exit(0)
    os.waitpid(pid, 0)


def fetch_and_compress(seconds: float, port: str) -> None:
    """Fetch from a slow server, then compress with two threads, on one CPU."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    end, connection = time.monotonic() + seconds, _connect(port)

    def compress() -> None:
        with phase("any"):
            for _ in range(40):  # zlib releases Python's lock meanwhile
                zlib.compress(_BLOCK * 8, 9)

    while time.monotonic() < end:
        _ask(connection, 0.15)
        _in_threads([compress, compress])


def periods(seconds: float, port: str, period: str, share: str) -> None:
    """In each period of the monotonic clock, wait for a server for a share, and sleep for the
    rest.
    """
    began, connection = time.monotonic(), _connect(port)
    for number in range(round(seconds / float(period))):
        _ask(connection, float(period) * float(share))
        sleep(max(began + (number + 1) * float(period) - time.monotonic(), 0))


def long_poll(seconds: float, port: str) -> None:
    """Ask whether there is work. After two seconds there is none."""
    end, connection = time.monotonic() + seconds, _connect(port)
    while time.monotonic() < end:
        _ask(connection, 2)


def read(seconds: float, _: str) -> None:
    with phase("disk"):
        read_disk(seconds)


def read_by_ring(seconds: float, _: str) -> None:
    with phase("disk"):
        read_disk_by_ring(seconds)


def rows(seconds: float, port: str) -> None:
    """A row of a stream comes every two seconds, and is a little work."""
    end, connection = time.monotonic() + seconds, _connect(port)
    connection.sendall(b"ROWS 2\n")
    while time.monotonic() < end:
        with phase("network"):
            connection.recv(1)
        compute(0.05)


def _ask_again(seconds: float, port: str, answer_seconds: str) -> None:
    end, connection = time.monotonic() + seconds, _connect(port)
    while time.monotonic() < end:
        _ask(connection, float(answer_seconds))
        compute(0.02)


class _TimeIsOverError(Exception):
    pass


def _raise_time_is_over(*_: object) -> None:
    raise _TimeIsOverError


def _serve_nobody(seconds: float, serve: Callable[[], object]) -> None:
    signal.signal(signal.SIGALRM, _raise_time_is_over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    with phase("network"), contextlib.suppress(_TimeIsOverError):
        serve()


def accept_nobody(seconds: float) -> None:
    _serve_nobody(seconds, socket.create_server(("127.0.0.1", 0)).accept)


def serve_nobody(seconds: float) -> None:
    """A web server that looks every half a second whether it shall end."""
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    _serve_nobody(seconds, server.serve_forever)


def serve_by_pool(seconds: float, port: str) -> None:
    """Somebody comes now and then; a thread accepts, and another one of a pool works."""
    end, accepted = time.monotonic() + seconds, queue.SimpleQueue[socket.socket]()

    def work() -> None:
        while time.monotonic() < end:
            with phase("network"):
                connection = accepted.get()
            compute(0.3)
            connection.close()

    worker = threading.Thread(target=work)
    worker.start()
    with socket.create_server(("127.0.0.1", int(port))) as listener:
        while worker.is_alive():
            accepted.put(listener.accept()[0])
            worker.join(0.3)  # not longer than the work: that would be a sleep


def _in_child(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        forget()
        work()
        write_down()
        os._exit(0)
    return pid


def _ask_for_children(seconds: float, work: Callable[[], object], own_seconds: float) -> None:
    """The parent asks again and again whether its child has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _ask_until_end(_in_child(work), 0.05)
        compute(own_seconds)


def _ask_until_end(pid: int, seconds: float) -> None:
    """Ask each time so many seconds have passed whether the child has ended."""
    while not os.waitpid(pid, os.WNOHANG)[0]:
        time.sleep(seconds)


def ask_for_child(seconds: float, port: str) -> None:
    """A child works, and asks a slow server."""

    def work() -> None:
        compute(0.3)
        _ask(_connect(port), 0.9)

    _ask_for_children(seconds, work, 0.05)


def ask_for_idle_child(seconds: float, port: str) -> None:
    """A child asks a slow server; its parent works more."""

    def work() -> None:
        _ask(_connect(port), 0.7)
        compute(0.05)

    _ask_for_children(seconds, work, 0.1)


def _until_told(pid: int) -> None:
    """Wait at a pipe of one's own, as make does for a token, until a signal tells of the child."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    select.select([reading], [], [])
    signal.set_wakeup_fd(-1)
    os.close(reading)
    os.close(writing)
    os.waitpid(pid, 0)


def wait_for_parent(seconds: float, port: str, how: str) -> None:
    """A child runs others by turns; it asks whether they have ended, as GNU parallel does, or is
    told so by a signal.
    """

    def ask_server() -> None:
        compute(0.01)
        _ask(_connect(port), 0.4)

    def run_children() -> None:
        for _ in range(2):
            pid = _in_child(ask_server)
            _ask_until_end(pid, 0.01) if how == "asks" else _until_told(pid)

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        compute(0.3)
        os.waitpid(_in_child(run_children), 0)


def locked_by_child(seconds: float, path: str) -> None:
    """A child holds the lock of a file, and sleeps."""
    end, (reading, writing) = time.monotonic() + seconds, os.pipe()

    def work() -> None:
        with open(path, "w") as file:  # noqa: PTH123  a path of the command line
            fcntl.flock(file, fcntl.LOCK_EX)
            os.write(writing, b".")
            sleep(0.9)

    while time.monotonic() < end:
        compute(0.3)
        pid = _in_child(work)
        os.read(reading, 1)
        with open(path, "w") as file:  # noqa: PTH123
            fcntl.flock(file, fcntl.LOCK_EX)
        os.waitpid(pid, 0)


def wait_for_signal(seconds: float) -> None:
    """Wait for a signal that does not come, for a limited time."""
    end = time.monotonic() + seconds
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    while time.monotonic() < end:
        compute(0.3)
        with phase("sleep"):
            signal.sigtimedwait({signal.SIGUSR1}, 0.9)


def spin(seconds: float) -> None:
    compute(seconds)


PROGRAMS: dict[str, Callable[..., None]] = {
    function.__name__.removeprefix("_"): function
    for function in (
        *(pool_of_network_and_sleep, pool_of_network_and_disk, compute_together),
        pool_of_child_and_network,
        *(
            fetch_and_compress,
            periods,
            long_poll,
            read,
            read_by_ring,
            rows,
            _ask_again,
            accept_nobody,
            serve_nobody,
            serve_by_pool,
            ask_for_child,
            ask_for_idle_child,
            wait_for_parent,
            locked_by_child,
            wait_for_signal,
            spin,
        ),
    )
}


def main() -> None:
    started()
    PROGRAMS[sys.argv[1]](float(sys.argv[2]), *sys.argv[3:])
    write_down()


if __name__ == "__main__":
    main()

"""A thread or process that another one tells when it has slept or asked a server.

python -m tests.programs.told HOW SECONDS PORT
"""

import asyncio
import contextlib
import ctypes
import functools
import itertools
import multiprocessing
import os
import queue
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.programs.phases import (
    FOLDER,
    compute,
    fork_child,
    phase,
    rounds,
    sleep,
    started,
    time_all,
    time_whole,
    write_down,
)
from tests.programs.pools import ask

_WAIT_SECONDS, _WORK_SECONDS = 0.6, 0.1
_LITTLE_SECONDS = 0.03
_ROW_SECONDS, _RARE_ROW_SECONDS = 0.23, 1.0
_ASKING_SECONDS = 0.2
_IN_CREATE = 0x100
_IPC_CREATE = 0o1600
_libc = ctypes.CDLL(None, use_errno=True)
_work = functools.partial(compute, kind="python")
# What another process tells, and at last that nothing more comes.
_ROW, _END = b"row", b"end"


def _told_by_child(
    seconds: float, tell: Callable[[bytes], object], hear: Callable[[], bytes]
) -> None:
    """The child sleeps before each row, and its parent works with it."""

    def produce() -> None:
        for _ in rounds(seconds):
            sleep(_WAIT_SECONDS)
            _work(_LITTLE_SECONDS)
            tell(_ROW)
        tell(_END)

    pid = fork_child(produce)
    told = _ROW
    while told == _ROW:
        with phase("others"):
            told = hear()
        _work(_WORK_SECONDS)
    with phase("others"):
        os.waitpid(pid, 0)


def event(seconds: float, port: str) -> None:
    """A thread tells the main thread by an eventfd that a server has answered."""
    answered, may_ask = os.eventfd(0), os.eventfd(0)
    end = time.monotonic() + seconds

    def produce() -> None:
        time_all()
        while time.monotonic() < end:
            ask(port, _WAIT_SECONDS, _LITTLE_SECONDS)
            os.eventfd_write(answered, 1)
            with phase("others"):
                os.eventfd_read(may_ask)

    thread = threading.Thread(target=produce)
    thread.start()
    while time.monotonic() < end:
        with phase("others"):
            os.eventfd_read(answered)
        _work(_WORK_SECONDS)
        os.eventfd_write(may_ask, 1)
    with phase("others"):
        thread.join()


def _ask_until_told(
    connection: socket.socket, seconds: float, poll: select.poll, received: int
) -> None:
    """Ask for an answer after so long, and wait until another thread tells that it has come."""
    with phase("others"):
        connection.sendall(f"{seconds}\n".encode())
        while not poll.poll(200):
            pass
        os.eventfd_read(received)


def answer_by_event(seconds: float, port: str) -> None:
    """The main thread asks for its wake-up five times a second; another one receives the answers,
    as in a client of gRPC.
    """
    connection = socket.create_connection(("127.0.0.1", int(port)))
    received, poll = os.eventfd(0), select.poll()
    poll.register(received, select.POLLIN)

    def receive() -> None:
        time_all()
        answer = _ROW
        while answer:
            with phase("network"):
                answer = connection.recv(1)
            os.eventfd_write(received, 1)

    thread = threading.Thread(target=receive)
    thread.start()
    for _ in rounds(seconds):
        _ask_until_told(connection, _WAIT_SECONDS, poll, received)
        _work(_WORK_SECONDS)
    connection.shutdown(socket.SHUT_RDWR)
    with phase("others"):
        thread.join()


def answer_to_any_thread(seconds: float, port: str) -> None:
    """As the threads of gRPC, two take turns at the connection, and something else than the answer
    comes now and then.
    """
    connection = socket.create_connection(("127.0.0.1", int(port)))
    received, poll, turn = os.eventfd(0), select.poll(), threading.Lock()
    poll.register(received, select.POLLIN)
    later: list[str] = []

    def receive() -> None:
        time_all()
        answer = _ROW
        while answer:
            with phase("others"):
                turn.acquire()
            with phase("network"):
                answer = connection.recv(1)
            if answer and later:
                connection.sendall(later.pop().encode())
            else:
                os.eventfd_write(received, 1)
            turn.release()

    threads = [threading.Thread(target=receive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for is_early, _ in zip(itertools.cycle((True, False)), rounds(seconds), strict=False):
        first_seconds = _ROW_SECONDS if is_early else _WAIT_SECONDS
        if is_early:
            later.append(f"{_WAIT_SECONDS - _ROW_SECONDS}\n")
        _ask_until_told(connection, first_seconds, poll, received)
        _work(_WORK_SECONDS)
    connection.shutdown(socket.SHUT_RDWR)
    with phase("others"):
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def _beside_rows(port: str, row_seconds: float = _ROW_SECONDS) -> Iterator[None]:
    """Beside a thread that receives rows which have nothing to do with the main thread."""
    connection = socket.create_connection(("127.0.0.1", int(port)))
    connection.sendall(f"ROWS {row_seconds}\n".encode())

    def receive() -> None:
        while connection.recv(1):
            pass

    thread = threading.Thread(target=receive)
    thread.start()
    yield
    connection.shutdown(socket.SHUT_RDWR)
    thread.join()


def _wait_for_time(wait_seconds: Callable[[float], object]) -> None:
    """Ask whether anything is told until a time has come, and work then."""
    with phase("sleep"):
        end = time.monotonic() + _WAIT_SECONDS
        while (left_seconds := end - time.monotonic()) > 0:
            wait_seconds(min(_ASKING_SECONDS, left_seconds))
    _work(_WORK_SECONDS)


def _wait_until_times(seconds: float, port: str, wait_seconds: Callable[[float], object]) -> None:
    """The main thread asks whether it is told anything until its time has come."""
    with _beside_rows(port):
        for _ in rounds(seconds):
            _wait_for_time(wait_seconds)


def time_beside_rows(seconds: float, port: str) -> None:
    """It polls its wake-up."""
    poll = select.poll()
    poll.register(os.eventfd(0), select.POLLIN)
    _wait_until_times(seconds, port, lambda left_seconds: poll.poll(1 + 1000 * left_seconds))


def sleeper_beside_rows(seconds: float, port: str) -> None:
    """A thread that sleeps tells the main thread by a semaphore."""
    may_sleep, has_slept = threading.Semaphore(0), threading.Semaphore(0)
    end = time.monotonic() + seconds

    def rest() -> None:
        time_all()
        while time.monotonic() < end:
            with phase("others"):
                may_sleep.acquire()
            sleep(_WAIT_SECONDS)
            has_slept.release()

    thread = threading.Thread(target=rest)
    with _beside_rows(port, _RARE_ROW_SECONDS):
        thread.start()
        while time.monotonic() < end:
            may_sleep.release()
            with phase("others"):
                has_slept.acquire()
            _work(_WORK_SECONDS)
        may_sleep.release()
        thread.join()


def answers_and_times_beside_rows(seconds: float, port: str) -> None:
    """The main thread polls its wake-up for answers and for its own times, in turns."""
    connection = socket.create_connection(("127.0.0.1", int(port)))
    received = os.eventfd(0)
    poll = select.poll()
    poll.register(received, select.POLLIN)

    def receive() -> None:
        while connection.recv(1):
            os.eventfd_write(received, 1)

    thread = threading.Thread(target=receive)
    thread.start()
    with _beside_rows(port, _RARE_ROW_SECONDS):
        for _ in rounds(seconds):
            with phase("network"):
                connection.sendall(f"{_WAIT_SECONDS}\n".encode())
                while not poll.poll(1000 * _ASKING_SECONDS):
                    pass
                os.eventfd_read(received)
            _work(_WORK_SECONDS)
            _wait_for_time(lambda left_seconds: poll.poll(1 + 1000 * left_seconds))
    connection.shutdown(socket.SHUT_RDWR)
    thread.join()


def signal_of_child(seconds: float, port: str) -> None:
    """A supervisor polls a signalfd until its child, which asks a server, has ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    mask = (ctypes.c_uint64 * 16)(1 << (signal.SIGCHLD - 1))
    descriptor = _libc.signalfd(-1, mask, 0)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    for _ in rounds(seconds):
        pid = fork_child(functools.partial(ask, port, _WAIT_SECONDS, _LITTLE_SECONDS))
        with phase("others"):
            poll.poll()
        os.read(descriptor, 128)
        os.waitpid(pid, 0)
        _work(_WORK_SECONDS)


def _sleep_and_work() -> None:
    sleep(_WAIT_SECONDS)
    _work(_LITTLE_SECONDS)


def _reap_and_work() -> None:
    os.wait()
    _work(_WORK_SECONDS)


def handler_of_signal(seconds: float, _port: str) -> None:
    """The loop of a server to which nobody comes learns by a signal that its child has ended."""

    async def main() -> None:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, ended.set)
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0):
            for _ in rounds(seconds):
                fork_child(_sleep_and_work)
                with phase("others"):
                    await ended.wait()
                ended.clear()
                _reap_and_work()

    asyncio.run(main())


def handler_that_wakes_two(seconds: float, _port: str) -> None:
    """A signal's handler wakes the main thread, which has a child, and one that waits for somebody
    to come, as those of Ruby.
    """
    ended, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(tell)
    listener = socket.create_server(("127.0.0.1", 0))
    is_over = threading.Event()

    def serve() -> None:
        time_all()
        while not is_over.is_set():
            with phase("others"):
                select.select([listener.fileno(), ended], [], [])
            with phase("python"):
                time.sleep(0.001)  # until the other one has read

    thread = threading.Thread(target=serve)
    thread.start()
    for _ in rounds(seconds):
        fork_child(_sleep_and_work)
        with phase("others"):
            select.select([ended], [], [])
        os.read(ended, 1)
        _reap_and_work()
    is_over.set()
    os.write(tell, b".")
    thread.join()


def _watched_folder() -> tuple[int, Callable[[bytes], None]]:
    """The descriptor of a watcher by inotify, and what makes a file that tells it something."""
    folder = Path(os.environ[FOLDER], "files")
    folder.mkdir()
    descriptor: int = _libc.inotify_init1(0)
    _libc.inotify_add_watch(descriptor, bytes(folder), _IN_CREATE)

    def tell(told: bytes) -> None:
        Path(folder, f"{told.decode()}-{time.monotonic_ns()}").touch()

    return descriptor, tell


def _told_by_file(descriptor: int) -> bytes:
    return _END if _END in os.read(descriptor, 4096) else _ROW


def files(seconds: float, _: str) -> None:
    """A watcher waits by inotify for the files of another process."""
    descriptor, tell = _watched_folder()
    _told_by_child(seconds, tell, lambda: _told_by_file(descriptor))


def files_of_thread(seconds: float, _: str) -> None:
    """A thread watches the files of another process until it is stopped, as that of watchdog, and
    hands them to the main thread.
    """
    descriptor, tell = _watched_folder()
    stopped, _tell_to_stop = os.pipe()
    told: queue.Queue[bytes] = queue.Queue()

    def watch() -> None:
        time_all()
        while True:
            with phase("others"):
                select.select([descriptor, stopped], [], [])
            told.put(_told_by_file(descriptor))

    threading.Thread(target=watch, daemon=True).start()
    _told_by_child(seconds, tell, told.get)


def message_queue(seconds: float, _: str) -> None:
    """A queue of POSIX."""
    name = f"/task-profiler-{os.getpid()}".encode()
    descriptor = _libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None)
    _libc.mq_unlink(name)
    buffer = ctypes.create_string_buffer(1 << 16)

    def hear() -> bytes:
        length: int = _libc.mq_receive(descriptor, buffer, len(buffer), None)
        return buffer.raw[:length]

    _told_by_child(seconds, lambda told: _libc.mq_send(descriptor, told, len(told), 0), hear)


def message(seconds: float, _: str) -> None:
    """A queue of System V."""
    number = _libc.msgget(0, _IPC_CREATE)
    buffer = ctypes.create_string_buffer(64)

    def hear() -> bytes:
        _libc.msgrcv(number, buffer, len(_ROW), 0, 0)
        return buffer.raw[8 : 8 + len(_ROW)]

    try:
        _told_by_child(
            seconds,
            lambda told: _libc.msgsnd(number, struct.pack("q3s", 1, told), len(told), 0),
            hear,
        )
    finally:
        _libc.msgctl(number, 0, None)


def semaphore(seconds: float, _: str) -> None:
    """A semaphore of System V; a pipe says which row it was."""
    number = _libc.semget(0, 1, _IPC_CREATE)
    reading, writing = os.pipe()

    def change_by(step: int) -> None:
        _libc.semop(number, struct.pack("HhH", 0, step, 0), 1)

    def tell(told: bytes) -> None:
        os.write(writing, told)
        change_by(1)

    def hear() -> bytes:
        change_by(-1)
        return os.read(reading, len(_ROW))

    try:
        _told_by_child(seconds, tell, hear)
    finally:
        _libc.semctl(number, 0, 0)


def pipe_of_processes(seconds: float, _: str, *, is_duplex: bool = False) -> None:
    """The parent polls for some time, again and again; both processes have both ends of the pipe,
    as of the queues of ``multiprocessing``.
    """
    reader, writer = multiprocessing.Pipe(is_duplex)

    def hear() -> bytes:
        while not reader.poll(0.3):
            pass
        told: bytes = reader.recv()
        return told

    _told_by_child(seconds, writer.send, hear)


def pair_of_processes(seconds: float, port: str) -> None:
    """The same of a socket pair of which the parent does not close its child's end."""
    pipe_of_processes(seconds, port, is_duplex=True)


@contextlib.contextmanager
def _with_heir(seconds: float, port: str) -> Iterator[None]:
    """Beside a child that has all that its parent has open, and tells nothing."""
    pid = fork_child(functools.partial(ask, port, seconds, 0))
    yield
    with phase("others"):
        os.waitpid(pid, 0)


def pipe_of_thread(seconds: float, port: str) -> None:
    """A thread tells the main thread by a pipe."""
    reading, writing = os.pipe()
    end = time.monotonic() + seconds

    def produce() -> None:
        time_all()
        while time.monotonic() < end:
            sleep(_WAIT_SECONDS)
            _work(_LITTLE_SECONDS)
            os.write(writing, b".")
        os.close(writing)

    thread = threading.Thread(target=produce)
    with _with_heir(seconds, port):
        thread.start()
        while thread.is_alive():
            with phase("others"):
                select.select([reading], [], [], 1)
                os.read(reading, 1)
            _work(_WORK_SECONDS)


def loop_with_heir(seconds: float, port: str) -> None:
    """A loop sleeps, and a child has the loop's own wake-up, too."""

    async def main() -> None:
        with _with_heir(seconds, port):
            for _ in rounds(seconds):
                with phase("sleep"):
                    await asyncio.sleep(_WAIT_SECONDS)
                _work(_WORK_SECONDS)

    asyncio.run(main())


def queue_for_a_time(seconds: float, port: str) -> None:
    """The main thread looks into a queue for some time, again and again."""
    answers: queue.Queue[bytes] = queue.Queue()
    end = time.monotonic() + seconds

    def produce() -> None:
        time_all()
        while time.monotonic() < end:
            ask(port, _WAIT_SECONDS, _LITTLE_SECONDS)
            answers.put(_ROW)
        answers.put(_END)

    thread = threading.Thread(target=produce)
    thread.start()
    told = _ROW
    while told == _ROW:
        with phase("others"):
            try:
                told = answers.get(timeout=0.2)
            except queue.Empty:
                continue
        _work(_WORK_SECONDS)
    with phase("others"):
        thread.join()


def pool_for_each_round(seconds: float, port: str) -> None:
    """The threads of a pool end after their tasks; the main thread sleeps in between."""
    for _ in rounds(seconds):
        with ThreadPoolExecutor(3, initializer=time_all) as pool:
            tasks = [pool.submit(ask, port, _WAIT_SECONDS, _LITTLE_SECONDS) for _ in range(3)]
            for task in tasks:
                with phase("others"):
                    task.result()
        _work(_WORK_SECONDS)
        sleep(_WAIT_SECONDS / 2)


PROGRAMS: dict[str, Callable[[float, str], None]] = {
    function.__name__: function
    for function in (
        *(event, answer_by_event, answer_to_any_thread),
        *(time_beside_rows, sleeper_beside_rows),
        answers_and_times_beside_rows,
        *(signal_of_child, handler_of_signal, handler_that_wakes_two),
        *(files, files_of_thread, message_queue, message, semaphore),
        *(pipe_of_processes, pair_of_processes, pipe_of_thread, loop_with_heir),
        *(queue_for_a_time, pool_for_each_round),
    )
}


def main() -> None:
    started()
    time_whole(lambda: PROGRAMS[sys.argv[1]](float(sys.argv[2]), sys.argv[3]))
    write_down()


if __name__ == "__main__":
    main()

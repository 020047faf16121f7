"""Pools, and servers of the run: who hands work on waits for those who do it.

python -m tests.programs.pools PROGRAM SECONDS PORT

All threads are timed all the time: a pool's wait for a CPU between two tasks is part of the truth.
"""

import asyncio
import functools
import multiprocessing
import os
import queue
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
from multiprocessing.pool import ThreadPool
from pathlib import Path

from tests.programs.phases import (
    FOLDER,
    compute,
    forget,
    phase,
    rounds,
    run_child,
    sleep,
    started,
    time_all,
    time_whole,
    write_down,
)

_TASKS = 4
_WORK_SECONDS = 0.05
_LITTLE_WORK_SECONDS = 0.002
_TIMEOUT_SECONDS = 30
_work = functools.partial(compute, kind="python")


def ask(port: str, seconds: float, work_seconds: float = _WORK_SECONDS) -> None:
    """Ask over a new connection for an answer after this time."""
    with phase("python"):
        connection = socket.create_connection(("127.0.0.1", int(port)))
    with phase("network"):
        connection.sendall(f"{seconds}\n".encode())
        connection.recv(1)
    _work(work_seconds)
    connection.close()


def _submit(pool: ThreadPoolExecutor, port: str) -> list[Future[None]]:
    with phase("python"):
        return [pool.submit(ask, port, 0.6 + 0.1 * number) for number in range(_TASKS)]


def _each(results: Iterable[object]) -> Iterator[object]:
    """The results, for each of which the caller waits."""
    iterator = iter(results)
    while True:
        with phase("others"):
            result = next(iterator, results)
        if result is results:
            return
        yield result


def as_they_complete(seconds: float, port: str) -> None:
    with ThreadPoolExecutor(_TASKS, initializer=time_all) as pool:
        for _ in rounds(seconds):
            for _ in _each(as_completed(_submit(pool, port), timeout=_TIMEOUT_SECONDS)):
                pass


def wait_for_all(seconds: float, port: str) -> None:
    with ThreadPoolExecutor(_TASKS, initializer=time_all) as pool:
        for _ in rounds(seconds):
            tasks = _submit(pool, port)
            with phase("others"):
                wait(tasks)
            _work(_WORK_SECONDS)


def in_order(seconds: float, port: str) -> None:
    with ThreadPoolExecutor(_TASKS, initializer=time_all) as pool:
        for _ in rounds(seconds):
            for task in _submit(pool, port):
                with phase("others"):
                    task.result(timeout=_TIMEOUT_SECONDS)


def imap_unordered(seconds: float, port: str) -> None:
    with ThreadPool(_TASKS, initializer=time_all) as pool:
        for _ in rounds(seconds):
            times = [0.3 + 0.1 * number for number in range(2 * _TASKS)]
            for _ in _each(pool.imap_unordered(functools.partial(ask, port), times)):
                _work(_WORK_SECONDS)


def asked_again_and_again(seconds: float, port: str) -> None:
    """The main thread asks a hundred times a second whether tasks with little work have ended."""
    with ThreadPoolExecutor(_TASKS, initializer=time_all) as pool:
        for _ in rounds(seconds):
            with phase("python"):
                times = [0.9 + 0.2 * number for number in range(_TASKS)]
                tasks = [pool.submit(ask, port, each, _LITTLE_WORK_SECONDS) for each in times]
            while not all(task.done() for task in tasks):
                with phase("others"):
                    time.sleep(0.01)


def join_a_queue(seconds: float, port: str) -> None:
    tasks: queue.Queue[float | None] = queue.Queue()

    def do() -> None:
        time_all()
        while True:
            with phase("others"):
                task = tasks.get()
            if task is None:
                return
            ask(port, task)
            tasks.task_done()

    threads = [threading.Thread(target=do) for _ in range(_TASKS)]
    for thread in threads:
        thread.start()
    for _ in rounds(seconds):
        with phase("python"):
            for _ in threads:
                tasks.put(0.7)
        with phase("others"):
            tasks.join()
        _work(_WORK_SECONDS)
    for _ in threads:
        tasks.put(None)
    for thread in threads:
        thread.join()


def to_threads(seconds: float, port: str) -> None:
    async def main() -> None:
        for _ in rounds(seconds):
            with phase("others"):
                works = [asyncio.to_thread(ask, port, 0.3 + 0.1 * n) for n in range(_TASKS)]
                await asyncio.wait_for(asyncio.gather(*works), _TIMEOUT_SECONDS)
            _work(_WORK_SECONDS)

    asyncio.run(main())


def ask_in_a_process(port: str, seconds: float) -> None:
    forget()
    time_all()
    ask(port, seconds)
    write_down()


def processes_as_they_complete(seconds: float, port: str) -> None:
    with ProcessPoolExecutor(3) as pool:
        for _ in rounds(seconds):
            with phase("python"):
                tasks = [pool.submit(ask_in_a_process, port, 0.5 + 0.2 * n) for n in range(3)]
            for _ in _each(as_completed(tasks, timeout=_TIMEOUT_SECONDS)):
                pass


def _work_in_a_process(seconds: float) -> None:
    forget()
    time_all()
    _work(seconds)
    write_down()


def _slow_rows(seconds: float) -> Iterator[float]:
    for _ in rounds(seconds):
        sleep(0.7)
        yield _WORK_SECONDS


def slow_generator(seconds: float, _port: str) -> None:
    """A thread of the pool's takes what it hands on from a generator, which sleeps."""
    with multiprocessing.Pool(2) as pool:
        for _ in _each(pool.imap(_work_in_a_process, _slow_rows(seconds))):
            pass


def _produce(seconds: float, rows: "queue.Queue[str]") -> None:
    forget()
    time_all()
    for _ in rounds(seconds):
        sleep(0.9)
        with phase("others"):
            rows.put("row")
    rows.put("")
    write_down()


def managers_queue(seconds: float, _: str) -> None:
    """A process puts rows into the queue of a third one, which is asked over a Unix socket."""
    with multiprocessing.Manager() as manager:
        rows = manager.Queue()
        producer = multiprocessing.Process(target=_produce, args=(seconds, rows))
        producer.start()
        row = "first"
        while row:
            with phase("others"):
                row = rows.get()
            _work(0.3)
        producer.join()


def _answer(listener: socket.socket, pause: Callable[[], None] = lambda: sleep(0.9)) -> None:
    time_all()
    connection, _ = listener.accept()
    while True:
        with phase("others"):
            question = connection.recv(1)
        if not question:
            break
        pause()
        _work(0.02)
        connection.sendall(question)


def _serve(listener: socket.socket, pause: Callable[[], None] = lambda: sleep(0.9)) -> None:
    forget()
    _answer(listener, pause)
    write_down()


def _ask(seconds: float, connection: socket.socket) -> None:
    for _ in rounds(seconds):
        _work(0.3)
        with phase("others"):
            connection.sendall(b"?")
            connection.recv(1)


def _ask_child(
    seconds: float, listener: socket.socket, serve: Callable[[socket.socket], None] = _serve
) -> None:
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,))
    server.start()
    with socket.socket(listener.family) as connection:
        connection.connect(listener.getsockname())
        listener.close()
        _ask(seconds, connection)
    server.join()


def unix_server(seconds: float, _: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(Path(os.environ[FOLDER], "server")))
        listener.listen()
        _ask_child(seconds, listener)


def tcp_server(seconds: float, _: str) -> None:
    _ask_child(seconds, socket.create_server(("127.0.0.1", 0)))


def server_in_a_thread(seconds: float, _: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server = threading.Thread(target=_answer, args=(listener,))
    server.start()
    with socket.create_connection(listener.getsockname()) as connection:
        _ask(seconds, connection)
    server.join()


def loop_that_asks_itself(seconds: float, _: str) -> None:
    """Client and server have one loop."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while question := await reader.read(1):
            with phase("sleep"):
                await asyncio.sleep(0.9)
            writer.write(question)
        writer.close()

    async def ask_itself() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for _ in rounds(seconds):
            _work(0.3)
            writer.write(b"?")
            await reader.read(1)
        writer.close()

    asyncio.run(ask_itself())


def _serve_datagrams(receiver: socket.socket) -> None:
    forget()
    time_all()
    while True:
        with phase("others"):
            question, asker = receiver.recvfrom(1)
        if not question:
            break
        sleep(0.9)
        _work(0.02)
        receiver.sendto(question, asker)
    write_down()


def udp_server(seconds: float, _port: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        context = multiprocessing.get_context("fork")
        server = context.Process(target=_serve_datagrams, args=(receiver,))
        server.start()
        address = receiver.getsockname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.connect(address)
        for _ in rounds(seconds):
            _work(0.3)
            with phase("others"):
                connection.send(b"?")
                connection.recv(1)
        connection.send(b"")
    server.join()


def polling_server(seconds: float, _: str) -> None:
    """The server sleeps by a poll of the pipe that shows the end of its parent, as PostgreSQL's."""
    reader, _writer = os.pipe()

    def pause() -> None:
        with phase("sleep"):
            select.select([reader], [], [], 0.9)

    listener = socket.create_server(("127.0.0.1", 0))
    _ask_child(seconds, listener, functools.partial(_serve, pause=pause))


def _serve_by_loop(listener: socket.socket) -> None:
    forget()
    time_all()
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while question := await reader.read(1):
            with phase("sleep"):
                await asyncio.sleep(0.9)
            writer.write(question)
        writer.close()
        ended.set()

    async def serve() -> None:
        await asyncio.start_server(answer, sock=listener)
        await ended.wait()

    asyncio.run(serve())
    write_down()


def loop_server(seconds: float, _: str) -> None:
    """The server's loop has a timer until it answers, and hardly works for that."""
    _ask_child(seconds, socket.create_server(("127.0.0.1", 0)), _serve_by_loop)


def _serve_new_clients(listener: socket.socket) -> None:
    """A loop that closes each connection after its answer, until a client sends nothing."""
    forget()
    time_all()
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = await reader.read(1)
        if question:
            with phase("sleep"):
                await asyncio.sleep(0.6)
            compute(0.03)
            writer.write(question)
        else:
            ended.set()
        writer.close()

    async def serve() -> None:
        await asyncio.start_server(answer, sock=listener)
        await ended.wait()

    asyncio.run(serve())
    write_down()


def loop_server_of_new_clients(seconds: float, _port: str) -> None:
    """Each client is a program of its own, with a connection that is new to the profiler."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    server = multiprocessing.get_context("fork").Process(
        target=_serve_new_clients, args=(listener,)
    )
    server.start()
    listener.close()
    ask = f"exec 3<>/dev/tcp/127.0.0.1/{address[1]}; printf x >&3; read -r -n 1 <&3"
    for _ in rounds(seconds):
        run_child("others", "bash", "-c", ask)
        compute(0.05)
    socket.create_connection(address).close()
    server.join()


PROGRAMS: dict[str, Callable[[float, str], None]] = {
    function.__name__: function
    for function in (
        *(as_they_complete, wait_for_all, in_order, imap_unordered, join_a_queue, to_threads),
        asked_again_and_again,
        *(processes_as_they_complete, managers_queue, unix_server, tcp_server, udp_server),
        *(
            polling_server,
            loop_server,
            loop_server_of_new_clients,
            server_in_a_thread,
            loop_that_asks_itself,
        ),
        slow_generator,
    )
}


def main() -> None:
    started()
    time_whole(lambda: PROGRAMS[sys.argv[1]](float(sys.argv[2]), sys.argv[3]))
    write_down()


if __name__ == "__main__":
    main()

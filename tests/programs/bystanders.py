"""A job that computes and waits in turn, beside something that only listens or idles.

    python -m tests.programs.bystanders BYSTANDER WORK SECONDS COMPUTE WAIT [ADDRESS]

For ``SECONDS`` the job computes for ``COMPUTE`` seconds of CPU time and then waits for ``WAIT``
seconds. The bystander never does anything that the job needs. A server that it talks to is at
``ADDRESS``, and is no process of this run.
"""

import functools
import http.client
import http.server
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.programs.phases import compute, phase, run_child, sleep, started, write_down

_LOOPBACK = ("127.0.0.1", 0)
_TICK_SECONDS = 0.05
_NEVER_DUE_SECONDS = 3600
_CUDA_EVENTS, _CUDA_POLL_MS = 11, 100
_kept: list[object] = []  # what would be closed, if it were forgotten
_children: list[int] = []


def _address() -> tuple[str, int]:
    host, _, port = sys.argv[6].rpartition(":")
    return host, int(port)


def _in_thread(work: Callable[[], object]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _accept() -> None:
    _in_thread(socket.create_server(_LOOPBACK).accept)


def _wait_for_event() -> None:
    _in_thread(threading.Event().wait)


def _tick() -> None:
    def tick() -> None:
        while True:
            time.sleep(_TICK_SECONDS)

    _in_thread(tick)


def _leave_pool() -> None:
    """As a thread of OpenBLAS, which works as it begins; and a timer that is never due."""
    is_left = threading.Event()

    def work() -> None:
        compute(0.2)
        is_left.set()
        threading.Event().wait()

    _in_thread(functools.partial(time.sleep, _NEVER_DUE_SECONDS))
    _in_thread(work)
    is_left.wait()


def _wait_as_cuda() -> None:
    """As the two threads of CUDA's library: one polls an event, a pipe and a socket to which nobody
    connects, the other eleven events for 0.1 s at a time.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0cuda-uvmfd-{os.getpid()}")
    listener.listen()
    pipe = os.pipe()
    _kept.extend((listener, pipe))
    waits = select.poll()
    for descriptor in (os.eventfd(0), pipe[0], listener.fileno()):
        waits.register(descriptor, select.POLLIN)
    handles = select.poll()
    for _ in range(_CUDA_EVENTS):
        handles.register(os.eventfd(0), select.POLLIN)

    def handle() -> None:
        while True:
            handles.poll(_CUDA_POLL_MS)

    _in_thread(waits.poll)
    _in_thread(handle)


def _serve_http() -> None:
    handler = http.server.BaseHTTPRequestHandler
    _in_thread(http.server.HTTPServer(_LOOPBACK, handler).serve_forever)


def _read_fifo() -> None:
    name = Path(tempfile.mkdtemp(), "fifo")
    os.mkfifo(name)
    reader = os.open(name, os.O_RDWR)
    _in_thread(functools.partial(os.read, reader, 1))


def _subscribe() -> None:
    """A redis subscriber: its greeting is answered, and then nothing comes."""
    connection = socket.create_connection(_address())
    connection.sendall(b"*2\r\n$9\r\nSUBSCRIBE\r\n$4\r\nnews\r\n")
    connection.recv(4096)
    _in_thread(functools.partial(connection.recv, 4096))


def _keep_alive() -> None:
    """A connection that was used once, and which a thread watches."""
    connection = http.client.HTTPConnection(*_address())
    connection.request("GET", "/")
    connection.getresponse().read()
    _in_thread(functools.partial(connection.sock.recv, 1))
    _kept.append(connection)


def _forked(idle: Callable[[], object]) -> None:
    pid = os.fork()
    if pid == 0:
        idle()
        os._exit(0)
    _children.append(pid)


def _accept_in_child() -> None:
    _forked(socket.create_server(_LOOPBACK).accept)


def _receive_in_child() -> None:
    """The other end is the parent's."""
    listening = socket.create_server(_LOOPBACK)
    near = socket.create_connection(listening.getsockname())
    far, _ = listening.accept()
    _forked(functools.partial(near.recv, 1))
    _kept.append(far)


def _leave_unreaped() -> None:
    _forked(lambda: None)


def _serve_by_asyncio() -> None:
    import asyncio

    async def serve() -> None:
        server = await asyncio.start_server(lambda *_: None, *_LOOPBACK)
        await server.serve_forever()

    _in_thread(lambda: asyncio.run(serve()))


def _connect_by_asyncio() -> None:
    import asyncio

    async def connect() -> None:
        reader, _writer = await asyncio.open_connection(*_address())
        _writer.write(b"*2\r\n$9\r\nSUBSCRIBE\r\n$4\r\nnews\r\n")
        while await reader.read(4096):
            pass

    _in_thread(lambda: asyncio.run(connect()))


def _debug() -> None:
    import debugpy  # type: ignore[import-not-found,unused-ignore]

    debugpy.listen(_LOOPBACK)


def _subscribe_by_redis(*, by_thread: bool) -> None:
    import redis  # type: ignore[import-not-found,unused-ignore]

    host, port = _address()
    subscriber = redis.Redis(host=host, port=port).pubsub()
    if by_thread:
        subscriber.subscribe(news=lambda _: None)
        subscriber.run_in_thread(sleep_time=0.5, daemon=True)
    else:
        subscriber.subscribe("news")
        _in_thread(lambda: list(subscriber.listen()))


def _listen_to_postgres() -> None:
    import select

    import psycopg2  # type: ignore[import-not-found,import-untyped,unused-ignore]

    host, port = _address()
    connection = psycopg2.connect(host=host, port=port, user="postgres", dbname="postgres")
    connection.autocommit = True
    connection.cursor().execute("LISTEN news")
    _in_thread(lambda: select.select([connection], [], []))
    _kept.append(connection)


def _serve_grpc() -> None:
    from concurrent import futures

    import grpc  # type: ignore[import-untyped,import-not-found,unused-ignore]

    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    grpc.channel_ready_future(channel).result()
    _kept.extend((server, channel))


BYSTANDERS: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "accept": _accept,
    "cuda": _wait_as_cuda,
    "event": _wait_for_event,
    "left_pool": _leave_pool,
    "ticker": _tick,
    "http_server": _serve_http,
    "fifo": _read_fifo,
    "subscriber": _subscribe,
    "keep_alive": _keep_alive,
    "forked_accept": _accept_in_child,
    "forked_recv": _receive_in_child,
    "unreaped": _leave_unreaped,
    "asyncio_server": _serve_by_asyncio,
    "asyncio_idle": _connect_by_asyncio,
    "debugpy": _debug,
    "redis": functools.partial(_subscribe_by_redis, by_thread=False),
    "redis_thread": functools.partial(_subscribe_by_redis, by_thread=True),
    "postgres": _listen_to_postgres,
    "grpc": _serve_grpc,
}


def _run_child(seconds: float) -> None:
    run_child("sleep", "sleep", str(seconds))


def _wait_for_lock(seconds: float) -> None:
    """The lock's holder sleeps."""
    lock, is_held = threading.Lock(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            time.sleep(seconds)

    threading.Thread(target=hold).start()
    is_held.wait()
    with phase("sleep"), lock:
        pass


def _wait_for_file_lock(seconds: float) -> None:
    """A child waits for the lock of a file that another program holds."""
    flock = ("flock", "--timeout", str(seconds), "--conflict-exit-code", "0", sys.argv[6], "true")
    run_child("lock", *flock)


@functools.cache
def _client() -> tuple[socket.socket, select.poll]:
    connection, poll = socket.create_connection(_address()), select.poll()
    poll.register(connection, select.POLLIN)
    return connection, poll


def _poll_for_answer(seconds: float) -> None:
    """As a client that lets a signal end its wait: ten times a second it asks for the answer."""
    connection, poll = _client()
    with phase("network"):
        connection.sendall(f"{seconds}\n".encode())
        while not poll.poll(100):
            pass
        connection.recv(1)


def _wait_for_limited_time(seconds: float) -> None:
    """Nobody ends it before."""
    with phase("sleep"):
        threading.Event().wait(seconds)


WORK: dict[str, Callable[[float], None]] = {
    "sleep": sleep,
    "limited_time": _wait_for_limited_time,
    "child": _run_child,
    "lock": _wait_for_lock,
    "file_lock": _wait_for_file_lock,
    "poll": _poll_for_answer,
}


def main() -> None:
    started()
    name, work = sys.argv[1], WORK[sys.argv[2]]
    seconds, compute_seconds, wait_seconds = map(float, sys.argv[3:6])
    BYSTANDERS[name]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        compute(compute_seconds)
        work(wait_seconds)
    write_down()
    for pid in _children:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)  # the bystander's threads would wait for ever


if __name__ == "__main__":
    main()

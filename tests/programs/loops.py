"""A job in an asyncio loop that computes and waits in turn, beside something idle in its loop.

python -m tests.programs.loops BYSTANDER WORK SECONDS COMPUTE WAIT [PORT]
"""

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable

from tests.programs.phases import compute, phase, started, write_down

# The loop sleeps, and a thread of its pool computes.
_AFTER_THREAD = "after_thread"
_ROW = "row"
_ANSWER_IN_THREAD = "answer_in_thread"
# The loop sleeps for as long as it waits for the answer then.
_ANSWER_AFTER_SLEEP = "answer_after_sleep"
_kept: list[object] = []
_rows: list[asyncio.StreamReader] = []
_connections: list[socket.socket] = []
_streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []


async def _nothing() -> None:
    pass


async def _serve() -> None:
    _kept.append(await asyncio.start_server(lambda *_: None, "127.0.0.1", 0))


async def _receive(seconds: str) -> asyncio.StreamReader:
    """Rows that come each time so many seconds have passed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[6]))
    writer.write(f"ROWS {seconds}\n".encode())
    _kept.append(writer)
    return reader


async def _read_rows() -> None:
    """Rows with which nothing is done."""
    reader = await _receive("0.37")

    async def read() -> None:
        while await reader.read(1):
            pass

    _kept.append(asyncio.create_task(read()))


def _look_every(seconds: float) -> None:
    """A timer with which nothing is done."""

    def look() -> None:
        asyncio.get_running_loop().call_later(seconds, look)

    look()


async def _look_at_the_clock() -> None:
    _look_every(0.25)


def _connect() -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(sys.argv[6])))


async def _tick_beside_rows_of_thread() -> None:
    """Another thread reads rows, and the loop has a timer."""
    _look_every(0.1)
    connection = _connect()
    connection.sendall(b"ROWS 0.23\n")

    def read() -> None:
        while connection.recv(1):
            pass

    threading.Thread(target=read, daemon=True).start()


async def _tick_and_connect() -> None:
    """The loop has a timer, and threads of its pool ask a server."""
    _look_every(0.1)
    _connections.append(_connect())


async def _ask_by_aiohttp() -> None:
    import aiohttp  # type: ignore[import-not-found,unused-ignore]

    session = aiohttp.ClientSession()
    async with session.get(f"http://127.0.0.1:{sys.argv[6]}/") as answer:
        await answer.read()
    _kept.append(session)


async def _ask_redis() -> None:
    import redis.asyncio  # type: ignore[import-not-found,unused-ignore]

    client = redis.asyncio.Redis(port=int(sys.argv[6]))
    await client.ping()
    _kept.append(client)


async def _sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def _wait_for_row(seconds: float) -> None:
    if not _rows:
        _rows.append(await _receive(str(seconds)))
    await _rows[0].readexactly(1)


async def _ask_by_stream(seconds: float) -> None:
    """Hardly any work follows the loop's timer: a question on a connection that it always reads."""
    if not _streams:
        _streams.append(await asyncio.open_connection("127.0.0.1", int(sys.argv[6])))
    reader, writer = _streams[0]
    writer.write(f"{seconds}\n".encode())
    await reader.readexactly(1)


async def _run_child(seconds: float) -> None:
    await (await asyncio.create_subprocess_exec("sleep", str(seconds))).wait()


async def _sleep_in_thread(seconds: float) -> None:
    await asyncio.to_thread(time.sleep, seconds)


def _ask(seconds: float) -> None:
    _connections[0].sendall(f"{seconds}\n".encode())
    _connections[0].recv(1)


async def _ask_in_thread(seconds: float) -> None:
    await asyncio.to_thread(_ask, seconds)


async def _serve_tick_and_connect() -> None:
    await _serve()
    await _tick_and_connect()


BYSTANDERS: dict[str, Callable[[], Awaitable[None]]] = {
    "nothing": _nothing,
    "server": _serve,
    "aiohttp": _ask_by_aiohttp,
    "redis": _ask_redis,
    "rows": _read_rows,
    "clock": _look_at_the_clock,
    "rows_of_thread": _tick_beside_rows_of_thread,
    "ticks": _tick_and_connect,
    "server_and_ticks": _serve_tick_and_connect,
}
WORK: dict[str, Callable[[float], Awaitable[None]]] = {
    "sleep": _sleep,
    "child": _run_child,
    "to_thread": _sleep_in_thread,
    _AFTER_THREAD: _sleep,
    _ROW: _wait_for_row,
    _ANSWER_IN_THREAD: _ask_in_thread,
    _ANSWER_AFTER_SLEEP: _ask_by_stream,
}
_FOR_NETWORK = (_ROW, _ANSWER_IN_THREAD, _ANSWER_AFTER_SLEEP)


async def _work() -> None:
    started()
    seconds, compute_seconds, wait_seconds = map(float, sys.argv[3:6])
    await BYSTANDERS[sys.argv[1]]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if sys.argv[2] == _AFTER_THREAD:
            await asyncio.to_thread(compute, compute_seconds)
        else:
            compute(compute_seconds)
        if sys.argv[2] == _ANSWER_AFTER_SLEEP:
            with phase("sleep"):
                await asyncio.sleep(wait_seconds)
        with phase("network" if sys.argv[2] in _FOR_NETWORK else "sleep"):
            await WORK[sys.argv[2]](wait_seconds)
    write_down()


if __name__ == "__main__":
    asyncio.run(_work())

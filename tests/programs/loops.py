"""A job in an asyncio loop that computes and waits in turn, beside something idle in its loop.

python -m tests.programs.loops BYSTANDER WORK SECONDS COMPUTE WAIT [PORT]
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

from tests.programs.phases import compute, phase, started, write_down

# The loop sleeps, and a thread of its pool computes.
_AFTER_THREAD = "after_thread"
_kept: list[object] = []


async def _nothing() -> None:
    pass


async def _serve() -> None:
    _kept.append(await asyncio.start_server(lambda *_: None, "127.0.0.1", 0))


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


async def _run_child(seconds: float) -> None:
    await (await asyncio.create_subprocess_exec("sleep", str(seconds))).wait()


async def _sleep_in_thread(seconds: float) -> None:
    await asyncio.to_thread(time.sleep, seconds)


BYSTANDERS: dict[str, Callable[[], Awaitable[None]]] = {
    "nothing": _nothing,
    "server": _serve,
    "aiohttp": _ask_by_aiohttp,
    "redis": _ask_redis,
}
WORK: dict[str, Callable[[float], Awaitable[None]]] = {
    "sleep": _sleep,
    "child": _run_child,
    "to_thread": _sleep_in_thread,
    _AFTER_THREAD: _sleep,
}


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
        with phase("sleep"):
            await WORK[sys.argv[2]](wait_seconds)
    write_down()


if __name__ == "__main__":
    asyncio.run(_work())

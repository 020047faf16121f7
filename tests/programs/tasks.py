"""Tasks of an asyncio loop that each ask a server, work, pause and work, all at the same time.

python -m tests.programs.tasks SECONDS TASKS ANSWER PAUSE PORT

What ends a poll of the loop is what it waited for until its work.
"""

import asyncio
import selectors
import sys
import time

from tests.programs.phases import add_phase, begin_phase, compute, started, write_down


class _TimedSelector(selectors.EpollSelector):
    """Times each poll as a wait for what ended it."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        begin = begin_phase()
        events = super().select(timeout)
        add_phase("network" if events else "sleep", begin)
        return events


async def _ask_and_pause(end: float, answer_seconds: float, pause_seconds: float) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[5]))
    while time.monotonic() < end:
        writer.write(f"{answer_seconds}\n".encode())
        await reader.read(1)
        compute(0.02)
        await asyncio.sleep(pause_seconds)
        compute(0.01)
    writer.close()


async def _ask_and_pause_in_tasks() -> None:
    """Tasks with answers and pauses of different lengths are seldom at the same place."""
    seconds, tasks, answer_seconds, pause_seconds = map(float, sys.argv[1:5])
    end = time.monotonic() + seconds
    shares = [0.7 + 0.6 * number / tasks for number in range(int(tasks))]
    await asyncio.gather(
        *[_ask_and_pause(end, share * answer_seconds, share * pause_seconds) for share in shares]
    )


if __name__ == "__main__":
    started()
    loop = asyncio.SelectorEventLoop(_TimedSelector())
    loop.run_until_complete(_ask_and_pause_in_tasks())
    write_down()

"""Call stacks are read, and the reader, the target or the profiler is killed meanwhile: nothing
may stay stopped.

Each round starts py-spy with the sampler's options on one of several Python processes with threads.
Three of four rounds kill py-spy with SIGKILL after a random part of its usual duration, and one of
ten kills the target. In addition, ``task-profiler run --stacks`` is killed with SIGKILL around a
batch. After each kill the targets are read: no thread may be stopped (state T or t) or traced, and
each process must go on computing.
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from profiler.collectors.stacks.py_spy import find_py_spy
from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import list_children
from tests.values import present
from tools.waiting import wait_until

_SPY = find_py_spy(os.environ.get("PATH"), sys.executable)
pytestmark = pytest.mark.skipif(_SPY is None, reason="py-spy is not installed")

_ATTACHES = int(os.environ.get("ATTACHES", "60"))
_PROFILER_KILLS = max(_ATTACHES * 3 // 100, 2)
_TARGETS = 4
_TARGET_CODE = """
import threading, time
def work():
    while True:
        sum(range(20000))
        time.sleep(0.002)
for _ in range(7):
    threading.Thread(target=work, daemon=True).start()
work()
"""
_KILLED_TARGET_EVERY = 10
_MANY_THREADS = 2  # makes list_children look at all threads


def is_stopped(pid: int) -> bool:
    """Whether a thread of the process is stopped or traced. A process that has ended is neither."""
    try:
        texts = [(thread / "status").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False
    return any(re.search(r"^(State:\t[Tt]|TracerPid:\t[^0])", text, re.MULTILINE) for text in texts)


def cpu_ns(pid: int) -> int:
    return sum(
        int((thread / "schedstat").read_text().split()[0])
        for thread in Path(f"/proc/{pid}/task").iterdir()
    )


def wait_until_it_computes(pid: int) -> None:
    before_ns = cpu_ns(pid)
    wait_until(lambda: cpu_ns(pid) > before_ns, f"process {pid} to compute")


@contextmanager
def target() -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that computes with eight threads."""
    with subprocess.Popen([sys.executable, "-c", _TARGET_CODE]) as process:
        try:
            wait_until(
                lambda: len(list(Path(f"/proc/{process.pid}/task").iterdir())) > 7,
                "the target's threads",
            )
            yield process
        finally:
            process.kill()


def attach(pid: int) -> subprocess.Popen[bytes]:
    command = (present(_SPY), "dump", "--nonblocking", "--json", "--pid", str(pid))
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def arguments_of(pid: int) -> list[str]:
    return (proc.read_or_none(f"/proc/{pid}/cmdline") or b"").decode(errors="replace").split("\0")


def is_read(pid: int) -> bool:
    """Whether a py-spy reads the process."""
    others = map(arguments_of, proc.numeric_entries())
    return any(arguments[0].endswith("py-spy") and str(pid) in arguments for arguments in others)


@pytest.mark.slow
def test_a_killed_reader_leaves_no_process_stopped() -> None:
    randomness, ends = random.Random(1), []
    with ExitStack() as stack:
        targets = [stack.enter_context(target()) for _ in range(_TARGETS)]
        began = time.monotonic()
        attach(targets[0].pid).wait()
        usual_seconds = time.monotonic() - began
        for number in range(_ATTACHES):
            place = number % _TARGETS
            reader = attach(targets[place].pid)
            if number % 4:
                time.sleep(randomness.uniform(0, 1.2 * usual_seconds))
                if number % _KILLED_TARGET_EVERY == 1:
                    targets[place].kill()
                    targets[place].wait()
                    targets[place] = stack.enter_context(target())
                reader.kill()
            ends.append(reader.wait())
            assert not [process.pid for process in targets if is_stopped(process.pid)]
        for process in targets:
            wait_until_it_computes(process.pid)
    sys.stdout.write(
        f"{len(ends)} attaches, {ends.count(0)} completed, {ends.count(-signal.SIGKILL)} killed\n"
    )


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, _PROFILER_KILLS))]
)
def test_a_killed_profiler_leaves_its_batch_computing(number: int) -> None:
    options = ("--no-history", "--stacks", "--interval", "0.1", "--output", "/dev/null")
    command = (
        sys.executable,
        "-m",
        "profiler",
        "run",
        *options,
        "--",
        sys.executable,
        "-c",
        _TARGET_CODE,
    )

    def batches() -> list[int]:
        # A reader that was forked and is not yet py-spy has the profiler's own arguments.
        children = list_children(profiler.pid, _MANY_THREADS)
        return [pid for pid in children if arguments_of(pid)[1:3] == ["-c", _TARGET_CODE]]

    with subprocess.Popen(command) as profiler:
        try:
            (pid,) = wait_until(batches, "the batch")
            time.sleep(random.Random(number).uniform(0, 3.5))
        finally:
            profiler.kill()
    try:
        wait_until(lambda: not is_read(pid), "py-spy to end")
        assert not is_stopped(pid)
        wait_until_it_computes(pid)
    finally:
        os.kill(pid, signal.SIGKILL)

"""The memory of a process tree between two readings of it, of real processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from profiler.readers.linux.process_tree import ProcessTree, QuickMemory
from tests.values import present

_MIB = 2**20
# Says that it is ready, and allocates as many MiB as a line of its input has; a line "fork" forks a child that waits.
_PROGRAM = """
import os, sys
held = []
print(flush=True)
for line in sys.stdin:
    if line == "fork\\n":
        ready, tell = os.pipe()
        if not os.fork():
            os.write(tell, b".")
            os.read(0, 1)
            os._exit(0)
        os.read(ready, 1)
    else:
        held.append(b"x" * (int(line) * 2**20))
    print(flush=True)
"""


class _Process:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.say("")

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        if line:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        present(self._process.stdout).readline()


@contextmanager
def _process() -> Iterator[_Process]:
    words = (sys.executable, "-S", "-c", _PROGRAM)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield _Process(process)
        process.kill()


def _is_about(size_bytes: int | None, mebibytes: float, tolerance: float = 3) -> bool:
    return size_bytes is not None and abs(size_bytes / _MIB - mebibytes) < tolerance


def test_growth_and_new_processes_are_seen() -> None:
    children = frozenset[int]()
    tree, quick = ProcessTree(os.getpid(), children, lambda: 0), QuickMemory(os.getpid(), children)
    with _process() as first:
        first.say("30")
        alone = present(quick.read())
        assert alone > 30 * _MIB
        quick.follow(tree.read())
        assert quick.read() is not None
        assert not quick.has_changed
        with _process() as second:
            both = quick.read()
            assert quick.has_changed
            assert both is not None
            second.say("40")
            assert _is_about(quick.read(), both / _MIB + 40)
            first.say("20")
            assert _is_about(quick.read(), both / _MIB + 60)
            readings = tree.read()
            quick.follow(readings)
            assert _is_about(quick.read(), sum(reading.share_bytes or 0 for reading in readings) / _MIB)
        assert quick.read() is not None
        assert quick.has_changed


def test_memory_that_a_fork_shares_is_not_counted_twice() -> None:
    children = frozenset[int]()
    tree, quick = ProcessTree(os.getpid(), children, lambda: 0), QuickMemory(os.getpid(), children)
    with _process() as process:
        process.say("50")
        quick.follow(tree.read())
        before = present(quick.read())
        process.say("fork")
        assert _is_about(quick.read(), before / _MIB)
        assert quick.has_changed


def test_without_a_process_and_with_too_many_threads_nothing_is_known() -> None:
    with _process() as process:
        process.say("1")
        own = next(iter(ProcessTree(os.getpid(), (), lambda: 0).read())).pid
        assert QuickMemory(os.getpid(), {own}).read() is None
        quick = QuickMemory(os.getpid(), ())
        reading = ProcessTree(os.getpid(), (), lambda: 0).read()[0]
        quick.follow([type(reading)(pid=own, started_ticks=1, own_cpu_ns=0, children_cpu_ns=0, threads=100)])
        assert quick.read() is None

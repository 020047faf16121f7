"""Processes that use their parent's memory until they execute a program."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profiler.core.clock import CpuBudget
from profiler.readers.linux.memory_shares import MemoryShares
from profiler.readers.linux.process_tree import ProcessReading, ProcessTree, QuickMemoryReader
from profiler.readers.linux.vforked import are_sizes_between, has_parents_memory
from tests.values import present
from tools.waiting import wait_until

_MIB = 2**20
# Its child opens a FIFO before it executes its program, and waits there for another process.
_PROGRAM = """
import os, sys, time
held = b"x" * (60 * 2**20)
print(flush=True)
action = (os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)
os.posix_spawn("/bin/sleep", ["sleep", "1000"], os.environ, file_actions=[action])
print(flush=True)
time.sleep(1000)  # its end would take the child out of its tree
"""
_FORKING_PROGRAM = """
import os, time
held = b"x" * (60 * 2**20)
if os.fork() == 0:
    print(flush=True)
time.sleep(1000)
"""


def readings(tree: ProcessTree) -> list[ProcessReading]:
    """A parent and its child."""
    shares = MemoryShares(CpuBudget(1, 3), os.sysconf("SC_PAGE_SIZE"), lambda: 0, lambda: 0)
    return list(shares.readings_with_shares(tree.read_all()))


@contextmanager
def in_vfork(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process with 60 MiB whose child waits in vfork until somebody writes to the file."""
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    words = (sys.executable, "-S", "-c", _PROGRAM, str(fifo))
    with subprocess.Popen(words, stdout=subprocess.PIPE) as parent:
        present(parent.stdout).readline()
        wait_until(lambda: len(ProcessTree(os.getpid(), (), lambda: 0).read_all()) == 2, "vfork")
        yield parent, fifo
        for pid, _ in ProcessTree(os.getpid(), (), lambda: 0).identities():
            os.kill(pid, 9)


def test_a_child_in_vfork_has_no_memory_of_its_own(tmp_path: Path) -> None:
    with in_vfork(tmp_path):
        parent, child = readings(ProcessTree(os.getpid(), (), lambda: 0))
    assert present(parent.share_bytes) > 60 * _MIB
    assert child.is_forked
    assert child.rss_bytes is None
    assert child.peak_bytes is None
    assert child.share_bytes is None


def test_after_its_program_has_started_it_has(tmp_path: Path) -> None:
    tree = ProcessTree(os.getpid(), (), lambda: 0)
    with in_vfork(tmp_path) as (process, fifo):
        assert readings(tree)[1].rss_bytes is None
        with fifo.open("w"):
            present(process.stdout).readline()
        # The kernel lets the parent go on a moment before it notes that the child has executed.
        wait_until(lambda: readings(tree)[1].rss_bytes is not None, "the program")
        _, child = readings(tree)
    assert 0 < present(child.share_bytes) < 10 * _MIB


def test_a_quick_reading_counts_the_memory_once(tmp_path: Path) -> None:
    tree = ProcessTree(os.getpid(), (), lambda: 0)
    quick = QuickMemoryReader(os.getpid(), ())
    with in_vfork(tmp_path):
        quick.reset_baseline(readings(tree))
        followed = present(quick.estimate_held_bytes())
        alone = present(QuickMemoryReader(os.getpid(), ()).estimate_held_bytes())
    assert 60 * _MIB < followed < 90 * _MIB
    assert 60 * _MIB < alone < 90 * _MIB


def test_a_fork_has_its_own_memory() -> None:
    words = (sys.executable, "-S", "-c", _FORKING_PROGRAM)
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        present(process.stdout).readline()
        tree = ProcessTree(os.getpid(), (), lambda: 0)
        parent, child = tree.read_all()
        assert not has_parents_memory(child.pid, parent.pid)
        for pid, _ in tree.identities():
            os.kill(pid, 9)
    assert present(child.rss_bytes) > 60 * _MIB


def test_a_program_that_was_executed_meanwhile_is_not_the_parents() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        wait_until(
            lambda: not ProcessTree(os.getpid(), (), lambda: 0).read_all()[0].is_forked, "sleep"
        )
        assert has_parents_memory(process.pid, os.getpid())
        process.kill()


def test_sizes_between_two_of_the_parents_are_the_parents() -> None:
    assert are_sizes_between((100, 50, 9), (100, 40, 9), (100, 60, 9))
    assert are_sizes_between((100, 50, 9), (110, 60, 9), (90, 40, 9))


def test_sizes_beyond_both_of_the_parents_are_others() -> None:
    assert not are_sizes_between((100, 50, 7), (100, 40, 9), (100, 60, 9))


def test_sizes_that_are_not_known_are_others() -> None:
    assert not are_sizes_between((), (100, 40, 9), (100, 60, 9))
    assert not are_sizes_between((100, 50, 9), (), (100, 60, 9))
    assert not are_sizes_between((100, 50, 9), (100, 40, 9), ())

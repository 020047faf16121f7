"""The tree of a real process with many threads, which is searched among all processes."""

import os
import subprocess
import sys

import pytest

from profiler.readers.linux import process_tree
from profiler.readers.linux.process_tree import ProcessTree, list_children
from tests.values import present

# Starts 300 threads. For each line of its input, a thread starts a child, which starts another one. The thread stays:
# the kernel would move its child to another thread, at a moment between two readings of the test.
_PROGRAM = """
import subprocess, sys, threading
for _ in range(300):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(flush=True)
for line in sys.stdin:
    start = lambda: (subprocess.Popen(["sh", "-c", "sleep 60 & echo; wait"]), threading.Event().wait())
    threading.Thread(target=start, daemon=True).start()
"""


def test_new_processes_are_found_whatever_thread_has_started_them() -> None:
    tree = ProcessTree(os.getpid(), (), lambda: 0)
    words = (sys.executable, "-S", "-c", _PROGRAM)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        try:
            for count in range(6):
                present(process.stdout).readline()
                found = {reading.pid for reading in tree.read()}
                assert process.pid in found
                assert len(found) == 1 + 2 * count
                assert set(tree.identities()) == set(ProcessTree(os.getpid(), (), lambda: 0).identities())
                process.stdin.write("more\n")
                process.stdin.flush()
            assert tree._others
        finally:
            for pid, _ in tree.identities():
                os.kill(pid, 9)


def test_a_child_that_moves_to_another_list_while_the_lists_are_read_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = ProcessTree(os.getpid(), (), lambda: 0)
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) as process:
        while len(before := tree.identities()) < 2:
            pass
        no_list = lambda pid, threads: () if pid == process.pid else list_children(pid, threads)  # noqa: E731
        monkeypatch.setattr(process_tree, "list_children", no_list)
        assert tree.identities() == before
        for pid, _ in reversed(before):
            os.kill(pid, 9)


def test_an_id_that_is_used_again_is_looked_at_again() -> None:
    tree = ProcessTree(os.getpid(), (), lambda: 0)
    tree._has_children_files = False
    with subprocess.Popen(["sleep", "60"]) as process:
        tree._others, tree._last_pid = {process.pid}, 1 << 30  # another process had the id before
        assert [reading.pid for reading in tree.read()] == [process.pid]
        process.kill()

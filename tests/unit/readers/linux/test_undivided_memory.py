"""Processes in gVisor and on kernels before 4.5: nothing counts twice, and nothing vanishes."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from profiler.core.clock import CpuBudget
from profiler.readers.linux import proc
from profiler.readers.linux.memory_shares import MemoryShares
from profiler.readers.linux.process_tree import ProcessReading, ProcessTree
from profiler.readers.linux.undivided_memory import is_fork, with_memory_parts
from tests.values import present
from tools.waiting import wait_until

_MIB = 2**20
_UNKNOWN_LINES = re.compile(rb"(RssAnon|RssFile|RssShmem|VmHWM):.*\n")
_STARTS_CHILD = """
import subprocess, sys
held = b"x" * (70 << 20)
child = "held = b'x' * (50 << 20); print(flush=True); input()"
subprocess.run([sys.executable, "-S", "-c", child])
"""
_FORKS = """
import os
held = b"x" * (70 << 20)
if os.fork() == 0: print(flush=True)
input()
"""


def _as_gvisor(path: str, read: bytes) -> bytes | None:
    """What gVisor shows of this file: no parts, no flags, no faults."""
    name = path.rpartition("/")[2]
    if name == "smaps_rollup":
        return None
    if name == "status":
        return _UNKNOWN_LINES.sub(b"", read)
    if name == "statm":
        size, resident, *_ = read.split()
        return b"%s %s 0 0 0 0 0\n" % (size, resident)
    if name == "stat":
        before, _, after = read.rpartition(b")")
        fields = after.split()
        for position in (6, 7, 8, 9, 10):  # flags and faults
            fields[position] = b"0"
        return before + b") " + b" ".join(fields)
    return read


@pytest.fixture
def in_gvisor(monkeypatch: pytest.MonkeyPatch) -> None:
    read = proc.read_or_none

    def read_as_gvisor(path: str) -> bytes | None:
        contents = read(path)
        return None if contents is None else _as_gvisor(path, contents)

    monkeypatch.setattr(proc, "read_or_none", read_as_gvisor)


@contextmanager
def _two_processes(program: str) -> Iterator[Sequence[ProcessReading]]:
    tree = ProcessTree(os.getpid(), (), lambda: 0)
    words = (sys.executable, "-S", "-c", program)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        present(parent.stdout).readline()
        wait_until(lambda: len(tree.read_all()) == 2, "two processes")
        yield ProcessTree(os.getpid(), (), lambda: 0).read_all()
        for pid, _ in tree.identities():
            os.kill(pid, 9)


def _shares() -> MemoryShares:
    return MemoryShares(CpuBudget(1, 3), os.sysconf("SC_PAGE_SIZE"), lambda: 0, lambda: 0)


@pytest.mark.usefixtures("in_gvisor")
def test_a_child_that_has_executed_a_program_counts_in_full() -> None:
    with _two_processes(_STARTS_CHILD) as readings:
        parent, child = _shares().readings_with_shares(readings)
    assert 70 * _MIB < present(parent.share_bytes) < 100 * _MIB
    assert 50 * _MIB < present(child.share_bytes) < 80 * _MIB


@pytest.mark.usefixtures("in_gvisor")
def test_a_fork_does_not_count_twice_and_what_it_may_have_copied_is_a_bound() -> None:
    shares = _shares()
    with _two_processes(_FORKS) as readings:
        parent, fork = shares.readings_with_shares(readings)
    assert 70 * _MIB < present(parent.share_bytes) < 100 * _MIB
    assert present(fork.share_bytes) < 10 * _MIB
    assert shares.unsure_bytes > 60 * _MIB


@pytest.mark.parametrize(("statm", "anonymous_kib"), [("900 300 0", 1200), ("900 300 100", 800)])
def test_without_parts_all_is_anonymous_that_is_not_known_to_be_mapped(
    tmp_path: Path, statm: str, anonymous_kib: int
) -> None:
    (tmp_path / "statm").write_text(statm)
    status = with_memory_parts(proc.ProcessStatus(rss_bytes=1200 * 1024), str(tmp_path))
    pages = os.sysconf("SC_PAGE_SIZE") // 4096
    assert status.anonymous_bytes == min(anonymous_kib * pages, 1200) * 1024
    assert with_memory_parts(status, str(tmp_path / "none")) == status


@pytest.mark.parametrize("name", ["auxv", "cmdline"])
def test_a_fork_has_its_parents_vector_or_its_words(tmp_path: Path, name: str) -> None:
    folders = [tmp_path / kind for kind in ("parent", "fork", "program")]
    for folder, contents in zip(folders, (b"1", b"1", b"2"), strict=True):
        folder.mkdir()
        (folder / name).write_bytes(contents)
    parent, fork, program = map(str, folders)
    assert is_fork(fork, parent)
    assert not is_fork(program, parent)
    assert not is_fork(str(tmp_path / "none"), parent)

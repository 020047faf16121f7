"""``task-profiler run`` of programs that take huge pages from the machine's pool, which no RSS and no
control group's memory has.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from profiler.record.record_model import NO_READINGS, NO_RECOMMENDATION, Record, decode
from tests.integration.profiled import RUN, alone, as_nobody
from tests.integration.sidecar import NO_AWS, Sidecar
from tests.values import present
from tools.waiting import LIMIT_SECONDS, READINGS, remove_group, wait_until

_SIZE_MIB = 100
_PAGE_MIB = 2
_POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
_SYSTEM_PYTHON = "/usr/bin/python3"
_FLAGS = "mmap.MAP_ANONYMOUS | 0x40000"  # MAP_HUGETLB
_TAKES = f"""{READINGS}
import mmap, sys
def take(megabytes, flags):
    pages = mmap.mmap(-1, megabytes << 20, flags=flags | {_FLAGS})
    for place in range(0, megabytes << 20, 2 << 20): pages[place] = 1
    return pages
"""
_PRIVATE = f"{_TAKES}pages = take({_SIZE_MIB}, mmap.MAP_PRIVATE)\nwait_for_readings(20)\n"
_SHARED = f"""{_TAKES}
shared = take({_SIZE_MIB}, mmap.MAP_SHARED)
for _ in range(3):
    if not os.fork():
        for place in range(0, len(shared), 2 << 20): shared[place]
        wait_for_readings(20)
        os._exit(0)
wait_for_readings(20)
for _ in range(3): os.wait()
"""
_FORKED = f"""{_TAKES}
private = take({_SIZE_MIB}, mmap.MAP_PRIVATE)
if not os.fork():
    wait_for_readings(20)
    os._exit(0)
wait_for_readings(20)
os.wait()
"""
_SEGMENT = f"""{READINGS}
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
size = {_SIZE_MIB} << 20
segment = libc.shmget(0, size, 0o5600)  # SHM_HUGETLB
ctypes.memset(libc.shmat(segment, None, 0), 1, size)
libc.shmctl(segment, 0, None)
wait_for_readings(20)
"""


@pytest.fixture(scope="module", autouse=True)
def _pool() -> Iterator[None]:
    """Enough huge pages that nobody has taken; the machine's number is restored. Only one test
    session changes it at a time.
    """
    if os.geteuid() != 0 or not Path(_SYSTEM_PYTHON).exists():
        pytest.skip("needs root, and a Python that every user can execute")
    with alone("huge-pages"):
        try:
            before = int(_POOL.read_text())
            wanted = before + 2 * _SIZE_MIB // _PAGE_MIB
            _POOL.write_text(str(wanted))
        except OSError:
            pytest.skip("the machine's pool of huge pages cannot be changed here")
        try:
            if int(_POOL.read_text()) < wanted:
                pytest.skip("the machine has no memory in one piece for huge pages")
            yield
        finally:
            _POOL.write_text(str(before))


class _Run(Protocol):
    def __call__(
        self, program: str, options: Sequence[str] = (), code: int = 0, *, as_root: bool = True
    ) -> Record: ...


@pytest.fixture
def run(tmp_path: Path, code_for_all: Path) -> _Run:
    """Runs a program as root, or as a user who can make no control group."""
    as_user = (*as_nobody(code_for_all), "run")
    report = tmp_path / "report"

    def run(
        program: str, options: Sequence[str] = (), code: int = 0, *, as_root: bool = True
    ) -> Record:
        words = RUN if as_root else as_user
        all_options = ("--json", "--no-history", "--interval", "0.1", *options)
        shown = (*words, *all_options, "--", _SYSTEM_PYTHON, "-c", program)
        with report.open("wb") as file:
            done = subprocess.run(shown, stderr=file, check=False, timeout=LIMIT_SECONDS)
        lines = report.read_bytes().splitlines()
        assert done.returncode == code, lines
        return decode(next(line for line in lines if line.startswith(b"{"))).record

    return run


@pytest.mark.diagonal(1)
@pytest.mark.parametrize(
    ("program", "as_root"),
    [
        pytest.param(_PRIVATE, True, id="private, root"),
        pytest.param(_PRIVATE, False, id="private, user"),
        pytest.param(_SHARED, True, id="shared, root"),
        pytest.param(_SHARED, False, id="shared, user"),
        pytest.param(_FORKED, False, id="fork, user"),
        # Only root may make one (vm.hugetlb_shm_group).
        pytest.param(_SEGMENT, True, id="segment, root"),
    ],
)
def test_huge_pages_count_once_and_apart(run: _Run, program: str, *, as_root: bool) -> None:
    record = run(program, as_root=as_root)
    assert present(record.metrics.memory_huge_pages_mb).max == _SIZE_MIB
    assert present(record.metrics.max_memory_used_mb) < _SIZE_MIB
    advised = record.recommendation
    if advised != NO_RECOMMENDATION:  # another program's kernel memory may grow meanwhile
        assert present(advised.memory_mb) > _SIZE_MIB
        assert any("huge pages" in reason for reason in advised.reasons)


def test_a_program_without_them_has_none(run: _Run) -> None:
    record = run(f"{READINGS}held = bytes(20 << 20)\nwait_for_readings(20)")
    assert record.metrics.memory_huge_pages_mb == NO_READINGS
    assert "huge pages" not in str(record.recommendation)


def test_they_exceed_a_budget_of_less_memory(run: _Run) -> None:
    run(_PRIVATE, ("--max-memory", f"{_SIZE_MIB - 10}MB"), code=3)
    run(_PRIVATE, ("--max-memory", f"{_SIZE_MIB + 10}MB"))


def test_the_monitor_sees_those_of_the_batchs_processes() -> None:
    """The processes are in a group with the batch's Docker id, as in a shared pid namespace."""
    waits = f"{_TAKES}\ninput()\npages = take({_SIZE_MIB}, mmap.MAP_PRIVATE)\ninput()"
    with Sidecar(NO_AWS, REPORT_STREAM="monitor") as sidecar:
        group = _group_of_batch(sidecar.task.docker_id("batch"))
        with subprocess.Popen((_SYSTEM_PYTHON, "-c", waits), stdin=subprocess.PIPE) as batch:
            (group / "cgroup.procs").write_text(str(batch.pid))
            stdin = present(batch.stdin)
            stdin.write(b"\n")
            stdin.flush()
            wait_until(lambda: _held_mib(batch.pid) == _SIZE_MIB, "huge pages")
            sidecar.wait_for_samples(20)
            stdin.write(b"\n")
        remove_group(group)
        sidecar.end_batch()
        lines, _ = sidecar.finish()
    record = decode(json.dumps(lines[-1])).record
    assert present(record.metrics.memory_huge_pages_mb).max == _SIZE_MIB


def _group_of_batch(docker_id: str) -> Path:
    mounted = [Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")]
    top = next(folder for folder in mounted if (folder / "cgroup.procs").exists())
    group = top / docker_id
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no control group can be made here")
    return group


def _held_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("HugetlbPages:")[2].split()[0]) // 1024

"""What ``task-profiler run`` reports without a control group.

The hierarchies are read-only, as in most containers.

Its CPU time, against what the processes say; its memory, against the kernel's count in a group that
the profiler cannot use.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from profiler.record.mention_limits import is_cpu_partial
from profiler.record.record_model import Record, decode
from tests.simulation.known_runs import WITHOUT_GROUPS, Limits, can_limit, control_group
from tests.task_endpoint import Task
from tests.values import present, without_caused_by_others

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare"
)

# Each process writes the CPU time that it has used at its end.
_BURNS = """
import ctypes, os, signal, sys, time
def burn(seconds):
    while time.process_time() < seconds: sum(range(1000))
    with open(sys.argv[1], "a") as file: print(time.process_time(), file=file)
def burn_in_children():
    for number in range(4):
        if os.fork() == 0:
            burn(0.7)
            os._exit(0)
    try:
        while True: os.wait()
    except ChildProcessError: pass
"""
_NOT_WAITED_FOR = """
class Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int),
                ("restorer", ctypes.c_void_p)]
assert ctypes.CDLL(None).sigaction(signal.SIGCHLD, ctypes.byref(Action(flags=2)), None) == 0  # SA_NOCLDWAIT
"""
_IGNORED = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"


def _run_to(report: Path) -> tuple[str, ...]:
    """``run`` without control groups, up to its command."""
    words = ("-m", "profiler", "run", "--no-history", "--output", str(report), "--")
    return (*WITHOUT_GROUPS, sys.executable, *words)


def _profiled(folder: Path, command: Sequence[str]) -> tuple[Record, float]:
    """The record, and the CPU time that the processes have used at least."""
    report, truth = folder / "report.json", folder / "truth"
    subprocess.run([*_run_to(report), *command, str(truth)], check=True)
    return decode(report.read_bytes()).record, sum(map(float, truth.read_text().split()))


def _listed_seconds(record: Record) -> float:
    return sum(process.cpu_seconds or 0 for process in record.processes)


@pytest.mark.parametrize("action", [_NOT_WAITED_FOR, _IGNORED], ids=["SA_NOCLDWAIT", "SIG_IGN"])
def test_the_time_of_children_that_nobody_waits_for_is_a_lower_bound(
    tmp_path: Path, action: str
) -> None:
    record, used_seconds = _profiled(
        tmp_path, (sys.executable, "-c", f"{_BURNS}{action}burn_in_children()")
    )
    cpu_seconds = present(record.metrics.cpu_seconds)
    assert is_cpu_partial(record)
    assert (
        present(record.monitor).warnings[0].startswith("A process ignores the end of its children")
    )
    assert _listed_seconds(record) <= cpu_seconds + 1e-6
    assert cpu_seconds <= used_seconds + 0.3  # the processes' starts and ends


@pytest.mark.slow
def test_the_command_itself_has_all_its_time(tmp_path: Path) -> None:
    record, used_seconds = _profiled(tmp_path, (sys.executable, "-c", f"{_BURNS}burn(1.4)"))
    (row,) = record.processes
    assert present(row.cpu_seconds) >= used_seconds - 0.03
    assert present(row.cpu_seconds) <= present(record.metrics.cpu_seconds)
    assert not is_cpu_partial(record)
    assert not without_caused_by_others(present(record.monitor).warnings)


@pytest.mark.slow
def test_a_child_has_what_was_read_of_it_and_the_others_the_rest(
    tmp_path: Path,
) -> None:
    command = ("sh", "-c", '"$@"; true', "sh", sys.executable, "-c", f"{_BURNS}burn(1.4)")
    record, used_seconds = _profiled(tmp_path, command)
    (child,) = [process for process in record.processes if process.name.startswith("python")]
    cpu_seconds = present(record.metrics.cpu_seconds)
    assert present(child.cpu_seconds) <= used_seconds + 0.1  # the end of the interpreter
    assert _listed_seconds(record) == pytest.approx(cpu_seconds, abs=0.06)
    assert _listed_seconds(record) <= cpu_seconds + 1e-6
    assert not is_cpu_partial(record)


def test_a_short_run_has_its_average(tmp_path: Path) -> None:
    record, used_seconds = _profiled(tmp_path, (sys.executable, "-c", f"{_BURNS}burn(0.1)"))
    metrics = record.metrics
    assert present(metrics.cpu_seconds) >= used_seconds
    average = present(metrics.vcpu_used).avg
    assert average == pytest.approx(
        1000 * present(metrics.cpu_seconds) / present(metrics.duration_ms), rel=0.3
    )


_MIB = 2**20
_TABLE_MIB = 150
# Waits until it has been moved into its group, in which the kernel counts what it then reads.
_MOVED = ("sh", "-c", 'echo $$; read -r _; exec "$@"', "sh")
# Four processes that hold for some seconds what they have read or written.
_FOUR = """
import mmap, multiprocessing, os, sys, time
def in_four(work):
    for number in range(4):
        if os.fork() == 0:
            held = work()
            time.sleep(10)
            os._exit(0)
    for number in range(4):
        os.wait()
"""
_COPIES = f"""{_FOUR}
table = bytearray(100 << 20)
for page in range(0, len(table), 4096): table[page] = 1
time.sleep(0.5)
def write():
    for page in range(0, len(table), 4096): table[page] = 2
in_four(write)
"""
_POOL = f"""{_FOUR}
def look(number):
    return sum(map(len, table[number::4])), time.sleep(10)
table = [str(number) for number in range(1_000_000)]
with multiprocessing.get_context("fork").Pool(4) as pool:
    pool.map(look, range(4), chunksize=1)
"""
_MAPS = f"""{_FOUR}
def read():
    with open(sys.argv[1], "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    sum(mapped[page] for page in range(0, len(mapped), 4096))
    return mapped
in_four(read)
"""


def _used_bytes(memory: Path) -> int:
    stat = dict(line.split() for line in (memory / "memory.stat").read_text().splitlines())
    return int(stat["total_rss"])


def _profiled_memory(program: str, folder: Path) -> tuple[Record, float]:
    """The record, and the most memory that the kernel counted without the files, in MiB."""
    output, table = folder / "report.json", folder / "table"
    table.write_bytes(bytes(_TABLE_MIB * _MIB if program == _MAPS else 0))
    with table.open("rb") as file:  # pages in memory would be counted for this process
        subprocess.run(["sync", str(table)], check=True)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    most_bytes = 0
    with control_group(Limits(), Task(2).docker_id("batch"), folder) as folders:
        memory = next(one for one in folders if one.parent.name == "memory")
        command = (*_run_to(output), *_MOVED, sys.executable, "-c", program, str(table))
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0) as process:
            pid = present(process.stdout).readline()
            assert pid, "the profiler has ended"
            (memory / "cgroup.procs").write_bytes(pid)
            present(process.stdin).write(b"\n")
            while process.poll() is None:
                most_bytes = max(most_bytes, _used_bytes(memory))
                time.sleep(0.02)
    assert process.returncode == 0
    return decode(output.read_bytes()).record, most_bytes / _MIB


@pytest.mark.diagonal(1)
@pytest.mark.skipif(not can_limit(), reason="needs version 1 of the control groups")
@pytest.mark.parametrize("program", [_COPIES, _POOL, _MAPS], ids=["copies", "pool", "maps"])
def test_pages_that_processes_share_count_once_and_copies_count(program: str) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        record, most_mib = _profiled_memory(program, Path(folder))
    assert present(record.sampling).sources == ("processes",)
    assert not without_caused_by_others(present(record.monitor).warnings)
    peak_mib = present(record.metrics.max_memory_used_mb)
    assert 0.95 * most_mib <= peak_mib <= 1.05 * most_mib + 15
    assert record.metrics.memory_peak_source == "sampled"
    mapped_mib = present(present(record.metrics.memory_mapped_file_mb).max)
    assert (mapped_mib > 0.95 * _TABLE_MIB) is (program == _MAPS)

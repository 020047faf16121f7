"""The memory that ``task-profiler run`` reports without a control group, against the kernel's count in one.

The program is in a group of its own, which the profiler cannot use: the hierarchies are read-only for it, as in most
containers.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from profiler.record.record_model import Record, decode
from tests.simulation.known_runs import WITHOUT_GROUPS, Limits, OwnTask, can_limit, control_group
from tests.values import present, without_lost_waits

_MIB = 2**20
# Waits until it has been moved into its group, in which the kernel counts what it then reads.
_MOVED = ("sh", "-c", 'echo $$ > "$0.pid"; read -r _ < "$0.moved"; exec "$@"')
# Four processes that hold for some seconds what they have read or written.
_FOUR = """
import mmap, multiprocessing, os, sys, time
def in_four(work):
    for number in range(4):
        if os.fork() == 0:
            held = work()
            time.sleep(4)
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
    return sum(map(len, table[number::4])), time.sleep(4)
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
    return int(stat["total_rss"]) + int(stat["total_mapped_file"])


def _profiled(program: str, folder: Path) -> tuple[Record, float]:
    """The record, and the most memory that the kernel counted, in MiB."""
    base, output, table = folder / "program", folder / "report.json", folder / "table"
    table.write_bytes(bytes(150 * _MIB))
    with table.open("rb") as file:  # pages in memory would be counted for this process
        subprocess.run(["sync", str(table)], check=True)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    for name in ("pid", "moved"):
        subprocess.run(["mkfifo", f"{base}.{name}"], check=True)
    most_bytes = 0
    with control_group(Limits(), OwnTask().docker_id("batch"), folder) as folders:
        memory = next(one for one in folders if one.parent.name == "memory")
        command = (*_MOVED, str(base), sys.executable, "-c", program, str(table))
        run = (sys.executable, "-m", "profiler", "run", "--no-history", "--output", str(output), "--", *command)
        process = subprocess.Popen([*WITHOUT_GROUPS, *run])
        (memory / "cgroup.procs").write_text(Path(f"{base}.pid").read_text())
        Path(f"{base}.moved").write_text("\n")
        while process.poll() is None:
            most_bytes = max(most_bytes, _used_bytes(memory))
            time.sleep(0.02)
    return decode(output.read_bytes()).record, most_bytes / _MIB


@pytest.mark.skipif(
    not can_limit() or shutil.which("unshare") is None, reason="needs root and version 1 of the control groups"
)
@pytest.mark.parametrize("program", [_COPIES, _POOL, _MAPS], ids=["copies", "pool", "maps"])
def test_pages_that_processes_share_count_once_and_copies_count(program: str) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        record, most_mib = _profiled(program, Path(folder))
    assert present(record.sampling).sources == ("processes",)
    assert not without_lost_waits(present(record.monitor).warnings)
    peak_mib = present(record.metrics.max_memory_used_mb)
    # The kernel counts the interpreter's files for whoever read them first.
    assert 0.95 * most_mib <= peak_mib <= 1.05 * most_mib + 15
    assert record.metrics.memory_peak_source == "sampled"

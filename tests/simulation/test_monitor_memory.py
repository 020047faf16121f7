"""The memory that a monitor without privileges reports, against the control group of its batch.

The task stats are the group's own counters in the form of version 2, without a high-water mark, and
change rarely.
"""

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.known_runs import Execution, Limits, can_limit, control_group
from tests.task_endpoint import Task, timestamp
from tests.values import present
from tools.waiting import READINGS_OF_FILES

_MIB = 2**20
# A monitor that starts on a busy machine needs seconds.
_SEEN = f"{READINGS_OF_FILES}wait_until_read('/proc/self/status')\n"
_FORKS = """
held = bytearray(200 << 20)
time.sleep(2)
for number in range(8):
    if os.fork() == 0:
        time.sleep(1)
        for page in range(0, len(held) if number == 0 else 0, 4096):
            held[page] = 1
        time.sleep(2)
        os._exit(0)
time.sleep(5)
"""
_TMPFS = """
with tempfile.TemporaryFile(dir="/dev/shm") as file:
    os.write(file.fileno(), bytes(300 << 20))
    time.sleep(6)
"""
_MAPPED = """
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
sum(mapped[page] for page in range(0, len(mapped), 4096))
time.sleep(5)
"""
_SHARED_AND_FILE = """
shared = mmap.mmap(-1, 200 << 20)
for page in range(0, len(shared), 4096):
    shared[page] = 1
with tempfile.TemporaryFile(dir="/var/tmp") as file:
    for _ in range(300):
        os.write(file.fileno(), bytes(1 << 20))
    time.sleep(5)
"""
# Writes a group's anonymous memory and tmpfs as /proc/meminfo shows those of a machine.
_FOLLOW = """
import sys, time
with open(sys.argv[1]) as stat, open(sys.argv[2], "w") as meminfo:
    while True:
        stat.seek(0)
        group = dict(map(str.split, stat))
        anonymous_kib, tmpfs_kib = (int(group[name]) // 1024 for name in ("total_rss", "total_shmem"))
        meminfo.seek(0)
        meminfo.write(f"AnonPages: {anonymous_kib + 2**19:12} kB\\nShmem: {tmpfs_kib:12} kB\\n")
        meminfo.flush()
        time.sleep(0.02)
"""


class _GroupTask(Task):
    """A task with the stats of its batch's group as they are from time to time: on Fargate,
    every ten seconds.
    """

    def __init__(self, stats_period_seconds: float, launch_type: str = "EC2") -> None:
        super().__init__(2, stats_period_seconds=stats_period_seconds)
        self.launch_type = launch_type
        self._last: tuple[int, dict[str, object]] = 0, {}
        self._seen_bytes: list[int] = []

    def mean_usage_mib(self) -> float:
        """The group's usage, as it was whenever the stats were asked for."""
        return statistics.fmean(self._seen_bytes) / _MIB

    def kernel(self, name: str) -> str:
        return (Path("/sys/fs/cgroup/memory") / self.docker_id("batch") / name).read_text()

    def task(self) -> dict[str, object]:
        return {**super().task(), "LaunchType": self.launch_type}

    def _sample(self, name: str) -> dict[str, object]:
        period = int((time.time() - self.started) / self.stats_period_seconds)
        if name == "batch":
            self._seen_bytes.append(int(self.kernel("memory.usage_in_bytes")))
        if name == "batch" and period > self._last[0]:
            stat = {
                name: int(value)
                for name, value in map(str.split, self.kernel("memory.stat").splitlines())
            }
            names = {
                "active_file": "active_file",
                "inactive_file": "inactive_file",
                "file_mapped": "mapped_file",
                "file": "cache",
                "shmem": "shmem",
                "anon": "rss",
            }
            detail = {name: stat[f"total_{old_name}"] for name, old_name in names.items()}
            detail["slab_reclaimable"] = 0  # version 1 does not tell
            memory = {"usage": int(self.kernel("memory.usage_in_bytes")), "stats": detail}
            self._last = period, {"read": timestamp(time.time()), "memory_stats": memory}
        return self._last[1] if name == "batch" else super()._sample(name)


@contextlib.contextmanager
def _machine_of(task: _GroupTask, folder: Path) -> Iterator[list[str]]:
    """A machine without other programs, as a command that enters it: its memory is the group's
    and half a GiB more.
    """
    stat = f"/sys/fs/cgroup/memory/{task.docker_id('batch')}/memory.stat"
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        follow = subprocess.Popen(
            ("nice", "-n", "-15", sys.executable, "-c", _FOLLOW, stat, file.name)
        )
        try:
            mount = f'mount --bind {file.name} /proc/meminfo && exec "$@"'
            yield ["unshare", "--mount", "sh", "-c", mount, "sh"]
        finally:
            follow.kill()
            follow.wait()


@pytest.mark.diagonal(1)
@pytest.mark.skipif(not can_limit(), reason="needs root and version 1 of the control groups")
@pytest.mark.parametrize(
    ("program", "period", "least_mib", "most_mib"),
    [
        (_FORKS, 1, 200, 300),
        (_FORKS, 10, 200, 300),
        (_TMPFS, 1, 300, 320),
        (_MAPPED, 1, 0, 30),
        (_MAPPED, 10, 0, 30),
    ],
)
def test_no_page_counts_twice_and_none_is_forgotten(
    program: str, period: float, least_mib: float, most_mib: float
) -> None:
    """A mapped file is not used, whether or not it was in memory before the batch maps it."""
    task, folder = _GroupTask(period), Path("/var/tmp")
    with (
        tempfile.NamedTemporaryFile(dir=folder) as file,
        control_group(Limits(), task.docker_id("batch"), folder) as folders,
    ):
        if program == _MAPPED:
            file.write(bytes(300 * _MIB))
        command = (
            sys.executable,
            "-c",
            f"{_SEEN}import mmap, os, sys, tempfile, time\n{program}",
            file.name,
        )
        execution = Execution(
            task=task, program=command, folders=folders, folder=folder, interval_seconds=0.5
        )
        record, _ = execution.by_monitor(is_privileged=False)
        mark_mib = int(task.kernel("memory.max_usage_in_bytes")) / _MIB
    used, peak_mib = (
        present(record.metrics.memory_used_mb),
        present(record.metrics.max_memory_used_mb),
    )
    most_peak_mib = most_mib if program == _MAPPED else mark_mib + 20
    assert least_mib <= present(used.p95) <= peak_mib <= most_peak_mib
    # On a busy machine, a program needs longer to write its pages than it sleeps.
    most_mib = max(most_mib, 1.1 * task.mean_usage_mib())
    assert least_mib / 2 <= present(used.avg) <= min(most_mib, peak_mib)
    assert record.metrics.memory_peak_source == "sampled"


@pytest.mark.slow
@pytest.mark.skipif(not can_limit(), reason="needs root and version 1 of the control groups")
def test_shared_memory_counts_once_beside_a_file() -> None:
    task, folder = _GroupTask(1), Path("/var/tmp")
    with control_group(Limits(), task.docker_id("batch"), folder) as folders:
        command = (sys.executable, "-c", f"{_SEEN}import mmap, os, tempfile\n{_SHARED_AND_FILE}")
        execution = Execution(
            task=task, program=command, folders=folders, folder=folder, interval_seconds=0.5
        )
        record, _ = execution.by_monitor(is_privileged=False)
        mark_mib = int(task.kernel("memory.max_usage_in_bytes")) / _MIB
    assert mark_mib > 490  # the file was in the group's memory, too
    assert 200 <= present(record.metrics.max_memory_used_mb) < 230


@pytest.mark.slow
@pytest.mark.skipif(not can_limit(), reason="needs root and version 1 of the control groups")
def test_on_a_machine_of_its_own_copied_pages_count_before_the_first_stats() -> None:
    task, folder = _GroupTask(10, "FARGATE"), Path("/var/tmp")
    with (
        control_group(Limits(), task.docker_id("batch"), folder) as folders,
        _machine_of(task, folder) as enter,
    ):
        command = (sys.executable, "-c", f"{_SEEN}{_FORKS}")
        execution = Execution(
            task=task, program=command, folders=folders, folder=folder, interval_seconds=0.5
        )
        record, _ = execution.by_monitor(is_privileged=False, enter=enter)
        mark_mib = int(task.kernel("memory.max_usage_in_bytes")) / _MIB
    assert present(record.metrics.max_memory_used_mb) == pytest.approx(mark_mib, rel=0.1)

"""The monitor beside a real program that maps a file which is larger than its control group.

The served statistics are the group's, as Docker would read them.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.profiled import entering, limited_group, python
from tests.integration.sidecar import Line, Sidecar, problems
from tests.task_endpoint import Task, TaskEndpoint
from tools.moto_server import FakeAws
from tools.waiting import wait_until

_LIMIT_MIB = 256
_FILE_MIB = 600
_MAPS = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
while True:
    for place in range(0, len(pages), 4096): pages[place]
"""


class GroupTask(Task):
    """A task whose batch has the statistics of a control group of version 1, and is killed."""

    group = Path()

    def container(self, name: str) -> dict[str, object]:
        document = super().container(name)
        if name == "batch":
            document["Limits"] = {"CPU": 256, "Memory": _LIMIT_MIB}
            if self.ended is not None:
                document["ExitCode"] = 137
        return document

    def _sample(self, name: str) -> dict[str, object]:
        sample = super()._sample(name)
        if name == "batch":
            lines = (self.group / "memory.stat").read_text().splitlines()
            sample["memory_stats"] = {
                "usage": self._number("memory.usage_in_bytes"),
                "max_usage": self._number("memory.max_usage_in_bytes"),
                "failcnt": self._number("memory.failcnt"),
                "limit": self._number("memory.limit_in_bytes"),
                "stats": {name: int(value) for name, value in map(str.split, lines)},
            }
        return sample

    def _number(self, name: str) -> int:
        return int((self.group / name).read_text())


@pytest.fixture
def file() -> Iterator[Path]:
    """A file without blocks, of which no page is in memory."""
    path = Path(f"/var/tmp/task-profiler-monitor-{os.getpid()}")
    with path.open("wb") as empty:
        empty.truncate(_FILE_MIB << 20)
    try:
        yield path
    finally:
        path.unlink()


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("sees_processes", [True, False])
def test_a_batch_that_fills_its_limit_with_a_mapped_file_is_small(
    aws: FakeAws, new_lines: Callable[[], list[Line]], file: Path, *, sees_processes: bool
) -> None:
    task = GroupTask(2)
    name = task.docker_id("batch") if sees_processes else f"test-{os.getpid()}"
    with (
        limited_group(_LIMIT_MIB, name) as task.group,
        subprocess.Popen(entering(task.group, *python(_MAPS), str(file))) as batch,
        TaskEndpoint(task) as endpoint,
    ):
        try:
            full = (_LIMIT_MIB - 16) << 20
            usage = task.group / "memory.usage_in_bytes"
            wait_until(lambda: int(usage.read_text()) > full, "a full group")
            with Sidecar(aws.environment(), endpoint=endpoint) as sidecar:
                sidecar.wait_for_samples(20)
                kills = (task.group / "memory.oom_control").read_text().split()[-1]
                batch.kill()
                batch.wait()
                sidecar.end_batch()
                _, errors = sidecar.finish()
        finally:
            batch.kill()
            batch.wait()
    assert kills == "0"
    assert problems(errors) == []
    (report,) = new_lines()
    record = report["record"]
    assert record["exitCode"] == 137
    assert not record.get("likelyOutOfMemory")
    metrics = record["metrics"]
    assert metrics["maxMemoryUsedMB"] < 45
    assert 0.7 * _LIMIT_MIB < metrics["memoryMappedFileMB"]["max"] < _LIMIT_MIB
    assert not any("memory-bound" in text for text in record["recommendation"]["reasons"])
    assert record["recommendation"]["memoryMB"] <= 2048
    assert bool(record.get("processes")) is sees_processes

"""Programs whose memory an RSS counts wrongly, in recorded files of cgroup version 2: each reader has
what they need.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import Mock

import pytest

from profiler.readers.cgroup.accounting_group import AccountingCgroup
from profiler.readers.cgroup.container_group import ContainerCgroup
from profiler.readers.cgroup.hierarchy import UNIFIED, CgroupLocation
from profiler.readers.container_sample import ContainerSample
from profiler.readers.docker.task_groups import InstanceCgroups, OpenGroup
from profiler.readers.ecs.container_stats import decode_stats
from tests.cgroup_files import V2_PROGRAMS, write_files
from tests.values import present

# What the kernel has beside a program, page tables among it, and what it has charged in advance.
_BESIDE_BYTES = 2 << 20

Used = tuple[int, int]  # the bytes used, and those of mapped files


def by_run(folder: Path, files: Mapping[str, str]) -> Used:
    """The group of `run`."""
    write_files(folder / "own", {**files, "cgroup.procs": ""})
    above = CgroupLocation(
        hierarchy=UNIFIED, group="/", folder=str(folder), controllers=frozenset({UNIFIED})
    )
    group = AccountingCgroup(above, "own", counts_cpu=True, counts_memory=True)
    reading = present(group.read_memory_parts(group.read_usage_text()))
    group.remove_group(Mock(), Mock())
    return reading.used_bytes, present(reading.mapped_file_bytes)


def by_monitor_beside_processes(folder: Path, files: Mapping[str, str]) -> Used:
    """The group that the sidecar finds through a process."""
    write_files(folder, files)
    group = ContainerCgroup(str(folder), str(folder), is_v1=False)
    reading = present(present(group.read_counters()).memory)
    group.close()
    return reading.used_bytes, present(reading.mapped_file_bytes)


def by_instance_monitor(folder: Path, files: Mapping[str, str]) -> Used:
    """The group by Docker's id."""
    write_files(folder, {"cgroup.controllers": "memory\n"})
    write_files(folder / "ecs" / "task" / "id", files)
    group = InstanceCgroups(str(folder)).open_container("id", "/ecs/task")
    assert isinstance(group, OpenGroup)
    sample = group.read_sample(1)
    group.close()
    return _of(sample)


def by_statistics(_folder: Path, files: Mapping[str, str]) -> Used:
    """Docker's statistics have the lines of memory.stat as members."""
    lines = (line.split() for line in files["memory.stat"].splitlines())
    memory = {
        "usage": int(files["memory.current"]),
        "stats": {name: int(value) for name, value in lines},
        "limit": 1 << 30,
    }
    document = {"id": {"read": "2026-11-27T21:00:00Z", "memory_stats": memory}}
    reading = decode_stats(json.dumps(document).encode())
    assert isinstance(reading, Mapping)
    return _of(reading["id"])


def _of(sample: object) -> Used:
    assert isinstance(sample, ContainerSample)
    return present(sample.memory_used_bytes), present(sample.memory_mapped_file_bytes)


@pytest.mark.parametrize("name", V2_PROGRAMS)
@pytest.mark.parametrize(
    "read", [by_run, by_monitor_beside_processes, by_instance_monitor, by_statistics]
)
def test_a_page_counts_once_and_one_that_can_be_dropped_not_at_all(
    read: Callable[[Path, Mapping[str, str]], Used], name: str, tmp_path: Path
) -> None:
    program = V2_PROGRAMS[name]
    used_bytes, mapped_bytes = read(tmp_path, program.files)
    assert program.needed_bytes <= used_bytes <= program.needed_bytes + _BESIDE_BYTES
    assert 0 <= mapped_bytes - program.mapped_bytes <= _BESIDE_BYTES

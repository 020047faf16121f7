"""The control groups of a process and their limits."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.readers.cgroup.hierarchy import (
    Limits,
    Mount,
    group_folders,
    parse_bytes,
    parse_cpu_max,
    parse_membership,
    parse_mounts,
    read_own_cgroups,
)

_GIB = 2**30
_V2_MOUNT = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
_V1_MOUNTS = (
    "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
)
_HYBRID_MOUNTS = (
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


def _machine(root: Path, cgroup: str, mounts: str, files: dict[str, str]) -> str:
    texts = {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mounts, **files}
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_version_2_in_a_container(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/memory.max": f"{2 * _GIB}\n",
        "sys/fs/cgroup/memory.events": "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n",
    }
    groups = read_own_cgroups(_machine(tmp_path, "0::/\n", _V2_MOUNT, files))
    assert groups.limits() == Limits(vcpu=1.5, memory_bytes=2 * _GIB)
    assert groups.oom_kills() == 2


def test_the_kills_are_those_of_the_nearest_group_that_counts_memory(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/user.slice/memory.events": "oom_kill 3\n",
        "sys/fs/cgroup/user.slice/job.scope/cgroup.procs": "1\n",
    }
    root = _machine(tmp_path, "0::/user.slice/job.scope\n", _V2_MOUNT, files)
    assert read_own_cgroups(root).oom_kills() == 3
    (tmp_path / "sys/fs/cgroup/user.slice/job.scope/memory.events").write_text("oom_kill 1\n")
    assert read_own_cgroups(root).oom_kills() == 1


def test_the_smallest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/user.slice/cpu.max": "100000 100000\n",
        "sys/fs/cgroup/user.slice/job.scope/cpu.max": "max 100000\n",
        "sys/fs/cgroup/user.slice/memory.max": f"{_GIB}\n",
        "sys/fs/cgroup/user.slice/job.scope/memory.max": f"{4 * _GIB}\n",
    }
    groups = read_own_cgroups(_machine(tmp_path, "0::/user.slice/job.scope\n", _V2_MOUNT, files))
    assert groups.limits() == Limits(vcpu=1.0, memory_bytes=_GIB)


def test_version_1_in_a_container_that_shows_the_hosts_path(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{_GIB}\n",
        "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    }
    membership = "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n1:name=systemd:/docker/abc\n"
    groups = read_own_cgroups(_machine(tmp_path, membership, _V1_MOUNTS, files))
    assert groups.limits() == Limits(vcpu=0.5, memory_bytes=_GIB)
    assert groups.oom_kills() == 1


def test_on_a_hybrid_host_version_1_is_read(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/unified/memory.max": "4096\n",
    }
    groups = read_own_cgroups(_machine(tmp_path, "4:memory:/job\n1:cpu:/\n0::/\n", _HYBRID_MOUNTS, files))
    assert groups.limits() == Limits()
    assert groups.oom_kills() is None


def test_nothing_to_read(tmp_path: Path) -> None:
    groups = read_own_cgroups(str(tmp_path))
    assert groups.limits() == Limits()
    assert groups.oom_kills() is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("max 100000", None), ("200000 100000\n", 2.0), ("-1\n 100000\n", None), ("", None), ("1 0", None), ("0 5", None)],
)
def test_cpu_quota(text: str, expected: float | None) -> None:
    assert parse_cpu_max(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("max\n", None), ("4096\n", 4096), ("9223372036854771712", None), ("x", None), ("0", None)]
)
def test_memory_limit(text: str, expected: int | None) -> None:
    assert parse_bytes(text) == expected


def test_a_group_outside_of_the_mount_is_its_top() -> None:
    mount = Mount(top_group="/docker/abc", folder="/sys/fs/cgroup", controllers=frozenset({""}))
    top = "/sys/fs/cgroup"
    assert group_folders("/", mount, "/docker/abcd") == (top,)
    assert group_folders("/", mount, "/../other") == (top,)
    assert group_folders("/", mount, "/docker/abc/x") == (f"{top}/x", top)


@given(st.text())
def test_parsers_survive_anything(text: str) -> None:
    parse_membership(text)
    parse_mounts(text)
    parse_cpu_max(text)
    parse_bytes(text)

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
from tests.cgroup_files import write_files

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


@pytest.mark.parametrize(
    ("cgroup", "mounts", "files", "limits", "kills"),
    [
        pytest.param(
            "0::/\n",
            _V2_MOUNT,
            {
                "cpu.max": "150000 100000\n",
                "memory.max": f"{2 * _GIB}\n",
                "memory.events": "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n",
            },
            Limits(vcpu=1.5, memory_bytes=2 * _GIB),
            2,
            id="version 2 in a container",
        ),
        pytest.param(
            "0::/user.slice/job.scope\n",
            _V2_MOUNT,
            {
                "user.slice/cpu.max": "100000 100000\n",
                "user.slice/job.scope/cpu.max": "max 100000\n",
                "user.slice/memory.max": f"{_GIB}\n",
                "user.slice/job.scope/memory.max": f"{4 * _GIB}\n",
                "user.slice/memory.events": "oom_kill 3\n",
                "memory.events": "oom_kill 7\n",
            },
            Limits(vcpu=1.0, memory_bytes=_GIB),
            3,
            id="the smallest limit on the way up, and the kills of the nearest group that counts memory",
        ),
        pytest.param(
            "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n1:name=systemd:/docker/abc\n",
            _V1_MOUNTS,
            {
                "cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
                "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                "memory/memory.limit_in_bytes": f"{_GIB}\n",
                "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            },
            Limits(vcpu=0.5, memory_bytes=_GIB),
            1,
            id="version 1 in a container that shows the host's path",
        ),
        pytest.param(
            "4:memory:/job\n1:cpu:/\n0::/\n",
            _HYBRID_MOUNTS,
            {
                "cpu/cpu.cfs_quota_us": "-1\n",
                "cpu/cpu.cfs_period_us": "100000\n",
                "memory/job/memory.limit_in_bytes": "9223372036854771712\n",
                "unified/memory.max": "4096\n",
            },
            Limits(),
            None,
            id="on a hybrid host version 1 is read",
        ),
    ],
)
def test_the_limits_and_the_kills(
    tmp_path: Path, cgroup: str, mounts: str, files: dict[str, str], limits: Limits, kills: int | None
) -> None:
    write_files(tmp_path, {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mounts})
    write_files(tmp_path / "sys/fs/cgroup", files)
    groups = read_own_cgroups(str(tmp_path))
    assert (groups.limits(), groups.oom_kills()) == (limits, kills)


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

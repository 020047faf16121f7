"""Another container's control group, on folders like /proc/PID with the files that the kernel has in either version."""

from pathlib import Path

import pytest

from profiler.readers.cgroup.container_group import (
    ContainerCgroup,
    GroupReading,
    container_group,
    find_container_cgroup,
)
from profiler.readers.cgroup.hierarchy import MemoryReading
from profiler.readers.linux.proc import all_pids
from tests.cgroup_files import write_files
from tests.values import present

MIB = 2**20
ID = "c0ffee" * 10 + "abcd"

# Docker mounts each hierarchy of version 1 at the container's own group; without a namespace the path is the host's.
V1_CGROUP = f"""\
12:memory:/ecs/0123/{ID}
6:cpu,cpuacct:/ecs/0123/{ID}
1:name=systemd:/ecs/0123/{ID}
0::/
"""
V1_MOUNTS = f"""\
700 690 0:50 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755
701 700 0:30 /ecs/0123/{ID} /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime master:13 - cgroup cgroup rw,memory
702 700 0:31 /ecs/0123/{ID} /sys/fs/cgroup/cpu,cpuacct ro,nosuid,nodev,noexec,relatime - cgroup cgroup rw,cpu,cpuacct
"""
V1_FILES = {
    "memory/memory.usage_in_bytes": f"{300 * MIB}\n",
    "memory/memory.stat": f"cache 9\ntotal_cache {20 * MIB}\ntotal_inactive_file {15 * MIB}\ntotal_shmem 0\n",
    "memory/memory.max_usage_in_bytes": f"{840 * MIB}\n",
    "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "cpu,cpuacct/cpuacct.usage": "4200000000\n",
}
# The container has a cgroup namespace of its own, in which its group is the top of the mount. In the monitor's
# namespace it is a sibling of the monitor's group.
V2_CGROUP = f"0::/../{ID}\n"
V2_MOUNTS = f"""\
700 690 0:26 /../{ID} /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate,memory_recursiveprot
"""
V2_FILES = {
    "memory.current": f"{300 * MIB}\n",
    "memory.stat": f"anon {280 * MIB}\nfile {20 * MIB}\nshmem 0\ninactive_file {15 * MIB}\n",
    "memory.peak": f"{840 * MIB}\n",
    "memory.events": "low 0\nhigh 0\nmax 31\noom 2\noom_kill 2\noom_group_kill 0\n",
    "cgroup.events": "populated 1\nfrozen 0\n",
    "cpu.stat": "usage_usec 4200000\nuser_usec 4000000\nsystem_usec 200000\n",
}


def process(folder: Path, cgroup: str, mounts: str, files: dict[str, str], pid: int = 7) -> Path:
    """A process with a root of its own; returns the folder of its hierarchies."""
    own = write_files(folder / str(pid), {"cgroup": cgroup, "mountinfo": mounts})
    return write_files(own / "root/sys/fs/cgroup", files)


def found(folder: Path, pid: int = 7) -> ContainerCgroup:
    return present(find_container_cgroup(pid, ID, str(folder)))


def read_once(folder: Path) -> GroupReading:
    group = found(folder)
    reading = group.read()
    group.close()
    return present(reading)


@pytest.mark.parametrize(
    ("cgroup", "mounts", "files"),
    [
        pytest.param(V1_CGROUP, V1_MOUNTS, V1_FILES, id="v1"),
        pytest.param(V2_CGROUP, V2_MOUNTS, V2_FILES, id="v2"),
        pytest.param(V2_CGROUP.replace(ID, f"{ID}/worker"), V2_MOUNTS, V2_FILES, id="v2, process in a group below"),
        pytest.param(
            V1_CGROUP.replace("0::/", f"0::/ecs/0123/{ID}"),
            V1_MOUNTS + f"703 700 0:40 /ecs/0123/{ID} /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n",
            {**V1_FILES, "unified/cgroup.procs": "7\n"},
            id="hybrid",
        ),
    ],
)
def test_the_counters_of_either_version(tmp_path: Path, cgroup: str, mounts: str, files: dict[str, str]) -> None:
    process(tmp_path, cgroup, mounts, files)
    reading = read_once(tmp_path)
    assert reading.memory == MemoryReading(used_bytes=285 * MIB, cache_bytes=20 * MIB, unmapped_bytes=15 * MIB)
    assert (reading.peak_bytes, reading.oom_kills, reading.cpu_ns) == (840 * MIB, 2, 4_200_000_000)


def test_the_group_is_readable_without_processes_until_it_is_removed(tmp_path: Path) -> None:
    top = process(tmp_path, V2_CGROUP, V2_MOUNTS, V2_FILES)
    group = found(tmp_path)
    (tmp_path / "7/cgroup").unlink()
    (top.rename(tmp_path / "elsewhere") / "memory.peak").write_text(f"{900 * MIB}\n")
    reading = group.read()
    assert present(reading).peak_bytes == 900 * MIB
    assert group.events_descriptor is not None
    _empty(tmp_path / "elsewhere", *V2_FILES)
    assert group.read() is None
    assert group.events_descriptor is None  # the kernel reports the file of a removed group as changed forever
    group.close()


def _empty(folder: Path, *names: str) -> None:
    """Remove the contents of files: the open files of a removed group cannot be read any more."""
    write_files(folder, dict.fromkeys(names, ""))


def test_a_reading_during_the_removal_lacks_some_counters(tmp_path: Path) -> None:
    top = process(tmp_path, V2_CGROUP, V2_MOUNTS, V2_FILES)
    group = found(tmp_path)
    whole = present(group.read())
    _empty(top, "memory.peak")
    without_mark = present(group.read())
    (top / "memory.peak").write_text(V2_FILES["memory.peak"])
    _empty(top, "memory.stat")
    without_cache = present(group.read())
    group.close()
    assert (whole.has_mark, without_mark.has_mark, without_cache.has_mark) == (True, False, False)
    assert without_mark.memory == whole.memory
    assert without_cache.peak_bytes == whole.peak_bytes


def test_version_2_shows_when_no_process_is_left(tmp_path: Path) -> None:
    top = process(tmp_path, V2_CGROUP, V2_MOUNTS, V2_FILES)
    group = found(tmp_path)
    alive = group.read()
    assert (present(alive).is_empty, group.events_descriptor is not None) == (False, True)
    (top / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    ended = present(group.read())
    assert (ended.is_empty, ended.has_mark) == (True, True)
    assert group.events_descriptor is None
    group.close()
    process(tmp_path, V1_CGROUP, V1_MOUNTS, V1_FILES, pid=8)  # version 1 does not show it
    group = found(tmp_path, pid=8)
    reading = present(group.read())
    assert (reading.is_empty, reading.has_mark, group.events_descriptor) == (None, True, None)
    group.close()


def test_what_a_kernel_does_not_have_leaves_the_rest(tmp_path: Path) -> None:
    """The mark, or the memory controller."""
    process(tmp_path, V2_CGROUP, V2_MOUNTS, {name: text for name, text in V2_FILES.items() if name != "memory.peak"})
    reading = read_once(tmp_path)
    assert (reading.peak_bytes, reading.oom_kills) == (None, 2)
    (tmp_path / "7/root/sys/fs/cgroup/memory.current").unlink()
    reading = read_once(tmp_path)
    assert (reading.memory, reading.cpu_ns) == (None, 4_200_000_000)


def test_an_unreadable_group_is_none_and_leaves_nothing_open(tmp_path: Path) -> None:
    before = len(all_pids("/proc/self/fd"))
    assert find_container_cgroup(7, ID, str(tmp_path)) is None
    process(tmp_path, V2_CGROUP, "", V2_FILES)
    assert find_container_cgroup(7, ID, str(tmp_path)) is None
    process(tmp_path, V2_CGROUP, V2_MOUNTS, {}, pid=8)
    assert find_container_cgroup(8, ID, str(tmp_path)) is None
    process(tmp_path, V2_CGROUP, V2_MOUNTS, V2_FILES, pid=9)
    found(tmp_path, 9).close()
    assert len(all_pids("/proc/self/fd")) == before


def test_the_containers_own_group_is_the_one_with_its_id() -> None:
    assert container_group(f"/ecs/0123/{ID}/worker/1", ID) == f"/ecs/0123/{ID}"
    assert container_group(f"/ecstasks.slice/docker-{ID}.scope", ID) == f"/ecstasks.slice/docker-{ID}.scope"
    assert container_group("/ecs/0123/another", ID) is None

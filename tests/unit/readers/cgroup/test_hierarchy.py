"""The control groups of a process and their limits."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.readers.cgroup.container_group import (
    ContainerCgroup,
    GroupReading,
    container_group,
    find_container_cgroup,
)
from profiler.readers.cgroup.hierarchy import (
    VERSION_2,
    MachineOomKills,
    group_folders,
    machine_oom_kills,
    parse_memory,
    read_own_cgroups,
)
from profiler.readers.container_sample import ResourceLimits
from profiler.readers.linux import proc
from profiler.readers.linux.proc import parse_mountinfo
from profiler.readers.memory_usage import MemoryReading
from tests.cgroup_files import CPU_STAT, V1_FILES, V2_MEMORY_FILES, write_files
from tests.fakes import seconds
from tests.open_files import open_files
from tests.values import present

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
    ("cgroup", "mounts", "files", "expected"),
    [
        ("0::/a/b\n", _V2_MOUNT, {"a/memory.high": f"{_GIB}\n", "a/b/memory.high": "max\n"}, _GIB),
        ("0::/a/b\n", _V2_MOUNT, {"a/memory.high": f"{_GIB}\n", "a/b/memory.high": "4096\n"}, 4096),
        ("0::/a/b\n", _V2_MOUNT, {"a/memory.high": "max\n", "a/memory.max": f"{_GIB}\n"}, None),
        ("0::/a/b\n", _V2_MOUNT, {"a/memory.high": "x\n"}, None),
        (
            "0::/a/b\n",
            _V2_MOUNT,
            {"a/memory.high": "4096\n", "a/memory.events": "low 3\nhigh 0\nmax 2\n"},
            None,
        ),
        (
            "0::/a/b\n",
            _V2_MOUNT,
            {"a/memory.high": "4096\n", "a/memory.events": "low 0\nhigh 12\nmax 0\n"},
            4096,
        ),
        (
            "0::/a/b\n",
            _V2_MOUNT,
            {
                "a/memory.high": f"{_GIB}\n",
                "a/memory.events": "low 0\nhigh 1\n",
                "a/b/memory.high": "4096\n",
                "a/b/memory.events": "low 0\nhigh 0\n",
            },
            _GIB,
        ),
        ("4:memory:/job\n0::/\n", _HYBRID_MOUNTS, {"unified/memory.high": "4096\n"}, None),
        ("", "", {}, None),
    ],
)
def test_the_limit_above_which_processes_wait_for_memory(
    tmp_path: Path, cgroup: str, mounts: str, files: dict[str, str], expected: int | None
) -> None:
    write_files(tmp_path, {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mounts})
    write_files(tmp_path / "sys/fs/cgroup", files)
    assert read_own_cgroups(str(tmp_path)).throttling_limit_bytes() == expected


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
            ResourceLimits(vcpu=1.5, memory_bytes=2 * _GIB),
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
                "user.slice/job.scope/memory.max": "max\n",
                "user.slice/memory.events": "oom_kill 3\n",
                "memory.events": "oom_kill 7\n",
            },
            ResourceLimits(vcpu=1.0, memory_bytes=_GIB),
            3,
            id=(
                "the smallest limit on the way up, and the kills of the nearest group that "
                "counts memory"
            ),
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
            ResourceLimits(vcpu=0.5, memory_bytes=_GIB),
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
            ResourceLimits(),
            None,
            id="on a hybrid host version 1 is read",
        ),
        pytest.param("", "", {}, ResourceLimits(), None, id="nothing to read"),
    ],
)
def test_the_limits_and_the_kills(
    tmp_path: Path,
    cgroup: str,
    mounts: str,
    files: dict[str, str],
    limits: ResourceLimits,
    kills: int | None,
) -> None:
    write_files(tmp_path, {"proc/self/cgroup": cgroup, "proc/self/mountinfo": mounts})
    write_files(tmp_path / "sys/fs/cgroup", files)
    groups = read_own_cgroups(str(tmp_path))
    assert groups.smallest_limits() == limits
    assert groups.oom_kills() == kills


sizes = st.integers(0, 2**50)


@given(sizes, sizes, sizes, sizes, sizes, sizes)
def test_memory_is_never_negative(
    usage: int, active: int, inactive: int, mapped: int, cache: int, shared: int
) -> None:
    stat = (
        f"active_file {active}\ninactive_file {inactive}\nfile_mapped {mapped}\nfile "
        f"{cache}\nshmem {shared}\n"
    )
    reading = parse_memory(f"{usage}\n".encode(), stat.encode(), VERSION_2)
    if reading is None:
        assert active + inactive > usage
        return
    assert 0 <= reading.used_bytes <= usage
    assert reading.reclaimable_bytes == usage - reading.used_bytes
    assert 0 <= present(reading.cache_bytes) <= cache


def test_huge_pages_are_in_the_usage_where_version_2_lists_them() -> None:
    """The mount option ``memory_hugetlb_accounting``."""
    stat = b"anon 4096\nfile 0\nactive_file 0\ninactive_file 0\nshmem 0\n"
    assert not present(parse_memory(b"8192\n", stat, VERSION_2)).has_huge_pages
    assert present(parse_memory(b"8192\n", stat + b"hugetlb 0\n", VERSION_2)).has_huge_pages


MIB = 2**20
ID = "c0ffee" * 10 + "abcd"

# Docker mounts each hierarchy of version 1 at the container's own group; without a namespace the
# path is the host's.
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
V1_GROUP_FILES = {
    f"cpu,cpuacct/{name}" if name.startswith("cpuacct") else f"memory/{name}": text
    for name, text in V1_FILES.items()
}
# The container has a cgroup namespace of its own, in which its group is the top of the mount. In
# the monitor's namespace it is a sibling of the monitor's group.
V2_CGROUP = f"0::/../{ID}\n"
V2_MOUNTS = f"""\
700 690 0:26 /../{ID} /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate,memory_recursiveprot
"""
V2_GROUP_FILES = {
    **V2_MEMORY_FILES,
    "cgroup.events": "populated 1\nfrozen 0\n",
    "cpu.stat": CPU_STAT,
}
UNMAPPED = 1_048_576 + 9_437_184


def process(folder: Path, cgroup: str, mounts: str, files: dict[str, str], pid: int = 7) -> Path:
    """A process with a root of its own; returns the folder of its hierarchies."""
    own = write_files(folder / str(pid), {"cgroup": cgroup, "mountinfo": mounts})
    return write_files(own / "root/sys/fs/cgroup", files)


def found(folder: Path, pid: int = 7) -> ContainerCgroup:
    return present(find_container_cgroup(pid, ID, str(folder)))


@pytest.mark.parametrize(
    ("cgroup", "mounts", "files"),
    [
        pytest.param(V1_CGROUP, V1_MOUNTS, V1_GROUP_FILES, id="v1"),
        pytest.param(V2_CGROUP, V2_MOUNTS, V2_GROUP_FILES, id="v2"),
        pytest.param(
            V2_CGROUP.replace(ID, f"{ID}/worker"),
            V2_MOUNTS,
            V2_GROUP_FILES,
            id="v2, process in a group below",
        ),
        pytest.param(
            V1_CGROUP.replace("0::/", f"0::/ecs/0123/{ID}"),
            V1_MOUNTS
            + f"703 700 0:40 /ecs/0123/{ID} /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n",
            {**V1_GROUP_FILES, "unified/cgroup.procs": "7\n"},
            id="hybrid",
        ),
    ],
)
def test_the_counters_of_either_version(
    tmp_path: Path, cgroup: str, mounts: str, files: dict[str, str]
) -> None:
    process(tmp_path, cgroup, mounts, files)
    with closing(found(tmp_path)) as group:
        reading = present(group.read_counters())
    assert reading.memory == MemoryReading(
        used_bytes=860_000_000 - UNMAPPED,
        cache_bytes=12_582_912 - 2_097_152,  # without tmpfs
        reclaimable_bytes=UNMAPPED,
        mapped_file_bytes=None if files is V2_GROUP_FILES else 0,
        kernel_bytes=None if files is V2_GROUP_FILES else 860_000_000 - 847_000_000 - 12_582_912,
    )
    cpu_ns = 1_276_795_000 if files is V2_GROUP_FILES else 99208
    assert reading.peak_bytes == 870_000_000
    assert reading.oom_kills == 2
    assert reading.cpu_ns == cpu_ns


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return process(tmp_path, V2_CGROUP, V2_MOUNTS, V2_GROUP_FILES)


@pytest.fixture
def group(tmp_path: Path, top: Path) -> Iterator[ContainerCgroup]:
    assert top.is_dir()
    with closing(found(tmp_path)) as group:
        yield group


def test_the_group_is_readable_without_processes_until_it_is_removed(
    group: ContainerCgroup, top: Path, tmp_path: Path
) -> None:
    (tmp_path / "7/cgroup").unlink()
    (top.rename(tmp_path / "elsewhere") / "memory.peak").write_text(f"{900 * MIB}\n")
    reading = group.read_counters()
    assert present(reading).peak_bytes == 900 * MIB
    assert group.events_descriptor is not None
    _empty(tmp_path / "elsewhere", *V2_GROUP_FILES)
    assert group.read_counters() is None
    assert (
        group.events_descriptor is None
    )  # the kernel reports the file of a removed group as changed forever


def _empty(folder: Path, *names: str) -> None:
    """Remove the contents of files: the open files of a removed group cannot be read any more."""
    write_files(folder, dict.fromkeys(names, ""))


def test_a_reading_during_the_removal_lacks_some_counters(
    group: ContainerCgroup, top: Path
) -> None:
    whole = present(group.read_counters())
    _empty(top, "memory.peak")
    without_mark = present(group.read_counters())
    (top / "memory.peak").write_text(V2_GROUP_FILES["memory.peak"])
    _empty(top, "memory.stat")
    without_cache = present(group.read_counters())
    assert whole.has_mark is True
    assert without_mark.has_mark is False
    assert without_cache.has_mark is False
    assert without_mark.memory == whole.memory
    assert without_cache.peak_bytes == whole.peak_bytes


def test_version_2_shows_when_no_process_is_left(
    group: ContainerCgroup, top: Path, tmp_path: Path
) -> None:
    alive = group.read_counters()
    assert present(alive).is_empty is False
    assert group.events_descriptor is not None
    (top / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    ended = present(group.read_counters())
    assert ended.is_empty is True
    assert ended.has_mark is True
    assert group.events_descriptor is None
    process(tmp_path, V1_CGROUP, V1_MOUNTS, V1_GROUP_FILES, pid=8)  # version 1 does not show it
    with closing(found(tmp_path, pid=8)) as other:
        reading = present(other.read_counters())
    assert reading.is_empty is None
    assert reading.has_mark is True
    assert other.events_descriptor is None


def read_at_rest(group: ContainerCgroup) -> GroupReading:
    """The reading after the group was the same for five seconds."""
    for second in range(6):
        group.read_counters(seconds(second))
    return present(group.read_counters(seconds(6)))


def test_a_group_in_which_nothing_ran_is_not_read_again(group: ContainerCgroup, top: Path) -> None:
    before = read_at_rest(group)
    _empty(top, "memory.stat", "memory.events")
    assert group.read_counters(seconds(7)) is before


@pytest.mark.parametrize(
    "changed",
    [
        {"cpu.stat": CPU_STAT.replace("usage_usec 1276795", "usage_usec 1276796")},
        {"memory.current": "7\n"},
        {"memory.peak": f"{900 * MIB}\n"},
        {"cgroup.events": "populated 0\nfrozen 0\n"},
    ],
    ids=["CPU time", "memory", "mark", "end"],
)
def test_what_a_group_at_rest_does_next_is_seen_at_once(
    changed: dict[str, str], group: ContainerCgroup, top: Path
) -> None:
    read_at_rest(group)
    kills = V2_GROUP_FILES["memory.events"].replace("oom_kill 2", "oom_kill 9")
    write_files(top, {**changed, "memory.events": kills})
    assert present(group.read_counters(seconds(7))).oom_kills == 9


def test_the_last_reading_of_a_group_at_rest_is_complete(group: ContainerCgroup, top: Path) -> None:
    read_at_rest(group)
    _empty(top, "memory.stat")
    assert present(group.read_counters()).memory is None


def test_an_unreadable_group_is_none_and_leaves_nothing_open(tmp_path: Path) -> None:
    assert find_container_cgroup(7, ID, str(tmp_path)) is None
    process(tmp_path, V2_CGROUP, "", V2_GROUP_FILES)
    assert find_container_cgroup(7, ID, str(tmp_path)) is None
    process(tmp_path, V2_CGROUP, V2_MOUNTS, {}, pid=8)
    assert find_container_cgroup(8, ID, str(tmp_path)) is None
    process(tmp_path, V2_CGROUP, V2_MOUNTS, V2_GROUP_FILES, pid=9)
    found(tmp_path, 9).close()
    assert not open_files(tmp_path)


def test_the_containers_own_group_is_the_one_with_its_id() -> None:
    """The container's own group is the one with its id and one outside of the mount is its top."""
    assert container_group(f"/ecs/0123/{ID}/worker/1", ID) == f"/ecs/0123/{ID}"
    assert (
        container_group(f"/ecstasks.slice/docker-{ID}.scope", ID)
        == f"/ecstasks.slice/docker-{ID}.scope"
    )
    assert container_group("/ecs/0123/another", ID) is None
    (mount,) = parse_mountinfo("29 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    top = "/sys/fs/cgroup"
    folders = {"/docker/abcd": (top,), "/../other": (top,), "/docker/abc/x": (f"{top}/x", top)}
    assert {group: group_folders("/", mount, group) for group in folders} == folders


def test_the_machines_kills_are_counted_on_whatever_page_their_line_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {"/proc/vmstat": b"nr_free_pages 7\noom_kill 3\n"}
    monkeypatch.setattr(proc, "read_or_none", files.get)
    assert machine_oom_kills() == 3
    for first_page, count in ((b"nr_free_pages 7\noom_kill 4\n", 4), (b"nr_free_pages 7\n", 3)):
        monkeypatch.setattr(proc.KeptFile, "read", lambda _, page=first_page: page)
        assert MachineOomKills().count() == count

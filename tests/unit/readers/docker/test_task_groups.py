"""The groups of an instance's containers and tasks, where the agent puts them."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from profiler.readers import Unavailable
from profiler.readers.cgroup.container_group import GroupReading
from profiler.readers.container_sample import ContainerSample
from profiler.readers.docker.task_groups import (
    InstanceCgroups,
    OpenGroup,
    container_paths,
    group_path,
)
from profiler.readers.linux import proc
from tests.cgroup_files import V1_FILES, V2_FILES, V2_MEMORY_FILES, write_files
from tests.fakes import seconds
from tests.open_files import open_files

ID = "0213e8fb72f8" + "0" * 52
TASK = "0123456789abcdef0123456789abcdef"
SAMPLE = ContainerSample(
    read_ns=7,
    cpu_ns=99208,
    memory_used_bytes=860_000_000 - 10_485_760,
    memory_cache_bytes=10_485_760,
    memory_mapped_file_bytes=0,
    memory_kernel_bytes=860_000_000 - 847_000_000 - 12_582_912,
    memory_usage_peak_bytes=870_000_000,
    memory_limit_bytes=1 << 30,
    memory_limit_hits=4,
    block_read_bytes=4096,
    block_write_bytes=21_061_632,
    pids=2,
)
# Recorded in version 1 (Linux 6.18) and 2 (Linux 6.1)
V1_BLOCKS = (
    "254:0 Read 4096\n254:0 Write 21061632\n254:0 Sync 21061632\n254:0 Async 0\n254:0 Discard 0\n"
    "254:0 Total 21065728\nTotal 21065728\n"
)
V2_BLOCKS = "254:0 rbytes=4096 wbytes=21061632 rios=1 wios=40 dbytes=0 dios=0\n7:0 \n"
FILES = {
    "memory": {
        **{name: text for name, text in V1_FILES.items() if name.startswith("memory.")},
        "memory.limit_in_bytes": f"{1 << 30}\n",
        "memory.failcnt": "4\n",
    },
    "cpuacct": {"cpuacct.usage": V1_FILES["cpuacct.usage"]},
    "blkio": {"blkio.throttle.io_service_bytes_recursive": V1_BLOCKS},
    "pids": {"pids.current": "2\n"},
}


class OpenGroups(ExitStack):
    """Opens groups below a folder and closes them at its end."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def container(self, cgroup_parent: str) -> OpenGroup:
        return self._opened(InstanceCgroups(str(self.root)).open_container(ID, cgroup_parent))

    def v1_container(self) -> OpenGroup:
        for controller, files in FILES.items():
            write_files(self.root / controller / "ecs" / TASK / ID, files)
        return self.container(f"/ecs/{TASK}")

    def v1_task(self) -> OpenGroup:
        for controller, files in FILES.items():
            write_files(self.root / controller / "ecs" / TASK, files)
        return self._opened(InstanceCgroups(str(self.root)).open_task(f"/ecs/{TASK}"))

    def _opened(self, group: OpenGroup | Unavailable) -> OpenGroup:
        assert isinstance(group, OpenGroup)
        return self.enter_context(closing(group))


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[OpenGroups]:
    with OpenGroups(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(
    "changed",
    [{}, {"cpuacct": {"cpuacct.usage": "99209\n"}}, {"memory": {"memory.failcnt": "5\n"}}],
)
def test_a_container_that_did_nothing_is_as_it_was(
    changed: dict[str, dict[str, str]], tmp_path: Path, groups: OpenGroups
) -> None:
    """Its CPU time and memory show that; the other files are read only if one of these has
    changed.
    """
    group = groups.v1_container()
    assert group.read_sample(7) == SAMPLE
    group.read_sample(seconds(5))
    write_files(tmp_path / "pids" / "ecs" / TASK / ID, {"pids.current": "9\n"})
    for controller, files in changed.items():
        write_files(tmp_path / controller / "ecs" / TASK / ID, files)
    has_run, now_ns = "cpuacct" in changed, seconds(6)
    expected = replace(
        SAMPLE, read_ns=now_ns, cpu_ns=99209 if has_run else 99208, pids=9 if has_run else 2
    )
    assert group.read_sample(now_ns) == expected


@pytest.mark.parametrize("times", [(3, 9), (11, 21)], ids=["each second", "every ten seconds"])
def test_parts_of_the_memory_that_the_kernel_shows_late_are_read(
    times: tuple[int, int], tmp_path: Path, groups: OpenGroups
) -> None:
    """Seen with Linux 6.18: a written file was in the memory in use at once, and in memory.stat
    1.9 s later.
    """
    group = groups.v1_container()
    group.read_sample(seconds(1))
    stat = V1_FILES["memory.stat"].replace(
        "total_inactive_file 1048576", "total_inactive_file 2048576"
    )
    write_files(tmp_path / "memory" / "ecs" / TASK / ID, {"memory.stat": stat})
    found = [getattr(group.read_sample(seconds(at)), "memory_used_bytes", None) for at in times]
    assert found == [(SAMPLE.memory_used_bytes or 0) - 1_000_000] * 2


@pytest.mark.parametrize(("limit_bytes", "hits"), [(1 << 30, 5), (1 << 31, 4), (2**63 - 4096, 4)])
def test_the_limit_is_not_hit_far_below_it(
    limit_bytes: int, hits: int, tmp_path: Path, groups: OpenGroups
) -> None:
    write_files(
        tmp_path / "memory" / "docker" / ID,
        FILES["memory"] | {"memory.limit_in_bytes": f"{limit_bytes}\n"},
    )
    group = groups.container("")
    samples = []
    for number in (4, 5):
        write_files(tmp_path / "memory" / "docker" / ID, {"memory.failcnt": f"{number}\n"})
        samples.append(group.read_sample(number))
    assert [getattr(sample, "memory_limit_hits", None) for sample in samples] == [4, hits]


def test_a_container_of_version_2(tmp_path: Path, groups: OpenGroups) -> None:
    folder = tmp_path / "ecstasks.slice" / f"ecstasks-{TASK}.slice" / f"docker-{ID}.scope"
    limit = {"memory.max": f"{1 << 30}\n", "io.stat": V2_BLOCKS, "pids.current": "2\n"}
    write_files(folder, {**V2_FILES, **V2_MEMORY_FILES, **limit})
    write_files(tmp_path, {"cgroup.controllers": "cpu memory\n"})
    group = groups.container(f"ecstasks-{TASK}.slice")
    sample = group.read_sample(7)
    assert isinstance(sample, ContainerSample)
    assert sample.memory_limit_hits is None  # version 2 does not count them as version 1 does
    assert sample.cpu_ns == 1_276_795_000
    assert sample.pids == 2
    assert sample.block_read_bytes == 4096
    assert sample.block_write_bytes == 21_061_632
    # Later, without CPU time, by a loop device on the disk.
    blocks = V2_BLOCKS.replace("wbytes=21061632", "wbytes=50331648")
    loop = "7:0 rbytes=1024 wbytes=50331000 rios=1 wios=9 dbytes=0 dios=0\n"
    write_files(folder, {"io.stat": loop + blocks})
    assert group.read_sample(seconds(5)) == replace(
        sample, read_ns=seconds(5), block_write_bytes=50_331_648
    )
    totals = group.read_totals()
    assert isinstance(totals, GroupReading)
    assert totals.peak_bytes == 870_000_000
    assert group.mark_bytes() == 870_000_000
    assert totals.oom_kills == 2
    # The counters of the pages are old: more than the usage.
    write_files(folder, {"memory.stat": f"active_file {1 << 40}\ninactive_file 0\n"})
    write_files(folder, {"cpu.stat": "usage_usec 2000000\n"})
    sample = group.read_sample(seconds(9))
    assert isinstance(sample, ContainerSample)
    assert sample.memory_used_bytes is None
    assert sample.is_memory_impossible


def test_a_tasks_group_has_the_totals_of_its_ended_containers(
    tmp_path: Path, groups: OpenGroups
) -> None:
    group = groups.v1_task()
    totals = group.read_totals()
    assert isinstance(totals, GroupReading)
    assert totals.cpu_ns == 99208
    assert totals.peak_bytes == 870_000_000
    assert totals.has_mark is True
    # The kernel counts a kill only in the group of the process, which is that of a container.
    (kills,) = tmp_path.rglob("memory.oom_control")
    kills.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    totals = group.read_totals()
    assert isinstance(totals, GroupReading)
    assert totals.oom_kills is None
    assert open_files(tmp_path)
    group.close()  # then it is gone, and its files are closed
    assert not open_files(tmp_path)
    for reading in (group.read_sample(7), group.read_totals()):
        assert isinstance(reading, Unavailable)
        assert reading.is_gone


def test_a_missing_controller_costs_only_its_values(tmp_path: Path, groups: OpenGroups) -> None:
    write_files(tmp_path / "cpuacct" / "docker" / ID, FILES["cpuacct"])
    group = groups.container("")
    assert group.read_sample(7) == ContainerSample(read_ns=7, cpu_ns=99208)


def test_a_group_that_does_not_exist_is_gone(tmp_path: Path) -> None:
    cgroups = InstanceCgroups(str(tmp_path))
    write_files(tmp_path, {f"memory/ecs/{TASK}/tasks": ""})
    for group in (
        cgroups.open_container(ID, f"/ecs/{TASK}"),
        cgroups.open_task("/ecs/other"),
        cgroups.open_task(""),
    ):
        assert isinstance(group, Unavailable)
        assert group.is_gone


def test_where_a_container_is() -> None:
    paths = {
        "/ecs/1": (f"ecs/1/{ID}",),
        "ecstasks-1.slice": (f"ecstasks.slice/ecstasks-1.slice/docker-{ID}.scope",),
        "ecstasks-1-2.slice": (
            f"ecstasks.slice/ecstasks-1.slice/ecstasks-1-2.slice/docker-{ID}.scope",
        ),
        "": (f"docker/{ID}", f"system.slice/docker-{ID}.scope"),
    }
    assert {parent: container_paths(ID, parent) for parent in paths} == paths
    assert all(paths[parent][0].startswith(group_path(parent)) for parent in paths if parent)


@pytest.mark.parametrize("parent", [f"/ecs/{TASK}", f"ecstasks-{TASK}.slice"])
def test_a_container_that_docker_is_starting_has_a_group(parent: str, tmp_path: Path) -> None:
    (seen,), (starting,) = container_paths("seen", parent), container_paths(ID, parent)
    if parent.startswith("/"):
        for path in (seen, starting):
            write_files(tmp_path / "cpuacct" / path, FILES["cpuacct"])
    else:
        (tmp_path / "cgroup.controllers").touch()
        for path in (seen, starting):
            write_files(tmp_path / path, V2_FILES)
    before = open_files()
    groups = InstanceCgroups(str(tmp_path))
    assert list(groups.cpu_ns_of_unseen(parent, {"seen"})) == [ID]
    assert groups.cpu_ns_of_unseen(parent, {"seen"})[ID]
    assert groups.cpu_ns_of_unseen(parent, {"seen", ID}) == {}
    assert groups.cpu_ns_of_unseen("", set()) == {}
    assert groups.cpu_ns_of_unseen("/ecs/gone", set()) == {}
    assert open_files() == before


@pytest.mark.parametrize("parent", [f"/ecs/{TASK}", f"ecstasks-{TASK}.slice"])
def test_a_tasks_group_that_is_removed_while_it_is_listed_has_no_container(
    parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (starting,) = container_paths(ID, parent)
    write_files(tmp_path / "cpuacct" / starting, FILES["cpuacct"])
    groups = InstanceCgroups(str(tmp_path))

    def removed(folder: str) -> None:
        raise FileNotFoundError(folder)

    monkeypatch.setattr(os, "scandir", removed)
    assert groups.cpu_ns_of_unseen(parent, set()) == {}


@pytest.fixture
def _machine_with_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    read = proc.read_or_none
    meminfo = b"MemTotal: 4194304 kB\nHugetlb: 1048576 kB\n"
    monkeypatch.setattr(
        proc, "read_or_none", lambda path: meminfo if path == "/proc/meminfo" else read(path)
    )


@pytest.mark.usefixtures("_machine_with_huge_pages")
def test_huge_pages_of_all_sizes_are_in_addition(tmp_path: Path, groups: OpenGroups) -> None:
    group = tmp_path / "hugetlb" / "ecs" / TASK / ID
    sizes = {"2MB": 314572800, "1GB": 1 << 30}
    write_files(
        group, {f"hugetlb.{size}.usage_in_bytes": f"{held}\n" for size, held in sizes.items()}
    )
    expected = replace(SAMPLE, memory_huge_page_bytes=sum(sizes.values()))
    assert groups.v1_container().read_sample(7) == expected


@pytest.mark.usefixtures("_machine_with_huge_pages")
@pytest.mark.parametrize(
    ("in_usage", "held_bytes"), [("", 314572800), ("hugetlb 314572800\n", None)]
)
def test_version_2_may_count_huge_pages_as_used(
    in_usage: str, held_bytes: int | None, tmp_path: Path, groups: OpenGroups
) -> None:
    memory = V2_MEMORY_FILES | {"memory.stat": V2_MEMORY_FILES["memory.stat"] + in_usage}
    files = V2_FILES | memory | {"hugetlb.2MB.current": "314572800\n", "cgroup.controllers": ""}
    write_files(tmp_path, {"cgroup.controllers": ""})
    write_files(tmp_path / "ecs" / TASK / ID, files)
    group = groups.container(f"/ecs/{TASK}")
    sample = group.read_sample(7)
    assert isinstance(sample, ContainerSample)
    assert sample.memory_huge_page_bytes == held_bytes

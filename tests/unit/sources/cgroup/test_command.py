import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.local.build_record import MemoryPeak, resolve_peak
from profiler.local.sampler import GroupMemory
from profiler.local.supervisor import CommandExit, ReapedUsage
from profiler.sources.cgroup.command import CommandCgroup, make_command_cgroup
from profiler.sources.cgroup.counters import (
    V1_MEMORY,
    V2_MEMORY,
    GroupPeak,
    MemoryFiles,
    MemoryReading,
    parse_cpu_stat_ns,
    parse_number,
    read_memory,
    read_oom_kills,
)
from profiler.sources.cgroup.group import delegate_controller, try_lock
from profiler.sources.cgroup.hierarchy import read_own_cgroups
from profiler.sources.linux.process_tree import ProcessReading

_MIB = 2**20
_OWN_PID = os.getpid()
_RUN = "0123456789ab"
_NAME = f"task-profiler-{_OWN_PID}-01234567"
_sleeps: list[float] = []

# Recorded on Linux 6.18 (v1, hybrid) and on Linux 6.8 (v2), shortened.
_V1_STAT = (
    "cache 2924544\nrss 847000000\nshmem 0\ninactive_file 1\nactive_file 1\n"
    "total_cache 12582912\ntotal_rss 847000000\ntotal_shmem 2097152\ntotal_mapped_file 0\n"
    "total_inactive_file 1048576\ntotal_active_file 9437184\n"
)
_V2_STAT = "anon 847000000\nfile 12582912\nkernel 5000\nshmem 2097152\ninactive_file 1048576\nactive_file 9437184\n"
_CPU_STAT = "usage_usec 1276795\nuser_usec 821781\nsystem_usec 455013\ncore_sched.force_idle_usec 0\n"
_V1_CHILD = {
    "cgroup.procs": "",
    "cpuacct.usage": "99208\n",
    "memory.usage_in_bytes": "860000000\n",
    "memory.max_usage_in_bytes": "870000000\n",
    "memory.stat": _V1_STAT,
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
}
_V2_CHILD = {"cgroup.procs": "", "cpu.stat": _CPU_STAT}
_V2_MEMORY_CHILD = {
    "memory.current": "860000000\n",
    "memory.peak": "870000000\n",
    "memory.stat": _V2_STAT,
    "memory.events": "low 0\nhigh 0\nmax 0\noom 3\noom_kill 2\noom_group_kill 0\n",
}
_V1 = (
    "4:memory:/job\n2:cpuacct:/\n",
    "1 0 0:1 / /m rw - cgroup cgroup rw,memory\n2 0 0:2 / /c rw - cgroup c rw,cpuacct\n",
)
_HYBRID = (_V1[0] + "0::/\n", _V1[1] + "3 0 0:3 / /u rw - cgroup2 cgroup2 rw\n")
_V2 = ("0::/user/job.scope\n", "3 0 0:3 / /u rw - cgroup2 cgroup2 rw\n")


class FakeFolders:
    """A kernel that puts its files into every group that is made."""

    def __init__(self, child: dict[str, str], *, refuses: Callable[[Path], bool] = lambda _: False) -> None:
        self._child = child
        self._refuses = refuses
        self.made: list[Path] = []
        self.removed: list[Path] = []

    def make(self, folder: Path) -> None:
        if self._refuses(folder):
            raise OSError(30, "Read-only file system")
        folder.mkdir()
        self.made.append(folder)
        for name, text in self._child.items():
            (folder / name).write_text(text)

    def remove(self, folder: Path) -> None:
        if (folder / "cgroup.procs").exists() and (folder / "cgroup.procs").read_text().strip():
            raise OSError(16, "Device or resource busy")
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        self.removed.append(folder)


def _machine(root: Path, kind: tuple[str, str], *groups: str, files: dict[str, str] | None = None) -> Path:
    """A tree with /proc, and with the groups of this process in the mounts m, c and u."""
    texts = {"proc/self/cgroup": kind[0], "proc/self/mountinfo": kind[1], **(files or {})}
    texts.update(
        {f"{group}/cgroup.procs": f"1\n{_OWN_PID}\n" for group in groups if f"{group}/cgroup.procs" not in texts}
    )
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def _made(root: Path, filesystem: FakeFolders) -> CommandCgroup:
    return make_command_cgroup(read_own_cgroups(root), _OWN_PID, _RUN, filesystem)


# --- what the kernel writes ----------------------------------------------------------------------


def _group(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(("child", "files"), [(_V1_CHILD, V1_MEMORY), (_V2_MEMORY_CHILD, V2_MEMORY)], ids=["v1", "v2"])
def test_memory_is_without_inactive_files_and_tmpfs_is_no_cache(
    tmp_path: Path, child: dict[str, str], files: MemoryFiles
) -> None:
    group = _group(tmp_path, child)
    expected = MemoryReading(used_bytes=860_000_000 - 1_048_576, cache_bytes=12_582_912 - 2_097_152)
    assert read_memory(group, files) == expected
    assert read_oom_kills(group, files) == 2


@pytest.mark.parametrize("files", [V1_MEMORY, V2_MEMORY])
def test_a_removed_group_has_no_readings(tmp_path: Path, files: MemoryFiles) -> None:
    assert read_memory(tmp_path, files) is None
    assert read_oom_kills(tmp_path, files) is None


def test_cpu_time() -> None:
    assert parse_number(b"1276795140123\n") == 1_276_795_140_123
    assert parse_cpu_stat_ns(_CPU_STAT.encode()) == 1_276_795_000
    assert parse_cpu_stat_ns(b"user_usec 5\n") is None


@given(st.binary())
def test_parsers_survive_anything(text: bytes) -> None:
    for parsed in (parse_number(text), parse_cpu_stat_ns(text)):
        assert parsed is None or parsed >= 0


@given(st.integers(0, 2**50), st.integers(0, 2**50), st.integers(0, 2**50), st.integers(0, 2**50))
def test_memory_is_never_negative(usage: int, inactive: int, cache: int, shared: int) -> None:
    stat = f"inactive_file {inactive}\nfile {cache}\nshmem {shared}\n"
    with tempfile.TemporaryDirectory() as folder:
        files = {"memory.current": f"{usage}\n", "memory.stat": stat}
        reading = read_memory(_group(Path(folder), files), V2_MEMORY)
    assert reading is not None
    assert 0 <= reading.used_bytes <= usage
    assert reading.cache_bytes is not None
    assert 0 <= reading.cache_bytes <= cache


# --- where a group is made -----------------------------------------------------------------------


def test_version_1_has_a_group_for_cpu_and_one_for_memory(tmp_path: Path) -> None:
    filesystem = FakeFolders(_V1_CHILD)
    own = _made(_machine(tmp_path, _HYBRID, "m/job", "c", "u"), filesystem)
    assert filesystem.made == [tmp_path / "m/job" / _NAME, tmp_path / "c" / _NAME]
    answer = own.join()
    assert answer == b"99208 11"
    assert (tmp_path / "c" / _NAME / "cgroup.procs").read_text() == "0"
    own.on_started(answer)
    (tmp_path / "c" / _NAME / "cpuacct.usage").write_text("1099208\n")
    assert (own.is_used, own.has_cpu_accounting, own.cpu_ns(), own.oom_kills()) == (True, True, 1_000_000, 2)
    assert own.memory() == MemoryReading(used_bytes=860_000_000 - 1_048_576, cache_bytes=10_485_760)


def test_a_hierarchy_that_shares_out_cpu_is_left_alone(tmp_path: Path) -> None:
    mounts = _HYBRID[1].replace("rw,cpuacct", "rw,cpu,cpuacct")
    kind = (_HYBRID[0].replace("cpuacct", "cpu,cpuacct"), mounts)
    filesystem = FakeFolders({**_V1_CHILD, **_V2_CHILD})
    _made(_machine(tmp_path, kind, "m/job", "c", "u"), filesystem)
    assert filesystem.made == [tmp_path / "m/job" / _NAME, tmp_path / "u" / _NAME]


def test_a_memory_limit_is_repeated_for_those_who_look_in_their_own_group_only(tmp_path: Path) -> None:
    filesystem = FakeFolders({**_V1_CHILD, "memory.limit_in_bytes": ""})
    files = {"m/job/memory.limit_in_bytes": f"{512 * _MIB}\n"}
    _made(_machine(tmp_path, _V1, "m/job", "c", files=files), filesystem)
    assert (tmp_path / "m/job" / _NAME / "memory.limit_in_bytes").read_text() == str(512 * _MIB)


@pytest.mark.parametrize("limit", [("memory.max", "536870912"), ("cpu.max", "50000 100000")])
def test_no_group_is_created_where_it_would_hide_a_limit(tmp_path: Path, limit: tuple[str, str]) -> None:
    filesystem = FakeFolders(_V2_CHILD)
    name, value = limit
    own = _made(_machine(tmp_path, _V2, "u/user/job.scope", files={f"u/user/{name}": f"{value}\n"}), filesystem)
    assert not own.is_used
    assert filesystem.removed == filesystem.made


def test_memory_limits_that_would_not_hold_below_are_not_escaped(tmp_path: Path) -> None:
    filesystem = FakeFolders(_V1_CHILD)
    files = {"m/job/memory.use_hierarchy": "0\n"}
    _made(_machine(tmp_path, _V1, "m/job", "c", files=files), filesystem)
    assert filesystem.made == [tmp_path / "c" / _NAME]


def test_version_2_counts_cpu_everywhere_and_memory_where_it_is_handed_down(tmp_path: Path) -> None:
    scope = "u/user/job.scope"
    filesystem = FakeFolders(_V2_CHILD)
    own = _made(_machine(tmp_path / "cpu", _V2, scope), filesystem)
    own.on_started(own.join())
    assert (own.has_cpu_accounting, own.cpu_ns(), own.memory(), own.memory_peak_bytes()) == (True, 0, None, None)
    files = {f"{scope}/cgroup.subtree_control": "memory pids\n"}
    own = _made(_machine(tmp_path / "memory", _V2, scope, files=files), FakeFolders({**_V2_CHILD, **_V2_MEMORY_CHILD}))
    assert own.memory_peak_bytes() == 870_000_000
    assert own.memory() is not None


@pytest.mark.parametrize("handed_down", ["cpu memory", "io"])
def test_version_2_is_left_alone_where_it_shares_out_cpu_or_io(tmp_path: Path, handed_down: str) -> None:
    filesystem = FakeFolders(_V2_CHILD)
    scope = "u/user/job.scope"
    own = _made(_machine(tmp_path, _V2, scope, files={f"{scope}/cgroup.subtree_control": handed_down}), filesystem)
    assert (own.is_used, filesystem.made) == (False, [])


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    filesystem = FakeFolders(_V2_CHILD)
    scope = "u/user/job.scope"
    own = _made(_machine(tmp_path / "1", _V2, files={f"{scope}/cgroup.procs": "1\n2\n"}), filesystem)
    assert (own.is_used, filesystem.made) == (False, [])
    for group in ("/../other", "/user/gone.scope"):
        root = _machine(tmp_path / group.replace("/", "_"), (f"0::{group}\n", _V2[1]), "u")
        assert not _made(root, filesystem).is_used
    mounted_elsewhere = (_V2[0], _V2[1].replace(" / /u", " /docker/abc /u"))
    assert not _made(_machine(tmp_path / "4", mounted_elsewhere, "u", scope), filesystem).is_used
    assert filesystem.made == []


def test_a_kernel_that_refuses_leaves_things_as_they_were(tmp_path: Path) -> None:
    filesystem = FakeFolders(_V1_CHILD, refuses=lambda _: True)
    own = _made(_machine(tmp_path, _HYBRID, "m/job", "c", "u"), filesystem)
    own.on_started(own.join())
    assert (own.is_used, own.has_cpu_accounting, own.cpu_ns(), own.memory(), own.oom_kills()) == (
        False,
        False,
        None,
        None,
        None,
    )
    assert own.memory_peak_bytes() is None
    own.remove(_sleeps.append)


def test_a_group_without_an_entrance_is_removed_again(tmp_path: Path) -> None:
    filesystem = FakeFolders({})
    own = _made(_machine(tmp_path, _V2, "u/user/job.scope"), filesystem)
    assert not own.is_used
    assert filesystem.removed == filesystem.made != []


def test_a_group_that_could_not_be_joined_is_removed(tmp_path: Path) -> None:
    filesystem = FakeFolders(_V1_CHILD)
    own = _made(_machine(tmp_path, _V1, "m/job", "c"), filesystem)
    own.on_started(b"5 01")
    assert filesystem.removed == [tmp_path / "m/job" / _NAME]
    assert (own.has_cpu_accounting, own.memory(), own.contains(_OWN_PID)) == (True, None, False)


@given(st.binary(max_size=10))
def test_an_incomplete_message_raises_nothing(answer: bytes) -> None:
    own = CommandCgroup()
    own.on_started(answer)
    assert not own.is_used


def test_what_a_killed_profiler_left_is_removed_and_a_living_ones_is_not(tmp_path: Path) -> None:
    old, living, foreign = ("task-profiler-1-aa", "task-profiler-2-bb", "job-x")
    files = {f"u/user/job.scope/{name}/cgroup.procs": "" for name in (old, living, foreign)}
    filesystem = FakeFolders(_V2_CHILD)
    root = _machine(tmp_path, _V2, "u/user/job.scope", files=files)
    claim = try_lock(root / "u/user/job.scope" / living)
    assert claim is not None
    _made(root, filesystem)
    os.close(claim)
    assert [folder.name for folder in filesystem.removed] == [old]


def test_a_group_whose_last_process_is_about_to_end_is_waited_for(tmp_path: Path) -> None:
    filesystem = FakeFolders(_V2_CHILD)
    own = _made(_machine(tmp_path, _V2, "u/user/job.scope"), filesystem)
    entrance = tmp_path / "u/user/job.scope" / _NAME / "cgroup.procs"
    entrance.write_text("0\n")  # cannot be moved
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            entrance.write_text("")

    own.remove(nap)
    assert (len(naps), filesystem.removed) == (3, [entrance.parent])


def test_what_still_runs_is_moved_up(tmp_path: Path) -> None:
    filesystem = FakeFolders(_V2_CHILD)
    own = _made(_machine(tmp_path, _V2, "u/user/job.scope"), filesystem)
    group = tmp_path / "u/user/job.scope" / _NAME
    (group / "cgroup.procs").write_text("0\n4242\n")
    own.remove(_sleeps.append)
    assert (tmp_path / "u/user/job.scope/cgroup.procs").read_text().startswith("4242")
    assert group.exists()  # the fake moves no process, so the group stays


# --- delegation ------------------------------------------------------------------------------


def _delegated(root: Path, **files: str) -> Path:
    texts = {"procs": f"{_OWN_PID}\n", "controllers": "cpu memory pids\n", "subtree_control": "\n", **files}
    root.mkdir()
    for name, text in texts.items():
        (root / f"cgroup.{name}").write_text(text)
    return root


def test_a_container_of_our_own_hands_memory_down_meanwhile(tmp_path: Path) -> None:
    group = _delegated(tmp_path / "g", procs="1\n")
    delegation = delegate_controller(group, 1, "aside", "memory", FakeFolders(_V2_CHILD))
    assert delegation is not None
    assert (group / "aside/cgroup.procs").read_text() == "0"
    assert (group / "cgroup.subtree_control").read_text().startswith("+memory")
    (group / "aside/cgroup.procs").write_text("")
    delegation.revert()
    assert (group / "cgroup.subtree_control").read_text().startswith("-memory")
    assert not (group / "aside").exists()


@pytest.mark.parametrize(
    "files",
    [
        {"procs": f"1\n{_OWN_PID}\n"},
        {"procs": f"0\n{_OWN_PID}\n"},
        {"controllers": "cpu pids\n"},
        {"subtree_control": "pids\n"},
        {},  # not marked as delegated, and not a container's
    ],
)
def test_what_is_not_ours_alone_is_not_changed(tmp_path: Path, files: dict[str, str]) -> None:
    group = _delegated(tmp_path / "g", **files)
    filesystem = FakeFolders(_V2_CHILD)
    before = (group / "cgroup.subtree_control").read_text()
    assert delegate_controller(group, _OWN_PID, "aside", "memory", filesystem) is None
    assert ((group / "cgroup.subtree_control").read_text(), filesystem.made) == (before, [])


def test_a_group_with_groups_in_it_is_not_exclusive(tmp_path: Path) -> None:
    group = _delegated(tmp_path / "g", procs="1\n")
    (group / "other").mkdir()
    assert delegate_controller(group, 1, "aside", "memory", FakeFolders(_V2_CHILD)) is None


def test_a_refused_controller_brings_us_back(tmp_path: Path) -> None:
    group = _delegated(tmp_path / "g", procs="1\n")
    filesystem = FakeFolders({})
    assert delegate_controller(group, 1, "aside", "memory", filesystem) is None
    assert not (group / "aside").exists()


# --- readings --------------------------------------------------------------------------------


class _Cgroup(CommandCgroup):
    """A fake group with given readings."""

    def __init__(self, readings: Sequence[MemoryReading | None], *, outside: Sequence[int] = ()) -> None:
        super().__init__()
        self._readings = list(readings)
        self._outside = outside

    def memory(self) -> MemoryReading | None:
        return self._readings.pop(0)

    def memory_peak_bytes(self) -> int | None:
        return 100 * _MIB

    def contains(self, pid: int) -> bool:
        return pid not in self._outside


def _process(pid: int) -> ProcessReading:
    return ProcessReading(pid=pid, started_ticks=1, own_cpu_ns=0, children_cpu_ns=0)


def _reading(used: int, cache: int) -> MemoryReading:
    return MemoryReading(used_bytes=used * _MIB, cache_bytes=cache * _MIB)


def test_the_most_cache_seen_and_the_most_memory_are_kept() -> None:
    memory = GroupMemory(_Cgroup([_reading(10, 1), _reading(30, 5), None, _reading(20, 2)]))
    assert memory.read([_process(1)]) == 10 * _MIB
    assert memory.read([_process(1)]) == 30 * _MIB
    assert memory.read([_process(1)]) is None
    assert memory.used_peak_bytes == 30 * _MIB
    assert memory.final_peak() == GroupPeak(size_bytes=100 * _MIB, cache_bytes=5 * _MIB)


def test_a_process_that_left_the_group_ends_its_say() -> None:
    memory = GroupMemory(_Cgroup([_reading(10, 0), _reading(10, 0), _reading(10, 0), None], outside=[2]))
    assert memory.read([_process(1)]) == 10 * _MIB
    assert memory.read([_process(1), _process(2)]) is None
    assert memory.read([_process(1)]) is None
    assert memory.final_peak() == GroupPeak(size_bytes=100 * _MIB, includes_all_processes=False)


def _ending(largest_rss: int, *, was_only_process: bool = True, written: int = 0) -> CommandExit:
    reaped = ReapedUsage(max_rss_bytes=largest_rss * _MIB, block_write_bytes=written * _MIB)
    return CommandExit(
        exit_code=0, is_stop_requested=False, was_only_process=was_only_process, ignored_sigchld=False, reaped=reaped
    )


def _group_peak(size: int, cache_bytes: int = 0, *, includes_all_processes: bool = True) -> GroupPeak:
    return GroupPeak(size_bytes=size * _MIB, cache_bytes=cache_bytes, includes_all_processes=includes_all_processes)


def test_the_groups_mark_is_the_peak_of_several_processes() -> None:
    peak = resolve_peak(
        50 * _MIB, _ending(40, was_only_process=False), _group_peak(800), had_several_processes=True, floor_bytes=0
    )
    assert peak == MemoryPeak(size_bytes=800 * _MIB, source="kernel")


def test_the_groups_mark_is_known_below_our_own_memory() -> None:
    peak = resolve_peak(None, _ending(20), _group_peak(3), had_several_processes=False, floor_bytes=20 * _MIB)
    assert peak == MemoryPeak(size_bytes=3 * _MIB, source="kernel")


def test_of_one_process_the_larger_mark_counts() -> None:
    peak = resolve_peak(None, _ending(60), _group_peak(55), had_several_processes=False, floor_bytes=20 * _MIB)
    assert peak == MemoryPeak(size_bytes=60 * _MIB, source="kernel")


@pytest.mark.parametrize(
    ("group", "written"),
    [
        (_group_peak(800, 8 * _MIB), 0),
        (_group_peak(800), 8),
        (_group_peak(800, includes_all_processes=False), 0),
        (GroupPeak(), 0),
    ],
    ids=["cache", "a deleted file", "somebody left", "no mark"],
)
def test_a_mark_that_is_not_the_commands_memory_is_not_its_peak(group: GroupPeak, written: int) -> None:
    ending = _ending(40, was_only_process=False, written=written)
    peak = resolve_peak(50 * _MIB, ending, group, had_several_processes=True, floor_bytes=0)
    assert peak == MemoryPeak(size_bytes=50 * _MIB, source="sampled")


def test_a_little_cache_is_within_what_the_kernel_counts_by() -> None:
    ending = _ending(20)
    assert (
        resolve_peak(None, ending, _group_peak(1, 200_000), had_several_processes=False, floor_bytes=2**40).source
        == "kernel"
    )
    assert (
        resolve_peak(None, ending, _group_peak(1, 300_000), had_several_processes=False, floor_bytes=2**40)
        == MemoryPeak()
    )


def test_a_sample_above_the_processs_own_mark_is_sampled() -> None:
    """The working set of a group counts files in use; a process's mark does not."""
    peak = resolve_peak(
        900 * _MIB, _ending(800), _group_peak(950, 100 * _MIB), had_several_processes=False, floor_bytes=0
    )
    assert peak == MemoryPeak(size_bytes=900 * _MIB, source="sampled")

"""The control group of a command: where it is created, how it is entered and removed, and
delegation.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from profiler.readers.cgroup.accounting_group import CgroupFilesystem, try_lock
from profiler.readers.cgroup.command_group import CommandCgroup, make_command_cgroup
from profiler.readers.cgroup.controller_delegation import delegate_controller
from profiler.readers.cgroup.hierarchy import read_own_cgroups
from profiler.readers.linux import proc
from profiler.readers.memory_usage import MemoryReading
from tests.cgroup_files import V1_FILES, V2_FILES, V2_MEMORY_FILES, write_files
from tests.open_files import open_files
from tests.values import present

_OWN_PID = os.getpid()
_RUN = "0123456789ab"
_NAME = f"task-profiler-{_OWN_PID}-01234567"
_sleeps: list[float] = []

_V1 = (
    "4:memory:/job\n2:cpuacct:/\n",
    "1 0 0:1 / /m rw - cgroup cgroup rw,memory\n2 0 0:2 / /c rw - cgroup c rw,cpuacct\n",
)
_HYBRID = (_V1[0] + "0::/\n", _V1[1] + "3 0 0:3 / /u rw - cgroup2 cgroup2 rw\n")
_V2 = ("0::/user/job.scope\n", "3 0 0:3 / /u rw - cgroup2 cgroup2 rw\n")


class FakeCgroupFilesystem(CgroupFilesystem):
    """A kernel that creates its files in every new group."""

    def __init__(self, child: dict[str, str], *, refuses: bool = False) -> None:
        self._child = child
        self._refuses = refuses
        self.made: list[Path] = []
        self.removed: list[Path] = []
        self.busy: set[Path] = set()  # its last processes are ending

    def make_folder(self, folder: str) -> None:
        if self._refuses:
            raise OSError(30, "Read-only file system")
        Path(folder).mkdir()
        self.made.append(write_files(Path(folder), self._child))

    def remove_folder(self, folder: str) -> None:
        processes = Path(folder, "cgroup.procs")
        has_processes = processes.exists() and processes.read_text().strip()
        if has_processes or Path(folder) in self.busy:
            raise OSError(16, "Device or resource busy")
        shutil.rmtree(folder)
        self.removed.append(Path(folder))


_Made = tuple[CommandCgroup, FakeCgroupFilesystem]
_Make = Callable[..., _Made]


@pytest.fixture(name="made")
def _made() -> Iterator[_Make]:
    """Makes what a test asks for, and removes it at the end."""
    with ExitStack() as stack:

        def make(*what: Any, **options: Any) -> _Made:
            own, filesystem = _make(*what, **options)
            stack.callback(own.remove, _sleeps.append)
            return own, filesystem

        yield make


def _make(
    child: dict[str, str],
    root: Path,
    kind: tuple[str, str],
    *groups: str,
    files: dict[str, str] | None = None,
    refuses: bool = False,
    filesystem: FakeCgroupFilesystem | None = None,
) -> _Made:
    """What is made for a command in a tree with /proc, and with the groups of this process in
    the mounts m, c and u.
    """
    texts = {"proc/self/cgroup": kind[0], "proc/self/mountinfo": kind[1], **(files or {})}
    write_files(
        root, {**{f"{group}/cgroup.procs": f"1\n{_OWN_PID}\n" for group in groups}, **texts}
    )
    filesystem = filesystem or FakeCgroupFilesystem(child, refuses=refuses)
    return make_command_cgroup(read_own_cgroups(str(root)), _OWN_PID, _RUN, filesystem), filesystem


class _BesideAnotherProfiler(FakeCgroupFilesystem):
    """A new group is locked by a profiler that removes it as a stale one, before or after it is
    opened here.
    """

    def __init__(self, child: dict[str, str], *, removes_first: bool) -> None:
        super().__init__(child)
        self._removes_first = removes_first
        self.claim: int | None = None

    def make_folder(self, folder: str) -> None:
        super().make_folder(folder)
        if len(self.made) > 1:
            return
        if self._removes_first:
            self.remove_folder(folder)
        else:
            self.claim = present(try_lock(folder))


@pytest.mark.parametrize("removes_first", [False, True])
def test_a_group_that_another_profiler_removes_meanwhile_is_made_again(
    made: _Make, tmp_path: Path, *, removes_first: bool
) -> None:
    filesystem = _BesideAnotherProfiler(V1_FILES, removes_first=removes_first)
    own, _ = made(V1_FILES, tmp_path, _V1, "m/job", "c", filesystem=filesystem)
    assert own.counts_memory
    assert own.has_cpu_accounting
    memory, again, cpu = (folder.name for folder in filesystem.made)
    # The other one removes the name that it has seen.
    assert memory == cpu == _NAME
    assert again == f"{_NAME}-1"
    if filesystem.claim is not None:
        os.close(filesystem.claim)
    own.remove(_sleeps.append)


def test_only_the_groups_of_killed_profilers_are_removed(made: _Make, tmp_path: Path) -> None:
    """A group of somebody else may have a name that begins in the same way, and be empty."""
    others = [
        "task-profiler",
        "task-profiler-web",
        "task-profiler-7-web",
        "task-profiler-7-1234567",
    ]
    stale = [
        "task-profiler-7-0a1b2c3d",
        "task-profiler-7-0a1b2c3d-1",
        "task-profiler-7-0a1b2c3d-self",
    ]
    for name in (*others, *stale):
        write_files(tmp_path / "m/job" / name, V1_FILES)
    _, filesystem = made(V1_FILES, tmp_path, _V1, "m/job", "c")
    assert {folder.name for folder in filesystem.removed} == set(stale)


def test_version_1_has_a_group_for_cpu_and_one_for_memory(made: _Make, tmp_path: Path) -> None:
    own, filesystem = made(V1_FILES, tmp_path, _HYBRID, "m/job", "c", "u")
    assert filesystem.made == [tmp_path / "m/job" / _NAME, tmp_path / "c" / _NAME]
    own.enter_groups()
    answer = own.start_counting()
    assert answer == b"99208 11"
    assert (tmp_path / "c" / _NAME / "tasks").read_text() == "0"
    assert own.is_entered_at_once
    own.on_started(answer)
    (tmp_path / "c" / _NAME / "cpuacct.usage").write_text("1099208\n")
    assert own.is_used is True
    assert own.has_cpu_accounting is True
    assert own.cpu_ns() == 1_000_000
    assert own.oom_kills() == 2
    assert own.read_memory() == MemoryReading(
        used_bytes=860_000_000 - 10_485_760,
        cache_bytes=10_485_760,
        reclaimable_bytes=10_485_760,
        mapped_file_bytes=0,
        kernel_bytes=860_000_000 - 847_000_000 - 12_582_912,
    )


def test_a_hierarchy_that_distributes_cpu_is_not_used(made: _Make, tmp_path: Path) -> None:
    mounts = _HYBRID[1].replace("rw,cpuacct", "rw,cpu,cpuacct")
    kind = (_HYBRID[0].replace("cpuacct", "cpu,cpuacct"), mounts)
    _, filesystem = made({**V1_FILES, **V2_FILES}, tmp_path, kind, "m/job", "c", "u")
    assert filesystem.made == [tmp_path / "m/job" / _NAME, tmp_path / "u" / _NAME]


@pytest.mark.parametrize(
    ("limit", "value", "child"),
    [
        pytest.param(
            "memory.max", "536870912", V2_FILES, id="a limit of memory that cannot be repeated"
        ),
        pytest.param("cpu.max", "50000 100000", V2_FILES, id="a limit of CPU"),
        # The kernel creates the folder before it refuses the group's files, such as under some
        # security modules.
        pytest.param(
            "other", "", {"cpu.stat": V2_FILES["cpu.stat"]}, id="a group that cannot be entered"
        ),
    ],
)
def test_no_group_remains_where_it_would_hide_a_limit_or_cannot_be_entered(
    made: _Make, tmp_path: Path, limit: str, value: str, child: dict[str, str]
) -> None:
    own, filesystem = made(
        child, tmp_path, _V2, "u/user/job.scope", files={f"u/user/{limit}": f"{value}\n"}
    )
    assert own.is_used is False
    assert own.is_entered_at_once is False
    assert filesystem.removed == filesystem.made
    assert not open_files(tmp_path)


def test_version_2_counts_cpu_everywhere_and_memory_where_it_is_enabled(
    made: _Make, tmp_path: Path
) -> None:
    scope = "u/user/job.scope"
    own, _ = made(V2_FILES, tmp_path / "cpu", _V2, scope)
    own.enter_groups()
    own.on_started(own.start_counting())
    assert own.has_cpu_accounting is True
    assert own.cpu_ns() == 0
    assert own.read_memory() is None
    assert own.memory_peak_bytes() is None
    files = {f"{scope}/cgroup.subtree_control": "memory pids\n"}
    own, _ = made({**V2_FILES, **V2_MEMORY_FILES}, tmp_path / "memory", _V2, scope, files=files)
    assert own.memory_peak_bytes() == 870_000_000
    assert own.read_memory() is not None


@pytest.mark.parametrize(
    ("files", "swap_bytes"),
    [
        ({}, None),
        ({"memory.swap.current": "7000\n"}, 7000),
        ({"memory.swap.current": "7000\n", "memory.swap.peak": "9000\n"}, 9000),
    ],
)
def test_version_2_counts_what_is_in_swap(
    made: _Make, tmp_path: Path, files: dict[str, str], swap_bytes: int | None
) -> None:
    scope = "u/user/job.scope"
    above = {f"{scope}/cgroup.subtree_control": "memory pids\n"}
    of_group = {**V2_FILES, **V2_MEMORY_FILES, **files}
    own, _ = made(of_group, tmp_path, _V2, scope, files=above)
    own.enter_groups()
    own.on_started(own.start_counting())
    assert own.swap_bytes() == swap_bytes


@pytest.mark.parametrize(("line", "swap_bytes"), [("", None), ("total_swap 7000\n", 7000)])
def test_version_1_counts_what_is_in_swap_if_it_accounts_for_it(
    made: _Make, tmp_path: Path, line: str, swap_bytes: int | None
) -> None:
    files = {**V1_FILES, "memory.stat": V1_FILES["memory.stat"] + line}
    own, _ = made(files, tmp_path, _V1, "m/job", "c")
    own.enter_groups()
    own.on_started(own.start_counting())
    assert own.read_memory() is not None
    assert own.swap_bytes() == swap_bytes


def test_a_group_that_distributes_cpu_or_io_is_not_changed(
    made: _Make,
    tmp_path: Path,
) -> None:
    """A group that distributes CPU or I/O or does not list this process is not changed."""
    scope = "u/user/job.scope"
    for handed_down in ("cpu memory", "io"):
        files = {f"{scope}/cgroup.subtree_control": handed_down}
        own, filesystem = made(V2_FILES, tmp_path / handed_down, _V2, scope, files=files)
        assert own.is_used is False
        assert filesystem.made == []
    own, filesystem = made(V2_FILES, tmp_path / "1", _V2, files={f"{scope}/cgroup.procs": "1\n2\n"})
    assert own.is_used is False
    assert filesystem.made == []
    for group in ("/../other", "/user/gone.scope"):
        _, filesystem = made(
            V2_FILES, tmp_path / group.replace("/", "_"), (f"0::{group}\n", _V2[1]), "u"
        )
        assert filesystem.made == []
    mounted_elsewhere = (_V2[0], _V2[1].replace(" / /u", " /docker/abc /u"))
    _, filesystem = made(V2_FILES, tmp_path / "4", mounted_elsewhere, "u", scope)
    assert filesystem.made == []


def test_what_the_kernel_refuses_changes_nothing(
    made: _Make,
    tmp_path: Path,
) -> None:
    """What the kernel refuses changes nothing and a group that was not joined is removed."""
    own, _ = made(V1_FILES, tmp_path / "refused", _HYBRID, "m/job", "c", "u", refuses=True)
    own.enter_groups()
    own.on_started(own.start_counting())
    assert own.is_used is False
    assert own.has_cpu_accounting is False
    assert own.cpu_ns() is None
    assert own.read_memory() is None
    assert own.oom_kills() is None
    assert own.memory_peak_bytes() is None
    own.remove(_sleeps.append)
    own, filesystem = made(V1_FILES, tmp_path, _V1, "m/job", "c")
    own.on_started(b"5 01")
    assert filesystem.removed == [tmp_path / "m/job" / _NAME]
    assert own.has_cpu_accounting is True
    assert own.read_memory() is None
    assert own.counts_memory_of(_OWN_PID) is False


_STAT = "{pid} (a b) {state} 1 1 1 0 -1 {flags} 9 9 9 9 9 9 9 9 20 0 1 0 7 9 3 9 9 9 9 9\n"


def test_a_process_that_is_ending_is_still_in_its_group(
    made: _Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _ = made(V1_FILES, tmp_path, _V1, "m/job", "c")
    texts: dict[str, str | None] = {}
    monkeypatch.setattr(proc, "read_text", texts.get)
    monkeypatch.setattr(
        proc,
        "read_or_none",
        lambda path: None if texts[path] is None else str(texts[path]).encode(),
    )
    for group, stat, is_inside in (
        (f"/job/{_NAME}", None, True),
        (f"/job/{_NAME}/below", None, True),
        ("/elsewhere", _STAT.format(pid=5, state="R", flags=0x4), False),
        ("/", _STAT.format(pid=5, state="R", flags=0x40), False),
        # Version 1 shows the root group for a process that is ending, before and while it is a
        # zombie.
        ("/", _STAT.format(pid=5, state="R", flags=0x44), True),
        ("/", _STAT.format(pid=5, state="Z", flags=0x4), True),
        ("/", None, True),
    ):
        texts |= {"/proc/5/cgroup": f"4:memory:{group}\n2:cpuacct:/\n", "/proc/5/stat": stat}
        assert own.counts_memory_of(5) is is_inside, (group, stat)


def test_a_group_whose_last_process_is_about_to_end_is_waited_for(
    made: _Make, tmp_path: Path
) -> None:
    own, filesystem = made(V2_FILES, tmp_path, _V2, "u/user/job.scope")
    entrance = tmp_path / "u/user/job.scope" / _NAME / "cgroup.procs"
    entrance.write_text("0\n")  # cannot be moved
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            entrance.write_text("")

    own.remove(nap)
    assert len(naps) == 3
    assert filesystem.removed == [entrance.parent]


@pytest.mark.parametrize(
    ("listed", "is_removed", "naps_until_end"),
    [("", True, 60), ("", False, 500), ("0\n", False, 60)],
)
def test_a_group_is_waited_for_while_its_last_processes_end(
    listed: str, naps_until_end: int, made: _Make, tmp_path: Path, *, is_removed: bool
) -> None:
    """They are not listed any more, and the kernel refuses to remove the group meanwhile, for 2 s
    at most; a process that cannot be moved is not waited for.
    """
    own, filesystem = made(V1_FILES, tmp_path, _V1, "m/job", "c")
    group = tmp_path / "m/job" / _NAME
    (group / "cgroup.procs").write_text(listed)
    filesystem.busy = {group}
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == naps_until_end:
            filesystem.busy = set()

    own.remove(nap)
    assert (group in filesystem.removed) is is_removed
    assert 0.1 <= sum(naps) <= 2


# --- delegation ------------------------------------------------------------------------------


def _delegated(root: Path, **files: str) -> Path:
    texts = {
        "procs": f"{_OWN_PID}\n",
        "controllers": "cpu memory pids\n",
        "subtree_control": "\n",
        **files,
    }
    return write_files(root, {f"cgroup.{name}": text for name, text in texts.items()})


def test_in_a_container_of_our_own_the_memory_controller_is_enabled_meanwhile(
    tmp_path: Path,
) -> None:
    group = _delegated(tmp_path / "g", procs="1\n")
    delegation = delegate_controller(
        str(group), 1, "aside", "memory", FakeCgroupFilesystem(V2_FILES)
    )
    assert (group / "aside/cgroup.procs").read_text() == "0"
    assert (group / "cgroup.subtree_control").read_text().startswith("+memory")
    (group / "aside/cgroup.procs").write_text("")
    present(delegation).undo_and_forget()
    assert (group / "cgroup.subtree_control").read_text().startswith("-memory")
    assert not (group / "aside").exists()
    group = _delegated(tmp_path / "refused", procs="1\n")
    assert delegate_controller(str(group), 1, "aside", "memory", FakeCgroupFilesystem({})) is None
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
def test_a_group_that_is_not_exclusive_is_not_changed(
    tmp_path: Path, files: dict[str, str]
) -> None:
    group = _delegated(tmp_path / "g", **files)
    filesystem = FakeCgroupFilesystem(V2_FILES)
    before = (group / "cgroup.subtree_control").read_text()
    assert delegate_controller(str(group), _OWN_PID, "aside", "memory", filesystem) is None
    assert (group / "cgroup.subtree_control").read_text() == before
    assert filesystem.made == []

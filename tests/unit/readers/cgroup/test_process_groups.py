"""The control groups of another process."""

from pathlib import Path

import pytest

from profiler.readers.cgroup.process_groups import is_frozen

MOUNTINFO = "30 24 0:26 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"


def write(folder: Path, state: str, membership: str = "6:freezer:/docker/one\n") -> None:
    process = folder / "7"
    group = process / "root" / "sys/fs/cgroup/freezer/docker/one"
    group.mkdir(parents=True)
    (process / "cgroup").write_text(membership)
    (process / "mountinfo").write_text(MOUNTINFO)
    (group / "freezer.state").write_text(state)


@pytest.mark.parametrize("state", ["FROZEN\n", "FREEZING\n"])
def test_a_paused_container_of_version_1_is_frozen(tmp_path: Path, state: str) -> None:
    write(tmp_path, state)
    assert is_frozen(7, str(tmp_path))


def test_a_group_that_runs_is_not_frozen(tmp_path: Path) -> None:
    write(tmp_path, "THAWED\n")
    assert not is_frozen(7, str(tmp_path))


def test_without_version_1_nothing_is_read(tmp_path: Path) -> None:
    write(tmp_path, "FROZEN\n", "0::/docker/one\n")
    assert not is_frozen(7, str(tmp_path))


def test_a_process_that_has_ended_is_not_frozen(tmp_path: Path) -> None:
    assert not is_frozen(7, str(tmp_path))

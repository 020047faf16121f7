"""The helper process of a delegated control group, on a folder that stands for the group."""

import os
import signal
from pathlib import Path

import pytest

from profiler.readers.cgroup.accounting_group import CgroupDelegation, CgroupFilesystem
from profiler.readers.linux.process_tree import list_children
from tests.waiting import wait_until

_TIMEOUT_SECONDS = 120.0


@pytest.fixture
def group(tmp_path: Path) -> Path:
    for folder in (tmp_path, tmp_path / "leaf"):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.procs").write_text("")
    (tmp_path / "cgroup.subtree_control").write_text("")
    return tmp_path


def _delegation(group: Path) -> CgroupDelegation:
    return CgroupDelegation(str(group), str(group / "leaf"), "memory", CgroupFilesystem())


def _subtree_control(group: Path) -> str:
    return (group / "cgroup.subtree_control").read_text()


def test_the_helper_reverts_the_delegation_of_a_killed_process(group: Path) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _delegation(group).enable(with_helper=True)
        os.write(writer, b"1")
        signal.pause()
    try:
        assert os.read(reader, 1) == b"1"
        assert _subtree_control(group) == "+memory"
        (helper,) = list_children(pid, threads=1)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)
    wait_until(lambda: _subtree_control(group) == "-memory", _TIMEOUT_SECONDS, "the helper's change")
    wait_until(lambda: not _is_running(helper), _TIMEOUT_SECONDS, "the helper's end")
    assert (group / "cgroup.procs").read_text() == "0"


def _is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and ") Z " not in stat.read_text()


def _enabled(group: Path) -> tuple[CgroupDelegation, int, set[int]]:
    """A delegation, the pid of its helper, and this process's other children."""
    before = set(list_children(os.getpid(), threads=1))
    delegation = _delegation(group)
    assert delegation.enable(with_helper=True)
    (helper,) = set(list_children(os.getpid(), threads=1)) - before
    return delegation, helper, before


def test_the_helper_is_gone_after_the_revert(group: Path) -> None:
    delegation, helper, before = _enabled(group)
    wait_until(lambda: os.getsid(helper) == helper, _TIMEOUT_SECONDS, "the helper's start")
    os.kill(helper, signal.SIGTERM)  # blocked
    os.kill(helper, signal.SIGSTOP)
    delegation.revert()
    assert set(list_children(os.getpid(), threads=1)) == before
    assert _subtree_control(group) == "-memory"


def test_a_helper_that_was_killed_does_not_stop_the_revert(group: Path) -> None:
    delegation, helper, _ = _enabled(group)
    os.kill(helper, signal.SIGKILL)
    os.waitpid(helper, 0)
    delegation.revert()
    assert _subtree_control(group) == "-memory"

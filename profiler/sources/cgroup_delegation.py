"""Has version 2 count memory below a group that is this process's alone.

There a group hands its controllers down only while no process is in it. So where the group was
handed to us (systemd marks it with ``Delegate=yes``) or is that of a container whose first
process we are, and nobody else is in it, this process steps into a group below. Afterwards it
takes everything back.
"""

import os
from pathlib import Path

from profiler.sources import proc
from profiler.sources.counting_group import (
    CALLING_PROCESS,
    PROCS_FILE,
    CgroupFilesystem,
    member_pids,
    try_remove,
    try_write,
)

_SUBTREE_CONTROL = "cgroup.subtree_control"
_CONTROLLERS = "cgroup.controllers"
_DELEGATE_XATTRS = ("user.delegate", "trusted.delegate")
_INIT_PID = 1


class CgroupDelegation:
    """This process beside its own group, which hands a controller down meanwhile."""

    def __init__(self, group: Path, leaf: Path, controller: str, filesystem: CgroupFilesystem) -> None:
        self._group = group
        self._leaf = leaf
        self._controller = controller
        self._filesystem = filesystem

    def revert(self) -> None:
        """Hand nothing down any more and return."""
        try_write(self._group / _SUBTREE_CONTROL, f"-{self._controller}".encode())
        try_write(self._group / PROCS_FILE, CALLING_PROCESS)
        try_remove(self._leaf, self._filesystem)


def delegate_controller(
    group: Path, own_pid: int, name: str, controller: str, filesystem: CgroupFilesystem
) -> CgroupDelegation | None:
    """Step out of ``group`` and have it hand ``controller`` down; None, nothing changed, where it is not ours alone."""
    available = (proc.read(str(group / _CONTROLLERS)) or b"").decode("ascii", "replace").split()
    handed_down = proc.read(str(group / _SUBTREE_CONTROL))
    if controller not in available or handed_down is None or handed_down.split():
        return None
    if not _is_exclusive(group, own_pid):
        return None
    leaf = group / name
    try:
        filesystem.make(leaf)
    except OSError:
        return None
    delegation = CgroupDelegation(group, leaf, controller, filesystem)
    if try_write(leaf / PROCS_FILE, CALLING_PROCESS) and try_write(group / _SUBTREE_CONTROL, f"+{controller}".encode()):
        return delegation
    delegation.revert()
    return None


def _is_exclusive(group: Path, own_pid: int) -> bool:
    if member_pids(group) != (b"%d" % own_pid,):
        return False
    try:
        with os.scandir(group) as entries:
            has_groups = any(entry.is_dir() for entry in entries)
    except OSError:
        return False
    return not has_groups and (own_pid == _INIT_PID or _has_delegate_xattr(group))


def _has_delegate_xattr(group: Path) -> bool:
    for mark in _DELEGATE_XATTRS:
        try:
            if os.getxattr(group, mark) == b"1":
                return True
        except OSError:
            continue
    return False

"""Has version 2 count memory below a group that is this process's alone.

There a group hands its controllers down only while no process is in it. So where the group was
handed to us (systemd marks it with ``Delegate=yes``) or is that of a container whose first
process we are, and nobody else is in it, this process steps into a group below. Afterwards it
takes everything back.
"""

import os
from pathlib import Path

from profiler.sources import proc
from profiler.sources.counting_group import ITSELF, PROCESSES, Folders, members, removed, write

_HANDED_DOWN = "cgroup.subtree_control"
_AVAILABLE = "cgroup.controllers"
_MARKS_OF_SYSTEMD = ("user.delegate", "trusted.delegate")
_FIRST_PROCESS = 1


class Aside:
    """This process beside its own group, which hands a controller down meanwhile."""

    def __init__(self, group: Path, refuge: Path, controller: str, folders: Folders) -> None:
        self._group = group
        self._refuge = refuge
        self._controller = controller
        self._folders = folders

    def go_back(self) -> None:
        """Hand nothing down any more and return."""
        write(self._group / _HANDED_DOWN, f"-{self._controller}".encode())
        write(self._group / PROCESSES, ITSELF)
        removed(self._refuge, self._folders)


def step_aside(group: Path, own_pid: int, name: str, controller: str, folders: Folders) -> Aside | None:
    """Step out of ``group`` and have it hand ``controller`` down; None, nothing changed, where it is not ours alone."""
    available = (proc.read(str(group / _AVAILABLE)) or b"").decode("ascii", "replace").split()
    handed_down = proc.read(str(group / _HANDED_DOWN))
    if controller not in available or handed_down is None or handed_down.split():
        return None
    if not _is_ours_alone(group, own_pid):
        return None
    refuge = group / name
    try:
        folders.make(refuge)
    except OSError:
        return None
    aside = Aside(group, refuge, controller, folders)
    if write(refuge / PROCESSES, ITSELF) and write(group / _HANDED_DOWN, f"+{controller}".encode()):
        return aside
    aside.go_back()
    return None


def _is_ours_alone(group: Path, own_pid: int) -> bool:
    if members(group) != (b"%d" % own_pid,):
        return False
    try:
        with os.scandir(group) as entries:
            has_groups = any(entry.is_dir() for entry in entries)
    except OSError:
        return False
    return not has_groups and (own_pid == _FIRST_PROCESS or _was_delegated(group))


def _was_delegated(group: Path) -> bool:
    for mark in _MARKS_OF_SYSTEMD:
        try:
            if os.getxattr(group, mark) == b"1":
                return True
        except OSError:
            continue
    return False

"""The folders of another process's control groups, as far as this process can see them."""

import os

from profiler.readers.cgroup.hierarchy import ProcessCgroups, parse_membership
from profiler.readers.linux import proc
from profiler.readers.linux.cpu_pressure import FROZEN_STATES

_FREEZER = "freezer"


class ProcessGroups:
    """The control groups of a process, by its own mounts, else by this process's."""

    def __init__(self, pid: int, proc_folder: str = "/proc") -> None:
        process = f"{proc_folder}/{pid}"
        groups = parse_membership(proc.read_text(f"{process}/cgroup"))
        own_groups = parse_membership(proc.read_text(f"{proc_folder}/self/cgroup"))
        self._shared = {name for name, path in groups.items() if own_groups.get(name) == path}
        self._theirs = ProcessCgroups(
            f"{process}/root", groups, proc.read_text(f"{process}/mountinfo")
        )
        self._own = ProcessCgroups("", groups, proc.read_text(f"{proc_folder}/self/mountinfo"))

    def has_v1_controller(self, controller: str) -> bool:
        return self._own.has_v1_controller(controller)

    def is_shared(self, hierarchy: str) -> bool:
        """Whether this process is in the same group: other programs of a session may be, too."""
        return hierarchy in self._shared

    def folder(self, hierarchy: str) -> str | None:
        """The folder of the group in a hierarchy; None if no mount shows it."""
        folder = next(iter(self._theirs.folders_upwards(hierarchy)), None)
        if folder is not None and path_exists(folder):
            return folder
        location = self._own.location_in(hierarchy)
        return None if location is None else location.folder

    def freezer_file(self) -> str | None:
        """The file of version 1 that says whether the group is frozen."""
        folder = self.folder(_FREEZER) if self.has_v1_controller(_FREEZER) else None
        return None if folder is None else f"{folder}/freezer.state"


def is_frozen(pid: int, proc_folder: str = "/proc") -> bool:
    """Whether a process's group of version 1 is frozen, as by ``docker pause``: the kernel shows
    its threads in the state of a wait for a disk. Of version 2, the group's events say it.

    False if the group cannot be seen.
    """
    path = ProcessGroups(pid, proc_folder).freezer_file()
    return path is not None and (proc.read_or_none(path) or b"").startswith(FROZEN_STATES)


def path_exists(path: str) -> bool:
    """Whether the path can be looked up: other users' processes do not show their root."""
    return os.path.exists(path)  # noqa: PTH110  Path.exists raises PermissionError

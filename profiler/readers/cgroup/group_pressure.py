"""For how long threads of a process's control groups have waited for a CPU: because the CPU quota
was used up (version 1 and 2), or for any reason (version 2).
"""

import os

from profiler.core.timestamps import NS_PER_US
from profiler.readers.cgroup.hierarchy import UNIFIED, Cgroups, parse_membership
from profiler.readers.linux import proc
from profiler.readers.linux.cpu_pressure import CpuPressure, parse_pressure_ns

_CPU = "cpu"
_CPU_STAT = "cpu.stat"
_PRESSURE = "cpu.pressure"
# Every group of version 2 has it, except the root, whose pressure is the machine's.
_EVENTS = "cgroup.events"


class GroupPressure:
    """The open files of the groups of one process.

    A group above is not read: its other programs may be what waits.
    """

    def __init__(self, cpu_folder: str | None, unified_folder: str | None, cpus: int) -> None:
        self._cpus = cpus
        self._files: dict[str | None, int] = {}
        if cpu_folder is not None:
            self._files.update(proc.open_files(cpu_folder, (_CPU_STAT,)))
        if unified_folder is not None and _is_there(f"{unified_folder}/{_EVENTS}"):
            self._files.update(proc.open_files(unified_folder, (_PRESSURE,)))

    def read(self) -> CpuPressure:
        waited_ns = parse_pressure_ns(proc.reread_file(self._files, _PRESSURE))
        return CpuPressure(
            waited_ns=waited_ns,
            is_of_group=waited_ns is not None,
            throttled_ns=parse_throttled_ns(proc.reread_file(self._files, _CPU_STAT)),
            cpus=self._cpus,
        )

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files = {}


def open_group_pressure(pid: int, proc_folder: str = "/proc") -> GroupPressure:
    """The groups of a process, by its own mounts, else by this process's, if these show them."""
    process = f"{proc_folder}/{pid}"
    groups = parse_membership(proc.read_text(f"{process}/cgroup"))
    theirs = Cgroups(f"{process}/root", groups, proc.read_text(f"{process}/mountinfo"))
    own = Cgroups("", groups, proc.read_text(f"{proc_folder}/self/mountinfo"))
    cpu = _CPU if own.has_v1_controller(_CPU) else UNIFIED
    return GroupPressure(
        _folder(theirs, own, cpu), _folder(theirs, own, UNIFIED), os.cpu_count() or 1
    )


def _folder(theirs: Cgroups, own: Cgroups, hierarchy: str) -> str | None:
    folder = next(iter(theirs.folders(hierarchy)), None)
    if folder is not None and _is_there(folder):
        return folder
    location = own.location(hierarchy)
    return None if location is None else location.folder


def _is_there(path: str) -> bool:
    """Whether the path can be looked up: other users' processes do not show their root."""
    return os.path.exists(path)  # noqa: PTH110  Path.exists raises PermissionError


def parse_throttled_ns(text: bytes) -> int | None:
    """The sum over all CPUs in ``cpu.stat``, of version 1 or 2."""
    throttled_ns = proc.number_after(text, b"throttled_time ")
    if throttled_ns is not None:
        return throttled_ns
    throttled_us = proc.number_after(text, b"throttled_usec ")
    return None if throttled_us is None else throttled_us * NS_PER_US

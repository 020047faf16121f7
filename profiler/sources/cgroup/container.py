"""The control group of another container, found through one of its processes.

``/proc/PID/root`` is the container's file system, in which its own group is mounted. The kernel
permits access only to a process that may trace the other one: a process of the same user with at least
its capabilities (both root, as Docker starts them), or one with SYS_PTRACE. The folders stay open, so that
they can still be read when the last process of the container has ended.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from profiler.core.files import open_or_none
from profiler.sources.cgroup.hierarchy import (
    CPUACCT,
    MEMORY,
    OOM_KILLS,
    UNIFIED,
    V1_CPU,
    V1_MEMORY,
    V2_CPU,
    V2_MEMORY,
    CpuFile,
    MemoryFiles,
    MemoryReading,
    Mount,
    find_mount,
    group_folders,
    parse_membership,
    parse_mounts,
    parse_number,
    read_memory,
    read_oom_kills,
)
from profiler.sources.linux import proc


class GroupReading(Struct, frozen=True, kw_only=True):
    """The counters of a container's control group at one moment; None for those that cannot be read (any more).

    ``peak_bytes`` is the high-water mark since the container's start, page cache included.
    """

    memory: MemoryReading | None = None
    peak_bytes: int | None = None
    oom_kills: int | None = None
    cpu_ns: int | None = None


class ContainerCgroup:
    """A container's group. Its folders are open: one for both controllers in version 2, one for each in version 1."""

    def __init__(self, memory: tuple[int, MemoryFiles] | None, cpu: tuple[int, CpuFile] | None) -> None:
        self._memory = memory
        self._cpu = cpu

    def read(self) -> GroupReading | None:
        """The counters now; None if the group has been removed."""
        cpu_ns = None if self._cpu is None else self._cpu[1].parse_ns(_read(self._cpu[0], self._cpu[1].name) or b"")
        if self._memory is None:
            return None if cpu_ns is None else GroupReading(cpu_ns=cpu_ns)
        descriptor, files = self._memory
        folder = _descriptor_path(descriptor)
        memory = read_memory(folder, files)
        if memory is None and cpu_ns is None:
            return None
        return GroupReading(
            memory=memory,
            peak_bytes=parse_number(_read(descriptor, files.peak) or b""),
            oom_kills=read_oom_kills(folder, files),
            cpu_ns=cpu_ns,
        )

    def close(self) -> None:
        """Close the folders."""
        for part in (self._memory, self._cpu):
            if part is not None:
                os.close(part[0])
        self._memory = self._cpu = None


def find_container_cgroup(pid: int, docker_id: str, proc_folder: str = "/proc") -> ContainerCgroup | None:
    """The group of the container in which a process runs; None if it is not readable for this process."""
    process = f"{proc_folder}/{pid}"
    mounts = parse_mounts(proc.read_text(f"{process}/mountinfo"))
    groups = parse_membership(proc.read_text(f"{process}/cgroup"))
    v1_memory, v1_cpu, v2 = (
        _open_group(Path(process) / "root", mounts, groups, hierarchy, docker_id)
        for hierarchy in (MEMORY, CPUACCT, UNIFIED)
    )
    memory = (v1_memory, V1_MEMORY) if v1_memory is not None else None
    cpu = (v1_cpu, V1_CPU) if v1_cpu is not None else None
    if v2 is not None and memory is None and _read(v2, V2_MEMORY.usage) is not None:
        memory = (os.dup(v2), V2_MEMORY)
    if v2 is not None and cpu is None:
        cpu = (os.dup(v2), V2_CPU)
    if v2 is not None:
        os.close(v2)
    return None if memory is None and cpu is None else ContainerCgroup(memory, cpu)


def container_group(path: str, docker_id: str) -> str | None:
    """The path of the container's group. A process may be in a group below it that was made inside the container."""
    names = path.split("/")
    for position, name in enumerate(names):
        if docker_id in name:
            return "/".join(names[: position + 1])
    return None


def machine_oom_kills(proc_folder: str = "/proc") -> int | None:
    """How many processes of the whole machine the kernel has killed since boot because memory ran out."""
    return proc.parse_counter(proc.read_text(f"{proc_folder}/vmstat"), OOM_KILLS)


def _open_group(
    root: Path, mounts: tuple[Mount, ...], groups: Mapping[str, str], hierarchy: str, docker_id: str
) -> int | None:
    group = container_group(groups.get(hierarchy, ""), docker_id)
    mount = find_mount(mounts, hierarchy)
    if group is None or mount is None:
        return None
    return open_or_none(group_folders(root, mount, group)[0], os.O_PATH | os.O_DIRECTORY)


def _descriptor_path(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}")


def _read(folder: int, name: str) -> bytes | None:
    return proc.read(f"/proc/self/fd/{folder}/{name}")

"""What the kernel counts for another container as a whole: its control group, found through one of its processes.

``/proc/PID/root`` leads into the container, where its own group is mounted. The kernel lets only
a process through that could trace the other one: the same user with no fewer capabilities (root
beside root, as Docker starts them), or one with SYS_PTRACE. The folders are held open, so that
they can be read to the very end, when no process is left to come in by.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from profiler.sources import proc
from profiler.sources.cgroup import (
    OOM_KILLS,
    UNIFIED,
    Mount,
    group_folders,
    parse_membership,
    parse_mounts,
)
from profiler.sources.cgroup_counters import (
    V1_CPU,
    V1_MEMORY,
    V2_CPU,
    V2_MEMORY,
    CpuFile,
    MemoryFiles,
    MemoryReading,
    parse_usage_ns,
    read_memory,
    read_oom_kills,
)

_MEMORY, _CPU = "memory", "cpuacct"


class GroupReading(Struct, frozen=True, kw_only=True):
    """A container's control group at one moment; None for what the kernel does not count or no longer tells.

    ``peak_bytes`` is the high-water mark since the container's start, page cache included.
    """

    memory: MemoryReading | None = None
    peak_bytes: int | None = None
    oom_kills: int | None = None
    cpu_ns: int | None = None


class ContainerCgroup:
    """The open folders of one container's group: one in version 2, one for each controller in version 1."""

    def __init__(self, memory: tuple[int, MemoryFiles] | None, cpu: tuple[int, CpuFile] | None) -> None:
        self._memory = memory
        self._cpu = cpu

    def read(self) -> GroupReading | None:
        """The counters now; None once the group is gone."""
        cpu_ns = None if self._cpu is None else self._cpu[1].parse_ns(_text(self._cpu[0], self._cpu[1].name))
        if self._memory is None:
            return None if cpu_ns is None else GroupReading(cpu_ns=cpu_ns)
        descriptor, files = self._memory
        folder = _descriptor_path(descriptor)
        memory = read_memory(folder, files)
        if memory is None and cpu_ns is None:
            return None
        return GroupReading(
            memory=memory,
            peak_bytes=parse_usage_ns(_text(descriptor, files.peak)),
            oom_kills=read_oom_kills(folder, files),
            cpu_ns=cpu_ns,
        )

    def close(self) -> None:
        """Let go of the folders."""
        for part in (self._memory, self._cpu):
            if part is not None:
                os.close(part[0])
        self._memory = self._cpu = None


def find_container_cgroup(pid: int, docker_id: str, proc_folder: str = "/proc") -> ContainerCgroup | None:
    """The group of the container that the process is in; None if it is not ours to read."""
    process = f"{proc_folder}/{pid}"
    mounts = parse_mounts((proc.read(f"{process}/mountinfo") or b"").decode(errors="replace"))
    groups = parse_membership((proc.read(f"{process}/cgroup") or b"").decode(errors="replace"))
    opened = {
        hierarchy: _open_group(Path(process) / "root", mounts, groups, hierarchy, docker_id)
        for hierarchy in (_MEMORY, _CPU, UNIFIED)
    }
    v1_memory, v1_cpu, v2 = (opened[hierarchy] for hierarchy in (_MEMORY, _CPU, UNIFIED))
    memory = (v1_memory, V1_MEMORY) if v1_memory is not None else None
    cpu = (v1_cpu, V1_CPU) if v1_cpu is not None else None
    if v2 is not None and memory is None and _has_file(v2, V2_MEMORY.usage):
        memory = (os.dup(v2), V2_MEMORY)
    if v2 is not None and cpu is None:
        cpu = (os.dup(v2), V2_CPU)
    if v2 is not None:
        os.close(v2)
    return None if memory is None and cpu is None else ContainerCgroup(memory, cpu)


def container_group(path: str, docker_id: str) -> str | None:
    """The group of the container itself: a process may be in one below it, made inside the container."""
    names = path.split("/")
    for position, name in enumerate(names):
        if docker_id in name:
            return "/".join(names[: position + 1])
    return None


def machine_oom_kills(proc_folder: str = "/proc") -> int | None:
    """How many processes the kernel has killed for want of memory since the machine was started, in whichever group."""
    return proc.parse_counter((proc.read(f"{proc_folder}/vmstat") or b"").decode("ascii", "replace"), OOM_KILLS)


def _open_group(
    root: Path, mounts: tuple[Mount, ...], groups: Mapping[str, str], hierarchy: str, docker_id: str
) -> int | None:
    group = container_group(groups.get(hierarchy, ""), docker_id)
    mount = next((mount for mount in mounts if hierarchy in mount.controllers), None)
    if group is None or mount is None:
        return None
    try:
        return os.open(group_folders(root, mount, group)[0], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def _descriptor_path(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}")


def _text(descriptor: int, name: str) -> bytes:
    return proc.read(f"/proc/self/fd/{descriptor}/{name}") or b""


def _has_file(descriptor: int, name: str) -> bool:
    return proc.read(f"/proc/self/fd/{descriptor}/{name}") is not None

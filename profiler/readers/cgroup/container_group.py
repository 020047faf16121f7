"""The control group of another container, found through one of its processes.

``/proc/PID/root`` is the container's file system with its own group. The kernel permits access to a process of the same
user with at least its capabilities (both root, as Docker starts them), or with SYS_PTRACE. Folders and small files stay
open: with Docker's systemd driver the group exists only 4 to 150 ms longer than the last process.
"""

import os
from collections.abc import Mapping

from msgspec import Struct

from profiler.core.files import open_or_none
from profiler.readers.cgroup.hierarchy import (
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
)
from profiler.readers.linux import proc


class GroupReading(Struct, frozen=True, kw_only=True):
    """The counters of a container's control group at one moment; a counter that cannot be read is None.

    The mark (``peak_bytes``) is since the container's start, page cache included. ``is_empty``: no living process was
    in the group before the mark was read; None in version 1.
    """

    memory: MemoryReading | None = None
    peak_bytes: int | None = None
    oom_kills: int | None = None
    cpu_ns: int | None = None
    is_empty: bool | None = None

    @property
    def has_mark(self) -> bool:
        """Whether the high-water mark and its page cache are known: a group's files disappear one by one."""
        return self.peak_bytes is not None and self.memory is not None and self.memory.cache_bytes is not None


class ContainerCgroup:
    """A container's group: the open folders of both controllers, which may be the same, and the small files."""

    def __init__(self, memory: tuple[int, MemoryFiles] | None, cpu: tuple[int, CpuFile] | None) -> None:
        self._memory = memory
        self._cpu = cpu
        names = () if memory is None else (memory[1].peak, memory[1].kills, memory[1].events)
        folder = "" if memory is None else _path(memory[0])
        self._files = proc.open_files(folder, names)
        self._is_watchable = memory is not None and memory[1].events in self._files

    @property
    def events_descriptor(self) -> int | None:
        """``cgroup.events``, to poll for POLLPRI; None in version 1, and once the group was empty or removed.

        The kernel reports a removed file as changed forever.
        """
        return self._files.get(self._memory[1].events) if self._is_watchable and self._memory is not None else None

    def read(self) -> GroupReading | None:
        """The counters now; None for a removed group. Emptiness, by which the mark is final, is read before it."""
        peak_bytes = oom_kills = memory = is_empty = cpu_ns = None
        if self._memory is not None:
            folder, files = self._memory
            # Parsed later: every moment counts.
            events, peak = proc.reread_file(self._files, files.events), proc.reread_file(self._files, files.peak)
            # 1 while a living process is in the group or in a group below it
            populated = proc.number_after(events, b"populated ")
            self._is_watchable = bool(populated)
            is_empty, peak_bytes = None if populated is None else populated == 0, parse_number(peak)
            memory = read_memory(_path(folder), files)
            oom_kills = proc.number_after(proc.reread_file(self._files, files.kills), OOM_KILLS)
        if self._cpu is not None:
            folder, file = self._cpu
            cpu_ns = file.parse_ns(proc.read(f"{_path(folder)}/{file.name}") or b"")
        if peak_bytes is None and memory is None and cpu_ns is None:
            return None
        return GroupReading(memory=memory, peak_bytes=peak_bytes, oom_kills=oom_kills, cpu_ns=cpu_ns, is_empty=is_empty)

    def close(self) -> None:
        folders = (folder for folder, _ in (one for one in (self._memory, self._cpu) if one is not None))
        for descriptor in (*folders, *self._files.values()):
            os.close(descriptor)
        self._memory, self._cpu, self._files = None, None, {}


def find_container_cgroup(pid: int, docker_id: str, proc_folder: str = "/proc") -> ContainerCgroup | None:
    """The group of the container in which a process runs; None if it is not readable for this process."""
    process = f"{proc_folder}/{pid}"
    mounts = parse_mounts(proc.read_text(f"{process}/mountinfo"))
    groups = parse_membership(proc.read_text(f"{process}/cgroup"))
    v1_memory, v1_cpu, v2 = (
        _open_group(f"{process}/root", mounts, groups, hierarchy, docker_id) for hierarchy in (MEMORY, CPUACCT, UNIFIED)
    )
    memory = (v1_memory, V1_MEMORY) if v1_memory is not None else None
    cpu = (v1_cpu, V1_CPU) if v1_cpu is not None else None
    if v2 is not None:
        if memory is None and proc.read(f"{_path(v2)}/{V2_MEMORY.usage}") is not None:
            memory = (os.dup(v2), V2_MEMORY)
        if cpu is None:
            cpu = (os.dup(v2), V2_CPU)
        os.close(v2)
    return None if memory is None and cpu is None else ContainerCgroup(memory, cpu)


def container_group(path: str, docker_id: str) -> str | None:
    """The path of the container's group. A process may be in a group below it that was made inside the container."""
    before, docker_id, after = path.partition(docker_id)
    return f"{before}{docker_id}{after.partition('/')[0]}" if docker_id else None


def machine_oom_kills(proc_folder: str = "/proc") -> int | None:
    """How many processes of the whole machine the kernel has killed since boot because memory ran out."""
    return proc.number_after(proc.read(f"{proc_folder}/vmstat") or b"", OOM_KILLS)


def _open_group(
    root: str, mounts: tuple[Mount, ...], groups: Mapping[str, str], hierarchy: str, docker_id: str
) -> int | None:
    group = container_group(groups.get(hierarchy, ""), docker_id)
    mount = find_mount(mounts, hierarchy)
    if group is None or mount is None:
        return None
    return open_or_none(group_folders(root, mount, group)[0], os.O_PATH | os.O_DIRECTORY)


def _path(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"

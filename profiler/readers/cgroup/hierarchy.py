"""The control groups of processes (version 1 and 2): their folders, their limits and their
counters.
"""

import os
from collections.abc import Callable, Mapping

from msgspec import Struct

from profiler.core.optional_math import min_known, product, sum_known
from profiler.core.timestamps import NS_PER_US
from profiler.readers.container_sample import ResourceLimits
from profiler.readers.linux import proc
from profiler.readers.linux.huge_pages import huge_page_files_of_group
from profiler.readers.linux.kernel_memory import KernelMemoryEstimate
from profiler.readers.memory_usage import (
    MemoryCounters,
    MemoryReading,
    divide_memory,
    without_reclaimable_kernel,
)

# Controllers of version 1.
MEMORY = "memory"
CPUACCT = "cpuacct"
HUGETLB = "hugetlb"
MEMORY_STAT = "memory.stat"
UNIFIED = ""  # the controller name of the version 2 hierarchy in /proc/self/cgroup
# Version 1 writes "unlimited" as 2^63 - 1 rounded down to a page. No machine has this much memory.
_UNLIMITED_BYTES = 2**60
OOM_KILLS = b"oom_kill "
_VMSTAT = "/proc/vmstat"
_TIMES_THROTTLED = b"high "


class CgroupLocation(Struct, frozen=True, kw_only=True):
    """The group of a process in one hierarchy: its path, its folder, and all controllers of the
    hierarchy.
    """

    hierarchy: str
    group: str
    folder: str
    controllers: frozenset[str]


class ProcessCgroups:
    """The control groups of one process; ``root`` is the root of the file system of its
    ``mountinfo``.
    """

    def __init__(self, root: str, groups: Mapping[str, str], mountinfo: str) -> None:
        self._root = root
        self._groups = groups
        self._mounts: list[tuple[proc.MountEntry, frozenset[str]]] = []
        for mount in proc.parse_mountinfo(mountinfo):
            if mount.filesystem_type in ("cgroup", "cgroup2"):
                self._mounts.append((mount, _controllers_of_mount(mount)))
        self._memory_files = VERSION_1 if MEMORY in groups else VERSION_2

    def smallest_limits(self) -> ResourceLimits:
        """The smallest limits of the groups and of those above them."""
        memory_bytes: int | None = None
        for folder in self.folders_upwards(MEMORY):
            limit_bytes = parse_limit_bytes(proc.read_text(f"{folder}/{self._memory_files.limit}"))
            memory_bytes = min_known(memory_bytes, limit_bytes)
        vcpu: float | None = None
        for folder in self.folders_upwards("cpu"):
            if self.has_v1_controller("cpu"):
                quota = proc.read_text(f"{folder}/cpu.cfs_quota_us")
                period = proc.read_text(f"{folder}/cpu.cfs_period_us")
                limit = parse_cpu_max(f"{quota} {period}")
            else:
                limit = parse_cpu_max(proc.read_text(f"{folder}/cpu.max"))
            vcpu = min_known(vcpu, limit)
        return ResourceLimits(vcpu=vcpu, memory_bytes=memory_bytes)

    def throttling_limit_bytes(self) -> int | None:
        """The smallest ``memory.high`` of the groups and of those above them, above which the
        kernel takes memory away and makes processes wait; None without any, and with version 1.

        A group that has never been above its own, as it tells, has held nobody down.
        """
        name = self._memory_files.throttling_limit
        if name is None:
            return None
        limit_bytes: int | None = None
        for folder in self.folders_upwards(MEMORY):
            own_bytes = parse_limit_bytes(proc.read_text(f"{folder}/{name}"))
            if own_bytes is None:
                continue
            events = proc.read_or_none(f"{folder}/{self._memory_files.kills}") or b""
            if proc.number_after(events, _TIMES_THROTTLED) != 0:
                limit_bytes = min_known(limit_bytes, own_bytes)
        return limit_bytes

    def oom_kills(self) -> int | None:
        """How many processes of the nearest group that counts memory the kernel has killed."""
        for folder in self.folders_upwards(MEMORY):
            text = proc.read_or_none(f"{folder}/{self._memory_files.kills}") or b""
            count = proc.number_after(text, OOM_KILLS)
            if count is not None:
                return count
        return None

    def location_in(self, hierarchy: str) -> CgroupLocation | None:
        """The group in a version 1 hierarchy, or in version 2 (``UNIFIED``); None if no mount
        shows it.
        """
        group = self._groups.get(hierarchy, "..")
        if ".." in group.split("/"):
            return None
        for mount, controllers in self._mounts:
            if hierarchy in controllers and _is_below(group, mount.root):
                folder = group_folders(self._root, mount, group)[0]
                own = controllers & self._groups.keys()
                return CgroupLocation(
                    hierarchy=hierarchy, group=group, folder=folder, controllers=own
                )
        return None

    def has_v1_controller(self, controller: str) -> bool:
        return controller in self._groups

    def folders_upwards(self, controller: str) -> tuple[str, ...]:
        """The folders of the group and of those above it, up to the top; empty if it is not
        mounted.
        """
        hierarchy = UNIFIED
        if self.has_v1_controller(controller):
            hierarchy = controller
        group = self._groups.get(hierarchy)
        for mount, controllers in self._mounts:
            if group is not None and hierarchy in controllers:
                return group_folders(self._root, mount, group)
        return ()


def read_own_cgroups(root: str = "/") -> ProcessCgroups:
    """The control groups of this process; ``root`` is ``/`` except in tests."""
    groups = parse_membership(proc.read_text(f"{root}/proc/self/cgroup"))
    return ProcessCgroups(root, groups, proc.read_text(f"{root}/proc/self/mountinfo"))


def parse_membership(text: str) -> Mapping[str, str]:
    """The group's path by controller in ``/proc/PID/cgroup``; version 2 has the empty name
    (``UNIFIED``).
    """
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, first_colon, rest = line.partition(":")
        controllers, second_colon, path = rest.partition(":")
        if first_colon and second_colon:
            paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _controllers_of_mount(mount: proc.MountEntry) -> frozenset[str]:
    """The controllers of a hierarchy; the options of a version 1 mount name them among others."""
    if mount.filesystem_type == "cgroup2":
        return frozenset((UNIFIED,))
    return frozenset(mount.super_options.split(","))


def group_folders(root: str, mount: proc.MountEntry, group: str) -> tuple[str, ...]:
    """The folders from a group up to the mount's top; of a group outside of it, whose path is
    the host's, the top.
    """
    below = ""
    if _is_below(group, mount.root):
        below = group.removeprefix(mount.root.rstrip("/"))
    names = [name for name in below.split("/") if name]
    if ".." in names:
        names = []
    top = "/".join((root.rstrip("/"), mount.mount_point.strip("/"))).rstrip("/")
    return tuple("/".join((top, *names[:depth])) or "/" for depth in range(len(names), -1, -1))


def _is_below(group: str, top_group: str) -> bool:
    top = top_group.rstrip("/")
    return group == top or group.startswith(top + "/")


def parse_cpu_max(text: str) -> float | None:
    """Number of CPUs, from quota and period in microseconds; None for ``max``, -1 and malformed
    text.
    """
    words = text.split()
    # Quota and period.
    if len(words) != 2 or not all(word.isdecimal() for word in words):  # noqa: PLR2004
        return None
    quota, period = (int(word) for word in words)
    return quota / period if quota and period else None


def parse_limit_bytes(text: str) -> int | None:
    """A memory limit; None if it is unlimited, in the notation of version 1 or 2, and for
    malformed text.
    """
    word = text.strip()
    value = int(word) if word.isdecimal() else 0
    return value if 0 < value < _UNLIMITED_BYTES else None


class CounterFiles(Struct, frozen=True, kw_only=True):
    """The files of the counters.

    ``reset`` is written to ``peak``; ``events`` shows whether the group has processes.

    ``details`` are the names in ``memory.stat`` of the fields of :class:`MemoryCounters`.
    """

    cpu: str
    parse_cpu_ns: Callable[[bytes], int | None]
    usage: str
    limit: str
    peak: str
    kills: str
    details: Mapping[str, bytes]
    reset: bytes
    events: str | None = None
    throttling_limit: str | None = None


def parse_number(text: bytes) -> int | None:
    """A file that holds one number, such as version 1's ``cpuacct.usage``."""
    word = text.strip()
    return int(word) if word.isdigit() else None


def parse_cpu_stat_ns(text: bytes) -> int | None:
    """The total in version 2's ``cpu.stat``, which every group has, even without a CPU
    controller.
    """
    return product(proc.number_after(text, b"usage_usec "), NS_PER_US)


VERSION_1 = CounterFiles(
    cpu="cpuacct.usage",
    parse_cpu_ns=parse_number,
    usage="memory.usage_in_bytes",
    limit="memory.limit_in_bytes",
    peak="memory.max_usage_in_bytes",
    kills="memory.oom_control",
    details={
        "active_file_bytes": b"total_active_file ",
        "inactive_file_bytes": b"total_inactive_file ",
        "mapped_file_bytes": b"total_mapped_file ",
        "cache_bytes": b"total_cache ",
        "shmem_bytes": b"total_shmem ",
        "anonymous_bytes": b"total_rss ",
    },
    reset=b"0",
)
VERSION_2 = CounterFiles(
    cpu="cpu.stat",
    parse_cpu_ns=parse_cpu_stat_ns,
    usage="memory.current",
    limit="memory.max",
    peak="memory.peak",
    kills="memory.events",
    details={
        "active_file_bytes": b"active_file ",
        "inactive_file_bytes": b"inactive_file ",
        "mapped_file_bytes": b"file_mapped ",
        "cache_bytes": b"file ",
        "shmem_bytes": b"shmem ",
        "anonymous_bytes": b"anon ",
        "reclaimable_slab_bytes": b"slab_reclaimable ",
        "unreclaimable_slab_bytes": b"slab_unreclaimable ",
        "huge_page_bytes": b"hugetlb ",
    },
    reset=b"reset",
    events="cgroup.events",
    throttling_limit="memory.high",
)


def parse_memory(usage: bytes, memory_stat: bytes, files: CounterFiles) -> MemoryReading | None:
    """A group's memory from the contents of two of its files; None if they have another format, or
    contradict each other.
    """
    usage_bytes = parse_number(usage)
    if usage_bytes is None:
        return None
    details = {field: proc.number_after(memory_stat, name) for field, name in files.details.items()}
    counters = MemoryCounters(usage_bytes=usage_bytes, **details)
    return divide_memory(counters) if counters.has_cache else None


class GroupCounters:
    """The open files of a group that have its counters.

    A folder is None if it is not readable, or does not count. ``huge_folder`` counts huge pages.
    """

    def __init__(
        self,
        memory_folder: str | None,
        cpu_folder: str | None,
        huge_folder: str | None = None,
        *,
        is_v1: bool,
    ) -> None:
        names = VERSION_1 if is_v1 else VERSION_2
        self._names = names
        memory_names = (names.usage, MEMORY_STAT, names.peak, names.kills, names.events)
        self._files: dict[str | None, int] = {}
        if memory_folder:
            self._files |= proc.open_files(memory_folder, memory_names)
        if cpu_folder:
            self._files |= proc.open_files(cpu_folder, (names.cpu,))
        # As they were read last, and what they say.
        self._usage, self._memory_stat = b"", b""
        self._reading: MemoryReading | None = None
        self._huge_names: tuple[str, ...] = ()
        if huge_folder:
            self._huge_names = huge_page_files_of_group(huge_folder)
            self._files |= proc.open_files(huge_folder, self._huge_names)
        # Version 2 tells what of its kernel memory is reclaimable.
        self._kernel_memory = None
        if is_v1 and memory_folder is not None:
            self._kernel_memory = KernelMemoryEstimate()

    def cpu_ns(self) -> int | None:
        return self._names.parse_cpu_ns(proc.reread_file(self._files, self._names.cpu))

    def read_usage_text(self) -> bytes:
        """The memory in use, page cache included, as the kernel writes it."""
        return proc.reread_file(self._files, self._names.usage)

    def read_memory_parts(self, usage: bytes) -> MemoryReading | None:
        """The parts of the memory in use."""
        memory_stat = proc.reread_file(self._files, MEMORY_STAT)
        if (usage, memory_stat) != (self._usage, self._memory_stat):
            self._reading = parse_memory(usage, memory_stat, self._names)
            self._usage, self._memory_stat = usage, memory_stat
        reading = self._reading
        if reading is None or reading.kernel_bytes is None or self._kernel_memory is None:
            return reading
        reclaimable_bytes = self._kernel_memory.reclaimable_bytes(
            reading.kernel_bytes, reading.used_bytes
        )
        return without_reclaimable_kernel(reading, reclaimable_bytes)

    def huge_page_bytes(self) -> int | None:
        """The huge pages of the machine's pool; None if the group does not count them."""
        return sum_known(
            *(parse_number(proc.reread_file(self._files, name)) for name in self._huge_names)
        )

    def mark_bytes(self) -> int | None:
        return parse_number(proc.reread_file(self._files, self._names.peak))

    def oom_kills(self) -> int | None:
        return proc.number_after(proc.reread_file(self._files, self._names.kills), OOM_KILLS)

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files = {}


def machine_oom_kills() -> int | None:
    """How many processes of the whole machine the kernel has killed since boot because memory
    ran out.
    """
    return proc.number_after(proc.read_or_none(_VMSTAT) or b"", OOM_KILLS)


class MachineOomKills:
    """The number of :func:`machine_oom_kills`, for who asks again and again."""

    def __init__(self) -> None:
        self._file = proc.KeptFile(_VMSTAT)

    def count(self) -> int | None:
        """The kills so far; None if the kernel does not count them."""
        count = proc.number_after(self._file.read(), OOM_KILLS)
        return machine_oom_kills() if count is None else count  # it may be on the second page

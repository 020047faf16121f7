"""What the machine has and uses: processors, memory, swap, disks, and this process's own usage."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from profiler.sources import Unavailable
from profiler.sources.linux import proc

_TOTAL_MEMORY = Path("/proc/meminfo")
_MEMORY_TOTAL = "MemTotal"
_BYTES_PER_KIB = 1024
# ECS has its own spelling of what uname calls the machine.
_ARCHITECTURES = {"x86_64": "X86_64", "amd64": "X86_64", "aarch64": "ARM64", "arm64": "ARM64"}


class Host(Struct, frozen=True, kw_only=True):
    """The machine below the containers; None where it cannot be known."""

    vcpu: float | None = None
    memory_bytes: int | None = None
    cpu_architecture: str | None = None


def read_host() -> Host:
    """The machine as this process sees it; None for what it cannot see."""
    cpus = os.cpu_count()
    return Host(
        vcpu=None if cpus is None else float(cpus),
        memory_bytes=_memory_bytes(),
        cpu_architecture=architecture(os.uname().machine),
    )


def architecture(machine: str) -> str:
    """The name ECS gives to a machine type; one that ECS does not know is kept as it is."""
    return _ARCHITECTURES.get(machine.lower(), machine)


def parse_memory_total(meminfo: str) -> int | None:
    """``MemTotal`` of ``/proc/meminfo`` in bytes, None if it is not there."""
    return parse_memory(meminfo).get(_MEMORY_TOTAL)


def parse_memory(meminfo: str) -> Mapping[str, int]:
    """The sizes in ``/proc/meminfo`` in bytes, by their name without the colon."""
    found = {}
    for line in meminfo.splitlines():
        name, colon, value = line.partition(":")
        words = value.split()
        if colon and words and words[0].isascii() and words[0].isdecimal():
            found[name] = int(words[0]) * _BYTES_PER_KIB
    return found


def _memory_bytes() -> int | None:
    try:
        return parse_memory_total(_TOTAL_MEMORY.read_text())
    except (OSError, UnicodeDecodeError):
        return None


_STATUS = Path("/proc/self/status")
_PEAK = "VmHWM:"
_KIB_PER_MIB = 1024


class OwnUsage(Struct, frozen=True, kw_only=True):
    """CPU time and resident memory peak of this process; None where the kernel does not say."""

    cpu_seconds: float
    max_rss_mb: float | None = None


def read_own_usage() -> OwnUsage:
    """The state now.

    The peak is VmHWM, which begins anew at exec; getrusage's ru_maxrss begins at the parent's.
    """
    return OwnUsage(cpu_seconds=time.process_time(), max_rss_mb=_peak_mb())


def _peak_mb() -> float | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    peak = next((line for line in lines if line.startswith(_PEAK)), None)
    return None if peak is None else round(int(peak.split()[1]) / _KIB_PER_MIB, 1)


ROOT = "/"
MAX_DISKS = 16
# Folders of the instance's disk that are no volumes: those of ECS Exec, and of the agent's container metadata file.
_ECS_AGENT_FOLDERS = ("/managed-agents/", "/opt/ecs/metadata/")
_SEPARATOR = " - "
# Positions in a line: the device's numbers and the mount point; after the separator, the file system's type.
_DEVICE, _MOUNT_POINT, _TYPE = 2, 4, 0
_ANONYMOUS_DEVICE_PREFIX = "0:"
# On disks, although the kernel gives them numbers of no device.
_DISK_FILESYSTEMS_WITHOUT_DEVICE = ("btrfs", "bcachefs", "zfs")
# In memory, or on what is listed itself: these always answer.
_LOCAL_FILESYSTEMS = ("overlay", "tmpfs", "ramfs", "devtmpfs", "devpts", "proc", "sysfs", "mqueue", "cgroup", "cgroup2")


class _Mount(Struct, frozen=True):
    mount_point: str
    device: str
    filesystem_type: str

    @property
    def is_disk(self) -> bool:
        """Whether its size is that of a disk."""
        return (
            not self.device.startswith(_ANONYMOUS_DEVICE_PREFIX)
            or self.filesystem_type in _DISK_FILESYSTEMS_WITHOUT_DEVICE
        )

    @property
    def can_hang(self) -> bool:
        """Whether it may be of a network, or of a program that can end."""
        return not self.is_disk and self.filesystem_type not in _LOCAL_FILESYSTEMS and self.mount_point != ROOT


def disk_mounts(mountinfo: str, is_folder: Callable[[str], bool]) -> tuple[str, ...]:
    """The root, and each folder where a disk is mounted, 16 at most: all disks before any for the second time.

    Docker and the NVIDIA runtime also mount single files from the instance's disk: they are no volumes.
    """
    mounts = _parse_mounts(mountinfo)
    hanging = tuple(f"{mount.mount_point}/" for mount in mounts if mount.can_hang)
    volumes = [
        mount
        for mount in sorted(mounts, key=lambda mount: (len(mount.mount_point), mount.mount_point))
        if mount.is_disk
        and mount.mount_point != ROOT
        and not mount.mount_point.startswith((*_ECS_AGENT_FOLDERS, *hanging))
        and is_folder(mount.mount_point)
    ]
    shortest = {mount.device: mount for mount in reversed(volumes)}
    firsts = [mount for mount in volumes if shortest[mount.device] is mount]
    others = [mount for mount in volumes if shortest[mount.device] is not mount]
    return (ROOT, *sorted(mount.mount_point for mount in (firsts + others)[: MAX_DISKS - 1]))


def _parse_mounts(mountinfo: str) -> list[_Mount]:
    """What is mounted at each place: the last of those that were mounted over one another."""
    found: dict[str, _Mount] = {}
    for line in mountinfo.splitlines():
        where, _, what = line.partition(_SEPARATOR)
        words = where.split(" ")
        if len(words) > _MOUNT_POINT:
            mount_point = proc.unescape_path(words[_MOUNT_POINT])
            found[mount_point] = _Mount(mount_point, words[_DEVICE], what.split(" ")[_TYPE])
    return list(found.values())


_MEMORY = "/proc/meminfo"
_COUNTERS = "/proc/vmstat"
_MOUNTS = "/proc/self/mountinfo"


class SwapCounters(Struct, frozen=True, kw_only=True):
    """What the instance has moved to and from swap since it was started."""

    out_bytes: int
    in_bytes: int


class Disk(Struct, frozen=True, kw_only=True):
    """A mounted file system; ``available`` is what others than root can still write."""

    mount_point: str
    size_bytes: int
    available_bytes: int


class InstanceReading(Struct, frozen=True, kw_only=True):
    """The instance now; None is what the kernel does not tell."""

    memory_size_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_size_bytes: int | None = None
    swap_free_bytes: int | None = None
    swap_counters: SwapCounters | None = None
    disks: tuple[Disk, ...] = ()


def read_instance() -> InstanceReading | Unavailable:
    """The instance as this container sees it."""
    memory = proc.read(_MEMORY)
    if memory is None:
        return Unavailable("/proc/meminfo cannot be read")
    sizes = parse_memory(memory.decode(errors="replace"))
    mounts = (proc.read(_MOUNTS) or b"").decode(errors="surrogateescape")
    found = (_disk(mount_point) for mount_point in disk_mounts(mounts, os.path.isdir))
    return InstanceReading(
        memory_size_bytes=sizes.get("MemTotal"),
        memory_available_bytes=sizes.get("MemAvailable"),
        swap_size_bytes=sizes.get("SwapTotal"),
        swap_free_bytes=sizes.get("SwapFree"),
        swap_counters=read_swap_counters(),
        disks=tuple(disk for disk in found if disk is not None),
    )


def read_swap_counters() -> SwapCounters | None:
    """The swap counters alone; None where the kernel has none."""
    return parse_swap_counters(proc.read(_COUNTERS) or b"", os.sysconf("SC_PAGE_SIZE"))


def parse_swap_counters(vmstat: bytes, page_bytes: int) -> SwapCounters | None:
    """``pswpout`` and ``pswpin`` of ``/proc/vmstat``, which count pages."""
    text = vmstat.decode("ascii", "replace")
    out_pages, in_pages = proc.parse_counter(text, "pswpout"), proc.parse_counter(text, "pswpin")
    if out_pages is None or in_pages is None:
        return None
    return SwapCounters(out_bytes=out_pages * page_bytes, in_bytes=in_pages * page_bytes)


def _disk(mount_point: str) -> Disk | None:
    try:
        found = os.statvfs(mount_point)
    except OSError:
        return None
    if found.f_blocks == 0:
        return None
    return Disk(
        mount_point=mount_point,
        size_bytes=found.f_blocks * found.f_frsize,
        available_bytes=found.f_bavail * found.f_frsize,
    )

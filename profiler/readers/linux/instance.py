"""What a monitor reads of the whole instance: memory, swap and disks."""

import os
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from profiler.core.optional_math import all_known, known_values
from profiler.readers import Unavailable
from profiler.readers.linux import proc
from profiler.readers.linux.host import MEMINFO, MEMORY_TOTAL

ROOT = "/"
MAX_DISKS = 16
# Folders of the instance's disk that are not volumes: ECS Exec's folders, and the agent's container
# metadata file.
_ECS_AGENT_FOLDERS = ("/managed-agents/", "/opt/ecs/metadata/")


class SwapCounters(Struct, frozen=True, kw_only=True):
    """The amounts that the instance has moved to and from swap since it booted."""

    out_bytes: int
    in_bytes: int


class Disk(Struct, frozen=True, kw_only=True):
    """A mounted file system. ``available_bytes`` is what users other than root can still write."""

    mount_point: str
    size_bytes: int
    available_bytes: int


class InstanceReading(Struct, frozen=True, kw_only=True):
    """Memory, swap and disks of the instance now; None for what the kernel does not report."""

    memory_size_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_size_bytes: int | None = None
    swap_free_bytes: int | None = None
    swap_counters: SwapCounters | None = None
    disks: tuple[Disk, ...] = ()


NO_INSTANCE: Final = InstanceReading()


def read_instance() -> InstanceReading | Unavailable:
    """The facts of the instance that are visible in this container."""
    memory = proc.read_or_none(MEMINFO)
    if memory is None:
        return Unavailable("/proc/meminfo cannot be read")
    points = disk_mounts(proc.read_text("/proc/self/mountinfo"), os.path.isdir)
    disks = map(_read_disk, points)
    return InstanceReading(
        memory_size_bytes=proc.bytes_after(memory, MEMORY_TOTAL),
        memory_available_bytes=proc.bytes_after(memory, b"MemAvailable:"),
        swap_size_bytes=proc.bytes_after(memory, b"SwapTotal:"),
        swap_free_bytes=proc.bytes_after(memory, b"SwapFree:"),
        swap_counters=read_swap_counters(),
        disks=known_values(disks),
    )


def read_swap_counters() -> SwapCounters | None:
    """The swap counters alone, which count pages; None if the kernel has none."""
    vmstat = proc.read_or_none("/proc/vmstat") or b""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    pages = all_known(proc.number_after(vmstat, b"pswpout "), proc.number_after(vmstat, b"pswpin "))
    if pages is None:
        return None
    out_pages, in_pages = pages
    return SwapCounters(out_bytes=out_pages * page_bytes, in_bytes=in_pages * page_bytes)


def disk_mounts(mountinfo: str, is_folder: Callable[[str], bool]) -> tuple[str, ...]:
    """The 16 shortest mount points that are folders of disks.

    ``is_folder`` is called for no others: some hang.
    """
    # If several mounts are on the same folder, the last one is visible.
    mounts = {mount.mount_point: mount for mount in proc.parse_mountinfo(mountinfo)}
    volumes = []
    for point in sorted(mounts, key=lambda point: (len(point), point)):
        is_hidden = point == ROOT or point.startswith(_ECS_AGENT_FOLDERS)
        if not is_hidden and _is_disk(mounts[point]) and is_folder(point):
            volumes.append(point)
    return (ROOT, *sorted(volumes[: MAX_DISKS - 1]))


def _is_disk(mount: proc.MountEntry) -> bool:
    """Whether the size of the file system is a disk's; the kernel gives some on disks an
    anonymous device number.
    """
    return not mount.device.startswith("0:") or mount.filesystem_type in (
        "btrfs",
        "bcachefs",
        "zfs",
    )


def _read_disk(mount_point: str) -> Disk | None:
    try:
        status = os.statvfs(mount_point)
    except OSError:
        return None
    if status.f_blocks == 0:
        return None
    return Disk(
        mount_point=mount_point,
        size_bytes=status.f_blocks * status.f_frsize,
        available_bytes=status.f_bavail * status.f_frsize,
    )

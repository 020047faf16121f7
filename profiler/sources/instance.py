"""The instance that the task's containers share: memory, swap, and the disks that this container sees.

``/proc/meminfo`` and ``/proc/vmstat`` are the machine's also inside of a container. Of its disks a
container sees those it has mounted: the one that holds the containers' own file systems, and
the volumes of the task definition.
"""

import os

from msgspec import Struct

from profiler.sources import Unavailable, proc
from profiler.sources.host import parse_memory
from profiler.sources.mounts import disk_mounts

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

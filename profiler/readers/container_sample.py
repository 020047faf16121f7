"""The usage of one container, or of one local command, at one moment, and its limits."""

from typing import Any

from msgspec import Struct

from profiler.readers.memory_usage import MemoryReading


class ResourceLimits(Struct, frozen=True, kw_only=True):
    """The resources that a container, or a control group, can use at most; None for no limit."""

    vcpu: float | None = None
    memory_bytes: float | None = None


class ContainerSample(Struct, frozen=True, kw_only=True, gc=False):
    """A container's usage at ``read_ns`` (wall-clock time).

    Counters start at 0 when the container starts.

    ``memory_cache_bytes`` is what the kernel drops before it kills: pages of files, and its own
    caches. ``memory_mapped_file_bytes`` is what of it processes map. ``memory_kernel_bytes``
    is the part of the memory used that may be reclaimable, too, where the source cannot tell
    (:mod:`profiler.readers.memory_usage`), ``memory_pinned_bytes`` the part of what it drops that
    it perhaps cannot drop. ``memory_huge_page_bytes`` are in addition to the memory used, unless
    that has them (``has_huge_pages``). ``is_memory_impossible``: the memory is unknown because the
    source contradicts itself.

    ``is_mark_complete``: ``memory_usage_peak_bytes`` is the kernel's mark after the container's
    end.
    """

    read_ns: int
    cpu_ns: int | None = None
    memory_used_bytes: int | None = None
    memory_cache_bytes: int | None = None
    memory_mapped_file_bytes: int | None = None
    memory_kernel_bytes: int | None = None
    memory_pinned_bytes: int = 0
    memory_huge_page_bytes: int | None = None
    has_huge_pages: bool = False
    is_memory_impossible: bool = False
    memory_usage_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_limit_hits: int | None = None
    network_rx_bytes: int | None = None
    network_tx_bytes: int | None = None
    block_read_bytes: int | None = None
    block_write_bytes: int | None = None
    pids: int | None = None
    is_mark_complete: bool = False


def memory_fields(reading: MemoryReading | None) -> dict[str, Any]:
    """The fields of a :class:`ContainerSample` that a group's memory has; none if it is unknown."""
    if reading is None:
        return {}
    return {
        "memory_used_bytes": reading.used_bytes,
        "memory_cache_bytes": reading.reclaimable_bytes,
        "memory_mapped_file_bytes": reading.mapped_file_bytes,
        "memory_kernel_bytes": reading.kernel_bytes,
        "memory_pinned_bytes": reading.pinned_bound_bytes,
        "has_huge_pages": reading.has_huge_pages,
    }

"""How the memory of a control group divides into what its processes need and what the kernel can
drop before it kills one of them.

One rule for the groups' files (version 1 and 2), for Docker's statistics and for all commands.
Pages of files are not needed, mapped or not: the kernel drops them, and writes those that were
changed before. A program that maps 600 MB, or changes them, runs to its end in a group of 32 MB.
"""

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import any_known, excess, first_known, sum_of_both

# A part of the memory is notable above both.
_NOTABLE_SHARE = 0.05
_NOTABLE_BYTES = 4 * 2**20
# A high-water mark includes pages of files. So few make no difference: below 1 % of it, or below
# the 256 KiB in which the kernel charges memory to a group.
_NEGLIGIBLE_SHARE = 0.01
_CHARGE_BATCH_BYTES = 256 * 1024
# The kernel counts an open file's structure as not reclaimable, but its directory entry and inode
# as reclaimable, which it cannot drop either: 1.3 KiB on ext4, and two of each on a file system
# above another one.
_BYTES_PER_OPEN_FILE = 192
_PINNED_BYTES_PER_FILE = 3072


class MemoryCounters(Struct, frozen=True, kw_only=True, gc=False):
    """A group's counters with those of the groups below it; None where the interface has none.

    ``active_file_bytes`` and ``inactive_file_bytes`` are the kernel's lists of pages of files. They
    lack locked pages, and have anonymous pages that a process has freed lazily (MADV_FREE).
    ``cache_bytes`` is the page cache of files, and shared memory with tmpfs (``shmem_bytes``).
    ``mapped_file_bytes`` is what of ``cache_bytes`` processes map, shared memory included.
    ``reclaimable_slab_bytes`` is what version 2 counts of the kernel's own memory as reclaimable:
    directory entries, inodes. ``unreclaimable_slab_bytes`` is the rest, with 192 bytes or more for
    each file that the group's processes have open. ``huge_page_bytes`` are in the usage, by an
    option of version 2; None where they are not.
    """

    usage_bytes: int
    active_file_bytes: int | None = None
    inactive_file_bytes: int | None = None
    mapped_file_bytes: int | None = None
    cache_bytes: int | None = None
    shmem_bytes: int | None = None
    anonymous_bytes: int | None = None
    reclaimable_slab_bytes: int | None = None
    unreclaimable_slab_bytes: int | None = None
    huge_page_bytes: int | None = None

    @property
    def has_cache(self) -> bool:
        """Whether anything is known of the page cache."""
        return any_known(self.active_file_bytes, self.inactive_file_bytes, self.cache_bytes)


class MemoryReading(Struct, frozen=True, kw_only=True, gc=False):
    """The parts of a group's memory.

    ``reclaimable_bytes`` and ``used_bytes`` are the usage together. ``cache_bytes`` is the page
    cache of files and reclaimable kernel memory, without lazily freed pages.
    ``mapped_file_bytes`` are the mapped pages of files in ``reclaimable_bytes``; None where
    ``used_bytes`` may have some. ``kernel_bytes`` is kernel memory of which the interface does
    not tell the reclaimable part (version 1): it counts as used. ``pinned_bound_bytes`` is the most
    of ``reclaimable_bytes`` that the group's open files may keep: it does not count as used.
    ``slab_bytes`` is the part of these with directory entries and inodes. ``has_huge_pages``: those
    of the machine's pool count as used.
    """

    used_bytes: int
    cache_bytes: int | None = None
    reclaimable_bytes: int | None = None
    mapped_file_bytes: int | None = None
    kernel_bytes: int | None = None
    pinned_bound_bytes: int = 0
    slab_bytes: int = 0
    has_huge_pages: bool = False


def is_notable(part_bytes: float, whole_bytes: float) -> bool:
    """Whether a part of the memory is above 5 % of it, and above 4 MiB."""
    # Without max(), which takes ten times as long: each container asks this several times a tick.
    return part_bytes > _NOTABLE_BYTES and part_bytes > _NOTABLE_SHARE * whole_bytes


def is_negligible(part_bytes: float, mark_bytes: float) -> bool:
    """Whether a high-water mark with or without a part of it is the same."""
    return part_bytes < _CHARGE_BATCH_BYTES or part_bytes < _NEGLIGIBLE_SHARE * mark_bytes


def pinned_by_files_bytes(reading: MemoryReading, open_files: int) -> int:
    """The most reclaimable kernel memory that so many open files of a group keep; 0 where that is
    too little to matter.
    """
    bound_bytes = min(open_files * _PINNED_BYTES_PER_FILE, reading.slab_bytes)
    return bound_bytes if is_notable(bound_bytes, reading.used_bytes) else 0


def without_reclaimable_kernel(reading: MemoryReading, size_bytes: int) -> MemoryReading:
    """The reading after so much of its ``kernel_bytes`` is known to be reclaimable."""
    if not size_bytes or reading.kernel_bytes is None:
        return reading
    size_bytes = min(size_bytes, reading.kernel_bytes, reading.used_bytes)
    return replace(
        reading,
        used_bytes=reading.used_bytes - size_bytes,
        kernel_bytes=reading.kernel_bytes - size_bytes,
        reclaimable_bytes=(reading.reclaimable_bytes or 0) + size_bytes,
        cache_bytes=sum_of_both(reading.cache_bytes, size_bytes),
    )


def divide_memory(counters: MemoryCounters) -> MemoryReading | None:
    """Divide a group's usage; None if the counters contradict each other.

    The kernel reads the values at different moments: no part is below 0 or above the usage. What
    it can drop may be above the usage by a little. More cannot be right: the counters of pages are
    old, or the usage lacks the groups below.
    """
    usage_bytes = counters.usage_bytes
    slab_bytes = counters.reclaimable_slab_bytes or 0
    unlisted_bytes = _unlisted_bytes(counters)
    # Page cache, mapped or not, without shared memory and tmpfs.
    file_bytes = excess(counters.cache_bytes, first_known(counters.shmem_bytes, unlisted_bytes))
    pages_bytes = _reclaimable_pages_bytes(counters, file_bytes)
    reclaimable_bytes = (pages_bytes or 0) + slab_bytes
    if is_notable(reclaimable_bytes - usage_bytes, usage_bytes):
        return None
    reclaimable_bytes = min(reclaimable_bytes, usage_bytes)
    kernel_bytes: int | None = None
    if counters.reclaimable_slab_bytes is None:
        kernel_bytes = unknown_kernel_bytes(
            usage_bytes, counters.anonymous_bytes, counters.cache_bytes
        )
    return MemoryReading(
        used_bytes=usage_bytes - reclaimable_bytes,
        cache_bytes=sum_of_both(file_bytes, slab_bytes),
        reclaimable_bytes=reclaimable_bytes if counters.has_cache else None,
        mapped_file_bytes=_mapped_file_bytes(counters, pages_bytes, unlisted_bytes),
        kernel_bytes=kernel_bytes,
        pinned_bound_bytes=_pinned_bound_bytes(counters, usage_bytes - reclaimable_bytes),
        slab_bytes=min(slab_bytes, reclaimable_bytes),
        has_huge_pages=counters.huge_page_bytes is not None,
    )


def _reclaimable_pages_bytes(counters: MemoryCounters, file_bytes: int | None) -> int | None:
    """The pages of files, and lazily freed pages; None if unknown.

    All inactive pages count where the active ones are unknown, all page cache where both are.
    """
    if counters.active_file_bytes is not None:
        return counters.active_file_bytes + (counters.inactive_file_bytes or 0)
    return first_known(counters.inactive_file_bytes, file_bytes)


def _mapped_file_bytes(
    counters: MemoryCounters, pages_bytes: int | None, unlisted_bytes: int
) -> int | None:
    """The mapped pages that are certainly among the reclaimable ones; None if that is unknown.

    The counter of mapped pages includes mapped shared memory, and locked pages, which are on
    neither list. So what is not on the lists is taken as mapped. Where a part of it is not (files
    in tmpfs), some mapped pages of files are missing here.
    """
    mapped_bytes = counters.mapped_file_bytes
    lacks_active = counters.active_file_bytes is None and counters.inactive_file_bytes is not None
    if mapped_bytes is None or pages_bytes is None or lacks_active:
        return None
    mapped_file_bytes = max(mapped_bytes - unlisted_bytes, 0)
    return min(mapped_file_bytes, pages_bytes, counters.usage_bytes)


def _unlisted_bytes(counters: MemoryCounters) -> int:
    """The page cache that is on neither list of pages of files: shared memory and locked pages.

    Docker's statistics of version 1 lack ``shmem``: it follows from the sums.
    """
    listed_bytes = sum_of_both(counters.active_file_bytes, counters.inactive_file_bytes)
    return max(counters.shmem_bytes or 0, excess(counters.cache_bytes, listed_bytes) or 0)


def unknown_kernel_bytes(
    usage_bytes: int, anonymous_bytes: int | None, cache_bytes: int | None
) -> int | None:
    """What remains of the usage without anonymous memory and page cache: the kernel's memory, where
    no counter tells what of it is reclaimable.
    """
    if anonymous_bytes is None or cache_bytes is None:
        return None
    return max(usage_bytes - anonymous_bytes - cache_bytes, 0)


def _pinned_bound_bytes(counters: MemoryCounters, used_bytes: int) -> int:
    """The most reclaimable kernel memory that files can keep which the group's own processes
    opened; 0 where their count alone takes too little to matter (:func:`pinned_by_files_bytes`
    has them by number).
    """
    slab_bytes = counters.unreclaimable_slab_bytes or 0
    if not is_notable(slab_bytes, used_bytes):
        return 0
    bound_bytes = slab_bytes // _BYTES_PER_OPEN_FILE * _PINNED_BYTES_PER_FILE
    return min(bound_bytes, counters.reclaimable_slab_bytes or 0)

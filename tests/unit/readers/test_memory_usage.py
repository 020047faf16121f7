"""Memory used is never less than what the kernel cannot drop, and no page counts twice."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from profiler.readers.memory_usage import MemoryCounters, divide_memory, pinned_by_files_bytes
from tests.values import present

_sizes = st.integers(0, 2**20)


class Population(Struct, frozen=True, kw_only=True):
    """The pages that a group holds, by what the kernel can do with them."""

    anonymous: int = 0
    lazily_freed: int = 0
    mapped_files: int = 0
    unmapped_files: int = 0
    locked_files: int = 0
    mapped_shared: int = 0
    unmapped_shared: int = 0
    fixed_kernel: int = 0
    reclaimable_kernel: int = 0

    @property
    def undroppable(self) -> int:
        """What a group without swap must hold: with less, the kernel kills."""
        shared = self.mapped_shared + self.unmapped_shared
        return self.anonymous + self.locked_files + shared + self.fixed_kernel

    @property
    def usage(self) -> int:
        droppable = self.mapped_files + self.unmapped_files + self.lazily_freed
        return self.undroppable + droppable + self.reclaimable_kernel

    def version_2(self) -> MemoryCounters:
        """As Linux counts (mm/vmscan.c, mm/filemap.c, mm/rmap.c): lazily freed pages are on the
        list of inactive files, shared memory is on none of the two, and mapped wherever it is.
        """
        shared = self.mapped_shared + self.unmapped_shared
        files = self.mapped_files + self.unmapped_files
        return MemoryCounters(
            usage_bytes=self.usage,
            active_file_bytes=files // 3,
            inactive_file_bytes=files - files // 3 + self.lazily_freed,
            mapped_file_bytes=self.mapped_files + self.locked_files + self.mapped_shared,
            cache_bytes=files + self.locked_files + shared,
            shmem_bytes=shared,
            anonymous_bytes=self.anonymous + self.lazily_freed,
            reclaimable_slab_bytes=self.reclaimable_kernel,
        )

    def version_1(self) -> MemoryCounters:
        counters = self.version_2()
        fields = {name: getattr(counters, name) for name in counters.__struct_fields__}
        return MemoryCounters(**{**fields, "reclaimable_slab_bytes": None})

    def version_1_of_docker(self) -> MemoryCounters:
        counters = self.version_1()
        fields = {name: getattr(counters, name) for name in counters.__struct_fields__}
        return MemoryCounters(**{**fields, "shmem_bytes": None})


_populations = st.builds(Population, **dict.fromkeys(Population.__struct_fields__, _sizes))


@given(_populations)
def test_what_the_kernel_cannot_drop_always_counts(pages: Population) -> None:
    for counters in (pages.version_2(), pages.version_1(), pages.version_1_of_docker()):
        assert present(divide_memory(counters)).used_bytes >= pages.undroppable


@given(_populations)
def test_what_the_kernel_can_drop_never_counts(pages: Population) -> None:
    """Version 1 hides what of the kernel's own memory is reclaimable."""
    assert present(divide_memory(pages.version_2())).used_bytes == pages.undroppable
    for counters in (pages.version_1(), pages.version_1_of_docker()):
        assert (
            present(divide_memory(counters)).used_bytes
            == pages.undroppable + pages.reclaimable_kernel
        )


@given(_populations)
def test_mapped_files_are_told_apart(pages: Population) -> None:
    """Less where shared memory is not mapped. Lazily freed pages hide that others are locked, and
    in Docker's statistics that they are shared.
    """
    hidden = min(pages.lazily_freed, pages.locked_files)
    for counters in (pages.version_2(), pages.version_1()):
        mapped = present(present(divide_memory(counters)).mapped_file_bytes)
        assert pages.mapped_files - pages.unmapped_shared <= mapped <= pages.mapped_files + hidden
    of_docker = present(present(divide_memory(pages.version_1_of_docker())).mapped_file_bytes)
    assert of_docker <= pages.mapped_files + pages.lazily_freed


@given(_populations)
def test_used_memory_and_what_can_be_dropped_are_the_usage(pages: Population) -> None:
    for counters in (pages.version_2(), pages.version_1(), pages.version_1_of_docker()):
        reading = present(divide_memory(counters))
        assert reading.used_bytes + present(reading.reclaimable_bytes) == pages.usage


@given(_populations)
def test_lazily_freed_memory_is_no_page_cache(pages: Population) -> None:
    """Else a high-water mark with it would lack memory that the program used."""
    files = pages.mapped_files + pages.unmapped_files + pages.locked_files
    assert present(present(divide_memory(pages.version_1())).cache_bytes) == files
    assert (
        present(present(divide_memory(pages.version_2())).cache_bytes)
        == files + pages.reclaimable_kernel
    )


_unknown_or_size = st.none() | _sizes
_any_counters = st.builds(
    MemoryCounters,
    **{**dict.fromkeys(MemoryCounters.__struct_fields__, _unknown_or_size), "usage_bytes": _sizes},
)


@given(_any_counters)
def test_counters_of_different_moments_give_no_impossible_part(counters: MemoryCounters) -> None:
    usage = counters.usage_bytes
    reading = present(divide_memory(counters))
    assert 0 <= reading.used_bytes <= usage
    assert reading.reclaimable_bytes in (None, usage - reading.used_bytes)
    assert 0 <= (reading.mapped_file_bytes or 0) <= usage - reading.used_bytes
    assert 0 <= (reading.kernel_bytes or 0) <= usage


def test_version_1_hides_what_of_the_kernels_memory_is_reclaimable() -> None:
    pages = Population(anonymous=20, unmapped_files=5, fixed_kernel=3, reclaimable_kernel=400)
    version_1 = present(divide_memory(pages.version_1()))
    assert version_1.used_bytes == 423
    assert version_1.kernel_bytes == 403
    version_2 = present(divide_memory(pages.version_2()))
    assert version_2.used_bytes == 23
    assert version_2.kernel_bytes is None


def test_what_find_held_in_a_group_of_version_1() -> None:
    """Recorded on Linux 6.18 after ``find -ls`` of 300,000 files; SReclaimable had grown by 338
    million bytes.
    """
    counters = MemoryCounters(
        usage_bytes=624410624,
        active_file_bytes=286670848,
        inactive_file_bytes=466944,
        mapped_file_bytes=16384,
        cache_bytes=287137792,
        shmem_bytes=0,
        anonymous_bytes=0,
    )
    reading = present(divide_memory(counters))
    assert reading.kernel_bytes == 624410624 - 287137792


@pytest.mark.parametrize(
    "droppable",
    [
        {"active_file_bytes": 60, "inactive_file_bytes": 46},
        {"inactive_file_bytes": 106},
        {"cache_bytes": 106, "shmem_bytes": 0},
        {"active_file_bytes": 0, "inactive_file_bytes": 6, "reclaimable_slab_bytes": 100},
    ],
)
def test_more_that_can_be_dropped_than_is_used_is_a_contradiction(
    droppable: Mapping[str, int],
) -> None:
    """The usage fell, and the counters of the pages are some seconds old. A little more is of the
    kernel's counters for each CPU.
    """
    mib = 2**20
    parts = {name: size * mib for name, size in droppable.items()}
    assert divide_memory(MemoryCounters(usage_bytes=100 * mib, **parts)) is None
    reading = present(divide_memory(MemoryCounters(usage_bytes=103 * mib, **parts)))
    assert (reading.used_bytes, reading.reclaimable_bytes) == (0, 103 * mib)


def test_what_open_files_keep_of_the_kernels_memory_is_a_bound() -> None:
    """50,000 open files have 10 MB that is not reclaimable, and at most 150 MB that is."""
    mib = 2**20
    counters = MemoryCounters(
        usage_bytes=135 * mib,
        cache_bytes=0,
        reclaimable_slab_bytes=100 * mib,
        unreclaimable_slab_bytes=10 * mib,
    )
    reading = present(divide_memory(counters))
    assert reading.used_bytes == 35 * mib
    assert reading.pinned_bound_bytes == 100 * mib
    more = replace(counters, usage_bytes=435 * mib, reclaimable_slab_bytes=400 * mib)
    assert present(divide_memory(more)).pinned_bound_bytes == pytest.approx(160 * mib, rel=0.01)
    assert present(divide_memory(more)).used_bytes == 35 * mib


@pytest.mark.parametrize(("open_files", "bound_mib"), [(256, 0), (16_384, 48), (10**6, 60)])
def test_what_a_number_of_open_files_keeps_is_a_bound(open_files: int, bound_mib: int) -> None:
    """20,000 open files have less than 4 MiB that is not reclaimable."""
    mib = 2**20
    counters = MemoryCounters(
        usage_bytes=83 * mib,
        cache_bytes=0,
        reclaimable_slab_bytes=60 * mib,
        unreclaimable_slab_bytes=3 * mib,
    )
    reading = present(divide_memory(counters))
    assert reading.pinned_bound_bytes == 0
    assert pinned_by_files_bytes(reading, open_files) == bound_mib * mib


def test_without_kernel_memory_of_open_files_there_is_no_bound() -> None:
    """A container whose own processes have some hundred files, whatever the machine has."""
    counters = MemoryCounters(
        usage_bytes=420 * 2**20,
        cache_bytes=0,
        reclaimable_slab_bytes=400 * 2**20,
        unreclaimable_slab_bytes=2**19,
    )
    assert present(divide_memory(counters)).pinned_bound_bytes == 0
    unknown = replace(counters, unreclaimable_slab_bytes=None)
    assert present(divide_memory(unknown)).pinned_bound_bytes == 0

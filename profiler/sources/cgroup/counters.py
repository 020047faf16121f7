"""The counters of a control group: which files hold them in version 1 and 2, and how to read them."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from profiler.sources.linux import proc

OOM_KILLS = "oom_kill"
_NS_PER_US = 1000
# A group's high-water mark includes page cache. It is taken for the peak of the processes if the cache is below 1 %
# of it, or below the 256 KiB in which the kernel charges memory to a group.
_MAX_CACHE_SHARE = 0.01
_CHARGE_BATCH_BYTES = 256 * 1024


class CpuFile(Struct, frozen=True, kw_only=True):
    """The file that holds the CPU time, and its parser."""

    name: str
    parse_ns: Callable[[bytes], int | None]


class MemoryFiles(Struct, frozen=True, kw_only=True):
    """The files that hold the memory, and names in them.

    ``usage``, ``limit``, ``peak`` and ``kills`` are files. ``inactive``, ``cache`` and ``shared`` are names in
    ``memory.stat``; ``cache`` includes ``shared`` (shared memory and tmpfs), which is not reclaimable like files.
    ``reset`` is written to ``peak`` to reset it.
    """

    usage: str
    limit: str
    peak: str
    kills: str
    inactive: str
    cache: str
    shared: str
    reset: bytes


class MemoryReading(Struct, frozen=True, kw_only=True):
    """Memory of a group: ``used_bytes`` is without inactive page cache, as Docker counts it."""

    used_bytes: int
    cache_bytes: int | None


class GroupPeak(Struct, frozen=True, kw_only=True):
    """A control group's high-water mark, with what determines whether it is the peak of its processes.

    ``cache_bytes`` is the most page cache that was seen in the group. ``includes_all_processes`` is False if a process
    of the command was outside of the group, or if the mark was not read after the end.
    """

    size_bytes: int | None = None
    cache_bytes: int = 0
    includes_all_processes: bool = True

    def is_process_peak(self, transferred_bytes: int = 0) -> bool:
        """Whether it is the peak of the memory of all processes, with hardly any page cache."""
        return self.includes_all_processes and self.is_free_of_cache(transferred_bytes)

    def is_free_of_cache(self, transferred_bytes: int = 0) -> bool:
        """Whether it includes hardly any page cache.

        Args:
            transferred_bytes: Block I/O of the processes. It bounds the page cache of files that were deleted
                before a reading could show it.
        """
        max_bytes = max(_MAX_CACHE_SHARE * (self.size_bytes or 0), _CHARGE_BATCH_BYTES)
        return max(self.cache_bytes, transferred_bytes) < max_bytes


def parse_number(text: bytes) -> int | None:
    """A file that holds one number, such as version 1's ``cpuacct.usage``."""
    word = text.strip()
    return int(word) if word.isdigit() else None


def parse_cpu_stat_ns(text: bytes) -> int | None:
    """The total in version 2's ``cpu.stat``, which every group has, even without a CPU controller."""
    usage_us = proc.parse_counter(text.decode("ascii", "replace"), "usage_usec")
    return None if usage_us is None else usage_us * _NS_PER_US


V1_CPU = CpuFile(name="cpuacct.usage", parse_ns=parse_number)
V2_CPU = CpuFile(name="cpu.stat", parse_ns=parse_cpu_stat_ns)
V1_MEMORY = MemoryFiles(
    usage="memory.usage_in_bytes",
    limit="memory.limit_in_bytes",
    peak="memory.max_usage_in_bytes",
    kills="memory.oom_control",
    inactive="total_inactive_file",
    cache="total_cache",
    shared="total_shmem",
    reset=b"0",
)
V2_MEMORY = MemoryFiles(
    usage="memory.current",
    limit="memory.max",
    peak="memory.peak",
    kills="memory.events",
    inactive="inactive_file",
    cache="file",
    shared="shmem",
    reset=b"reset",
)


def read_memory(folder: Path, files: MemoryFiles) -> MemoryReading | None:
    """A group's memory now; None if it cannot be read."""
    usage_bytes = parse_number(proc.read(str(folder / files.usage)) or b"")
    stat = proc.read_text(folder / "memory.stat")
    inactive_bytes, cache_bytes = proc.parse_counter(stat, files.inactive), proc.parse_counter(stat, files.cache)
    if usage_bytes is None or inactive_bytes is None:
        return None
    if cache_bytes is not None:
        cache_bytes = max(cache_bytes - (proc.parse_counter(stat, files.shared) or 0), 0)
    # The two files are not read at the same moment.
    return MemoryReading(used_bytes=max(usage_bytes - inactive_bytes, 0), cache_bytes=cache_bytes)


def read_oom_kills(folder: Path, files: MemoryFiles) -> int | None:
    """How many processes of a group the kernel has killed because memory ran out; None if it does not count them."""
    return proc.parse_counter(proc.read_text(folder / files.kills), OOM_KILLS)

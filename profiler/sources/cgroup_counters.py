"""What a control group counts of the processes in it, in the files of either version of control groups."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from profiler.sources import proc
from profiler.sources.cgroup import OOM_KILLS

_NS_PER_US = 1000
# A mark counts page cache too: it is the processes' peak where there was next to none, or less
# than the 256 KiB in which the kernel counts a group's memory anyway.
_MAX_CACHE_SHARE = 0.01
_CHARGE_BATCH_BYTES = 256 * 1024


class CpuFile(Struct, frozen=True, kw_only=True):
    """Which file holds the CPU time."""

    name: str
    parse_ns: Callable[[bytes], int | None]


class MemoryFiles(Struct, frozen=True, kw_only=True):
    """Which files hold the memory: its size, its limit, its high-water mark, its parts, how often it ran out.

    ``cache`` counts shared memory and tmpfs too, which cannot be given back as files can.
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
    """Memory now: without inactive page cache, as containers count it; and how much of it is page cache."""

    used_bytes: int
    cache_bytes: int | None


class GroupPeak(Struct, frozen=True, kw_only=True):
    """A control group's high-water mark, the most page cache seen in it, and whether it holds for all to the end."""

    size_bytes: int | None = None
    cache_bytes: int = 0
    includes_all_processes: bool = True

    def is_process_peak(self, transferred_bytes: int = 0) -> bool:
        """Whether it is the peak of what processes held, all of them, with next to no page cache in it."""
        return self.includes_all_processes and self.is_free_of_cache(transferred_bytes)

    def is_free_of_cache(self, transferred_bytes: int = 0) -> bool:
        """Whether there is next to no page cache in it.

        A file that was deleted again before it was seen is known from ``transferred_bytes``, what was
        read or written.
        """
        max_bytes = max(_MAX_CACHE_SHARE * (self.size_bytes or 0), _CHARGE_BATCH_BYTES)
        return max(self.cache_bytes, transferred_bytes) < max_bytes


def parse_usage_ns(text: bytes) -> int | None:
    """Version 1's ``cpuacct.usage``."""
    word = text.strip()
    return int(word) if word.isdigit() else None


def parse_cpu_stat_ns(text: bytes) -> int | None:
    """The total in version 2's ``cpu.stat``, which every group has, whatever its controllers are."""
    usage_us = proc.parse_counter(text.decode("ascii", "replace"), "usage_usec")
    return None if usage_us is None else usage_us * _NS_PER_US


V1_CPU = CpuFile(name="cpuacct.usage", parse_ns=parse_usage_ns)
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
    """A group's memory now, None if it cannot be told."""
    usage_bytes = parse_usage_ns(proc.read(str(folder / files.usage)) or b"")
    stat = (proc.read(str(folder / "memory.stat")) or b"").decode("ascii", "replace")
    inactive_bytes, cache_bytes = proc.parse_counter(stat, files.inactive), proc.parse_counter(stat, files.cache)
    if usage_bytes is None or inactive_bytes is None:
        return None
    if cache_bytes is not None:
        cache_bytes = max(cache_bytes - (proc.parse_counter(stat, files.shared) or 0), 0)
    # The kernel does not read the two at the same moment.
    return MemoryReading(used_bytes=max(usage_bytes - inactive_bytes, 0), cache_bytes=cache_bytes)


def read_oom_kills(folder: Path, files: MemoryFiles) -> int | None:
    """How many processes of a group were killed for want of memory, where the kernel counts them."""
    return proc.parse_counter((proc.read(str(folder / files.kills)) or b"").decode("ascii", "replace"), OOM_KILLS)

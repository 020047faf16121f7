"""The totals of several processes from successive readings, and the peak of their control group."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from profiler.readers.linux.proc import BlockBytes
from profiler.readers.linux.process_tree import ProcessReading

# The kernel rounds the CPU time of children to whole ticks, user and system time separately.
_MAX_ROUNDING_NS = 20_000_000
# A group's high-water mark includes all page cache, but memory used does not include what no process maps. At the
# time of the mark any cache may have been unmapped. So the mark is taken for the peak if all cache is below 1 %
# of it, or below the 256 KiB in which the kernel charges memory to a group.
_MAX_CACHE_SHARE = 0.01
_CHARGE_BATCH_BYTES = 256 * 1024


class TreeCpu:
    """The CPU time of a tree, computed from readings of its processes. It never falls and includes ended processes."""

    def __init__(self) -> None:
        self._previous: Mapping[tuple[int, int], ProcessReading] = {}
        self._reaped_ns = 0
        self._unreaped_ns = 0
        self.total_ns = 0

    def add(self, processes: Iterable[ProcessReading], reaped_ns: int) -> int:
        """Add a reading.

        The CPU time of a process that has ended is normally part of the children's time of the parent that waited for
        it. If no process waited for it (its parent ignores SIGCHLD), its last known value is kept.

        Args:
            processes: All processes of the tree.
            reaped_ns: The CPU time of all children that this process itself has waited for so far.

        Returns:
            The total of the tree in nanoseconds.
        """
        now = {process.identity: process for process in processes}
        before = self._previous
        gone = [_cpu_ns(process) for identity, process in before.items() if identity not in now]
        handed_over_ns = max(reaped_ns - self._reaped_ns, 0) + sum(
            max(process.children_cpu_ns - before[identity].children_cpu_ns, 0)
            for identity, process in now.items()
            if identity in before
        )
        self._unreaped_ns += max(sum(gone) - len(gone) * _MAX_ROUNDING_NS - handed_over_ns, 0)
        self._previous, self._reaped_ns = now, reaped_ns
        present_ns = sum(_cpu_ns(process) for process in now.values())
        self.total_ns = max(self.total_ns, present_ns + reaped_ns + self._unreaped_ns)
        return self.total_ns


def _cpu_ns(process: ProcessReading) -> int:
    return process.own_cpu_ns + process.children_cpu_ns


class TreeMemory:
    """The memory of several processes together and its peak, which takes the kernel's high-water marks into account.

    When the high-water mark of a process has risen between two readings, the candidate for the peak is this mark plus
    the memory that the others held at both readings. Two rises are never added: nothing shows that they happened at
    the same time. ``peak_processes`` held the memory of the peak. ``largest_mark_bytes`` is that of one process alone.
    """

    def __init__(self) -> None:
        self._previous: Mapping[tuple[int, int], ProcessReading] = {}
        self.peak_bytes: int | None = None
        self.peak_processes = 0
        self.largest_mark_bytes: int | None = None

    def add(self, processes: Iterable[ProcessReading]) -> int | None:
        """Add a reading; returns the memory in bytes, or None if no process has any (all are zombies)."""
        now = {process.identity: process for process in processes}
        shares = [process.share_bytes for process in now.values() if process.share_bytes is not None]
        before, self._previous = self._previous, now
        if not shares:
            return None
        held = {identity: _held_through_step(before.get(identity), process) for identity, process in now.items()}
        held_bytes, holders = sum(held.values()), sum(size > 0 for size in held.values())
        with_new_marks = (
            (
                _high_water_bytes(before.get(identity), process) + held_bytes - held[identity],
                holders + (held[identity] == 0),
            )
            for identity, process in now.items()
            if _has_new_high_water_mark(before.get(identity), process)
        )
        # The processes together held at least as much as each of them.
        mark_bytes = max((process.peak_bytes or 0 for process in now.values()), default=0)
        self.largest_mark_bytes = max(self.largest_mark_bytes or 0, mark_bytes)
        peak_bytes, number = max((sum(shares), len(shares)), (mark_bytes, 1), *with_new_marks)
        if peak_bytes > (self.peak_bytes or 0) or self.peak_bytes is None:
            self.peak_bytes, self.peak_processes = peak_bytes, number
        return sum(shares)


def _held_through_step(before: ProcessReading | None, now: ProcessReading) -> int:
    """The memory that a process held at both ends of a step: the smaller of the two, 0 for a new process."""
    if before is None:
        return 0
    return min(before.share_bytes or 0, now.share_bytes or 0)


def _has_new_high_water_mark(before: ProcessReading | None, now: ProcessReading) -> bool:
    """Whether the mark changed; a lower one means that the process has executed another program."""
    return now.peak_bytes is not None and (before is None or before.peak_bytes != now.peak_bytes)


def _high_water_bytes(before: ProcessReading | None, now: ProcessReading) -> int:
    """The high-water mark without the pages that other processes' shares count.

    The number of these pages at the time of the mark is unknown, only that at both ends of the step. If it changed,
    another process has released shared pages (or mapped them), and the others' shares have changed by as much again.
    Therefore the larger number and the difference are both subtracted.
    """
    ends = [max((end.rss_bytes or 0) - (end.share_bytes or 0), 0) for end in (before, now) if end is not None]
    return max((now.peak_bytes or 0) - max(ends) - (max(ends) - min(ends)), 0)


class TreeBlocks:
    """The block I/O of a tree. It never falls.

    The counters of a process include those of the children it has waited for. A parent is read before its
    children, so nothing is counted twice. A process that ends between these two reads is in neither;
    the total is then unknown, and the next reading includes it.
    """

    def __init__(self) -> None:
        self._unreaped = BlockBytes(read_bytes=0, write_bytes=0)
        self._total = self._unreaped

    def add(self, processes: Iterable[ProcessReading], reaped: BlockBytes) -> BlockBytes | None:
        """Add a reading.

        Args:
            processes: All processes of the tree.
            reaped: The block I/O of all children that this process itself has waited for so far.

        Returns:
            The total of the tree; None if it is unknown this time.
        """
        blocks = [process.blocks for process in processes]
        known = [process_blocks for process_blocks in blocks if process_blocks is not None]
        if len(known) < len(blocks):
            return None
        read_bytes = reaped.read_bytes + sum(process_blocks.read_bytes for process_blocks in known)
        write_bytes = reaped.write_bytes + sum(process_blocks.write_bytes for process_blocks in known)
        # A sum below the last total means that a process ended without a wait by its parent: its part is kept.
        self._unreaped = BlockBytes(
            read_bytes=max(self._unreaped.read_bytes, self._total.read_bytes - read_bytes),
            write_bytes=max(self._unreaped.write_bytes, self._total.write_bytes - write_bytes),
        )
        self._total = BlockBytes(
            read_bytes=read_bytes + self._unreaped.read_bytes, write_bytes=write_bytes + self._unreaped.write_bytes
        )
        return self._total


class GroupPeak(Struct, frozen=True, kw_only=True):
    """A control group's high-water mark, and the facts that decide whether it is the peak of its processes.

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

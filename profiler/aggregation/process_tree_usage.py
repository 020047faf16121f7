"""The totals of several processes from successive readings, and the peak of their control group."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from profiler.readers.linux.proc import BlockBytes
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.memory_usage import MemoryReading, is_notable

_ZOMBIE = "Z"  # the state of an ended process for which its parent has not waited
# The kernel rounds the CPU time of children to whole ticks, user and system time separately.
_MAX_ROUNDING_NS = 20_000_000
# A group's high-water mark includes all page cache, but memory used does not include what no
# process maps. At the time of the mark any cache may have been unmapped. So the mark is taken for
# the peak if all cache is below 1 % of it, or below the 256 KiB in which the kernel charges memory
# to a group.
_MAX_CACHE_SHARE = 0.01
_CHARGE_BATCH_BYTES = 256 * 1024


class _Gone(Struct, frozen=True):
    """The processes that ended in a step, each with its parent before, and what was estimated of
    their CPU time.
    """

    processes: Sequence[tuple[ProcessReading, ProcessReading | None]] = ()
    handed_over_ns: int = 0
    unreaped_ns: int = 0
    has_adopted: bool = False


class TreeCpu(Struct):
    """The CPU time of a tree, computed from readings of its processes.

    It never falls and includes ended processes.

    ``has_lost``: no process waited for one of the ended processes, so what it used after its last
    reading is unknown. ``lost_blocks`` is the block I/O of these processes until then.
    """

    total_ns: int = 0
    has_lost: bool = False
    lost_blocks: BlockBytes = BlockBytes()
    _last: Iterable[ProcessReading] = ()
    _previous: Mapping[tuple[int, int], ProcessReading] = {}
    _reaped_ns: int = 0
    _unreaped_ns: int = 0
    _gone: _Gone = _Gone()

    def add(
        self, processes: Iterable[ProcessReading], reaped_ns: int, *, is_last: bool = False
    ) -> int:
        """Add a reading of all processes of the tree; returns the tree's total in nanoseconds.

        ``reaped_ns`` is the CPU time of all children that this process itself has waited for so
        far. The parent that waited for a process has its CPU time and page faults. If none did
        (SIGCHLD ignored), its last value is kept. The same readings again add nothing once the
        last ends are settled.
        """
        is_same = processes is self._last and reaped_ns == self._reaped_ns
        if is_same and not self._gone.processes and not is_last:
            return self.total_ns
        self._last = processes
        now = {process.identity: process for process in processes}
        before = self._previous
        by_pid = {process.pid: process for process in before.values()}
        gone: list[tuple[ProcessReading, ProcessReading | None]] = []
        handed_over_ns = max(reaped_ns - self._reaped_ns, 0)
        for identity, process in before.items():
            after = now.get(identity)
            if after is None:
                gone.append((process, by_pid.get(process.parent_pid)))
            else:
                handed_over_ns += max(after.children_cpu_ns - process.children_cpu_ns, 0)
        gone += [(process, None) for process in self._settle(now, before, handed_over_ns)]
        unreaped_ns = _unreaped_ns([process for process, _ in gone], handed_over_ns)
        self._unreaped_ns += unreaped_ns
        has_adopted = reaped_ns > self._reaped_ns
        self._gone = _Gone(
            gone, handed_over_ns=handed_over_ns, unreaped_ns=unreaped_ns, has_adopted=has_adopted
        )
        if is_last:
            self._settle(now, {}, 0)
        self._previous = now
        self._reaped_ns = reaped_ns
        present_ns = sum(_cpu_ns(process) for process in now.values())
        self.total_ns = max(self.total_ns, present_ns + reaped_ns + self._unreaped_ns)
        return self.total_ns

    def _settle(
        self,
        now: Mapping[tuple[int, int], ProcessReading],
        before: Mapping[tuple[int, int], ProcessReading],
        handed_over_ns: int,
    ) -> Sequence[ProcessReading]:
        """Correct the estimate of the last step, in which a parent may have been read before it
        waited.

        Returns the processes whose parent has ended since, perhaps after it waited.
        """
        last = self._gone
        lost = list[ProcessReading]()
        unknown = list[ProcessReading]()
        undecided = list[ProcessReading]()
        for process, parent in last.processes:
            after = None
            if parent is not None:
                after = now.get(parent.identity) or before.get(parent.identity)
            is_orphan = after is not None and after.state == _ZOMBIE and last.has_adopted
            if parent is None or after is None or is_orphan or not process.faults:
                unknown.append(process)
            elif after.children_faults == parent.children_faults:
                # The count of a present parent was read after the end of its child; that of a
                # zombie is final.
                if parent.identity in now or after.state == _ZOMBIE:
                    lost.append(process)
                else:
                    undecided.append(process)
        for process in lost:
            self.has_lost = True
            self.lost_blocks += process.blocks or BlockBytes()
        unreaped_ns = sum(map(_cpu_ns, lost)) + _unreaped_ns(
            unknown, last.handed_over_ns + handed_over_ns
        )
        self._unreaped_ns += unreaped_ns - last.unreaped_ns
        return undecided


def _unreaped_ns(gone: Sequence[ProcessReading], handed_over_ns: int) -> int:
    return max(sum(map(_cpu_ns, gone)) - len(gone) * _MAX_ROUNDING_NS - handed_over_ns, 0)


def _cpu_ns(process: ProcessReading) -> int:
    return process.own_cpu_ns + process.children_cpu_ns


class TreeMemory(Struct):
    """The memory of several processes together and its peak, by the kernel's high-water marks.

    When the mark of a process has risen between two readings, the candidate for the peak is this
    mark plus the memory that the others held at both readings. Two rises are never added: nothing
    shows that they happened at the same time.
    """

    peak_bytes: int | None = None
    peak_processes: int = 0
    largest_mark_bytes: int | None = None
    _last: Iterable[ProcessReading] = ()
    _held_bytes: int | None = None
    _previous: Mapping[tuple[int, int], ProcessReading] = {}

    def add(self, processes: Iterable[ProcessReading]) -> int | None:
        """Add a reading; returns the memory in bytes, or None if no process has any (all are
        zombies). The same reading again changes nothing.
        """
        if processes is not self._last:
            self._held_bytes = self._add(processes)
            self._last = processes
        return self._held_bytes

    def _add(self, processes: Iterable[ProcessReading]) -> int | None:
        now = {process.identity: process for process in processes}
        shares = [
            process.share_bytes for process in now.values() if process.share_bytes is not None
        ]
        before = self._previous
        self._previous = now
        if not shares:
            return None
        held = dict.fromkeys(now, 0)  # at both ends of the step: nothing by a new process
        for identity in now.keys() & before.keys():
            held[identity] = min(before[identity].share_bytes or 0, now[identity].share_bytes or 0)
        held_bytes = sum(held.values())
        holders = sum(size > 0 for size in held.values())
        # The processes together held at least as much as each of them.
        mark_bytes = max((process.peak_bytes or 0 for process in now.values()), default=0)
        self.largest_mark_bytes = max(self.largest_mark_bytes or 0, mark_bytes)
        # The memory and the number of its processes, by the shares and by each new mark.
        possible = [(sum(shares), len(shares)), (mark_bytes, 1)]
        for identity, process in now.items():
            last = before.get(identity)
            # A lower mark means that the process has executed another program.
            if process.peak_bytes is None:
                continue
            if last is not None and process.peak_bytes == last.peak_bytes:
                continue
            own_bytes = _high_water_bytes(last, process)
            number = holders + (held[identity] == 0)
            possible.append((own_bytes + held_bytes - held[identity], number))
        peak_bytes, number = max(possible)
        if peak_bytes > (self.peak_bytes or 0) or self.peak_bytes is None:
            self.peak_bytes = peak_bytes
            self.peak_processes = number
        return sum(shares)


def _high_water_bytes(before: ProcessReading | None, now: ProcessReading) -> int:
    """The high-water mark without the pages that other processes' shares count.

    Their number is known at both ends of the step, but not at the time of the mark. If it changed,
    the others' shares have changed by the same amount. Therefore the larger number and the
    difference are both subtracted.
    """
    others_bytes = _others_bytes(now)
    change_bytes = 0
    if before is not None:
        change_bytes = abs(_others_bytes(before) - others_bytes)
        others_bytes = max(_others_bytes(before), others_bytes)
    return max((now.peak_bytes or 0) - others_bytes - change_bytes, 0)


def _others_bytes(process: ProcessReading) -> int:
    """The pages of a process that the shares of other processes count."""
    return max((process.rss_bytes or 0) - (process.share_bytes or 0), 0)


class GroupTotal(Struct):
    """The memory of all processes of a control group together, which can be more than the
    group's.

    A page of a mapped file counts only for the group that read it first. The total is the group's
    memory, or that of its processes if the group lacks a notable part of it. ``uncounted_bytes`` is
    the most mapped memory that it lacked.
    """

    uncounted_bytes: int = 0
    _missing_bytes: int | None = None

    def read(
        self,
        group: MemoryReading,
        processes: Iterable[ProcessReading],
        tree_bytes: int,
        *,
        is_exact: bool,
    ) -> int:
        """Add a reading; returns the total.

        ``is_exact``: ``tree_bytes``, of all processes, counts no page twice.
        """
        present = [process for process in processes if process.rss_bytes is not None]
        if is_exact:
            self._missing_bytes = max(tree_bytes - group.used_bytes, 0)
            mapped_bytes = tree_bytes - sum(process.anonymous_bytes or 0 for process in present)
            if group.mapped_file_bytes is None:
                counted_bytes = mapped_bytes
            else:
                counted_bytes = group.mapped_file_bytes
            # Anonymous memory is not compared: it may have been freed between the two readings.
            self.uncounted_bytes = max(self.uncounted_bytes, mapped_bytes - counted_bytes)
        return self.between(
            group, tree_bytes, max([process.share_bytes or 0 for process in present], default=0)
        )

    def between(self, group: MemoryReading, tree_bytes: int, largest_bytes: int) -> int:
        """The total in bytes, from the tree's bytes, which may count pages twice, and its
        largest process's.
        """
        held_bytes = max(
            largest_bytes, min(tree_bytes, group.used_bytes + (self._missing_bytes or 0))
        )
        if lacks_memory(group.used_bytes, held_bytes):
            return held_bytes
        return group.used_bytes

    def of_group(self, group: MemoryReading) -> int | None:
        """The group's memory; None if it is not the total, and before the first reading."""
        used_bytes = group.used_bytes
        missing_bytes = self._missing_bytes
        if missing_bytes is None or lacks_memory(used_bytes, used_bytes + missing_bytes):
            return None
        return used_bytes


def lacks_memory(counted_bytes: float, held_bytes: float) -> bool:
    """Whether a group counts less than its processes hold, by more than 5 % and 4 MiB."""
    return is_notable(held_bytes - counted_bytes, held_bytes)


class TreeBlocks(Struct):
    """The block I/O of a tree. It never falls: writes that are cancelled later were seen.

    The counters of a process include the children it has waited for. A parent is read before its
    children: a process that ends between these two reads is in neither, and the next reading
    includes it. ``cancelled_bytes`` are the most that were seen.
    """

    _total: BlockBytes = BlockBytes()
    cancelled_bytes: int = 0

    def add(
        self, processes: Iterable[ProcessReading], reaped: BlockBytes, lost: BlockBytes
    ) -> BlockBytes | None:
        """Add a reading; returns the total; None: unknown now.

        ``reaped``: of the children this process waited for, ``lost``: of those that nobody did
        (:class:`TreeCpu`).
        """
        total = reaped + lost
        for process in processes:
            if process.blocks is None:
                return None
            total += process.blocks
        self.cancelled_bytes = max(self.cancelled_bytes, total.cancelled_bytes)
        self._total = BlockBytes(
            read_bytes=max(self._total.read_bytes, total.read_bytes),
            write_bytes=max(self._total.write_bytes, total.stored_bytes),
        )
        return self._total


class GroupPeak(Struct, frozen=True, kw_only=True):
    """A control group's high-water mark, and the facts that decide whether it is the peak of its
    processes.

    ``cache_bytes`` is the most page cache that was seen in the group. ``includes_all_processes`` is
    False if a process was outside of the group, or if the mark was not read after the end.
    ``uncounted_bytes``: see :class:`GroupTotal`.
    """

    size_bytes: int | None = None
    cache_bytes: int = 0
    includes_all_processes: bool = True
    uncounted_bytes: int = 0

    @property
    def bound_bytes(self) -> int | None:
        """The mark, with the memory that the group did not count if that is notable."""
        size_bytes = self.size_bytes
        uncounted_bytes = self.uncounted_bytes
        is_notable = size_bytes is not None and lacks_memory(
            size_bytes, size_bytes + uncounted_bytes
        )
        if size_bytes is not None and is_notable:
            return size_bytes + uncounted_bytes
        return size_bytes

    def is_process_peak(self, transferred_bytes: int = 0) -> bool:
        """Whether the mark is the peak of the memory of all processes, with hardly any page
        cache.
        """
        is_complete = self.includes_all_processes and not lacks_memory(
            self.size_bytes or 0, self.bound_bytes or 0
        )
        return is_complete and self.is_free_of_cache(transferred_bytes)

    def is_free_of_cache(self, transferred_bytes: int = 0) -> bool:
        """Whether the mark includes hardly any page cache, also of files that were deleted
        before a reading.
        """
        max_bytes = max(_MAX_CACHE_SHARE * (self.size_bytes or 0), _CHARGE_BATCH_BYTES)
        return max(self.cache_bytes, transferred_bytes) < max_bytes

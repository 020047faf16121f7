"""The totals of several processes from successive readings, and the peak of their control group."""

import resource
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from profiler.core.optional_math import first_known, known_values
from profiler.readers.linux.proc import ProcessBlockBytes
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.memory_usage import is_negligible, is_notable

_ZOMBIE = "Z"  # the state of an ended process for which its parent has not waited
# The kernel rounds the CPU time of children to whole ticks, user and system time separately.
_MAX_ROUNDING_NS = 20_000_000


class _EndedProcesses(Struct, frozen=True):
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
    lost_blocks: ProcessBlockBytes = ProcessBlockBytes()
    _last: Iterable[ProcessReading] = ()
    _previous: Mapping[tuple[int, int], ProcessReading] = {}
    _reaped_ns: int = 0
    _unreaped_ns: int = 0
    _gone: _EndedProcesses = _EndedProcesses()

    def add_reading(
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
        gone += [
            (process, None) for process in self._correct_last_step(now, before, handed_over_ns)
        ]
        unreaped_ns = _unreaped_cpu_ns([process for process, _ in gone], handed_over_ns)
        self._unreaped_ns += unreaped_ns
        has_adopted = reaped_ns > self._reaped_ns
        self._gone = _EndedProcesses(
            gone, handed_over_ns=handed_over_ns, unreaped_ns=unreaped_ns, has_adopted=has_adopted
        )
        if is_last:
            self._correct_last_step(now, {}, 0)
        self._previous = now
        self._reaped_ns = reaped_ns
        present_ns = sum(_cpu_ns(process) for process in now.values())
        self.total_ns = max(self.total_ns, present_ns + reaped_ns + self._unreaped_ns)
        return self.total_ns

    def _correct_last_step(
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
            self.lost_blocks += process.blocks or ProcessBlockBytes()
        unreaped_ns = sum(map(_cpu_ns, lost)) + _unreaped_cpu_ns(
            unknown, last.handed_over_ns + handed_over_ns
        )
        self._unreaped_ns += unreaped_ns - last.unreaped_ns
        return undecided


def _unreaped_cpu_ns(gone: Sequence[ProcessReading], handed_over_ns: int) -> int:
    return max(sum(map(_cpu_ns, gone)) - len(gone) * _MAX_ROUNDING_NS - handed_over_ns, 0)


def _cpu_ns(process: ProcessReading) -> int:
    return process.own_cpu_ns + process.children_cpu_ns


class ProcessMarks(Struct, frozen=True, kw_only=True):
    """What the high-water marks of the processes say of the largest one.

    ``seen_bytes`` is the largest mark. A mark counts each mapping of a page, also of files:
    ``uncounted_bytes`` is the most that this process's counted more than its share. The only
    process held at most ``most_bytes`` if its pages of files did not change more than its readings
    show.
    """

    seen_bytes: int = 0
    uncounted_bytes: int = 0
    most_bytes: int = 0

    def marks_after_step(
        self, before: ProcessReading | None, now: ProcessReading
    ) -> "ProcessMarks":
        """The marks after a step of one process."""
        mark_bytes = now.peak_bytes or 0
        file_bytes = min(_file_bytes(before or now), _file_bytes(now))
        most_bytes = max(self.most_bytes, mark_bytes - file_bytes)
        uncounted_bytes = self.uncounted_bytes
        if mark_bytes >= self.seen_bytes:
            uncounted_bytes = min(_most_uncounted_bytes(before, now), mark_bytes)
        return ProcessMarks(
            seen_bytes=max(self.seen_bytes, mark_bytes),
            uncounted_bytes=uncounted_bytes,
            most_bytes=most_bytes,
        )


def _high_water_bytes(before: ProcessReading | None, now: ProcessReading) -> tuple[int, int]:
    """The high-water mark without what it counts and the share does not, and the same where that
    may be files: each is 0 if it shows no more than that.

    Each page of a process's own memory takes a page fault, if it has no huge pages. What the
    process has read and written in the step may be pages of files that nobody has read since.
    """
    known_bytes = max(now.share_bytes or 0, (before or now).share_bytes or 0)
    uncounted_bytes = _most_uncounted_bytes(before, now)
    high_water_bytes = (now.peak_bytes or 0) - uncounted_bytes
    own_bytes = high_water_bytes - _transferred_bytes(before, now)
    if mark_shows_more(own_bytes, known_bytes, uncounted_bytes):
        return own_bytes, high_water_bytes
    faults = now.faults - (before.faults if before is not None else 0)
    if high_water_bytes - known_bytes > faults * resource.getpagesize():
        return 0, 0
    return 0, max(high_water_bytes, 0)


def _transferred_bytes(before: ProcessReading | None, now: ProcessReading) -> int:
    """What a process has read from disks and written in a step, also where it was deleted since; 0
    if unknown.
    """
    if now.blocks is None:
        return 0
    begun = before.blocks if before is not None else None
    total_bytes = now.blocks.read_bytes + now.blocks.write_bytes
    return max(total_bytes - (0 if begun is None else begun.read_bytes + begun.write_bytes), 0)


def _most_uncounted_bytes(before: ProcessReading | None, now: ProcessReading) -> int:
    """The pages that a mark counts and the share does not: of files, of repeated mappings, and
    those in other processes' shares.

    Their number is known at both ends of the step (a process begins without any), but not at the
    time of the mark. So this is the larger number and the difference.
    """
    uncounted_bytes = _uncounted_bytes(now)
    before_bytes = 0
    if before is not None:
        before_bytes = _uncounted_bytes(before)
    return max(before_bytes, uncounted_bytes) + abs(before_bytes - uncounted_bytes)


def mark_shows_more(high_water_bytes: int, known_bytes: int, uncounted_bytes: int) -> bool:
    """Whether a mark without ``uncounted_bytes`` shows more memory than is known, and that by no
    less than these: pages of files come and go between two readings, as when the kernel drops
    some to make room for others.
    """
    return high_water_bytes - known_bytes >= uncounted_bytes


def _file_bytes(process: ProcessReading) -> int:
    """The least that a process maps of files."""
    if process.shmem_bytes is None:  # all that it maps may be shared memory
        return 0
    return (process.rss_bytes or 0) - (process.anonymous_bytes or 0) - process.shmem_bytes


def _uncounted_bytes(process: ProcessReading) -> int:
    """The pages that the RSS of a process counts, and that neither its share nor what it has freed
    lazily does: that was used before.
    """
    held_bytes = (process.share_bytes or 0) + process.lazily_freed_bytes
    return max((process.rss_bytes or 0) - held_bytes, 0)


class TreeMemory(Struct):
    """The memory of several processes together and its peak, by the kernel's high-water marks.

    When the mark of a process has risen between two readings, the candidate for the peak is this
    mark, without pages of files and repeated mappings, plus the memory that the others held at both
    readings. Two rises are never added: nothing shows that they happened at the same time.

    ``marks_count``: a candidate counts, because a control group's mark bounds it. Elsewhere it is
    unsure: what a process mapped and released between two readings may be a file, or the same
    pages several times, and nothing tells which.

    ``marks`` is what the marks say of the largest process. ``unsure_bytes`` is the largest
    candidate that does not count, or that may be files: the process maps as many as its mark has
    risen by.
    """

    peak_bytes: int | None = None
    unsure_bytes: int = 0
    peak_processes: int = 0
    marks: ProcessMarks = ProcessMarks()
    marks_count: bool = True
    _last: Iterable[ProcessReading] = ()
    _held_bytes: int | None = None
    _previous: Mapping[tuple[int, int], ProcessReading] = {}

    def add_reading(self, processes: Iterable[ProcessReading]) -> int | None:
        """Add a reading; returns the memory in bytes, or None if no process has any (all are
        zombies). The same reading again changes nothing.
        """
        if processes is not self._last:
            self._held_bytes = self._memory_of_reading(processes)
            self._last = processes
        return self._held_bytes

    def _memory_of_reading(self, processes: Iterable[ProcessReading]) -> int | None:
        now = {process.identity: process for process in processes}
        shares = known_values(process.share_bytes for process in now.values())
        before = self._previous
        if not shares:
            self._previous = now
            return None
        held = dict.fromkeys(now, 0)  # at both ends of the step: nothing by a new process
        for identity in now.keys() & before.keys():
            held[identity] = min(before[identity].share_bytes or 0, now[identity].share_bytes or 0)
        held_bytes = sum(held.values())
        holders = sum(size > 0 for size in held.values())
        # The memory and the number of its processes, by the shares and by each new mark.
        possible = [(sum(shares), len(shares))]
        for identity, process in now.items():
            last = before.get(identity)
            # A lower mark means that the process has executed another program.
            if process.peak_bytes is None:
                continue
            if len(now) == 1 or process.peak_bytes > self.marks.seen_bytes:
                self.marks = self.marks.marks_after_step(last, process)
            if last is not None and process.peak_bytes == last.peak_bytes:
                continue
            own_bytes, unsure_bytes = _high_water_bytes(last, process)
            if unsure_bytes:
                unsure_bytes += held_bytes - held[identity]
                self.unsure_bytes = max(self.unsure_bytes, unsure_bytes)
            number = holders + (held[identity] == 0)
            possible.append((own_bytes + held_bytes - held[identity], number))
        peak_bytes, number = max(possible)
        if not self.marks_count:
            self.unsure_bytes = max(self.unsure_bytes, peak_bytes)
            peak_bytes, number = possible[0]
        self._previous = now
        if peak_bytes > first_known(self.peak_bytes, -1):
            self.peak_bytes = peak_bytes
            self.peak_processes = number
        return sum(shares)


def counts_too_little(counted_bytes: float, held_bytes: float) -> bool:
    """Whether a source counts less than another shows, by more than 5 % and 4 MiB."""
    return is_notable(held_bytes - counted_bytes, held_bytes)


class TreeBlocks(Struct):
    """The block I/O of a tree. It never falls: writes that are cancelled later were seen.

    The counters of a process include the children it has waited for. A parent is read before its
    children: a process that ends between these two reads is in neither, and the next reading
    includes it. ``cancelled_bytes`` are the most that were seen.
    """

    _total: ProcessBlockBytes = ProcessBlockBytes()
    cancelled_bytes: int = 0

    def add_reading(
        self,
        processes: Iterable[ProcessReading],
        reaped: ProcessBlockBytes,
        lost: ProcessBlockBytes,
    ) -> ProcessBlockBytes | None:
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
        self._total = ProcessBlockBytes(
            read_bytes=max(self._total.read_bytes, total.read_bytes),
            write_bytes=max(self._total.write_bytes, total.stored_bytes),
        )
        return self._total


class GroupPeak(Struct, frozen=True, kw_only=True):
    """A control group's high-water mark, and the facts that decide whether it is the peak of its
    processes.

    ``cache_bytes`` is the most page cache that was seen in the group. ``includes_all_processes`` is
    False if a process was outside of the group, or if the mark was not read after the end.
    ``foreign_bytes`` is the most shared memory that its processes mapped and the group did not
    count: another group made it.
    """

    size_bytes: int | None = None
    cache_bytes: int = 0
    includes_all_processes: bool = True
    foreign_bytes: int = 0

    @property
    def size_bytes_of_all(self) -> int | None:
        """The mark; None if a process was outside of the group."""
        return self.size_bytes if self.includes_all_processes else None

    def peak_within_group_bytes(self, processes_bytes: int) -> int:
        """What the processes are known to have held of the group's memory: their marks count pages
        of files, so no more than the group's own mark leaves beside its page cache.
        """
        if not self.includes_all_processes or self.size_bytes is None:
            return processes_bytes
        most_bytes = max(self.size_bytes - self.cache_bytes, 0)
        return min(max(processes_bytes - self.foreign_bytes, 0), most_bytes)

    def is_peak_of_processes(self, transferred_bytes: int = 0) -> bool:
        """Whether the mark is the peak of the memory of all processes, with hardly any page
        cache.
        """
        return self.includes_all_processes and self.is_free_of_cache(transferred_bytes)

    def is_free_of_cache(self, transferred_bytes: int = 0) -> bool:
        """Whether the mark includes hardly any page cache, also of files that were deleted
        before a reading.
        """
        return is_negligible(max(self.cache_bytes, transferred_bytes), self.size_bytes or 0)

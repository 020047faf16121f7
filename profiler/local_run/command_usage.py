"""Samples a command's process tree as one container, and its control group."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.process_tree_usage import (
    GroupPeak,
    ProcessMarks,
    TreeBlocks,
    TreeCpu,
    TreeMemory,
    counts_too_little,
)
from profiler.collectors.collector import Collectors
from profiler.core.clock import CpuBudget
from profiler.core.optional_math import known, max_known
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.local_run.prepared_run import PreparedRun, StartedRun
from profiler.readers import Unavailable
from profiler.readers.cgroup.command_group import CommandCgroup
from profiler.readers.cgroup.hierarchy import MEMORY
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux import proc
from profiler.readers.linux.host import lazily_freed_pages
from profiler.readers.linux.huge_pages import HugePagesOfTree
from profiler.readers.linux.kernel_memory import (
    FreeMemory,
    KernelMemoryGrowth,
    SocketQueues,
    unassigned_kernel_bytes,
)
from profiler.readers.linux.process_tree import (
    ProcessReading,
    ProcessTree,
    QuickMemoryReader,
    own_cpu_ns,
)
from profiler.readers.memory_usage import MemoryReading, pinned_by_files_bytes

if TYPE_CHECKING:
    from profiler.local_run.unmapped_memory import UnmappedMemory
    from profiler.readers.cgroup.shared_memory_growth import SharedMemory
    from profiler.readers.linux.memory_shares import MemoryShares
    from profiler.readers.linux.merged_pages import MergedPages
    from profiler.readers.linux.packet_rings import PacketRings

# The kernel walks the page tables of a process to compute its PSS: at most this share of a core,
# and this much at once.
_SHARES_CPU = 0.0035
_SHARES_ADVANCE_NS = 45 * NS_PER_MS
# The same for the machine's kernel memory between two full samples.
_KERNEL_CPU = 0.001
_KERNEL_ADVANCE_NS = 15 * NS_PER_MS
# A shorter time between two readings is that of the usual interval.
_UNREAD_NS = 5 * NS_PER_SECOND // 4
# At each full reading, so many processes are asked whether they are still in the group.
_MAX_CHECKS = 4
# Over a shorter step, the CPU time of ended processes, which the kernel rounds to 10 ms, would be a
# wrong rate.
MIN_CPU_STEP_NS = 100 * NS_PER_MS


def _no_lazily_freed() -> int | None:
    """A group of its own knows what was freed lazily."""
    return None


def _no_memory_limits() -> tuple[int, int] | None:
    """A group of its own counts each page once."""
    return None


class NothingUnmapped:
    """Where a control group counts the memory, none of it is looked for outside the processes."""

    bound_bytes = 0
    swapped_bytes = 0
    average_bound_bytes = 0.0
    used_cpu_ns = 0

    def unmapped_bytes(
        self,
        _tree_bytes: int,
        _shmem_bytes: int,
        _pids: Collection[int],
    ) -> int:
        return 0

    def read_quickly(self, tree_bytes: int, pids: Collection[int]) -> int:  # noqa: ARG002
        return 0


class UnreadMemory(Struct):
    """The time between two readings for which it matters most when the memory changed:
    ``byte_ns`` is its length ``unread_ns``, multiplied by the change.
    """

    _read_ns: int = 0
    _size_bytes: int = 0
    byte_ns: int = 0
    unread_ns: int = 0

    def add_size(self, read_ns: int, size_bytes: int) -> None:
        unread_ns = read_ns - self._read_ns
        if unread_ns >= _UNREAD_NS and self._read_ns:
            byte_ns = unread_ns * abs(size_bytes - self._size_bytes)
            if byte_ns > self.byte_ns:
                self.byte_ns = byte_ns
                self.unread_ns = unread_ns
        self._read_ns = read_ns
        self._size_bytes = size_bytes


class UnrelatedChildren:
    """Child processes of the profiler that are not the command's: earlier children, and the
    collectors' processes.
    """

    def __init__(self, preexisting: Iterable[int], collectors: Collectors) -> None:
        self._preexisting = frozenset(preexisting)
        self._collectors = collectors

    def __contains__(self, pid: object) -> bool:
        """Whether a process is an unrelated child at the moment."""
        if pid in self._preexisting:
            return True
        return any(pid == collector.child_pid for collector in self._collectors.required)


class GroupMemory:
    """The memory of the command's own control group, as long as all processes are in the group:
    they never overrule its counters.
    """

    def __init__(self, cgroup: CommandCgroup) -> None:
        self._cgroup = cgroup
        self._foreign_bytes = 0
        self._known_members: frozenset[tuple[int, int]] = frozenset()
        self._last_processes: Sequence[ProcessReading] = ()
        self._next_check = 0
        self._has_escaped_process = False
        self.used_peak_bytes: int | None = None
        self._marked_peak_bytes: int | None = None
        self.cache_peak_bytes = 0
        self.swap_peak_bytes = 0

    def read_memory(
        self, processes: Sequence[ProcessReading], tree_bytes: int | None, shmem_bytes: int
    ) -> MemoryReading | None:
        """The memory; None without a group, or after a process has left it.

        ``tree_bytes`` is the memory of all processes, with ``shmem_bytes`` of shared memory.
        """
        reading = self._memory()
        if reading is None:
            return None
        if processes is not self._last_processes:  # else none has run, to leave the group
            for process in self._processes_to_check(processes):
                self._has_escaped_process |= not self._cgroup.counts_memory_of(process.pid)
            self._known_members = frozenset(process.identity for process in processes)
            self._last_processes = processes
        if self._has_escaped_process:
            return None
        if tree_bytes is not None and counts_too_little(reading.used_bytes, tree_bytes):
            foreign_bytes = min(tree_bytes - reading.used_bytes, shmem_bytes)
            self._foreign_bytes = max(self._foreign_bytes, foreign_bytes)
        return self._counted_for_peak(reading)

    def _processes_to_check(self, processes: Sequence[ProcessReading]) -> Sequence[ProcessReading]:
        """The new processes, and the next ones of the others: a process may leave the group later,
        as with ``systemd-run --scope``.
        """
        new = [one for one in processes if one.identity not in self._known_members]
        begin = self._next_check if self._next_check < len(processes) else 0
        self._next_check = begin + _MAX_CHECKS
        return (*new, *processes[begin : self._next_check])

    def read_quickly(self) -> MemoryReading | None:
        """The memory between two calls of :meth:`read_memory`."""
        reading = None
        if not self._has_escaped_process:
            reading = self._memory()
        return known(self._counted_for_peak, reading)

    def add_marks(self, processes_bytes: int | None) -> None:
        """Add the processes' memory with their marks, before the group has more page cache."""
        known_bytes = self._marked_peak_bytes or 0
        if processes_bytes is not None and processes_bytes > known_bytes:
            marked_bytes = self._peak().peak_within_group_bytes(processes_bytes)
            self._marked_peak_bytes = max(known_bytes, marked_bytes)

    @property
    def peak_bytes(self) -> int | None:
        """The largest memory use that is known, by the samples and by the processes' marks."""
        return max_known(self.used_peak_bytes, self._marked_peak_bytes)

    def final_peak(self) -> GroupPeak:
        """The kernel's high-water mark, after the end: page cache remains after the processes."""
        self._memory()
        return self._peak()

    def _peak(self) -> GroupPeak:
        return GroupPeak(
            size_bytes=self._cgroup.memory_peak_bytes(),
            cache_bytes=self.cache_peak_bytes,
            includes_all_processes=not self._has_escaped_process,
            foreign_bytes=self._foreign_bytes,
        )

    def _counted_for_peak(self, reading: MemoryReading) -> MemoryReading:
        """The reading, which counts for the peak."""
        self.used_peak_bytes = max(self.used_peak_bytes or 0, reading.used_bytes)
        return reading

    def _memory(self) -> MemoryReading | None:
        reading = self._cgroup.read_memory()
        if reading is not None:
            self.cache_peak_bytes = max(self.cache_peak_bytes, reading.cache_bytes or 0)
            self.swap_peak_bytes = max(self.swap_peak_bytes, self._cgroup.swap_bytes() or 0)
        return reading


class CommandReader:
    """Samples the process tree of one command, and its control group, without the CPU time of
    the start.

    ``merged_peak_bytes`` is the most that the kernel had merged of the processes' memory,
    ``merged_bound_bytes`` the most that the group's would have been without this; 0 without a
    group, where each mapping counts. ``locked_bound_bytes``: the most with locked pages of files
    that other programs share, or that are another control group's; 0 without any.
    """

    name = "processes"

    def __init__(
        self, prepared: PreparedRun, started: StartedRun, unrelated: UnrelatedChildren
    ) -> None:
        monotonic_ns = self._monotonic_ns = prepared.clock.monotonic_ns
        self._tree = ProcessTree(os.getpid(), unrelated, monotonic_ns, proc.LoadFile().last_pid)
        self._shared_memory = prepared.shared_memory
        self._lazily_freed_pages = lazily_freed_pages
        if prepared.own_cgroup.counts_memory:
            self._lazily_freed_pages = _no_lazily_freed
        self._freed_before = self._lazily_freed_pages()
        self._huge_pages = HugePagesOfTree(monotonic_ns, time.thread_time_ns)
        self._huge_pages.note_others_bytes()
        self._counts_huge_pages = False
        self.merged_peak_bytes = 0
        self.merged_bound_bytes = 0
        self.locked_bound_bytes = 0
        self._last_uncounted_bytes = 0
        self._bound_bytes = 0
        self._unsure_bound_bytes = 0
        self._quick_memory = QuickMemoryReader(os.getpid(), unrelated)
        self._quick_peak_bytes: int | None = None
        self._cgroup = prepared.own_cgroup
        self._cpu = TreeCpu()
        # Its own mark bounds the processes'.
        self._memory = TreeMemory(marks_count=prepared.own_cgroup.counts_memory)
        self._blocks = TreeBlocks()
        self.group_memory = GroupMemory(self._cgroup)
        self._unmapped: UnmappedMemory | NothingUnmapped = NothingUnmapped()
        self._kernel_growth_bytes: Callable[[], int] = lambda: 0
        self.unread_memory = UnreadMemory()
        self._free_memory = FreeMemory()
        self._kernel_budget = CpuBudget(_KERNEL_CPU, _KERNEL_ADVANCE_NS)
        self._process_kernel_bytes: dict[int, int] = {}
        self.process_kernel_peak_bytes = 0
        self.kernel_bound_bytes = 0
        if prepared.shared_memory is not None:  # not with a group
            self._kernel_growth_bytes = KernelMemoryGrowth(unassigned_kernel_bytes).growth_bytes
            self._unmapped = _unmapped_memory(
                prepared.shared_memory, started.started_wall_ns, monotonic_ns
            )
        elif prepared.cgroups.has_v1_controller(MEMORY):  # version 2 counts all of a group's
            self._kernel_growth_bytes = KernelMemoryGrowth(SocketQueues().size_bytes).growth_bytes
        self._uncounted_peak_bytes: int | None = None
        self._usable_cpus = len(os.sched_getaffinity(0))
        self._startup_cpu_ns = started.startup_cpu_ns
        self._read_ns = started.started_wall_ns
        self._reported_cpu_ns = 0
        self.processes: tuple[ProcessReading, ...] = ()
        self.survivors: tuple[ProcessReading, ...] = ()
        self.max_processes = 0
        self._swap_peak_bytes = 0
        self.last_read_ns: int | None = None
        self.cpu_ns = 0

    @property
    def peak_bytes(self) -> int | None:
        """The largest memory use that is known, by the samples and by the processes' marks."""
        return max_known(self.read_peak_bytes, self.group_memory.peak_bytes)

    @property
    def read_peak_bytes(self) -> int | None:
        """The largest memory use that a sample read: without pages of files, unlike marks."""
        return max_known(
            self._quick_peak_bytes,
            self.group_memory.used_peak_bytes,
            self._uncounted_peak_bytes,
        )

    @property
    def process_marks(self) -> ProcessMarks:
        """What the processes' marks say; before the first full sample, what they map of files and
        shared memory counts for nothing. So does what one has mapped of files since the last one.
        """
        marks = self._memory.marks
        if not marks.seen_bytes:
            return ProcessMarks(uncounted_bytes=self._quick_memory.mapped_bytes)
        uncounted_bytes = max(marks.uncounted_bytes, self._quick_memory.file_bytes)
        return replace(marks, uncounted_bytes=uncounted_bytes)

    @property
    def marked_bound_bytes(self) -> int:
        """What the processes' marks say of the time between two samples that may be files."""
        return self._memory.unsure_bytes

    @property
    def shared_bound_bytes(self) -> int | None:
        """The most that the command can have held, if other programs made none of the new shared
        memory; None if all of it is assigned.
        """
        return self._unmapped.bound_bytes or None

    @property
    def shared_swapped_bytes(self) -> int:
        """What the machine moved to swap while there was new shared memory, perhaps of that."""
        return self._unmapped.swapped_bytes

    @property
    def tells_shared_memory(self) -> bool:
        """Whether the growth of shared memory is known, and not only that of all memory."""
        return self._shared_memory is None or not self._shared_memory.has_all_memory

    @property
    def average_bound_bytes(self) -> float:
        """The mean of what the command can have held more than the samples have, alike."""
        return self._unmapped.average_bound_bytes

    @property
    def huge_pages_bound_bytes(self) -> int:
        """The huge pages that none of the processes mapped, and that the command may have taken; 0
        where its control group counts them as memory.
        """
        return 0 if self._counts_huge_pages else self._huge_pages.unmapped_bytes

    @property
    def last_pid(self) -> int | None:
        """The id that was assigned last before the processes were read; None if unknown."""
        return self._tree.last_pid

    @property
    def has_hidden_processes(self) -> bool:
        """Whether there was a process of which this user sees nothing in ``/proc``."""
        return self._tree.has_hidden

    @cached_property
    def _shares(self) -> "MemoryShares":
        from profiler.readers.linux.memory_shares import MemoryShares  # the shortest runs have none

        shared = self._shared_memory
        return MemoryShares(
            CpuBudget(_SHARES_CPU, _SHARES_ADVANCE_NS),
            os.sysconf("SC_PAGE_SIZE"),
            self._monotonic_ns,
            time.thread_time_ns,
            self._lazily_freed_pages,
            freed_before=self._freed_before,
            limits=_no_memory_limits if shared is None else shared.memory_limits,
        )

    def take_pages_cpu_ns(self) -> int:
        """The CPU time that reading pages and looking for files in memory has taken since the last
        call; both have limits of their own.
        """
        used_ns = self._shares.used_cpu_ns + self._huge_pages.used_cpu_ns
        self._shares.used_cpu_ns = 0
        self._huge_pages.used_cpu_ns = 0
        used_ns += self._unmapped.used_cpu_ns
        self._unmapped.used_cpu_ns = 0
        return used_ns

    @property
    def swap_peak_bytes(self) -> int:
        """The most memory in swap: that of the group, with its shared memory, or the processes'."""
        return max(self._swap_peak_bytes, self.group_memory.swap_peak_bytes)

    @property
    def memory_bound_bytes(self) -> int:
        """The most that all processes may have held at a reading, if no later one shows that
        they held less.
        """
        return max(self._bound_bytes, self._unsure_bound_bytes)

    def _bytes_beyond_shares(self) -> int:
        """What the processes may hold beyond their shares: of shared memory no more than there
        is.
        """
        unsure_bytes = self._shares.unsure_bytes
        open_bytes = self._shares.open_shmem_bytes
        if not open_bytes or self._shared_memory is None:
            return unsure_bytes
        there_bytes = self._shared_memory.read_now_bytes()
        if there_bytes is None:
            return unsure_bytes
        most_bytes = max(there_bytes - self._shares.shmem_bytes, 0)
        return unsure_bytes - max(open_bytes - most_bytes, 0)

    def _add_bound(self, bound_bytes: int) -> None:
        """Add what the processes may hold.

        An exact reading shows what they held before, unless one has ended.
        """
        if self._shares.has_lost:
            self._bound_bytes = max(self._bound_bytes, self._unsure_bound_bytes)
        is_new = self._shares.is_exact or self._shares.has_lost
        if is_new:
            self._unsure_bound_bytes = bound_bytes
        else:
            self._unsure_bound_bytes = max(bound_bytes, self._unsure_bound_bytes)

    def _add_locked_bound(self, used_bytes: int, uncounted_bytes: int) -> None:
        """Add what the processes have locked of files in addition to the ``used_bytes``: what the
        sum of their shares lacks, and where that is more than these, the ``uncounted_bytes``.

        The processes are read before their group, and may free memory in between: what counts was
        there at two readings in a row.
        """
        lacking_bytes = self._shares.lacking_locked_bytes
        if not (lacking_bytes or self._shares.own_locked_bytes):
            return
        uncounted_bytes += lacking_bytes
        lasting_bytes = min(uncounted_bytes, self._last_uncounted_bytes)
        self._last_uncounted_bytes = uncounted_bytes
        locked_bytes = min(lasting_bytes, lacking_bytes + self._shares.own_locked_bytes)
        self.locked_bound_bytes = max(self.locked_bound_bytes, used_bytes + locked_bytes)

    def read_sample(
        self, read_ns: int, reaped_ns: int, reaped_blocks: proc.ProcessBlockBytes
    ) -> ContainerSample | Unavailable:
        """Sample the tree now; ``reaped_ns`` and ``reaped_blocks`` are the usage of the
        processes reaped so far.
        """
        self._huge_pages.note_pools_before()
        processes = self._shares.readings_with_shares(self._tree.read_all())
        self.processes = processes
        if not processes:
            return Unavailable("no process of the command can be read in /proc")
        self.max_processes = max(self.max_processes, len(processes))
        self.last_read_ns = read_ns
        swap_bytes = sum([process.swap_bytes or 0 for process in processes])
        self._swap_peak_bytes = max(self._swap_peak_bytes, swap_bytes)
        huge_page_bytes = self._huge_pages.held_bytes(processes)
        tree_bytes = self._memory.add_reading(processes)
        group = self.group_memory.read_memory(processes, tree_bytes, self._shares.shmem_bytes)
        self.group_memory.add_marks(self._memory.peak_bytes)
        memory_bytes = tree_bytes
        mapped_file_bytes = None
        merged_bytes = self._merged_pages.mapped_bytes(processes)
        self.merged_peak_bytes = max(self.merged_peak_bytes, merged_bytes)
        if group is not None:
            group = _with_pinned_files(group, processes)
            unmerged_bytes = group.used_bytes + merged_bytes
            self.merged_bound_bytes = max(self.merged_bound_bytes, unmerged_bytes)
            self._counts_huge_pages = group.has_huge_pages
            ring_bytes = self._packet_rings.held_bytes(processes)
            self._add_kernel_bound(group.used_bytes, ring_bytes)
            self._add_locked_bound(group.used_bytes, (tree_bytes or 0) - group.used_bytes)
        else:
            self._add_locked_bound(tree_bytes or 0, 0)
            mapped_file_bytes = self._shares.file_bytes
            self._add_bound((tree_bytes or 0) + self._bytes_beyond_shares())
            memory_bytes = self._with_uncounted(tree_bytes, processes)
        self._quick_memory.reset_baseline(processes)
        if memory_bytes is not None:
            self.unread_memory.add_size(read_ns, memory_bytes)
        cpu_ns = self._clamp_to_capacity(self._add_cpu(processes, reaped_ns), read_ns)
        blocks = self._blocks.add_reading(processes, reaped_blocks, self._cpu.lost_blocks)
        sample = ContainerSample(
            read_ns=read_ns,
            cpu_ns=cpu_ns,
            memory_used_bytes=memory_bytes,
            memory_mapped_file_bytes=mapped_file_bytes,
            pids=sum(process.threads for process in processes),
            memory_huge_page_bytes=huge_page_bytes,
        )
        if blocks is not None:
            sample = replace(
                sample, block_read_bytes=blocks.read_bytes, block_write_bytes=blocks.write_bytes
            )
        return _with_group(sample, group)

    def sample_quickly(self, read_ns: int) -> ContainerSample | None:
        """Sample the memory and, after some time, the CPU time; None if the memory cannot be
        read quickly now.

        Without a group, a new or ended process makes the CPU time unknown until the next full
        sample.
        """
        group = self.group_memory.read_quickly()
        used_bytes = None
        if group is None:
            used_bytes = self._quick_memory.estimate_held_bytes()
            if used_bytes is None:
                return None
            pids = self._quick_memory.pids
            kernel_bytes = sum([self._process_kernel_bytes.get(pid, 0) for pid in pids])
            used_bytes += self._unmapped.read_quickly(used_bytes, pids)
            used_bytes += kernel_bytes
            self._quick_peak_bytes = max_known(self._quick_peak_bytes, used_bytes)
            self._look_at_kernel_memory(used_bytes)
        else:
            used_bytes = group.used_bytes
            self._look_at_kernel_memory(used_bytes)
        self.unread_memory.add_size(read_ns, used_bytes)
        self.last_read_ns = read_ns
        cpu_ns = None
        if read_ns - self._read_ns >= MIN_CPU_STEP_NS:
            is_same_tree = group is None and not self._quick_memory.has_changed
            cpu_ns = self._cpu_ns_between(is_same_tree=is_same_tree)
        if cpu_ns is not None:
            cpu_ns = self._clamp_to_capacity(cpu_ns, read_ns)
        sample = ContainerSample(read_ns=read_ns, cpu_ns=cpu_ns, memory_used_bytes=used_bytes)
        return _with_group(sample, group)

    def _with_uncounted(
        self, tree_bytes: int | None, processes: Sequence[ProcessReading]
    ) -> int | None:
        """The memory of the processes with their page tables and the kernel's stacks, and with
        the shared memory that none of them maps.
        """
        if tree_bytes is None:
            return None
        of_kernel = {process.pid: process.kernel_bytes for process in processes}
        self._process_kernel_bytes = of_kernel
        kernel_bytes = sum(of_kernel.values())
        self.process_kernel_peak_bytes = max(self.process_kernel_peak_bytes, kernel_bytes)
        memory_bytes = tree_bytes + kernel_bytes
        shmem_bytes = self._shares.shmem_bytes
        memory_bytes += self._unmapped.unmapped_bytes(tree_bytes, shmem_bytes, of_kernel.keys())
        self._uncounted_peak_bytes = max_known(self._uncounted_peak_bytes, memory_bytes)
        self._add_kernel_bound(memory_bytes)
        return memory_bytes

    @cached_property
    def _merged_pages(self) -> "MergedPages":
        from profiler.readers.linux.merged_pages import MergedPages  # the shortest runs have none

        return MergedPages()

    @cached_property
    def _packet_rings(self) -> "PacketRings":
        from profiler.readers.linux.packet_rings import PacketRings  # the shortest runs have none

        return PacketRings()

    def _add_kernel_bound(self, memory_bytes: int, ring_bytes: int = 0) -> None:
        """Add the kernel memory beyond ``memory_bytes`` that the command may have caused: packet
        rings, and the machine's growth.
        """
        growth_bytes = ring_bytes + self._kernel_growth_bytes()
        if growth_bytes:
            self.kernel_bound_bytes = max(self.kernel_bound_bytes, memory_bytes + growth_bytes)

    def _look_at_kernel_memory(self, memory_bytes: int) -> None:
        """Read the machine's kernel memory between two full samples, if free memory has fallen by
        more than the command's, as far as the budget allows.
        """
        now_ns = self._monotonic_ns()
        if self._kernel_budget.allows(now_ns) and self._free_memory.has_unexplained_fall(
            memory_bytes
        ):
            began_ns = time.thread_time_ns()
            self._add_kernel_bound(memory_bytes)
            self._kernel_budget.add_cost(time.thread_time_ns() - began_ns, now_ns)

    def _cpu_ns_between(self, *, is_same_tree: bool) -> int | None:
        """The CPU time now: of the group, else of the processes if they are the same ones as at
        the last full sample.
        """
        counted_ns = self._cgroup.cpu_ns()
        if counted_ns is None and is_same_tree and self.processes:
            growth_ns = sum(
                max(own_cpu_ns(process.pid, process.own_cpu_ns) - process.own_cpu_ns, 0)
                for process in self.processes
            )
            counted_ns = max(self._cpu.total_ns - self._startup_cpu_ns, 0) + growth_ns
        if counted_ns is None:
            return None
        self.cpu_ns = max(self.cpu_ns, counted_ns)
        return self.cpu_ns

    def sample_ended(self, reaped_ns: int) -> tuple[ProcessReading, ...]:
        """The processes before the ended command is waited for: it still has its own CPU time."""
        ended = self._tree.read_all()
        self._add_cpu(ended, reaped_ns)
        return ended

    @property
    def has_lost_children(self) -> bool:
        """Whether the CPU time of a process is known only up to its last reading."""
        return self._cpu.has_lost and not self._cgroup.has_cpu_accounting

    @property
    def cancelled_write_bytes(self) -> int:
        """What had been deleted before it was written, as far as the samples show."""
        return self._blocks.cancelled_bytes

    def final_sample(self, read_ns: int, reaped_ns: int) -> ContainerSample:
        """The counters after the command's end; ``cpu_ns`` is final, and ``survivors`` still
        run.
        """
        leftover = self._tree.read_all()
        self.max_processes = max(self.max_processes, len(leftover) + 1)
        self.survivors = tuple(process for process in leftover if process.rss_bytes is not None)
        return ContainerSample(
            read_ns=read_ns,
            cpu_ns=self._clamp_to_capacity(
                self._add_cpu(leftover, reaped_ns, is_last=True), read_ns
            ),
        )

    def _add_cpu(
        self, processes: Iterable[ProcessReading], reaped_ns: int, *, is_last: bool = False
    ) -> int:
        """Add a reading of all processes; returns the CPU time, which never decreases."""
        tree_ns = max(
            self._cpu.add_reading(processes, reaped_ns, is_last=is_last) - self._startup_cpu_ns, 0
        )
        self.cpu_ns = max(self.cpu_ns, tree_ns, self._cgroup.cpu_ns() or 0)
        return self.cpu_ns

    def _clamp_to_capacity(self, cpu_ns: int, read_ns: int) -> int:
        """Report the CPU time above the capacity of all CPUs, due to clock ticks of 10 ms, with
        later samples.
        """
        max_ns = self._reported_cpu_ns + round(max(read_ns - self._read_ns, 0) * self._usable_cpus)
        self._read_ns = read_ns
        self._reported_cpu_ns = max(self._reported_cpu_ns, min(cpu_ns, max_ns))
        return self._reported_cpu_ns


def _unmapped_memory(
    shared: "SharedMemory", started_ns: int, monotonic_ns: Callable[[], int]
) -> "UnmappedMemory":
    # Imported late: with a group, nothing is looked for.
    from profiler.local_run.unmapped_memory import UnmappedMemory
    from profiler.readers.linux.memory_files import WrittenMemoryFiles, read_memory_mounts
    from profiler.readers.linux.sysv_segments import SysvSegments

    files = WrittenMemoryFiles(started_ns, read_memory_mounts)
    segments = SysvSegments(started_ns)
    return UnmappedMemory(shared, files, segments, monotonic_ns, time.thread_time_ns)


def _with_pinned_files(group: MemoryReading, processes: Iterable[ProcessReading]) -> MemoryReading:
    """The group's memory with what the open files of its processes may keep of it."""
    open_files = sum([process.open_files_bound for process in processes])
    pinned_bytes = group.pinned_bound_bytes or pinned_by_files_bytes(group, open_files)
    return replace(group, pinned_bound_bytes=pinned_bytes)


def _with_group(sample: ContainerSample, group: MemoryReading | None) -> ContainerSample:
    """The sample with the memory of the control group, if that is known."""
    if group is None:
        return sample
    return replace(
        sample,
        memory_used_bytes=group.used_bytes,
        memory_cache_bytes=group.reclaimable_bytes,
        memory_mapped_file_bytes=group.mapped_file_bytes,
        memory_kernel_bytes=group.kernel_bytes,
        memory_pinned_bytes=group.pinned_bound_bytes,
        memory_huge_page_bytes=None if group.has_huge_pages else sample.memory_huge_page_bytes,
    )

"""The shared memory of a command that no process maps, such as files in ``/dev/shm`` and System V
segments: the memory of the processes lacks it, and only a control group of the command's own would
count it.
"""

from collections.abc import Callable, Collection

from profiler.aggregation.process_tree_usage import counts_too_little
from profiler.core.clock import CpuBudget
from profiler.core.optional_math import difference, excess, first_known
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.cgroup.shared_memory_growth import SharedMemory, read_swap_bytes
from profiler.readers.linux.huge_pages import taken_bytes
from profiler.readers.linux.kernel_memory import MIN_GROWTH_BYTES
from profiler.readers.linux.memory_files import WrittenMemoryFiles
from profiler.readers.linux.sysv_segments import SysvSegments

# At most this share of a core, and this much at once, for the open files of all processes.
_FILES_CPU = 0.001
_FILES_ADVANCE_NS = 30 * NS_PER_MS


class UnmappedMemory:
    """What a command holds in shared memory without mapping it.

    ======================================================  =======================================
    what is known                                           what counts as the command's
    ======================================================  =======================================
    all others in its group have used no CPU time since     all growth of the group's shared memory
    its processes wrote to files in memory, or made         what these files have since the start,
    System V segments                                       and the segments, whatever others free
    anything else                                           nothing
    ======================================================  =======================================

    From each, what the processes' memory has of shared memory is subtracted: the command holds at
    least the larger of both. ``bound_bytes`` is the most that the command can have held at one
    reading: all growth of the machine's or the group's shared memory, whoever made it. Where that
    has the processes' own memory, too (gVisor), it counts without what the command's have, if it is
    not what other programs usually need meanwhile. After such growth, what the machine has moved to
    swap since the first reading counts, too, because shared memory lacks it: ``swapped_bytes`` is
    the most of it.
    ``average_bound_bytes`` is the mean of what it can have held more. ``used_cpu_ns``: the CPU time
    of the looks at open files, which have a budget of their own.
    """

    def __init__(
        self,
        shared: SharedMemory,
        files: WrittenMemoryFiles,
        segments: SysvSegments,
        monotonic_ns: Callable[[], int],
        cpu_ns: Callable[[], int],
        *,
        huge_bytes: Callable[[], int | None] = taken_bytes,
        swap_bytes: Callable[[], int | None] = read_swap_bytes,
    ) -> None:
        self._huge_bytes = huge_bytes
        self._swap_bytes = swap_bytes
        self._swap_bytes_at_start: int | None = None
        self._swap_growth_bytes = 0
        self._has_grown = False
        self.swapped_bytes = 0
        self._shared = shared
        self._files = files
        self._segments = segments
        self._has_begun = False
        self._monotonic_ns = monotonic_ns
        self._cpu_ns = cpu_ns
        self._budget = CpuBudget(_FILES_CPU, _FILES_ADVANCE_NS)
        self._looked_at_bytes = 0
        self._last_shmem_bytes = 0
        self.bound_bytes = 0
        self._begun_ns = 0
        self._read_ns = 0
        self._unassigned_bytes = 0
        self._unassigned_byte_ns = 0
        self.used_cpu_ns = 0

    @property
    def average_bound_bytes(self) -> float:
        covered_ns = self._read_ns - self._begun_ns
        return self._unassigned_byte_ns / covered_ns if covered_ns else 0.0

    def unmapped_bytes(self, tree_bytes: int, shmem_bytes: int, pids: Collection[int]) -> int:
        """The memory in bytes, to add to the ``tree_bytes`` of the processes ``pids``, of which
        ``shmem_bytes`` are shared memory.
        """
        self._last_shmem_bytes = shmem_bytes
        swap_bytes = self._swap_bytes()
        self._swap_bytes_at_start = first_known(self._swap_bytes_at_start, swap_bytes)
        self._swap_growth_bytes = excess(swap_bytes, self._swap_bytes_at_start) or 0
        return self._held_beyond_processes_bytes(tree_bytes, shmem_bytes, pids, has_segments=True)

    def read_quickly(self, tree_bytes: int, pids: Collection[int]) -> int:
        """The memory in bytes, as of :meth:`unmapped_bytes`, between two calls of it: what the
        processes hold more since is anonymous memory.
        """
        has_segments = self._segments.are_known
        return self._held_beyond_processes_bytes(
            tree_bytes, self._last_shmem_bytes, pids, has_segments=has_segments
        )

    def _held_beyond_processes_bytes(
        self, tree_bytes: int, shmem_bytes: int, pids: Collection[int], *, has_segments: bool
    ) -> int:
        """What the command certainly holds beyond its processes, in bytes; raises ``bound_bytes``
        to the most that it can hold.
        """
        now_ns = self._monotonic_ns()
        if not self._has_begun:
            self._has_begun = True
            self._begun_ns = now_ns
        else:
            self._unassigned_byte_ns += self._unassigned_bytes * (now_ns - self._read_ns)
        self._read_ns = now_ns
        own_bytes, most_bytes = self._held_beyond_processes(
            tree_bytes, shmem_bytes, pids, has_segments=has_segments
        )
        self._segments.follow_only(pids)
        self._unassigned_bytes = 0
        if counts_too_little(tree_bytes + own_bytes, tree_bytes + most_bytes):
            self._unassigned_bytes = most_bytes - own_bytes
            self.bound_bytes = max(self.bound_bytes, tree_bytes + most_bytes)
        return own_bytes

    def _held_beyond_processes(
        self, tree_bytes: int, shmem_bytes: int, pids: Collection[int], *, has_segments: bool
    ) -> tuple[int, int]:
        """What the command certainly holds beyond its processes, and the most that it can hold."""
        growth_bytes = self._shared.growth_bytes()
        if growth_bytes is None:
            return 0, 0
        if self._shared.has_all_memory:
            of_nobody_bytes = growth_bytes - tree_bytes
            if of_nobody_bytes < MIN_GROWTH_BYTES:  # the profiler's own, and other programs'
                return 0, 0
            growth_bytes = of_nobody_bytes + shmem_bytes
        has_grown = counts_too_little(tree_bytes, tree_bytes + growth_bytes)
        self._has_grown |= has_grown
        if has_grown and self._shared.is_growth_of(pids):
            certain_bytes = growth_bytes
        else:
            # What others freed meanwhile can hide the growth, but neither files nor segments.
            certain_bytes = self._files_bytes(growth_bytes, pids, has_grown=has_grown)
            if has_grown or has_segments:
                others_bytes = max(growth_bytes - certain_bytes, 0)
                certain_bytes += self._segments_bytes(others_bytes, pids)
        own_bytes = max(certain_bytes - shmem_bytes, 0)
        most_bytes = max(growth_bytes - shmem_bytes, own_bytes)
        # They map what was there before, and may not map what has been made since.
        if counts_too_little(growth_bytes, shmem_bytes):
            most_bytes = max(most_bytes, certain_bytes)
        if self._has_grown:
            self.swapped_bytes = max(self.swapped_bytes, self._swap_growth_bytes)
            most_bytes += self._swap_growth_bytes
        return own_bytes, most_bytes

    def _files_bytes(self, growth_bytes: int, pids: Collection[int], *, has_grown: bool) -> int:
        held_bytes = self._files.held_bytes()
        self._looked_at_bytes = min(self._looked_at_bytes, growth_bytes)
        is_new = has_grown and counts_too_little(self._looked_at_bytes, growth_bytes)
        now_ns = self._monotonic_ns()
        # A lost file may be known by another process, whatever others freed since it was found.
        if (self._files.has_lost or is_new) and self._budget.allows(now_ns):
            began_ns = self._cpu_ns()
            self._files.find_open_files(pids, lambda: self._shared.growth_bytes() or 0)
            cost_ns = self._cpu_ns() - began_ns
            self._budget.add_cost(cost_ns, now_ns)
            self.used_cpu_ns += cost_ns
            self._looked_at_bytes = growth_bytes
            held_bytes = self._files.held_bytes()
        return held_bytes

    def _segments_bytes(self, growth_bytes: int, pids: Collection[int]) -> int:
        """The segments that are certainly no huge pages, which are no shared memory: a segment does
        not tell which it has. ``growth_bytes`` is without the growth by files.
        """
        held_bytes = self._segments.held_bytes(pids)
        if held_bytes <= growth_bytes:
            return held_bytes
        certain_bytes = difference(held_bytes, self._huge_bytes()) or 0
        return max(certain_bytes, growth_bytes)

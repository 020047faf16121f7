"""What the processes of another container have of shared memory and tmpfs, so that no page counts
twice.
"""

from collections.abc import Callable, Iterable, Mapping

from profiler.core.clock import CpuBudget
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.memory_usage import is_notable

# At most this share of a core, and this much at once, of which a third is enough for a heap that
# grows to some 100 MB in the first seconds: the kernel walks the page tables.
_CPU = 0.0005
_ADVANCE_NS = 45 * NS_PER_MS
_Identity = tuple[int, int]


class SharedMemoryParts:
    """The parts of the processes in the shared memory that they map: a lower bound.

    The part is the PSS (``smaps_rollup``: processes of the same user), read when a notable part of
    what they map has changed and the CPU time allows it. ``is_behind``: it did not.
    """

    def __init__(
        self, proc_folder: str, monotonic_ns: Callable[[], int], cpu_ns: Callable[[], int]
    ) -> None:
        self._folder = proc_folder
        self._monotonic_ns = monotonic_ns
        self._cpu_ns = cpu_ns
        self._budget = CpuBudget(_CPU, _ADVANCE_NS)
        self._mapped: dict[_Identity, int] = {}
        self._parts: Mapping[_Identity, int] = {}
        self._last_mapped: Mapping[_Identity, int] = {}
        self.is_behind = False

    def read_parts(self, processes: Iterable[ProcessReading]) -> Mapping[_Identity, int]:
        """The bytes of each process that has a known part."""
        mapped = {one.identity: one.shmem_bytes for one in processes if one.shmem_bytes}
        before = self._mapped
        if not mapped and not before:
            self.is_behind = False
            return self._parts
        changes = [
            abs(mapped.get(identity, 0) - before.get(identity, 0)) for identity in mapped | before
        ]
        now_ns = self._monotonic_ns()
        # What still changes will have to be read again.
        has_settled = mapped == self._last_mapped
        self._last_mapped = mapped
        self.is_behind = is_notable(sum(changes), sum(mapped.values()))
        if self.is_behind and self._budget.allows(now_ns, is_urgent=has_settled):
            self.is_behind = False
            began_ns = self._cpu_ns()
            self._parts = self._read_parts(mapped)
            self._mapped = mapped
            self._budget.add_cost(self._cpu_ns() - began_ns, now_ns)
        parts: dict[_Identity, int] = {}
        for identity, part_bytes in self._parts.items():
            lost_bytes = max(self._mapped[identity] - mapped.get(identity, 0), 0)
            parts[identity] = max(part_bytes - lost_bytes, 0)
        return parts

    def unread_bytes(self, process: ProcessReading) -> int:
        """What the process maps beyond that of which its part was read. It may hold less: a page
        counts as often as it is mapped.
        """
        identity = process.identity
        read_bytes = self._mapped[identity] if identity in self._parts else 0
        return max((process.shmem_bytes or 0) - read_bytes, 0)

    def _read_parts(self, mapped: Iterable[_Identity]) -> Mapping[_Identity, int]:
        parts: dict[_Identity, int] = {}
        for identity in mapped:
            rollup = proc.read_or_none(f"{self._folder}/{identity[0]}/smaps_rollup") or b""
            part_bytes = proc.bytes_after(rollup, b"Pss_Shmem:")
            if part_bytes is not None:
                parts[identity] = part_bytes
        return parts

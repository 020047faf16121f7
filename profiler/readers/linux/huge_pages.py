"""The huge pages that processes have taken from the machine's pool: hugetlbfs, ``MAP_HUGETLB``,
``SHM_HUGETLB``.

No RSS and no control group's memory has them (version 2 does with ``memory_hugetlb_accounting``).
Transparent huge pages are usual memory.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping

from profiler.core.clock import CpuBudget
from profiler.core.optional_math import difference, excess, max_known, min_known, product, sum_known
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import ProcessReading

# The kernel walks the page tables of a process for its shared ones: at most this share of a core,
# and this much at once.
_SHARED_CPU = 0.001
_SHARED_ADVANCE_NS = 30 * NS_PER_MS
# hugetlb.2MB.current in version 2, hugetlb.2MB.usage_in_bytes in version 1, without what is only
# reserved.
_POOLS = "/sys/kernel/mm/hugepages"
_GROUP_FILE = r"hugetlb\.[0-9]+[KMG]B\.(current|usage_in_bytes)"


class HugePagesOfTree:
    """The huge pages of the processes of one tree together: a lower bound, as pages that several
    processes map count once, and never more than all that the machine's processes have.

    ``unmapped_bytes``: how many more than at the start were taken and mapped by none of
    these processes, such as a System V segment that its maker has left; another program may have
    taken them. The pools are of another moment than the processes, of which one may end or begin:
    what counts was there before and after they were read, at two readings in a row.
    ``used_cpu_ns``: the CPU time of the looks at the shared ones, which have a budget of their own.
    """

    def __init__(
        self, monotonic_ns: Callable[[], int], cpu_ns: Callable[[], int], pools: str = _POOLS
    ) -> None:
        self._has_pools: bool | None = None
        self._before_bytes: int | None = None
        self._at_start_bytes: int | None = None
        self._last_unmapped_bytes = 0
        self.unmapped_bytes = 0
        self._pools = pools
        self._monotonic_ns = monotonic_ns
        self._cpu_ns = cpu_ns
        self._budget = CpuBudget(_SHARED_CPU, _SHARED_ADVANCE_NS)
        self._last: tuple[Mapping[int, int], int] = ({}, 0)
        self.used_cpu_ns = 0

    def note_others_bytes(self) -> None:
        """To be called when the processes begin: what is taken then is others'."""
        self.note_pools_before()
        self._at_start_bytes = self._before_bytes

    def note_pools_before(self) -> None:
        """To be called before the processes are read."""
        if self._has_pools is None:  # else nothing but this is read for a command without any
            self._has_pools = has_pools()
        self._before_bytes = taken_bytes(self._pools) if self._has_pools else None

    def held_bytes(self, processes: Iterable[ProcessReading]) -> int:
        """The memory in bytes; 0 for processes without huge pages."""
        holders = {
            process.pid: process.huge_page_bytes for process in processes if process.huge_page_bytes
        }
        if not holders and not self._has_pools:
            return 0
        after_bytes = taken_bytes(self._pools)
        self._add_unmapped(min_known(self._before_bytes, after_bytes), sum(holders.values()))
        if not holders:
            return 0
        most_bytes = max_known(self._before_bytes, after_bytes)
        return min_known(self._bytes_held_together(holders), most_bytes) or 0

    def _add_unmapped(self, machine_bytes: int | None, mapped_bytes: int) -> None:
        """Add a reading; of shared pages, each mapping counts."""
        now_bytes = difference(difference(machine_bytes, self._at_start_bytes), mapped_bytes)
        if now_bytes is None:
            return
        self.unmapped_bytes = max(self.unmapped_bytes, min(now_bytes, self._last_unmapped_bytes))
        self._last_unmapped_bytes = now_bytes

    def _bytes_held_together(self, holders: Mapping[int, int]) -> int:
        if len(holders) == 1:
            return sum(holders.values())
        last_holders, last_bytes = self._last
        if holders == last_holders:
            return last_bytes
        now_ns = self._monotonic_ns()
        held_bytes = max(holders.values())
        if not self._budget.allows(now_ns):
            return held_bytes
        began_ns = self._cpu_ns()
        held_bytes = max(held_bytes, _private_and_shared_bytes(holders))
        cost_ns = self._cpu_ns() - began_ns
        self._budget.add_cost(cost_ns, now_ns)
        self.used_cpu_ns += cost_ns
        self._last = holders, held_bytes
        return held_bytes


def _private_and_shared_bytes(holders: Iterable[int]) -> int:
    """The pages that one process maps, and the most that one has of those that several map."""
    private_bytes = 0
    shared_bytes = 0
    for pid in holders:
        rollup = proc.read_or_none(f"/proc/{pid}/smaps_rollup") or b""
        private_bytes += proc.bytes_after(rollup, b"Private_Hugetlb:") or 0
        shared_bytes = max(shared_bytes, proc.bytes_after(rollup, b"Shared_Hugetlb:") or 0)
    return private_bytes + shared_bytes


def has_pools() -> bool:
    """Whether the machine has huge pages."""
    return bool(proc.bytes_after(proc.read_or_none("/proc/meminfo") or b"", b"Hugetlb:"))


def taken_bytes(pools: str = _POOLS) -> int | None:
    """What processes have taken of all pools of the machine; None if that is not readable."""
    total_bytes: int | None = None
    try:
        names = os.listdir(pools)  # noqa: PTH208  only names are needed
    except OSError:
        return None
    for name in names:
        # A regular expression would be compiled in each short run.
        size = name.removeprefix("hugepages-").removesuffix("kB")
        pages = excess(
            _read_page_count(f"{pools}/{name}/nr_hugepages"),
            _read_page_count(f"{pools}/{name}/free_hugepages"),
        )
        if size.isdecimal():
            taken_of_pool = product(pages, int(size) * proc.BYTES_PER_KIB)
            total_bytes = sum_known(total_bytes, taken_of_pool)
    return total_bytes


def _read_page_count(path: str) -> int | None:
    word = (proc.read_or_none(path) or b"").strip()
    return int(word) if word.isdigit() else None


def huge_page_files_of_group(folder: str) -> tuple[str, ...]:
    """The files of a group that count its huge pages, one for each size; none where the machine has
    no huge pages, which spares reading them.
    """
    if not has_pools():
        return ()
    try:
        names = os.listdir(folder)  # noqa: PTH208  only names are needed
    except OSError:
        return ()
    return tuple(name for name in names if re.fullmatch(_GROUP_FILE, name))

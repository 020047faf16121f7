"""The machine's kernel memory, and what it tells of a control group's or a command's.

A program that looks at many files leaves directory entries and inodes. They are charged to its
group, and dropped when the group needs memory. Other kernel memory is not: page tables, stacks,
sockets, pipes. Version 1 of the groups does not tell them apart, and without a group nothing counts
any. The machine counts both kinds: what a group or a command has more of since the start, the
machine has more of, too.
"""

import os
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import all_known, difference
from profiler.readers.linux import proc
from profiler.readers.memory_usage import is_notable

_OPEN_FILES = "/proc/sys/fs/file-nr"
_PROCESSORS_FREE_PAGES = b" count:"  # in the list of each processor's
_QUEUES = (b"\nTCP: ", b"\nUDP: ")
# What of the machine's memory is not the kernel's own: free, of files, of processes and tmpfs.
_NOT_KERNEL = (b"MemFree:", b"Buffers:", b"Cached:", b"SwapCached:", b"AnonPages:")

_OF_PROCESSES = (b"PageTables:", b"KernelStack:")

# Of a group's growth, what must be reclaimable, and by what the machine's reclaimable memory must
# have grown: else nothing is taken as reclaimable.
_MIN_SHARE_OF_GROWTH = 0.75
_MIN_MACHINE_GROWTH = 0.25
# Less growth of the machine's kernel memory is no sign of a command's: eight test suites on two
# processors change it by up to 50 MiB.
MIN_GROWTH_BYTES = 64 * 2**20
# An open file keeps its directory entry and its inode, which the kernel counts as reclaimable. ext4
# has 1.5 KiB for both, and a file system above another one has them twice.
_PINNED_BYTES_PER_FILE = 3072


class KernelMemory(Struct, frozen=True, kw_only=True):
    """The machine's kernel memory: what can be dropped, and all other, pipes and drivers, too.

    ``process_bytes``, a part of the other, is what each process shows of its own: page tables and
    the threads' stacks. ``pinned_bytes``: what open files may keep of that which can be dropped.
    """

    reclaimable_bytes: int
    fixed_bytes: int
    process_bytes: int = 0
    pinned_bytes: int = 0


def parse_kernel_memory(meminfo: bytes, zoneinfo: bytes, page_bytes: int) -> KernelMemory | None:
    """The machine's kernel memory by ``/proc/meminfo``; None if a line is absent.

    ``MemFree`` lacks the free pages that each processor keeps, often 100 MB: ``/proc/zoneinfo``
    has their number.
    """
    names = (b"MemTotal:", b"SReclaimable:", *_NOT_KERNEL)
    sizes = all_known(*[proc.bytes_after(meminfo, name) for name in names])
    free_pages = proc.numbers_after(zoneinfo, _PROCESSORS_FREE_PAGES)
    if sizes is None or not free_pages:
        return None
    total_bytes, reclaimable_bytes, *others_bytes = sizes
    free_bytes = sum(free_pages) * page_bytes
    fixed_bytes = total_bytes - reclaimable_bytes - free_bytes - sum(others_bytes)
    # The pool of huge pages, which older kernels do not list with its size.
    fixed_bytes -= proc.bytes_after(meminfo, b"Hugetlb:") or 0
    return KernelMemory(
        reclaimable_bytes=reclaimable_bytes,
        fixed_bytes=fixed_bytes,
        process_bytes=sum([proc.bytes_after(meminfo, name) or 0 for name in _OF_PROCESSES]),
    )


def read_kernel_memory() -> KernelMemory | None:
    """The machine's kernel memory now."""
    meminfo = proc.read_or_none("/proc/meminfo") or b""
    zoneinfo = proc.read_or_none("/proc/zoneinfo") or b""
    memory = parse_kernel_memory(meminfo, zoneinfo, os.sysconf("SC_PAGE_SIZE"))
    if memory is None:
        return None
    pinned_bytes = parse_pinned_bytes(proc.read_or_none(_OPEN_FILES) or b"")
    return None if pinned_bytes is None else replace(memory, pinned_bytes=pinned_bytes)


def parse_pinned_bytes(file_nr: bytes) -> int | None:
    """What the open files pin, by ``/proc/sys/fs/file-nr``, whose first word is their number."""
    word, _, _ = file_nr.partition(b"\t")
    return int(word) * _PINNED_BYTES_PER_FILE if word.isdigit() else None


def unassigned_kernel_bytes() -> int | None:
    """The machine's kernel memory that no process counts: socket queues, pipes, drivers."""
    memory = read_kernel_memory()
    return None if memory is None else memory.fixed_bytes - memory.process_bytes


class SocketQueues:
    """What all TCP and UDP sockets of the machine hold, which version 1 of the groups does not
    count.
    """

    def __init__(self, path: str = "/proc/net/sockstat") -> None:
        self._file = proc.KeptFile(path)

    def size_bytes(self) -> int | None:
        """None where neither is known."""
        return parse_socket_queue_bytes(self._file.read())


def parse_socket_queue_bytes(sockstat: bytes) -> int | None:
    """What TCP and UDP sockets hold; None where neither is known."""
    pages = list[int]()
    for name in _QUEUES:
        line = sockstat.partition(name)[2].partition(b"\n")[0]
        pages += proc.numbers_after(line, b" mem ")
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") if pages else None


class KernelMemoryGrowth:
    """How much more kernel memory there is than when this object was made. Which program made it,
    the kernel does not tell.
    """

    def __init__(self, read_bytes: Callable[[], int | None]) -> None:
        self._read_bytes = read_bytes
        self._start_bytes = read_bytes()

    def growth_bytes(self) -> int:
        """0 unless it is more than other programs usually cause meanwhile, at two readings.

        The lines of ``/proc/meminfo`` are of different moments. What others free between the line
        of the free memory and that of the processes' is in neither: where the hypervisor takes the
        processor away between them, an ended program of 100 MB looks like kernel memory.
        """
        growth_bytes = self._unfiltered_growth_bytes()
        if growth_bytes >= MIN_GROWTH_BYTES:
            growth_bytes = min(growth_bytes, self._unfiltered_growth_bytes())
        return growth_bytes if growth_bytes >= MIN_GROWTH_BYTES else 0

    def _unfiltered_growth_bytes(self) -> int:
        if self._start_bytes is None:
            return 0
        return difference(self._read_bytes(), self._start_bytes) or 0


def free_memory_bytes() -> int:
    """The machine's free memory, by one system call: less exact than :func:`read_kernel_memory`,
    which takes a hundred times as long.
    """
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class FreeMemory:
    """Whether the machine's free memory has fallen since this object was made, so that its kernel
    memory may have grown, for a short time perhaps.
    """

    def __init__(self, read_bytes: Callable[[], int] = free_memory_bytes) -> None:
        self._read_bytes = read_bytes
        self._start_bytes = read_bytes()
        self._notable_bytes: float = MIN_GROWTH_BYTES

    def has_unexplained_fall(self, explained_bytes: int) -> bool:
        """Whether it has fallen by :data:`MIN_GROWTH_BYTES` more than the ``explained_bytes``, and
        by a quarter more than the last time.
        """
        fallen_bytes = self._start_bytes - self._read_bytes() - explained_bytes
        if fallen_bytes < self._notable_bytes:
            return False
        self._notable_bytes = 1.25 * fallen_bytes
        return True


class _EstimateReading(Struct, frozen=True, kw_only=True):
    """What was known at one reading of a group and the machine."""

    group_bytes: int
    machine: KernelMemory
    reclaimable_bytes: int = 0


class KernelMemoryEstimate:
    """What of one group's kernel memory is reclaimable, of what was added since the first reading.

    A lower bound: kernel memory that other programs allocate meanwhile makes it smaller. It would
    be too large only if others freed as much fixed memory as the group allocated, while the
    machine's reclaimable memory grew.
    """

    def __init__(self, read: Callable[[], KernelMemory | None] = read_kernel_memory) -> None:
        self._read = read
        self._machine_at_start = read()
        self._start: _EstimateReading | None = None
        self._last: _EstimateReading | None = None

    def reclaimable_bytes(self, kernel_bytes: int, used_bytes: int) -> int:
        """The part of a group's ``kernel_bytes``; 0 where these are no notable part of the memory
        used.
        """
        if self._machine_at_start is None:
            return 0
        if self._start is None:
            self._start = _EstimateReading(group_bytes=kernel_bytes, machine=self._machine_at_start)
        if not is_notable(kernel_bytes, used_bytes):
            return 0
        machine = self._read()
        if machine is None:
            return 0
        reclaimable_bytes = _reclaimable_growth_bytes(self._start, kernel_bytes, machine)
        if self._last is not None:
            kept_bytes = _still_reclaimable_bytes(self._last, kernel_bytes, machine)
            reclaimable_bytes = max(reclaimable_bytes, kept_bytes)
        self._last = _EstimateReading(
            group_bytes=kernel_bytes, machine=machine, reclaimable_bytes=reclaimable_bytes
        )
        pinned_bytes = max(machine.pinned_bytes - self._start.machine.pinned_bytes, 0)
        return max(reclaimable_bytes - pinned_bytes, 0)


def _reclaimable_growth_bytes(
    start: _EstimateReading, group_bytes: int, machine: KernelMemory
) -> int:
    """The group's growth without all growth of the machine's fixed memory, as if that were its own.

    0 unless that is most of the growth, and unless the machine's reclaimable memory has grown, too.
    It grows by less than the group: the kernel first fills slabs that others left.
    """
    growth_bytes = group_bytes - start.group_bytes
    fixed_growth_bytes = max(machine.fixed_bytes - start.machine.fixed_bytes, 0)
    machine_growth_bytes = machine.reclaimable_bytes - start.machine.reclaimable_bytes
    reclaimable_bytes = min(growth_bytes - fixed_growth_bytes, machine.reclaimable_bytes)
    if reclaimable_bytes < _MIN_SHARE_OF_GROWTH * growth_bytes:
        return 0
    if machine_growth_bytes < _MIN_MACHINE_GROWTH * growth_bytes:
        return 0
    return max(reclaimable_bytes, 0)


def _still_reclaimable_bytes(
    last: _EstimateReading, group_bytes: int, machine: KernelMemory
) -> int:
    """What of the last estimate the kernel has not dropped since: the fixed memory of others may
    rise for a moment.
    """
    of_group_bytes = last.group_bytes - group_bytes
    of_machine_bytes = last.machine.reclaimable_bytes - machine.reclaimable_bytes
    return max(last.reclaimable_bytes - max(of_group_bytes, of_machine_bytes, 0), 0)

"""How much more shared memory there is than at the start of a command: files in tmpfs (such as
``/dev/shm``), ``memfd``, and System V segments, whether a process maps them or not.

For a command without a control group of its own. The group that it shares with others counts such
memory, or only the machine does: which program made it, neither tells.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from functools import partial

from profiler.core.files import close_files, open_or_none
from profiler.core.optional_math import difference, excess
from profiler.readers.cgroup.accounting_group import CALLING_PROCESS, member_pids
from profiler.readers.cgroup.hierarchy import (
    MEMORY,
    MEMORY_STAT,
    UNIFIED,
    VERSION_1,
    VERSION_2,
    ProcessCgroups,
)
from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import own_cpu_ns

# A group with more processes is not a command's: its list is not read.
_MAX_OTHERS = 32
_OF_LINUX = b"\nSlab:"
_ALL_MEMORY = b"AnonPages:"


class SharedMemory:
    """The growth of shared memory since this object was made, by the group of this process; by the
    machine if the group does not count it.

    The file stays open: a reading takes some 10 µs.

    ``has_all_memory``: the growth has the processes' own memory, too, which gVisor does not tell
    apart for the machine.
    """

    def __init__(self, cgroups: ProcessCgroups, proc_folder: str = "/proc") -> None:
        is_v1 = cgroups.has_v1_controller(MEMORY)
        location = cgroups.location_in(MEMORY if is_v1 else UNIFIED)
        self._folder = None if location is None else location.folder
        self._descriptor = None
        self._parse = partial(
            proc.number_after, name=(VERSION_1 if is_v1 else VERSION_2).details["shmem_bytes"]
        )
        if self._folder is not None:
            self._descriptor = open_or_none(f"{self._folder}/{MEMORY_STAT}")
        if self.read_now_bytes() is None:
            self.close()
            self._folder = None
            self._parse = partial(proc.bytes_after, name=b"Shmem:")
            self._descriptor = open_or_none(f"{proc_folder}/meminfo")
        self.has_all_memory = self._folder is None and _is_of_gvisor(self._descriptor)
        # The others first: what one makes before the size is read is no growth.
        members = self._other_member_pids(())
        self._has_active_others = members is None
        self._others_at_start = {pid: own_cpu_ns(pid, None) for pid in members or ()}
        # What other programs free would hide what the command makes after it.
        self._least_bytes = self._counted_bytes()

    def growth_bytes(self) -> int | None:
        """The most that the command can have made and kept, unless others free as much meanwhile;
        None if unknown.
        """
        now_bytes = self._counted_bytes()
        growth_bytes = excess(now_bytes, self._least_bytes)
        if growth_bytes == 0:
            self._least_bytes = now_bytes
        return growth_bytes

    def memory_limits(self) -> tuple[int, int] | None:
        """What all processes together hold more than at the start, and what they hold, each page
        once; None where that is not told (other kernels than gVisor) or unknown.
        """
        if not self.has_all_memory:
            return None
        growth_bytes = self.growth_bytes()
        most_bytes = self._counted_bytes()
        if growth_bytes is None or most_bytes is None:
            return None
        return growth_bytes, max(growth_bytes, most_bytes)

    def is_growth_of(self, pids: Collection[int]) -> bool:
        """Whether only these processes can have made the growth: the others in the group have
        used no CPU time since this object was made, and none of them has ended.
        """
        if self._has_active_others:
            return False
        members = self._other_member_pids(pids)
        if members is None or not self._others_at_start.keys() <= members:
            self._has_active_others = True
            return False
        for pid in members:
            if pid not in self._others_at_start:
                if not _is_child_of(pid, pids):
                    return False
                continue
            cpu_ns = own_cpu_ns(pid, None)
            if cpu_ns is None or self._others_at_start[pid] != cpu_ns:
                self._has_active_others = True
                return False
        return True

    def close(self) -> None:
        close_files((self._descriptor,))
        self._descriptor = None

    def read_now_bytes(self) -> int | None:
        """All shared memory of the group or the machine; None if unknown."""
        return self._parse(proc.reread_descriptor(self._descriptor))

    def _counted_bytes(self) -> int | None:
        if not self.has_all_memory:
            return self.read_now_bytes()
        return proc.bytes_after(proc.reread_descriptor(self._descriptor), _ALL_MEMORY)

    def _other_member_pids(self, pids: Collection[int]) -> set[int] | None:
        """The group's processes without these and this one; None if it has too many, or groups
        below it.
        """
        if self._folder is None or _has_folders(self._folder):
            return None
        members = member_pids(self._folder)
        own_pid = b"%d" % os.getpid()
        # If the folder does not list this process, it is not the folder of its group.
        if own_pid not in members or CALLING_PROCESS in members:
            return None
        others = {int(pid) for pid in members if pid != own_pid}.difference(pids)
        return None if len(others) > _MAX_OTHERS else others


def read_swap_bytes() -> int | None:
    """What of the machine's memory is in swap now, also shared memory; None if unknown."""
    meminfo = proc.read_or_none("/proc/meminfo") or b""
    total_bytes = proc.bytes_after(meminfo, b"SwapTotal:")
    return difference(total_bytes, proc.bytes_after(meminfo, b"SwapFree:"))


def _is_of_gvisor(meminfo: int | None) -> bool:
    """Whether this is gVisor's: its shared memory is always 0, and counts as anonymous."""
    text = proc.reread_descriptor(meminfo)
    return _OF_LINUX not in text and _ALL_MEMORY in text


def _is_child_of(pid: int, pids: Collection[int]) -> bool:
    return proc.read_stat(f"/proc/{pid}").parent_pid in pids


def _has_folders(folder: str) -> bool:
    with suppress(OSError), os.scandir(folder) as entries:
        return any(entry.is_dir() for entry in entries)
    return True

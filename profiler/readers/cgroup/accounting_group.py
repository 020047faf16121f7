"""A control group that is created to measure one command."""

import os
from collections.abc import Callable
from contextlib import suppress
from errno import EAGAIN
from fcntl import LOCK_EX, LOCK_NB, flock

from profiler.core.files import dup_above_standard_streams, open_or_none
from profiler.readers.cgroup.hierarchy import (
    UNIFIED,
    CgroupLocation,
    GroupCounters,
    parse_number,
)
from profiler.readers.linux import proc

PROCS_FILE = "cgroup.procs"
CALLING_PROCESS = b"0"
# What is in swap, and the most that was (Linux 6.5). Version 1 has a line in memory.stat.
_SWAP_FILES = ("memory.swap.peak", "memory.swap.current")
_SWAP_LINE = b"total_swap "

# How often the removal is tried while processes cannot be moved, and in any case (2 s).
_MAX_REFUSED = 40
_MAX_REMOVE_TRIES = 400
_REMOVE_PAUSE_SECONDS = 0.005

Sleep = Callable[[float], None]


class CgroupFilesystem:
    """The kernel's cgroup file system, where a folder is a group."""

    def make_folder(self, folder: str) -> None:
        os.mkdir(folder)

    def remove_folder(self, folder: str) -> None:
        os.rmdir(folder)


class AccountingCgroup(GroupCounters):
    """A group below another one and its open files; raises OSError if processes cannot enter it."""

    def __init__(
        self, above: CgroupLocation, name: str, *, counts_cpu: bool, counts_memory: bool
    ) -> None:
        folder = f"{above.folder}/{name}"
        self.folder = folder
        hierarchy = above.hierarchy
        self.hierarchy = hierarchy
        self.path = f"{above.group.rstrip('/')}/{name}"  # as in /proc/PID/cgroup
        # First, because another profiler removes a group without a lock. It has this one's lock
        # meanwhile, or has removed the group, if the folder cannot be locked.
        lock_descriptor = try_lock(folder)
        if lock_descriptor is None:
            raise BlockingIOError(EAGAIN, "another profiler removes the group", folder)
        self._lock_descriptor = lock_descriptor
        try:
            # In version 1 a process with one thread that writes to ``tasks`` is moved at once
            # (since Linux 5.5). If it writes to cgroup.procs, the kernel first waits some 10 ms
            # until no process of the machine forks or ends.
            entrance = PROCS_FILE if hierarchy == UNIFIED else "tasks"
            self._entrance_descriptor = dup_above_standard_streams(
                os.open(f"{folder}/{entrance}", os.O_WRONLY)
            )
        except OSError:
            os.close(lock_descriptor)
            raise
        # The files stay open: the memory may be read 50 times a second.
        super().__init__(
            folder if counts_memory else None,
            folder if counts_cpu else None,
            is_v1=hierarchy != UNIFIED,
        )
        self.counts_cpu = self._names.cpu in self._files
        self.counts_memory = self._names.usage in self._files
        if counts_memory and hierarchy == UNIFIED:
            self._files |= proc.open_files(folder, _SWAP_FILES)
        # In version 2 the high-water mark can be reset since Linux 6.12, for each open file
        # separately.
        peak = self._names.peak
        writable = open_or_none(f"{folder}/{peak}", os.O_RDWR) if peak in self._files else None
        if writable is not None:
            os.close(self._files[peak])
            self._files[peak] = writable

    def swap_bytes(self) -> int | None:
        """What of the group's memory is in swap, or the most that was, in version 1 as of the last
        reading of its parts; None if the kernel does not count it.
        """
        for name in _SWAP_FILES:
            if name in self._files:
                return parse_number(proc.reread_file(self._files, name))
        return proc.number_after(self._memory_stat, _SWAP_LINE)

    def set_memory_limit(self, limit_bytes: float) -> bool:
        """Returns False if the kernel refuses it."""
        return try_write(f"{self.folder}/{self._names.limit}", b"%d" % limit_bytes)

    def move_self_into(self) -> bool:
        """Move the calling process, which has one thread, into the group; False if the kernel
        refuses it.
        """
        return _try_write_descriptor(self._entrance_descriptor, CALLING_PROCESS)

    def reset_peak(self) -> None:
        if self._names.peak in self._files:
            _try_write_descriptor(self._files[self._names.peak], self._names.reset)

    def remove_group(self, filesystem: CgroupFilesystem, sleep: Sleep) -> None:
        """Remove the group; its remaining processes move to the group above.

        It stays if the kernel refuses, or if its processes take longer to end than 2 s.
        """
        os.close(self._entrance_descriptor)
        self.close()
        refused = 0
        for _ in range(_MAX_REMOVE_TRIES):
            is_accepted = self._move_members_up()
            if try_remove(self.folder, filesystem) or refused == _MAX_REFUSED:
                break
            # A process that is ending accepts the move and stays: it keeps the group busy until
            # its memory is freed, 60 ms for a GB on an idle machine, and is listed for a part of
            # that time.
            refused += not is_accepted
            sleep(_REMOVE_PAUSE_SECONDS)
        os.close(self._lock_descriptor)

    def _move_members_up(self) -> bool:
        """Move the listed processes to the group above; False if the kernel refuses it for one."""
        above = f"{os.path.dirname(self.folder)}/{PROCS_FILE}"
        listed = member_pids(self.folder)
        # A 0 means a process of another pid namespace. Writing it would move this process.
        moved = [pid != CALLING_PROCESS and try_write(above, pid) for pid in listed]
        return all(moved)


def member_pids(folder: str) -> tuple[bytes, ...]:
    """The processes in a group, 0 for each outside of our pid namespace; empty if the group
    cannot be read.
    """
    return tuple((proc.read_or_none(f"{folder}/{PROCS_FILE}") or b"").split())


def try_remove(folder: str, filesystem: CgroupFilesystem) -> bool:
    """False if the kernel refuses it, as for a group that is not empty."""
    with suppress(OSError):
        filesystem.remove_folder(folder)
        return True
    return False


def try_lock(folder: str) -> int | None:
    """Lock a folder until the descriptor is closed or the process ends; None if it is locked or
    unreadable.
    """
    descriptor = open_or_none(folder, os.O_RDONLY | os.O_DIRECTORY)
    if descriptor is None:
        return None
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def try_write(path: str, text: bytes) -> bool:
    """Write to a file of a group; returns False if the kernel refuses it."""
    descriptor = open_or_none(path, os.O_WRONLY)
    if descriptor is None:
        return False
    try:
        return _try_write_descriptor(descriptor, text)
    finally:
        os.close(descriptor)


def _try_write_descriptor(descriptor: int, text: bytes) -> bool:
    with suppress(OSError):
        os.write(descriptor, text)
        return True
    return False

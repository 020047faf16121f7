"""One control group made to count one command: entered by its process, read while it runs, then removed."""

import os
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from profiler.descriptors import dup_above_standard_streams
from profiler.sources import proc
from profiler.sources.cgroup_counters import CpuFile, MemoryFiles, MemoryReading, read_memory, read_oom_kills

PROCS_FILE = "cgroup.procs"
CALLING_PROCESS = b"0"
_MAX_COUNTER_BYTES = 4096
# What the command has left may fork while it is moved away, or be about to end: then it is not
# listed any more, but holds the group until its memory is given back.
_MAX_REMOVE_ATTEMPTS = 20
_RETRY_SECONDS = 0.005

Sleep = Callable[[float], None]


class CgroupFilesystem(Protocol):
    """Makes and removes groups, which are folders."""

    def make(self, folder: Path) -> None:
        """Make a group."""

    def remove(self, folder: Path) -> None:
        """Remove a group that is empty."""


class KernelCgroupFilesystem:
    """The kernel's own."""

    def make(self, folder: Path) -> None:
        """Make a group."""
        folder.mkdir()

    def remove(self, folder: Path) -> None:
        """Remove a group; its files are no obstacle, processes and groups in it are."""
        folder.rmdir()


class Counters(Struct, frozen=True, kw_only=True):
    """What a group is made for."""

    cpu: CpuFile | None = None
    memory: MemoryFiles | None = None


class AccountingCgroup:
    """A group's files, opened before the command's process is there; raises OSError if it cannot be entered.

    While this process lives it holds a lock on the folder, by which others know that it is in use.
    ``path`` is its name in ``/proc/PID/cgroup``, in the hierarchy there called ``hierarchy``.
    What of ``counters`` the kernel does not count in this group is left out.
    """

    def __init__(self, folder: Path, hierarchy: str, path: str, counters: Counters) -> None:
        self.folder = folder
        self.hierarchy = hierarchy
        self.path = path
        self._lock_descriptor = try_lock(folder)
        self._procs_descriptor = _open(folder / PROCS_FILE, os.O_WRONLY)
        self._cpu_descriptor = None if counters.cpu is None else _open_or_none(folder / counters.cpu.name, os.O_RDONLY)
        self.cpu = None if self._cpu_descriptor is None else counters.cpu
        self.memory = counters.memory
        if counters.memory is not None and not (folder / counters.memory.usage).exists():
            self.memory = None
        self._peak_descriptor: int | None = None
        self._can_reset_peak = False
        if self.memory is not None:
            self._open_peak_file(folder / self.memory.peak)

    def _open_peak_file(self, path: Path) -> None:
        """Version 2's mark can be read only before Linux 6.12; since then it is set back per open file."""
        self._peak_descriptor = _open_or_none(path, os.O_RDWR)
        self._can_reset_peak = self._peak_descriptor is not None
        if self._peak_descriptor is None:
            self._peak_descriptor = _open_or_none(path, os.O_RDONLY)

    def set_memory_limit(self, limit_bytes: int) -> bool:
        """Set a limit; says whether the kernel took it."""
        return self.memory is not None and try_write(self.folder / self.memory.limit, b"%d" % limit_bytes)

    def enter(self) -> bool:
        """Put the calling process into the group."""
        return try_write_descriptor(self._procs_descriptor, CALLING_PROCESS)

    def reset_peak(self) -> None:
        """Begin the high-water mark anew, where the kernel lets us."""
        if self._peak_descriptor is not None and self.memory is not None and self._can_reset_peak:
            try_write_descriptor(self._peak_descriptor, self.memory.reset)

    def cpu_ns(self) -> int | None:
        """The CPU time of all that ever ran in the group."""
        return (
            None if self.cpu is None or self._cpu_descriptor is None else self.cpu.parse_ns(_text(self._cpu_descriptor))
        )

    def memory_now(self) -> MemoryReading | None:
        """The group's memory."""
        return None if self.memory is None else read_memory(self.folder, self.memory)

    def memory_peak_bytes(self) -> int | None:
        """The kernel's high-water mark, page cache included."""
        text = b"" if self._peak_descriptor is None else _text(self._peak_descriptor).strip()
        return int(text) if text.isdigit() else None

    def oom_kills(self) -> int | None:
        """How many processes of the group were killed for want of memory."""
        return None if self.memory is None else read_oom_kills(self.folder, self.memory)

    def remove(self, filesystem: CgroupFilesystem, sleep: Sleep) -> None:
        """Remove the group; what still runs in it goes back to the group above. If that is refused, it stays."""
        for descriptor in (self._procs_descriptor, self._cpu_descriptor, self._peak_descriptor):
            if descriptor is not None:
                os.close(descriptor)
        for _ in range(_MAX_REMOVE_ATTEMPTS):
            if try_remove(self.folder, filesystem):
                break
            if not move_processes(self.folder, self.folder.parent):
                sleep(_RETRY_SECONDS)
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)


def member_pids(folder: Path) -> tuple[bytes, ...]:
    """The processes in a group, 0 for each outside of our pid namespace; none where it cannot be read."""
    return tuple((proc.read(str(folder / PROCS_FILE)) or b"").split())


def move_processes(source: Path, target: Path) -> int:
    """Move the processes of one group to another, as far as the kernel lets us; says how many."""
    # To write the 0 of a foreign process would move ourselves.
    return sum(try_write(target / PROCS_FILE, pid) for pid in member_pids(source) if pid != CALLING_PROCESS)


def try_remove(folder: Path, filesystem: CgroupFilesystem) -> bool:
    """Remove a group if it is empty; says whether that succeeded."""
    try:
        filesystem.remove(folder)
    except OSError:
        return False
    return True


def try_lock(folder: Path) -> int | None:
    """Lock a folder while the answer is open; None if somebody else has it. The kernel unlocks for the dead."""
    descriptor = _open_or_none(folder, os.O_RDONLY | os.O_DIRECTORY)
    if descriptor is None:
        return None
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def try_write(path: Path, text: bytes) -> bool:
    """Write to a file of a group; says whether the kernel took it."""
    try:
        descriptor = _open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        return try_write_descriptor(descriptor, text)
    finally:
        os.close(descriptor)


def try_write_descriptor(descriptor: int, text: bytes) -> bool:
    """Write to an open file of a group; says whether the kernel took it."""
    try:
        os.write(descriptor, text)
    except OSError:
        return False
    return True


def _text(descriptor: int) -> bytes:
    try:
        return os.pread(descriptor, _MAX_COUNTER_BYTES, 0)
    except OSError:
        return b""


def _open(path: Path, flags: int) -> int:
    return dup_above_standard_streams(os.open(path, flags))


def _open_or_none(path: Path, flags: int) -> int | None:
    try:
        return _open(path, flags)
    except OSError:
        return None

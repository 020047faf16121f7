"""One control group made to count one command: entered by its process, read while it runs, then removed."""

import os
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from profiler.descriptors import apart_from_the_standard_ones
from profiler.sources import proc
from profiler.sources.cgroup_counters import CpuFile, MemoryFiles, MemoryReading, read_memory, read_oom_kills

PROCESSES = "cgroup.procs"
ITSELF = b"0"
_LONGEST_COUNTER_BYTES = 4096
# What the command has left may fork while it is moved away, or be about to end: then it is not
# listed any more, but holds the group until its memory is given back.
_ATTEMPTS = 20
_PAUSE_SECONDS = 0.005

Sleep = Callable[[float], None]


class Folders(Protocol):
    """Makes and removes groups, which are folders."""

    def make(self, folder: Path) -> None:
        """Make a group."""

    def remove(self, folder: Path) -> None:
        """Remove a group that is empty."""


class KernelFolders:
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


class CountingGroup:
    """A group's files, opened before the command's process is there; raises OSError if it cannot be entered.

    While this process lives it holds a lock on the folder, by which others know that it is in use.
    ``path`` is its name in ``/proc/PID/cgroup``, in the hierarchy there called ``hierarchy``.
    What of ``wanted`` the kernel does not count in this group is left out.
    """

    def __init__(self, folder: Path, hierarchy: str, path: str, wanted: Counters) -> None:
        self.folder = folder
        self.hierarchy = hierarchy
        self.path = path
        self._claim = claimed(folder)
        self._entrance = _open(folder / PROCESSES, os.O_WRONLY)
        self._cpu_counter = None if wanted.cpu is None else _opened_or_none(folder / wanted.cpu.name, os.O_RDONLY)
        self.cpu = None if self._cpu_counter is None else wanted.cpu
        self.memory = wanted.memory
        if wanted.memory is not None and not (folder / wanted.memory.usage).exists():
            self.memory = None
        self._peak: int | None = None
        self._resets_peak = False
        if self.memory is not None:
            self._open_peak(folder / self.memory.peak)

    def _open_peak(self, path: Path) -> None:
        """Version 2's mark can be read only before Linux 6.12; since then it is set back per open file."""
        self._peak = _opened_or_none(path, os.O_RDWR)
        self._resets_peak = self._peak is not None
        if self._peak is None:
            self._peak = _opened_or_none(path, os.O_RDONLY)

    def limit_memory(self, limit_bytes: int) -> bool:
        """Set a limit; says whether the kernel took it."""
        return self.memory is not None and write(self.folder / self.memory.limit, b"%d" % limit_bytes)

    def enter(self) -> bool:
        """Put the calling process into the group."""
        return written(self._entrance, ITSELF)

    def reset_peak(self) -> None:
        """Begin the high-water mark anew, where the kernel lets us."""
        if self._peak is not None and self.memory is not None and self._resets_peak:
            written(self._peak, self.memory.reset)

    def cpu_ns(self) -> int | None:
        """The CPU time of all that ever ran in the group."""
        return None if self.cpu is None or self._cpu_counter is None else self.cpu.parse_ns(_text(self._cpu_counter))

    def memory_now(self) -> MemoryReading | None:
        """The group's memory."""
        return None if self.memory is None else read_memory(self.folder, self.memory)

    def memory_peak_bytes(self) -> int | None:
        """The kernel's high-water mark, page cache included."""
        text = b"" if self._peak is None else _text(self._peak).strip()
        return int(text) if text.isdigit() else None

    def oom_kills(self) -> int | None:
        """How many processes of the group were killed for want of memory."""
        return None if self.memory is None else read_oom_kills(self.folder, self.memory)

    def remove(self, folders: Folders, sleep: Sleep) -> None:
        """Remove the group; what still runs in it goes back to the group above. If that is refused, it stays."""
        for descriptor in (self._entrance, self._cpu_counter, self._peak):
            if descriptor is not None:
                os.close(descriptor)
        for _ in range(_ATTEMPTS):
            if removed(self.folder, folders):
                break
            if not move_processes(self.folder, self.folder.parent):
                sleep(_PAUSE_SECONDS)
        if self._claim is not None:
            os.close(self._claim)


def members(folder: Path) -> tuple[bytes, ...]:
    """The processes in a group, 0 for each outside of our pid namespace; none where it cannot be read."""
    return tuple((proc.read(str(folder / PROCESSES)) or b"").split())


def move_processes(source: Path, target: Path) -> int:
    """Move the processes of one group to another, as far as the kernel lets us; says how many."""
    # To write the 0 of a foreign process would move ourselves.
    return sum(write(target / PROCESSES, pid) for pid in members(source) if pid != ITSELF)


def removed(folder: Path, folders: Folders) -> bool:
    """Remove a group if it is empty; says whether that succeeded."""
    try:
        folders.remove(folder)
    except OSError:
        return False
    return True


def claimed(folder: Path) -> int | None:
    """Lock a folder while the answer is open; None if somebody else has it. The kernel unlocks for the dead."""
    descriptor = _opened_or_none(folder, os.O_RDONLY | os.O_DIRECTORY)
    if descriptor is None:
        return None
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def write(path: Path, text: bytes) -> bool:
    """Write to a file of a group; says whether the kernel took it."""
    try:
        descriptor = _open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        return written(descriptor, text)
    finally:
        os.close(descriptor)


def written(descriptor: int, text: bytes) -> bool:
    """Write to an open file of a group; says whether the kernel took it."""
    try:
        os.write(descriptor, text)
    except OSError:
        return False
    return True


def _text(descriptor: int) -> bytes:
    try:
        return os.pread(descriptor, _LONGEST_COUNTER_BYTES, 0)
    except OSError:
        return b""


def _open(path: Path, flags: int) -> int:
    return apart_from_the_standard_ones(os.open(path, flags))


def _opened_or_none(path: Path, flags: int) -> int | None:
    try:
        return _open(path, flags)
    except OSError:
        return None

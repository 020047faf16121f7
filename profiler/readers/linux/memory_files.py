"""The files in memory that the processes of a command write: in tmpfs, and by ``memfd_create``."""

import os
import stat
from collections.abc import Callable, Iterable

from msgspec import Struct

from profiler.readers.linux import proc

_BLOCK_BYTES = 512  # stat(2), st_blocks
# The times of files are those of the kernel's last timer interrupt.
_CLOCK_STEP_NS = 10_000_000
# More files are not followed: each is looked at again in every reading.
_MAX_FILES = 200

_Identity = tuple[int, int]  # the device and the inode


class _File(Struct, frozen=True, gc=False, kw_only=True):
    """A path to a file, and how much of it was there before the command, as far as is known."""

    path: str
    earlier_bytes: int


class MemoryFiles:
    """The files in memory that a process of the command had open for writing, and that were
    written since ``started_ns`` (wall clock).

    A file is known from its first look on, until it is deleted and closed. What is opened and
    closed between two looks, and another user's processes, stay unknown.
    """

    def __init__(self, started_ns: int, find_devices: Callable[[], frozenset[int]]) -> None:
        self._started_ns = started_ns - _CLOCK_STEP_NS
        self._find_devices = find_devices
        self._devices: frozenset[int] | None = None
        self._files: dict[_Identity, _File] = {}

    def look(self, pids: Iterable[int], growth_bytes: int) -> None:
        """Look for files that these processes have open.

        All files together have grown by at most ``growth_bytes`` since the start: more of a new
        file was there before.
        """
        if self._devices is None:
            self._devices = self._find_devices()
        left_bytes = growth_bytes - self.held_bytes()
        for pid in pids:
            folder = f"/proc/{pid}/fd"
            for number in proc.all_pids(folder):
                written = self._written_file(f"{folder}/{number}", self._devices)
                if written is None:
                    continue
                identity, size_bytes, path = written
                earlier_bytes = max(size_bytes - max(left_bytes, 0), 0)
                known = self._files.get(identity)
                if known is not None:
                    earlier_bytes = known.earlier_bytes
                else:
                    left_bytes -= size_bytes
                self._files[identity] = _File(path=path, earlier_bytes=earlier_bytes)

    def held_bytes(self) -> int:
        """The memory of the known files that exist, without what was there before."""
        total_bytes = 0
        for identity, file in list(self._files.items()):
            status = _stat(file.path)
            if status is None or (status.st_dev, status.st_ino) != identity:
                del self._files[identity]
            else:
                size_bytes = status.st_blocks * _BLOCK_BYTES
                total_bytes += max(size_bytes - file.earlier_bytes, 0)
        return total_bytes

    def _written_file(
        self, link: str, devices: frozenset[int]
    ) -> tuple[_Identity, int, str] | None:
        """The identity, the size and a path of the file of a descriptor; None if it does not
        count.
        """
        status = _stat(link)
        if status is None or status.st_dev not in devices or not stat.S_ISREG(status.st_mode):
            return None
        if status.st_ctime_ns < self._started_ns or len(self._files) >= _MAX_FILES:
            return None
        try:
            is_writable = os.lstat(link).st_mode & stat.S_IWUSR  # proc(5): how it is open
            path = os.readlink(link)  # noqa: PTH115  texts only
        except OSError:
            return None
        if not is_writable:
            return None
        identity = (status.st_dev, status.st_ino)
        named = _stat(path)
        if named is None or (named.st_dev, named.st_ino) != identity:
            path = link  # a deleted file has only its descriptors
        return identity, status.st_blocks * _BLOCK_BYTES, path


def memory_devices() -> frozenset[int]:
    """The devices of the mounted tmpfs, and of ``memfd_create``."""
    devices: set[int] = set()
    for mount in proc.parse_mountinfo(proc.read_text("/proc/self/mountinfo")):
        major, _, minor = mount.device.partition(":")
        if mount.filesystem_type == "tmpfs" and major.isdigit() and minor.isdigit():
            devices.add(os.makedev(int(major), int(minor)))
    try:
        descriptor = os.memfd_create("task-profiler")
    except OSError:
        return frozenset(devices)
    devices.add(os.fstat(descriptor).st_dev)
    os.close(descriptor)
    return frozenset(devices)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116  many times a second
    except (OSError, ValueError):
        return None

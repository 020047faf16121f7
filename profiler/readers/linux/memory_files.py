"""The files in memory that the processes of a command write: in tmpfs, and by ``memfd_create``."""

import os
import stat
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from profiler.readers.linux import proc

_BLOCK_BYTES = 512  # stat(2), st_blocks
# The times of files are those of the kernel's last timer interrupt.
_CLOCK_STEP_NS = 10_000_000
# More files are not followed: each is looked at again in every reading.
_MAX_FILES = 200

_DESCRIPTORS = "/proc/"
_MEMFD = "/memfd:"

_Identity = tuple[int, int]  # the device and the inode


class MemoryMounts(Struct, frozen=True):
    """The devices of the mounted tmpfs and of ``memfd_create``; all mount points, the longest
    first, and which of them are tmpfs.
    """

    devices: frozenset[int]
    places: tuple[tuple[str, bool], ...] = ()

    def may_hold(self, path: str) -> bool:
        """Whether the file is in memory by its path.

        A ``stat`` of a file on a network that does not answer would not return.
        """
        if path.startswith(_MEMFD):
            return True
        for place, is_memory in self.places:
            if path.startswith(place):
                return is_memory
        return False


class _File(Struct, frozen=True, gc=False, kw_only=True):
    """A path to a file, and how much of it was there before the command, as far as is known."""

    path: str
    earlier_bytes: int


class WrittenMemoryFiles:
    """The files in memory that a process of the command had open for writing, and that were
    written since ``started_ns`` (wall clock).

    A file is known from its first look on, until it is deleted and closed. What is opened and
    closed between two looks, and another user's processes, stay unknown.

    ``has_lost``: a known file is gone since the last look, or the process is by whose descriptor a
    deleted one was known, and another process may have it open, too. If the next look finds it, it
    is no new file.
    """

    def __init__(self, started_ns: int, find_mounts: Callable[[], MemoryMounts]) -> None:
        self._started_ns = started_ns - _CLOCK_STEP_NS
        self._find_mounts = find_mounts
        self._mounts: MemoryMounts | None = None
        self._files: dict[_Identity, _File] = {}
        self._lost: dict[_Identity, _File] = {}  # since the last look
        self.has_lost = False

    def find_open_files(self, pids: Iterable[int], growth_bytes: Callable[[], int]) -> None:
        """Look for files that these processes have open.

        All files together have grown by at most ``growth_bytes`` since the start: more of a new
        file was there before. They are asked for after the files: what is written meanwhile was
        not there before.
        """
        if self._mounts is None:
            self._mounts = self._find_mounts()
        found = self._written_files(pids, self._mounts)
        grown_bytes = growth_bytes()
        self.held_bytes()  # its losses first
        # Others can have freed as much meanwhile: the growth tells nothing of a known file.
        known = self._lost | self._files
        for identity in found.keys() & known.keys():
            self._files[identity] = replace(known[identity], path=found[identity][1])
        self._lost.clear()
        self.has_lost = False
        left_bytes = grown_bytes - self.held_bytes()
        for identity, (size_bytes, path) in found.items():
            if identity not in known:
                earlier_bytes = max(size_bytes - max(left_bytes, 0), 0)
                left_bytes -= size_bytes
                self._files[identity] = _File(path=path, earlier_bytes=earlier_bytes)

    def held_bytes(self) -> int:
        """The memory of the known files that exist, without what was there before."""
        total_bytes = 0
        for identity, file in list(self._files.items()):
            status = None if self._mounts is None else _stat_memory_file(file.path, self._mounts)
            if status is None or (status.st_dev, status.st_ino) != identity:
                self._lost[identity] = self._files.pop(identity)
                self.has_lost = True
            else:
                size_bytes = status.st_blocks * _BLOCK_BYTES
                total_bytes += max(size_bytes - file.earlier_bytes, 0)
        return total_bytes

    def _written_files(
        self, pids: Iterable[int], mounts: MemoryMounts
    ) -> Mapping[_Identity, tuple[int, str]]:
        """The size and a path of each file that counts."""
        found: dict[_Identity, tuple[int, str]] = {}
        known = set(self._files)
        for pid in pids:
            folder = f"/proc/{pid}/fd"
            for number in proc.numeric_entries(folder):
                if len(known) >= _MAX_FILES:
                    return found
                written = self._written_file(f"{folder}/{number}", mounts)
                if written is not None:
                    identity, size_bytes, path = written
                    known.add(identity)
                    found[identity] = (size_bytes, path)
        return found

    def _written_file(self, link: str, mounts: MemoryMounts) -> tuple[_Identity, int, str] | None:
        """The identity, the size and a path of the file of a descriptor; None if it does not
        count.
        """
        status = _stat_memory_file(link, mounts)
        if status is None or status.st_dev not in mounts.devices:
            return None
        if not stat.S_ISREG(status.st_mode) or status.st_ctime_ns < self._started_ns:
            return None
        try:
            is_writable = os.lstat(link).st_mode & stat.S_IWUSR  # proc(5): how it is open
            path = os.readlink(link)  # noqa: PTH115  texts only
        except OSError:
            return None
        if not is_writable:
            return None
        identity = (status.st_dev, status.st_ino)
        named = _stat_memory_file(path, mounts)
        if named is None or (named.st_dev, named.st_ino) != identity:
            path = link  # a deleted file has only its descriptors
        return identity, status.st_blocks * _BLOCK_BYTES, path


def read_memory_mounts() -> MemoryMounts:
    """The mounts of this process."""
    devices: set[int] = set()
    is_memory_at: dict[str, bool] = {}
    for mount in proc.parse_mountinfo(proc.read_text("/proc/self/mountinfo")):
        is_memory = mount.filesystem_type == "tmpfs"
        is_memory_at[f"{mount.mount_point.rstrip('/')}/"] = is_memory  # a later one covers it
        major, _, minor = mount.device.partition(":")
        if is_memory and major.isdigit() and minor.isdigit():
            devices.add(os.makedev(int(major), int(minor)))
    try:
        descriptor = os.memfd_create("task-profiler")
    except OSError:
        pass
    else:
        devices.add(os.fstat(descriptor).st_dev)
        os.close(descriptor)
    places = sorted(is_memory_at.items(), key=lambda place: len(place[0]), reverse=True)
    return MemoryMounts(devices=frozenset(devices), places=tuple(places))


def _stat_memory_file(path: str, mounts: MemoryMounts) -> os.stat_result | None:
    """The status of a file in memory: by its path, or by a descriptor's link; None for others."""
    is_link = path.startswith(_DESCRIPTORS)
    try:
        target = os.readlink(path) if is_link else path  # noqa: PTH115  many times a second
        if not mounts.may_hold(target):
            return None
        return os.stat(path, follow_symlinks=is_link)  # noqa: PTH116  as above
    except (OSError, ValueError):
        return None

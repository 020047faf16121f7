"""The memory of the process whose threads are asked: lists of descriptors, and timeouts."""

import os
import struct

from profiler.core.files import close_files, open_or_none
from profiler.core.timestamps import NS_PER_SECOND

_TIMESPEC = struct.Struct("=qq")
# In a look, the timeouts of so many locks are read: of a process, those of its first threads, which
# make the tasks of the others.
_MAX_TIMEOUTS = 16


class ProcessMemory:
    """Reads the memory of one process after the other: the threads of a process are asked together.

    ``timeouts_left``: so many timeouts may still be read in the present look.
    """

    def __init__(self, proc_folder: str) -> None:
        self._folder = proc_folder
        self._pid: int | None = None
        self._file: int | None = None
        self.timeouts_left = 0

    def begin_look(self) -> None:
        self.close()
        self.timeouts_left = _MAX_TIMEOUTS

    def read(self, pid: int, address: int, size: int) -> bytes | None:
        """A part of the memory; None if it is not readable."""
        if size <= 0:
            return b""
        if self._pid != pid:
            self.close()
            self._pid = pid
            self._file = open_or_none(f"{self._folder}/{pid}/mem")
        if self._file is None:
            return None
        try:
            return os.pread(self._file, size, address) or None
        except (OSError, OverflowError):  # a tagged pointer is beyond all offsets
            return None

    def read_timeout_ns(self, pid: int, address: int) -> int | None:
        """A ``struct timespec``; None if it is not readable, or no timeouts are left."""
        if self.timeouts_left == 0:
            return None
        self.timeouts_left -= 1
        timeout = self.read(pid, address, _TIMESPEC.size)
        if timeout is None or len(timeout) < _TIMESPEC.size:
            return None
        whole_seconds, rest_ns = _TIMESPEC.unpack(timeout)
        return int(whole_seconds * NS_PER_SECOND + rest_ns)

    def close(self) -> None:
        """Close the memory of the process that was asked last."""
        close_files((self._file,))
        self._file = None
        self._pid = None

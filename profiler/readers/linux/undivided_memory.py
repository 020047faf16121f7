"""The memory of processes where ``/proc/PID/status`` does not divide it: in Linux before 4.5, and
in gVisor, which does not tell forks from executed programs, either.
"""

import os

from msgspec.structs import replace

from profiler.readers.linux import proc

# Positions in /proc/PID/statm.
_RESIDENT = 1
_SHARED = 2
_MAX_AUXV_BYTES = 4096


def lacks_memory_parts(status: proc.ProcessStatus) -> bool:
    """Whether a process has memory of which the kernel does not tell the anonymous part."""
    return status.rss_bytes is not None and status.anonymous_bytes is None


def with_memory_parts(status: proc.ProcessStatus, folder: str) -> proc.ProcessStatus:
    """The status with what is no page of a file or of shared memory as anonymous memory.

    gVisor counts no such pages: all memory is anonymous there.
    """
    words = (proc.read_or_none(f"{folder}/statm") or b"").split()
    if len(words) <= _SHARED or status.rss_bytes is None:
        return status
    pages = int(words[_RESIDENT]) - int(words[_SHARED])
    anonymous_bytes = max(pages, 0) * os.sysconf("SC_PAGE_SIZE")
    return replace(status, anonymous_bytes=min(anonymous_bytes, status.rss_bytes))


def is_fork(folder: str, parent_folder: str) -> bool:
    """Whether a process has executed no program since its parent forked it: then both have the
    same auxiliary vector, with addresses that are random for each program, else the same words.
    """
    for name in ("auxv", "cmdline"):
        own = proc.read_beginning(f"{folder}/{name}", _MAX_AUXV_BYTES)
        if own:
            return own == proc.read_beginning(f"{parent_folder}/{name}", _MAX_AUXV_BYTES)
    return False

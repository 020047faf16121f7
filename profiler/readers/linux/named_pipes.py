"""Tells a wait for a named pipe from one for a file, as both have a path, and which files have a
status that can be asked for.
"""

import os
import stat
from typing import Literal

from profiler.readers.linux import proc

# In these, a read or write of a file sleeps uninterruptibly: an interruptible sleep is for a pipe,
# or for a file that the kernel makes up. Others (FUSE, networks) may sleep interruptibly, and a
# stat of their files may not return.
_LOCAL_FILESYSTEMS = frozenset(
    (
        *("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay"),
        *("tmpfs", "ramfs", "proc", "sysfs", "tracefs", "debugfs"),
    )
)


def kind_of_io_wait(
    pid: int, descriptor: int, proc_folder: str = "/proc"
) -> Literal["disk", "pipe", "other"]:
    """What a read or write waits for in an interruptible sleep, if its descriptor has a path."""
    if not is_in_local_filesystem(pid, descriptor, proc_folder):
        return "disk"
    try:
        status = os.stat(f"{proc_folder}/{pid}/fd/{descriptor}")  # noqa: PTH116  faster
    except OSError:
        return "other"
    return "pipe" if stat.S_ISFIFO(status.st_mode) else "other"


def is_in_local_filesystem(pid: int, descriptor: int, proc_folder: str = "/proc") -> bool:
    """Whether a descriptor's file is in a local file system, so that a stat of it returns."""
    folder = f"{proc_folder}/{pid}"
    fdinfo = proc.read_or_none(f"{folder}/fdinfo/{descriptor}") or b""
    mount_id = proc.number_after(fdinfo, b"mnt_id:")
    mounts = proc.read_text(f"{folder}/mountinfo")
    return _filesystem_type(mounts, mount_id) in _LOCAL_FILESYSTEMS


def _filesystem_type(mounts: str, mount_id: int | None) -> str | None:
    """The type of a mount in ``/proc/PID/mountinfo``; None if it is not there."""
    for line in mounts.splitlines():
        mount, separator, filesystem = line.partition(" - ")
        if separator and mount.split(" ", 1)[0] == str(mount_id):
            return filesystem.split(" ", 1)[0]
    return None

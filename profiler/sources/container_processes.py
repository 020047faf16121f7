"""The processes of another container of the task, where they are visible, and how that one was started.

To see them takes ``"pidMode": "task"``; to read their environment the same user, or root with
SYS_PTRACE.
"""

import os
from collections.abc import Iterator

from profiler.sources import proc

_VISIBLE_DEVICES = b"NVIDIA_VISIBLE_DEVICES="


def pids_of(docker_id: str, proc_folder: str = "/proc") -> Iterator[str]:
    """The container's processes, the lowest number first; this process is left out."""
    own_pid = str(os.getpid())
    wanted = docker_id.encode()
    for pid in _pids(proc_folder):
        if pid != own_pid and wanted in (proc.read(f"{proc_folder}/{pid}/cgroup") or b""):
            yield pid


def visible_devices(docker_id: str, proc_folder: str = "/proc") -> str | None:
    """``NVIDIA_VISIBLE_DEVICES`` of the container's first process that tells it."""
    for pid in pids_of(docker_id, proc_folder):
        for entry in (proc.read(f"{proc_folder}/{pid}/environ") or b"").split(b"\0"):
            if entry.startswith(_VISIBLE_DEVICES):
                return entry.removeprefix(_VISIBLE_DEVICES).decode(errors="replace")
    return None


def _pids(proc_folder: str) -> list[str]:
    try:
        names = os.listdir(proc_folder)  # noqa: PTH208  names only
    except OSError:
        return []
    return sorted((name for name in names if name.isdecimal()), key=int)

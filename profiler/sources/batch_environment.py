"""The environment that a container of the task was started with, where its processes are visible.

That takes ``"pidMode": "task"`` and the right to read another process's environment: the same
user, or root with SYS_PTRACE.
"""

import os

from profiler.sources import proc

_VISIBLE_DEVICES = b"NVIDIA_VISIBLE_DEVICES="


def visible_devices(docker_id: str, proc_folder: str = "/proc") -> str | None:
    """``NVIDIA_VISIBLE_DEVICES`` of the container's first process that tells it."""
    own_pid = str(os.getpid())
    wanted = docker_id.encode()
    for pid in _pids(proc_folder):
        if pid == own_pid or wanted not in (proc.read(f"{proc_folder}/{pid}/cgroup") or b""):
            continue
        for entry in (proc.read(f"{proc_folder}/{pid}/environ") or b"").split(b"\0"):
            if entry.startswith(_VISIBLE_DEVICES):
                return entry.removeprefix(_VISIBLE_DEVICES).decode(errors="replace")
    return None


def _pids(proc_folder: str) -> list[str]:
    """All processes, the oldest first as far as their numbers tell."""
    try:
        names = os.listdir(proc_folder)  # noqa: PTH208  names only
    except OSError:
        return []
    return sorted((name for name in names if name.isdecimal()), key=int)

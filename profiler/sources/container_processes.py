"""Which processes are another container's of the task, where they are visible, and how that one was started.

To see them takes ``"pidMode": "task"``; to read their environment the same user, or root with
SYS_PTRACE.
"""

import os
from collections.abc import Iterator

from profiler.sources import proc

_VISIBLE_DEVICES = b"NVIDIA_VISIBLE_DEVICES="
# A Docker id is 64 hexadecimal digits, on Fargate the task's id and a number. What follows it in a
# group's name is nothing of that kind: the end, ".scope", or a group below.
_ID_CHARACTERS = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_")


def is_in_container(process_folder: str, docker_id: str) -> bool:
    """Whether the process is in a control group of the container, of either version."""
    membership, id_bytes = proc.read(f"{process_folder}/cgroup") or b"", docker_id.encode()
    found = membership.find(id_bytes)
    while found >= 0:
        following = membership[found + len(id_bytes) : found + len(id_bytes) + 1]
        if not following or following[0] not in _ID_CHARACTERS:
            return True
        found = membership.find(id_bytes, found + 1)
    return False


def pids_of(docker_id: str, proc_folder: str = "/proc") -> Iterator[int]:
    """The container's processes, the lowest number first; this process is left out."""
    own_pid = os.getpid()
    for pid in sorted(proc.all_pids(proc_folder)):
        if pid != own_pid and is_in_container(f"{proc_folder}/{pid}", docker_id):
            yield pid


def visible_devices(docker_id: str, proc_folder: str = "/proc") -> str | None:
    """``NVIDIA_VISIBLE_DEVICES`` of the container's first process that tells it."""
    for pid in pids_of(docker_id, proc_folder):
        for entry in (proc.read(f"{proc_folder}/{pid}/environ") or b"").split(b"\0"):
            if entry.startswith(_VISIBLE_DEVICES):
                return entry.removeprefix(_VISIBLE_DEVICES).decode(errors="replace")
    return None

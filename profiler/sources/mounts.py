"""The disks that this container sees, by ``/proc/self/mountinfo``: each place where one is mounted.

Asking a network's file system that does not answer hangs for good, and so does looking for anything below it.
"""

from collections.abc import Callable

from msgspec import Struct

from profiler.sources import proc

ROOT = "/"
MOST_DISKS = 16
# Folders of the instance's disk that are no volumes: those of ECS Exec, and of the agent's container metadata file.
_OF_ECS = ("/managed-agents/", "/opt/ecs/metadata/")
_SEPARATOR = " - "
# Positions in a line: the device's numbers and the mount point; after the separator, the file system's type.
_DEVICE, _MOUNT_POINT, _TYPE = 2, 4, 0
_ANONYMOUS = "0:"
# On disks, although the kernel gives them numbers of no device.
_DISKS_WITHOUT_NUMBERS = ("btrfs", "bcachefs", "zfs")
# In memory, or on what is listed itself: these always answer.
_PRESENT = ("overlay", "tmpfs", "ramfs", "devtmpfs", "devpts", "proc", "sysfs", "mqueue", "cgroup", "cgroup2")


class _Mount(Struct, frozen=True):
    point: str
    device: str
    kind: str

    @property
    def is_disk(self) -> bool:
        """Whether its size is that of a disk."""
        return not self.device.startswith(_ANONYMOUS) or self.kind in _DISKS_WITHOUT_NUMBERS

    @property
    def can_hang(self) -> bool:
        """Whether it may be of a network, or of a program that can end."""
        return not self.is_disk and self.kind not in _PRESENT and self.point != ROOT


def disk_mounts(mountinfo: str, is_folder: Callable[[str], bool]) -> tuple[str, ...]:
    """The root, and each folder where a disk is mounted, 16 at most: all disks before any for the second time.

    Docker and the NVIDIA runtime also mount single files from the instance's disk: they are no volumes.
    """
    mounts = _mounts(mountinfo)
    hanging = tuple(f"{mount.point}/" for mount in mounts if mount.can_hang)
    volumes = [
        mount
        for mount in sorted(mounts, key=lambda mount: (len(mount.point), mount.point))
        if mount.is_disk
        and mount.point != ROOT
        and not mount.point.startswith((*_OF_ECS, *hanging))
        and is_folder(mount.point)
    ]
    shortest = {mount.device: mount for mount in reversed(volumes)}
    firsts = [mount for mount in volumes if shortest[mount.device] is mount]
    others = [mount for mount in volumes if shortest[mount.device] is not mount]
    return (ROOT, *sorted(mount.point for mount in (firsts + others)[: MOST_DISKS - 1]))


def _mounts(mountinfo: str) -> list[_Mount]:
    """What is mounted at each place: the last of those that were mounted over one another."""
    found: dict[str, _Mount] = {}
    for line in mountinfo.splitlines():
        where, _, what = line.partition(_SEPARATOR)
        words = where.split(" ")
        if len(words) > _MOUNT_POINT:
            point = proc.unescaped(words[_MOUNT_POINT])
            found[point] = _Mount(point, words[_DEVICE], what.split(" ")[_TYPE])
    return list(found.values())

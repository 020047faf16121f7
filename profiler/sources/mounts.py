"""The disks that this container sees, by ``/proc/self/mountinfo``: each place where one is mounted.

Asking a network's file system that does not answer hangs for good, and so does looking for anything below it.
"""

from collections.abc import Callable

from msgspec import Struct

from profiler.sources import proc

ROOT = "/"
MAX_DISKS = 16
# Folders of the instance's disk that are no volumes: those of ECS Exec, and of the agent's container metadata file.
_ECS_AGENT_FOLDERS = ("/managed-agents/", "/opt/ecs/metadata/")
_SEPARATOR = " - "
# Positions in a line: the device's numbers and the mount point; after the separator, the file system's type.
_DEVICE, _MOUNT_POINT, _TYPE = 2, 4, 0
_ANONYMOUS_DEVICE_PREFIX = "0:"
# On disks, although the kernel gives them numbers of no device.
_DISK_FILESYSTEMS_WITHOUT_DEVICE = ("btrfs", "bcachefs", "zfs")
# In memory, or on what is listed itself: these always answer.
_LOCAL_FILESYSTEMS = ("overlay", "tmpfs", "ramfs", "devtmpfs", "devpts", "proc", "sysfs", "mqueue", "cgroup", "cgroup2")


class _Mount(Struct, frozen=True):
    mount_point: str
    device: str
    filesystem_type: str

    @property
    def is_disk(self) -> bool:
        """Whether its size is that of a disk."""
        return (
            not self.device.startswith(_ANONYMOUS_DEVICE_PREFIX)
            or self.filesystem_type in _DISK_FILESYSTEMS_WITHOUT_DEVICE
        )

    @property
    def can_hang(self) -> bool:
        """Whether it may be of a network, or of a program that can end."""
        return not self.is_disk and self.filesystem_type not in _LOCAL_FILESYSTEMS and self.mount_point != ROOT


def disk_mounts(mountinfo: str, is_folder: Callable[[str], bool]) -> tuple[str, ...]:
    """The root, and each folder where a disk is mounted, 16 at most: all disks before any for the second time.

    Docker and the NVIDIA runtime also mount single files from the instance's disk: they are no volumes.
    """
    mounts = _parse_mounts(mountinfo)
    hanging = tuple(f"{mount.mount_point}/" for mount in mounts if mount.can_hang)
    volumes = [
        mount
        for mount in sorted(mounts, key=lambda mount: (len(mount.mount_point), mount.mount_point))
        if mount.is_disk
        and mount.mount_point != ROOT
        and not mount.mount_point.startswith((*_ECS_AGENT_FOLDERS, *hanging))
        and is_folder(mount.mount_point)
    ]
    shortest = {mount.device: mount for mount in reversed(volumes)}
    firsts = [mount for mount in volumes if shortest[mount.device] is mount]
    others = [mount for mount in volumes if shortest[mount.device] is not mount]
    return (ROOT, *sorted(mount.mount_point for mount in (firsts + others)[: MAX_DISKS - 1]))


def _parse_mounts(mountinfo: str) -> list[_Mount]:
    """What is mounted at each place: the last of those that were mounted over one another."""
    found: dict[str, _Mount] = {}
    for line in mountinfo.splitlines():
        where, _, what = line.partition(_SEPARATOR)
        words = where.split(" ")
        if len(words) > _MOUNT_POINT:
            mount_point = proc.unescape_path(words[_MOUNT_POINT])
            found[mount_point] = _Mount(mount_point, words[_DEVICE], what.split(" ")[_TYPE])
    return list(found.values())

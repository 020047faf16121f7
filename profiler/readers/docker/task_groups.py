"""The control groups of the containers and tasks of an instance, below its ``/sys/fs/cgroup``."""

from profiler.readers import Unavailable
from profiler.readers.cgroup.container_group import GroupReading
from profiler.readers.container_sample import ContainerSample


class OpenGroup:
    """The open files of one group."""

    def sample(self, read_ns: int) -> ContainerSample | Unavailable:
        """The counters now; unavailable and ``is_gone`` when the group is removed."""
        raise NotImplementedError

    def totals(self) -> GroupReading | Unavailable:
        """CPU time, mark, page cache and kills now; ``oom_kills`` of a task's group is None in version 1."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class InstanceCgroups:
    """Opens groups. ``root`` is the machine's ``/sys/fs/cgroup``."""

    def __init__(self, root: str = "/sys/fs/cgroup", device_mapper_majors: frozenset[int] | None = None) -> None:
        raise NotImplementedError

    def open_container(self, docker_id: str, cgroup_parent: str) -> OpenGroup | Unavailable:
        """The group of a container; ``cgroup_parent`` is that of its inspect document, which may be empty."""
        raise NotImplementedError

    def open_task(self, cgroup_parent: str) -> OpenGroup | Unavailable:
        """The task's group, which the agent keeps after the containers' ends; unavailable if it makes none."""
        raise NotImplementedError

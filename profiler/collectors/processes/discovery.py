"""Finds another container's processes (``"pidMode": "task"``).

Their collector is imported only once they are seen.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from profiler.aggregation.record_parts import RecordPart
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.readers.linux import proc
from profiler.record.record_model import Record

if TYPE_CHECKING:
    from typing import Protocol

    from profiler.collectors.collector_kinds import BatchFollower, Collector, ThreadCollector

    class _ProcessCollector(Collector, ThreadCollector, BatchFollower, Protocol): ...


_VISIBLE_DEVICES = b"NVIDIA_VISIBLE_DEVICES="
# A Docker id is 64 hexadecimal digits, on Fargate the task's id and a number. In a group's name, no
# such character follows: only the end, ".scope" or "/".
_ID_CHARACTERS = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_")
# on_batch_started is called every 10 s while the batch runs. The processes are visible from the
# first time or never.
_MAX_ATTEMPTS = 5


def is_in_container(process_folder: str, docker_id: str) -> bool:
    """Whether the process is in a control group (v1 or v2) of the container."""
    return is_group_of(docker_id, proc.read_or_none(f"{process_folder}/cgroup") or b"")


def is_group_of(docker_id: str, groups: bytes) -> bool:
    """Whether one of the control groups in ``/proc/PID/cgroup`` is the container's."""
    _, *followed = groups.split(docker_id.encode())
    return any(not following or following[0] not in _ID_CHARACTERS for following in followed)


def pids_of(docker_id: str, proc_folder: str = "/proc") -> Iterator[int]:
    """The ids of the container's processes in ascending order, without this process."""
    own_pid = os.getpid()
    for pid in sorted(proc.numeric_entries(proc_folder)):
        if pid != own_pid and is_in_container(f"{proc_folder}/{pid}", docker_id):
            yield pid


def visible_devices(docker_id: str, proc_folder: str = "/proc") -> str | None:
    """``NVIDIA_VISIBLE_DEVICES`` of the container's first process whose environment has it; None
    if none has.
    """
    for pid in pids_of(docker_id, proc_folder):
        for entry in (proc.read_or_none(f"{proc_folder}/{pid}/environ") or b"").split(b"\0"):
            if entry.startswith(_VISIBLE_DEVICES):
                return entry.removeprefix(_VISIBLE_DEVICES).decode(errors="replace")
    return None


def environment_of(
    docker_id: str, names: Collection[str], proc_folder: str = "/proc"
) -> dict[str, str]:
    """These variables of the container's first process that has one of them; nothing else."""
    for pid in pids_of(docker_id, proc_folder):
        found: dict[str, str] = {}
        for entry in (proc.read_or_none(f"{proc_folder}/{pid}/environ") or b"").split(b"\0"):
            name, _, value = entry.decode(errors="replace").partition("=")
            if name in names:
                found[name] = value
        if found:
            return found
    return {}


class ProcessDiscovery:
    """Makes the process collector when processes are seen (by a Docker id), and is replaced by
    it.
    """

    def __init__(
        self, is_visible: Callable[[str], bool], make_collector: "Callable[[], _ProcessCollector]"
    ) -> None:
        self._is_visible = is_visible
        self._make_collector = make_collector
        self._attempts: Counter[str] = Counter()

    def on_batch_started(self, container: ContainerMetadata) -> "Collector | None":
        """Look for the container's processes; start the collector when they are seen."""
        docker_id = container.docker_id
        if not docker_id or self._attempts[docker_id] >= _MAX_ATTEMPTS:
            return None
        self._attempts[docker_id] += 1
        if not self._is_visible(docker_id):
            return None
        collector = self._make_collector()
        collector.start()
        collector.on_batch_started(container)
        return collector

    def forget(self, batch: str) -> None:
        self._attempts.pop(batch, None)

    def part(self, record: Record, batch: str) -> RecordPart:  # noqa: ARG002  no process was seen
        return RecordPart()

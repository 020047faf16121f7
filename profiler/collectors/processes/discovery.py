"""Finds another container's processes (``"pidMode": "task"``). Their collector is imported only once they are seen."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from profiler.aggregation.task_record import RecordPart
from profiler.collectors.collector import (
    BatchFollower,
    Collector,
    ForgettingCollector,
    SampleFollower,
    ThreadCollector,
    WaitCollector,
)
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.readers.linux import proc
from profiler.record.record_model import Record

if TYPE_CHECKING:
    from profiler.readers.linux.waited_target import Wait

_VISIBLE_DEVICES = b"NVIDIA_VISIBLE_DEVICES="
# A Docker id is 64 hexadecimal digits, on Fargate the task's id and a number. In a group's name, no such character
# follows: only the end, ".scope" or "/".
_ID_CHARACTERS = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_")
# on_batch_started is called every 10 s while the batch runs. The processes are visible from the first time or never.
_MAX_ATTEMPTS = 5


def is_in_container(process_folder: str, docker_id: str) -> bool:
    """Whether the process is in a control group (v1 or v2) of the container."""
    _, *followed = (proc.read(f"{process_folder}/cgroup") or b"").split(docker_id.encode())
    return any(not following or following[0] not in _ID_CHARACTERS for following in followed)


def pids_of(docker_id: str, proc_folder: str = "/proc") -> Iterator[int]:
    """The ids of the container's processes in ascending order, without this process."""
    own_pid = os.getpid()
    for pid in sorted(proc.all_pids(proc_folder)):
        if pid != own_pid and is_in_container(f"{proc_folder}/{pid}", docker_id):
            yield pid


def visible_devices(docker_id: str, proc_folder: str = "/proc") -> str | None:
    """``NVIDIA_VISIBLE_DEVICES`` of the container's first process whose environment has it; None if none has."""
    for pid in pids_of(docker_id, proc_folder):
        for entry in (proc.read(f"{proc_folder}/{pid}/environ") or b"").split(b"\0"):
            if entry.startswith(_VISIBLE_DEVICES):
                return entry.removeprefix(_VISIBLE_DEVICES).decode(errors="replace")
    return None


class _ProcessCollector(
    Collector, ThreadCollector, BatchFollower, SampleFollower, WaitCollector, ForgettingCollector, Protocol
): ...


class LazyProcessCollector:
    """Makes the process collector when processes are seen (by a Docker id), and forwards to it."""

    def __init__(self, is_visible: Callable[[str], bool], make_collector: Callable[[], _ProcessCollector]) -> None:
        self._is_visible = is_visible
        self._make_collector = make_collector
        self._attempts: Counter[str] = Counter()
        self._collector: _ProcessCollector | None = None

    def start(self) -> None:
        """Nothing yet."""

    def on_batch_started(self, container: ContainerMetadata) -> None:
        """Look for the container's processes; start the collector when they are seen."""
        docker_id = container.docker_id
        if self._collector is None and docker_id and self._attempts[docker_id] < _MAX_ATTEMPTS:
            self._attempts[docker_id] += 1
            if self._is_visible(docker_id):
                self._collector = self._make_collector()
                self._collector.start()
        if self._collector is not None:
            self._collector.on_batch_started(container)

    def on_sample(self, batch: str, sample: ContainerSample, sizes: ResourceLimits) -> None:
        if self._collector is not None:
            self._collector.on_sample(batch, sample, sizes)

    def final_reading(self, max_seconds: float) -> None:
        if self._collector is not None:
            self._collector.final_reading(max_seconds)

    def stop(self, max_seconds: float) -> None:
        if self._collector is not None:
            self._collector.stop(max_seconds)

    def forget(self, batch: str) -> None:
        self._attempts.pop(batch, None)
        if self._collector is not None:
            self._collector.forget(batch)

    def part(self, record: Record, batch: str) -> RecordPart:
        return RecordPart() if self._collector is None else self._collector.part(record, batch)

    def longest_wait(self, batch: str, since_ns: int) -> "Wait | None":
        return None if self._collector is None else self._collector.longest_wait(batch, since_ns)

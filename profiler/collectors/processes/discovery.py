"""Finds the processes of another container of the task, where they are visible.

The collector is loaded only when they are.
"""

import os
from collections.abc import Callable, Iterator
from typing import Protocol

from profiler.collectors.base import BatchListener, Collector
from profiler.record.model import Record
from profiler.sources.ecs.container_stats import ContainerSample
from profiler.sources.ecs.task_metadata import ContainerMetadata
from profiler.sources.linux import proc

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


# The batch is introduced when it runs, and then every 10 s. Its processes are visible from the first time, or never.
_MAX_ATTEMPTS = 5


class SampleComparingCollector(Collector, BatchListener, Protocol):
    """Watches processes, and compares with the task stats."""

    def on_sample(self, name: str, sample: ContainerSample) -> None:
        """Take a sample of a container's stats."""
        ...


class LazyProcessCollector:
    """Stands for the watch until there is one. ``is_visible`` is asked about a Docker id."""

    def __init__(
        self, is_visible: Callable[[str], bool], make_collector: Callable[[], SampleComparingCollector]
    ) -> None:
        self._is_visible = is_visible
        self._make_collector = make_collector
        self._attempts: dict[str, int] = {}
        self._collector: SampleComparingCollector | None = None

    def start(self) -> None:
        """Nothing is watched before it is seen."""

    def on_batch_started(self, container: ContainerMetadata) -> None:
        """Look for its processes, and have them watched once they are seen."""
        if self._collector is None and container.docker_id and self._can_see(container.docker_id):
            self._collector = self._make_collector()
            self._collector.start()
        if self._collector is not None:
            self._collector.on_batch_started(container)

    def on_sample(self, name: str, sample: ContainerSample) -> None:
        """Pass a sample of the stats on."""
        if self._collector is not None:
            self._collector.on_sample(name, sample)

    def final_reading(self, max_seconds: float) -> None:
        """Have them read once more."""
        if self._collector is not None:
            self._collector.final_reading(max_seconds)

    def stop(self, max_seconds: float) -> None:
        """End the watch."""
        if self._collector is not None:
            self._collector.stop(max_seconds)

    def add_to_record(self, record: Record) -> Record:
        """The record with what is known of processes."""
        return record if self._collector is None else self._collector.add_to_record(record)

    def _can_see(self, docker_id: str) -> bool:
        attempts = self._attempts.get(docker_id, 0)
        if attempts >= _MAX_ATTEMPTS:
            return False
        self._attempts[docker_id] = attempts + 1
        return self._is_visible(docker_id)

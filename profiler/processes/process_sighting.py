"""Waits for a sight of the batch's processes: only where they are visible is anything loaded and watched for them.

Most tasks do not share their process ids; there this costs a few looks at ``/proc`` and no memory.
"""

from collections.abc import Callable
from typing import Protocol

from profiler.accelerators.accelerator import Collector
from profiler.record import Record
from profiler.sources.container_stats import ContainerSample
from profiler.sources.task_metadata import ContainerMetadata

# The batch is introduced when it runs, and then every 10 s. Its processes are visible from the first time, or never.
_MAX_ATTEMPTS = 5


class SampleComparingCollector(Collector, Protocol):
    """Watches processes, and compares with the task stats."""

    def on_sample(self, name: str, sample: ContainerSample) -> None:
        """Take a sample of a container's stats."""
        ...


class LazyProcessCollector:
    """Stands for the watch until there is one. ``is_visible`` is asked about a Docker id."""

    name = "processes"
    startup_error: str | None = None
    child_pid: int | None = None

    def __init__(
        self, is_visible: Callable[[str], bool], make_collector: Callable[[], SampleComparingCollector]
    ) -> None:
        self._is_visible = is_visible
        self._make_collector = make_collector
        self._attempts: dict[str, int] = {}
        self._collector: SampleComparingCollector | None = None

    @property
    def has_data(self) -> bool:
        """Whether any process of a batch was read."""
        return self._collector is not None and self._collector.has_data

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

    def latest(self) -> None:
        """Nothing is shown while it runs."""

    def warnings(self) -> tuple[str, ...]:
        """What the watch has to say."""
        return () if self._collector is None else self._collector.warnings()

    def _can_see(self, docker_id: str) -> bool:
        attempts = self._attempts.get(docker_id, 0)
        if attempts >= _MAX_ATTEMPTS:
            return False
        self._attempts[docker_id] = attempts + 1
        return self._is_visible(docker_id)

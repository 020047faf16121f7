"""Waits for a sight of the batch's processes: only where they are visible is anything loaded and watched for them.

Most tasks do not share their process ids; there this costs a few looks at ``/proc`` and no memory.
"""

from collections.abc import Callable
from typing import Protocol

from profiler.accelerators.accelerator import Accelerator
from profiler.record import Record
from profiler.sources.container_stats import ContainerSample
from profiler.sources.task_metadata import ContainerMetadata

# The batch is introduced when it runs, and then every 10 s. Its processes are visible from the first time, or never.
_LOOKS = 5


class Watch(Accelerator, Protocol):
    """Watches processes, and compares with the task stats."""

    def heard(self, name: str, sample: ContainerSample) -> None:
        """Take a sample of a container's stats."""
        ...


class ProcessSighting:
    """Stands for the watch until there is one. ``is_visible`` is asked about a Docker id."""

    name = "processes"
    complaint: str | None = None
    helper_pid: int | None = None

    def __init__(self, is_visible: Callable[[str], bool], make_watch: Callable[[], Watch]) -> None:
        self._is_visible = is_visible
        self._make_watch = make_watch
        self._looks: dict[str, int] = {}
        self._watch: Watch | None = None

    @property
    def has_read(self) -> bool:
        """Whether any process of a batch was read."""
        return self._watch is not None and self._watch.has_read

    def start(self) -> None:
        """Nothing is watched before it is seen."""

    def batch_seen(self, container: ContainerMetadata) -> None:
        """Look for its processes, and have them watched once they are seen."""
        if self._watch is None and container.docker_id and self._sees(container.docker_id):
            self._watch = self._make_watch()
            self._watch.start()
        if self._watch is not None:
            self._watch.batch_seen(container)

    def heard(self, name: str, sample: ContainerSample) -> None:
        """Pass a sample of the stats on."""
        if self._watch is not None:
            self._watch.heard(name, sample)

    def settle(self, at_most_seconds: float) -> None:
        """Have them read once more."""
        if self._watch is not None:
            self._watch.settle(at_most_seconds)

    def stop(self, at_most_seconds: float) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.stop(at_most_seconds)

    def onto(self, record: Record) -> Record:
        """The record with what is known of processes."""
        return record if self._watch is None else self._watch.onto(record)

    def latest(self) -> None:
        """Nothing is shown while it runs."""

    def warnings(self) -> tuple[str, ...]:
        """What the watch has to say."""
        return () if self._watch is None else self._watch.warnings()

    def _sees(self, docker_id: str) -> bool:
        looks = self._looks.get(docker_id, 0)
        if looks >= _LOOKS:
            return False
        self._looks[docker_id] = looks + 1
        return self._is_visible(docker_id)

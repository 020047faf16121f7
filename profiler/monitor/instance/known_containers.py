"""The containers of ECS tasks that Docker has shown: which are followed, and which are to be
inspected, when.

| status   | meaning                                                                |
|----------|------------------------------------------------------------------------|
| new      | it is known from the list or an event alone, until it was inspected    |
| followed | it belongs to a task whose batches are reported, or have been          |
| ignored  | of the monitor's own task, of another family, or reported long ago     |
| broken   | following it has failed with a defect before it was inspected          |
"""

from collections.abc import Iterator
from operator import itemgetter
from typing import Literal

from msgspec import Struct, field

from profiler.core.timestamps import NEVER_NS
from profiler.readers.docker.docker_api import ContainerEvent

Status = Literal["new", "followed", "ignored", "broken"]


class KnownContainer(Struct, eq=False):
    """A container. ``events`` are those before its first inspection. ``inspect_at_ns`` is when an
    inspection is due.
    """

    docker_id: str
    task_arn: str
    status: Status = "new"
    events: list[ContainerEvent] = field(default_factory=list)
    inspect_at_ns: float = NEVER_NS

    @property
    def is_inspected(self) -> bool:
        return self.status in ("followed", "ignored")

    def take_events(self) -> list[ContainerEvent]:
        events = self.events
        self.events = []
        return events


class KnownContainers:
    """The containers by Docker id, for as long as Docker shows them."""

    def __init__(self) -> None:
        self._known: dict[str, KnownContainer] = {}

    def get(self, docker_id: str) -> KnownContainer:
        """The container; one that is not known is ignored."""
        return self._known.get(docker_id) or KnownContainer(docker_id, "", status="ignored")

    def get_or_add(self, docker_id: str, task_arn: str) -> KnownContainer:
        """The container, which is known from now on."""
        known = self._known.get(docker_id)
        if known is None:
            known = KnownContainer(docker_id, task_arn)
            self._known[docker_id] = known
        return known

    def remove(self, docker_id: str) -> None:
        self._known.pop(docker_id, None)

    def task_arn_of(self, docker_id: str) -> str:
        """The ARN of the task of a followed container; empty for others."""
        known = self.get(docker_id)
        return known.task_arn if known.status == "followed" else ""

    def has_followed(self, task_arn: str) -> bool:
        """Whether Docker shows a followed container of the task."""
        return any(
            known.status == "followed" and known.task_arn == task_arn
            for known in self._known.values()
        )

    def lacks_inspection(self, task_arn: str) -> bool:
        """Whether a container of the task was not inspected."""
        return any(
            not known.is_inspected and known.task_arn == task_arn for known in self._known.values()
        )

    def not_shown(self, shown: set[str]) -> list[str]:
        """The containers that Docker no longer shows. An inspection decides about new ones."""
        return [
            known.docker_id
            for known in self._known.values()
            if known.status != "new" and known.docker_id not in shown
        ]

    def inspect_at(self, docker_id: str, due_ns: float) -> None:
        """Let an inspection of a known container be due then; NEVER_NS: no more."""
        self.get(docker_id).inspect_at_ns = due_ns

    def due_ns(self) -> Iterator[float]:
        """When inspections are due."""
        for known in self._known.values():
            yield known.inspect_at_ns

    def due_before(self, now_ns: int) -> list[str]:
        """The containers whose inspection is due, the longest due first."""
        due = []
        for known in self._known.values():
            if known.inspect_at_ns <= now_ns:
                due.append((known.inspect_at_ns, known.docker_id))
        return [docker_id for _, docker_id in sorted(due, key=itemgetter(0))]

"""The task metadata source: the task, its containers' stats, and the monitor's own container."""

from typing import Protocol

from profiler.sources import Unavailable
from profiler.sources.container_stats import StatsReading, decode_stats
from profiler.sources.endpoint import Endpoint
from profiler.sources.task_metadata import ContainerMetadata, TaskMetadata, decode_container, decode_task


class TaskSource(Protocol):
    """What the monitor asks of the task it runs in."""

    @property
    def name(self) -> str:
        """The source's name in ``sampling.sources``."""
        ...

    def task(self, max_seconds: float | None = None) -> TaskMetadata | Unavailable:
        """The task and its containers' states."""
        ...

    def stats(self) -> StatsReading | Unavailable:
        """The counters of every container."""
        ...

    def own_container(self) -> ContainerMetadata | Unavailable:
        """The container that asks."""
        ...


class TaskMetadataSource:
    """The ECS task metadata endpoint."""

    def __init__(self, endpoint: Endpoint, version: int) -> None:
        self._endpoint = endpoint
        self.name = f"task-metadata-v{version}"

    def task(self, max_seconds: float | None = None) -> TaskMetadata | Unavailable:
        """``GET /task``."""
        body = self._endpoint.get("/task", max_seconds)
        return body if isinstance(body, Unavailable) else decode_task(body)

    def stats(self) -> StatsReading | Unavailable:
        """``GET /task/stats``."""
        body = self._endpoint.get("/task/stats")
        return body if isinstance(body, Unavailable) else decode_stats(body)

    def own_container(self) -> ContainerMetadata | Unavailable:
        """``GET`` of the endpoint's root."""
        body = self._endpoint.get("")
        return body if isinstance(body, Unavailable) else decode_container(body)

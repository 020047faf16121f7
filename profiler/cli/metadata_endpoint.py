"""Wires the task metadata endpoint. Imported only inside of ECS: it brings http.client along."""

from profiler.clock import Clock
from profiler.sources.endpoint import Haste, HttpEndpoint, Patience
from profiler.sources.task import TaskMetadataSource


def metadata_source(
    address: str, version: int, interval_seconds: float, clock: Clock, haste: Haste | None = None
) -> TaskMetadataSource:
    """The endpoint at ``address``, asked every so often: that bounds how long an answer may take."""
    return TaskMetadataSource(HttpEndpoint(address, Patience(interval_seconds), clock, haste), version)

"""Wires the task metadata endpoint. Imported only inside of ECS: it brings http.client along."""

from profiler.clock import Clock
from profiler.sources.endpoint import AdaptiveTimeout, HttpEndpoint, StopSignal
from profiler.sources.task import TaskMetadataSource


def metadata_source(
    address: str, version: int, interval_seconds: float, clock: Clock, stop_signal: StopSignal | None = None
) -> TaskMetadataSource:
    """The endpoint at ``address``, asked every so often: that bounds how long an answer may take."""
    return TaskMetadataSource(HttpEndpoint(address, AdaptiveTimeout(interval_seconds), clock, stop_signal), version)

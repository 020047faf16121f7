"""Wires the task metadata endpoint."""

from collections.abc import Callable, Mapping

from profiler.core.clock import Clock
from profiler.local.build_record import Placement
from profiler.settings import endpoint_address
from profiler.sources.ecs.client import AdaptiveTimeout, HttpEndpoint, StopSignal, TaskMetadataSource


def metadata_source(
    address: str, version: int, interval_seconds: float, clock: Clock, stop_signal: StopSignal | None = None
) -> TaskMetadataSource:
    """The endpoint at ``address``, asked every so often: that bounds how long an answer may take."""
    return TaskMetadataSource(HttpEndpoint(address, AdaptiveTimeout(interval_seconds), clock, stop_signal), version)


_TIMEOUT_SECONDS = 1.0


def task_lookup(environment: Mapping[str, str]) -> Callable[[], Placement | None] | None:
    """What asks for the task this process runs in; None outside of ECS.

    The asking takes its time, so it is left to a thread beside the command.
    """
    found = endpoint_address(environment)
    if found is None:
        return None
    address, version = found

    def ask() -> Placement | None:
        from profiler.core.clock import SystemClock
        from profiler.sources import Unavailable

        source = metadata_source(address, version, _TIMEOUT_SECONDS, SystemClock())
        task, own = source.task(), source.own_container()
        if isinstance(task, Unavailable) or isinstance(own, Unavailable):
            return None
        return Placement(task=task, container=own)

    return ask

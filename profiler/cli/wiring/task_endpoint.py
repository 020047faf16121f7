"""Builds the client of the task metadata endpoint.

`run` outside of ECS does without the client's modules, and the monitor without the modules of `run`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from profiler.core.clock import Clock
from profiler.readers import Unavailable

if TYPE_CHECKING:
    from profiler.core.stop_request import SignalHandler
    from profiler.local_run.local_record import Placement
    from profiler.readers.ecs.endpoint_client import TaskMetadataSource

_TIMEOUT_SECONDS = 1.0
# Long enough for the longest timeout.
_TAGS_INTERVAL_SECONDS = 60.0


def metadata_source(
    address: str, version: int, interval_seconds: float, clock: Clock, stop_signal: "SignalHandler | None" = None
) -> "TaskMetadataSource":
    """The client of the endpoint at ``address``; the interval of the reads determines their timeout."""
    from profiler.readers.ecs.container_stats import parse_device_mapper_majors
    from profiler.readers.ecs.endpoint_client import HttpEndpoint, TaskMetadataSource
    from profiler.readers.linux import proc

    return TaskMetadataSource(
        HttpEndpoint(address, interval_seconds, clock, stop_signal),
        version,
        parse_device_mapper_majors(proc.read_text("/proc/devices")),
    )


def tag_lookup(address: str, version: int, clock: Clock) -> Callable[[], Mapping[str, str] | Unavailable]:
    """A function for a background thread that reads the task's tags over its own connection, within 5 s."""

    def read_tags() -> Mapping[str, str] | Unavailable:
        from profiler.readers.ecs.endpoint_client import HttpEndpoint, TaskMetadataSource

        endpoint = HttpEndpoint(address, _TAGS_INTERVAL_SECONDS, clock)
        try:
            return TaskMetadataSource(endpoint, version).tags()
        finally:
            endpoint.close()

    return read_tags


def task_lookup(address: str, version: int) -> "Callable[[], Placement | None]":
    """A function for a background thread that reads the ECS task of this process, within a second."""

    def read_placement() -> "Placement | None":
        from profiler.core.clock import SystemClock
        from profiler.local_run.local_record import Placement

        source = metadata_source(address, version, _TIMEOUT_SECONDS, SystemClock())
        task, own = source.task(), source.own_container()
        if isinstance(task, Unavailable) or isinstance(own, Unavailable):
            return None
        return Placement(task=task, container=own)

    return read_placement

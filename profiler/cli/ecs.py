"""Wires the task metadata endpoint for a command that runs inside an ECS task."""

from collections.abc import Callable, Mapping

from profiler.local.placement import Placement
from profiler.settings import endpoint_address

_SECONDS = 1.0


def task_lookup(environment: Mapping[str, str]) -> Callable[[], Placement | None] | None:
    """What asks for the task this process runs in; None outside of ECS.

    The asking imports requests, so it is left to a thread beside the command.
    """
    found = endpoint_address(environment)
    if found is None:
        return None
    address, version = found

    def ask() -> Placement | None:
        import requests.adapters  # noqa: PLC0415  only inside of ECS, and beside the command

        from profiler.clock import SystemClock  # noqa: PLC0415
        from profiler.sources import Unavailable  # noqa: PLC0415
        from profiler.sources.endpoint import HttpEndpoint, Patience  # noqa: PLC0415
        from profiler.sources.task import TaskMetadataSource  # noqa: PLC0415

        adapter = requests.adapters.HTTPAdapter(pool_connections=1, pool_maxsize=1, max_retries=0)
        source = TaskMetadataSource(HttpEndpoint(address, adapter, Patience(_SECONDS), SystemClock()), version)
        task, own = source.task(), source.own_container()
        if isinstance(task, Unavailable) or isinstance(own, Unavailable):
            return None
        return Placement(task=task, own=own)

    return ask

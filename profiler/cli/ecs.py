"""Wires the task metadata endpoint for a command that runs inside an ECS task."""

from collections.abc import Callable, Mapping

from profiler.local.placement import Placement
from profiler.settings import endpoint_address

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
        from profiler.cli.metadata_endpoint import metadata_source  # noqa: PLC0415  inside of ECS, beside the command
        from profiler.clock import SystemClock  # noqa: PLC0415
        from profiler.sources import Unavailable  # noqa: PLC0415

        source = metadata_source(address, version, _TIMEOUT_SECONDS, SystemClock())
        task, own = source.task(), source.own_container()
        if isinstance(task, Unavailable) or isinstance(own, Unavailable):
            return None
        return Placement(task=task, container=own)

    return ask

"""Identifies the batch container and the monitor container of a task, and their log streams."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from forwarder.task.event import EventContainer, StoppedTask
from profiler.core.ecs import (
    AWSLOGS,
    CONTAINER_VARIABLE,
    MONITOR_NAME,
    awslogs_target,
    is_injected_name,
    is_log_router_name,
    is_monitor_image,
)
from profiler.core.json_fields import mapping, mappings

# The program by its name or path, or as a module. "my-task-profiler" and "task-profiler-demo" are other programs.
_PROGRAM = r"(?<![\w.-])(?:task-profiler|-m\s+profiler)\s+"
_STARTS_MONITOR = re.compile(_PROGRAM + r"monitor(?![\w.-])")
_WRAPS_BATCH = re.compile(_PROGRAM + r"run(?![\w.-])")
# The first word of the command with the monitor's own image, whose entry point is the program.
_MONITOR_COMMAND, _RUN_COMMAND = "monitor", "run"


class LogStream(Struct, frozen=True, kw_only=True):
    """A log stream; ``region`` None: the function's region."""

    group: str
    stream: str
    region: str | None = None


class TaskContainers(Struct, frozen=True, kw_only=True):
    """The batch's name, whether the task has a monitor, and the log streams of both; None where unknown."""

    batch: str | None
    has_monitor: bool
    batch_log: LogStream | None = None
    monitor_log: LogStream | None = None


class Candidate(Struct, frozen=True, kw_only=True):
    """A container by its name, whether it starts the monitor, and whether it has the monitor's image."""

    name: str
    starts_monitor: bool = False
    uses_monitor_image: bool = False

    @property
    def has_monitor_name(self) -> bool:
        """Whether it has the name that only the monitor has."""
        return self.name == MONITOR_NAME


def identify_containers(definition: Mapping[str, object] | None, task: StoppedTask) -> TaskContainers:
    """Identify the containers from the task definition; without one, from the event's containers.

    The batch is the container that the monitor's TASK_PROFILER_CONTAINER names, else the essential container that is
    neither the monitor nor injected by AWS. The order in the event is never used.

    Args:
        definition: the ``taskDefinition`` of the response to ``ecs:DescribeTaskDefinition``.
        task: the stopped task.
    """
    containers = list(mappings((definition or {}).get("containerDefinitions")))
    if not containers:
        return _identify_from_event(task)
    by_name = {str(container.get("name")): container for container in containers}
    candidates = [_candidate(container) for container in containers]
    requested = _requested_batch(by_name.get(_find_monitor(candidates, None) or ""))
    # A requested name that does not exist belongs to a container that was renamed.
    batch = requested if requested in by_name else next(iter(_find_batches(_essential(containers))), None)
    monitor = _find_monitor(candidates, batch)
    return TaskContainers(
        batch=batch,
        has_monitor=monitor is not None,
        batch_log=_log_stream(by_name.get(batch or ""), task),
        monitor_log=_log_stream(by_name.get(monitor or ""), task),
    )


def _identify_from_event(task: StoppedTask) -> TaskContainers:
    """Without a definition, the batch is the only candidate; with several candidates it is unknown."""
    candidates = [
        Candidate(name=one.name, uses_monitor_image=is_monitor_image(one.image))
        for one in task.containers
        if not is_injected_name(one.name) and not is_log_router_name(one.name)
    ]
    batches = _find_batches(candidates)
    batch = batches[0] if len(batches) == 1 else None
    return TaskContainers(batch=batch, has_monitor=_find_monitor(candidates, batch) is not None)


def batch_container(task: StoppedTask, name: str | None) -> EventContainer | None:
    """Return the batch in the event; with its name alone if the event does not list it, as after a failed start."""
    if name is None:
        return None
    listed = next((container for container in task.containers if container.name == name), None)
    return EventContainer(name=name) if listed is None else listed


def _candidate(container: Mapping[str, object]) -> Candidate:
    """Classify a container of a task definition."""
    command = _words(container.get("command"))
    started = " ".join([*_words(container.get("entryPoint")), *command])
    uses_monitor_image = is_monitor_image(container.get("image"))
    wraps_batch = _WRAPS_BATCH.search(started) is not None or (uses_monitor_image and command[:1] == [_RUN_COMMAND])
    starts_monitor = _STARTS_MONITOR.search(started) is not None or (
        uses_monitor_image and command[:1] == [_MONITOR_COMMAND]
    )
    return Candidate(
        name=str(container.get("name")),
        starts_monitor=starts_monitor and not wraps_batch,
        uses_monitor_image=uses_monitor_image and not wraps_batch,
    )


def _find_monitor(candidates: Sequence[Candidate], batch: str | None) -> str | None:
    """Return the container with the monitor's name, else one that starts the monitor, else one with its image.

    The batch can have the monitor's image, so the image alone does not make ``batch`` the monitor.
    """
    by_name = (one.name for one in candidates if one.has_monitor_name)
    by_command = (one.name for one in candidates if one.starts_monitor)
    by_image = (one.name for one in candidates if one.uses_monitor_image and one.name != batch)
    return next(by_name, None) or next(by_command, None) or next(by_image, None)


def _find_batches(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Return the candidates for the batch; those with the monitor's image only if there are no others."""
    others = [one for one in candidates if not (one.has_monitor_name or one.starts_monitor)]
    return tuple(one.name for one in others if not one.uses_monitor_image) or tuple(one.name for one in others)


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _requested_batch(monitor: Mapping[str, object] | None) -> str | None:
    for variable in mappings((monitor or {}).get("environment")):
        if variable.get("name") == CONTAINER_VARIABLE and variable.get("value"):
            return str(variable["value"])
    return None


def _essential(containers: Sequence[Mapping[str, object]]) -> list[Candidate]:
    """Return the essential containers that are neither log routers nor injected. The default of ECS is essential."""
    return [
        _candidate(container)
        for container in containers
        if container.get("essential", True)
        and "firelensConfiguration" not in container
        and not is_injected_name(str(container.get("name")))
    ]


def _log_stream(container: Mapping[str, object] | None, task: StoppedTask) -> LogStream | None:
    configuration = mapping((container or {}).get("logConfiguration"))
    if container is None or configuration.get("logDriver") != AWSLOGS:
        return None
    options = {name: str(value) for name, value in mapping(configuration.get("options")).items() if value}
    target = awslogs_target(options, str(container.get("name")), task.arn)
    if target.group is None or target.stream is None:
        return None
    return LogStream(group=target.group, stream=target.stream, region=target.region)

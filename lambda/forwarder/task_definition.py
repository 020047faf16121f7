"""Which container of a task definition is the batch, which the monitor, and where they log to."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from forwarder.monitor_container import Candidate, find_batches, find_monitor, has_monitor_image, read_candidate
from forwarder.task_event import EventContainer, StoppedTask

_CONTAINER_VARIABLE = "TASK_PROFILER_CONTAINER"
_INJECTED = ("~internal~*", "aws-guardduty-agent*", "ecs-service-connect*")
_LOG_ROUTERS = ("log_router", "log-router", "firelens*")
_AWSLOGS = "awslogs"


class LogStream(Struct, frozen=True, kw_only=True):
    """A log stream."""

    group: str
    stream: str
    region: str | None = None


class TaskContainers(Struct, frozen=True, kw_only=True):
    """The batch's name, whether a monitor is beside it, and their log streams; None where unknown."""

    batch: str | None
    has_monitor: bool
    batch_log: LogStream | None = None
    monitor_log: LogStream | None = None


def identify_containers(definition: Mapping[str, object] | None, task: StoppedTask) -> TaskContainers:
    """From the task definition (``describe_task_definition``'s), else from the event's containers.

    The batch is the container that the monitor's TASK_PROFILER_CONTAINER names, else the
    essential one that is neither the monitor nor injected: never just the first of the event.
    """
    containers = _containers(definition)
    if not containers:
        return _identify_from_event(task)
    by_name = {str(container.get("name")): container for container in containers}
    candidates = [read_candidate(container) for container in containers]
    wanted = _named_container(by_name.get(find_monitor(candidates, None) or ""))
    # A name that is not there tells of a container that was renamed.
    batch = wanted if wanted in by_name else next(iter(find_batches(_essential(containers))), None)
    monitor = find_monitor(candidates, batch)
    return TaskContainers(
        batch=batch,
        has_monitor=monitor is not None,
        batch_log=_log_stream(by_name.get(batch or ""), task),
        monitor_log=_log_stream(by_name.get(monitor or ""), task),
    )


def batch_container(task: StoppedTask, name: str | None) -> EventContainer | None:
    """The batch as the event tells of it; by its name alone if the event, as for a failed start, does not list it."""
    if name is None:
        return None
    listed = next((container for container in task.containers if container.name == name), None)
    return EventContainer(name=name) if listed is None else listed


def _identify_from_event(task: StoppedTask) -> TaskContainers:
    """Without a definition: the only container that can be it."""
    candidates = [
        Candidate(name=one.name, uses_monitor_image=has_monitor_image(one.image))
        for one in task.containers
        if not _matches(one.name, _INJECTED + _LOG_ROUTERS)
    ]
    batches = find_batches(candidates)
    batch = batches[0] if len(batches) == 1 else None
    return TaskContainers(batch=batch, has_monitor=find_monitor(candidates, batch) is not None)


def _containers(definition: Mapping[str, object] | None) -> list[Mapping[str, object]]:
    listed = (definition or {}).get("containerDefinitions")
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _named_container(monitor: Mapping[str, object] | None) -> str | None:
    environment = (monitor or {}).get("environment")
    for variable in environment if isinstance(environment, list) else []:
        if isinstance(variable, dict) and variable.get("name") == _CONTAINER_VARIABLE and variable.get("value"):
            return str(variable["value"])
    return None


def _essential(containers: Sequence[Mapping[str, object]]) -> list[Candidate]:
    """ECS counts a container as essential unless it says otherwise."""
    return [
        read_candidate(container)
        for container in containers
        if container.get("essential", True)
        and "firelensConfiguration" not in container
        and not _matches(str(container.get("name")), _INJECTED)
    ]


def _log_stream(container: Mapping[str, object] | None, task: StoppedTask) -> LogStream | None:
    configuration = (container or {}).get("logConfiguration")
    if not isinstance(configuration, dict) or configuration.get("logDriver") != _AWSLOGS or container is None:
        return None
    options = configuration.get("options")
    if not isinstance(options, dict) or not options.get("awslogs-group") or not options.get("awslogs-stream-prefix"):
        return None
    return LogStream(
        group=str(options["awslogs-group"]),
        stream=f"{options['awslogs-stream-prefix']}/{container.get('name')}/{task.id}",
        region=str(options["awslogs-region"]) if options.get("awslogs-region") else None,
    )


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in patterns)

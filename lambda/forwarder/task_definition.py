"""Which container of a task definition is the batch, which the monitor, and where they log to."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from forwarder.task_event import EventContainer, StoppedTask

_MONITOR_NAME = "task-monitor"
_MONITOR_PROGRAM = "task-profiler"
_WANTED = "TASK_PROFILER_CONTAINER"
_INJECTED = ("~internal~*", "aws-guardduty-agent*", "ecs-service-connect*")
_ROUTERS = ("log_router", "log-router", "firelens*")
_AWSLOGS = "awslogs"


class LogPlace(Struct, frozen=True, kw_only=True):
    """A log stream."""

    group: str
    stream: str
    region: str | None = None


class Chosen(Struct, frozen=True, kw_only=True):
    """The batch's name, whether a monitor is beside it, and their log streams; None where unknown."""

    batch: str | None
    has_monitor: bool
    batch_log: LogPlace | None = None
    monitor_log: LogPlace | None = None


def choose(definition: Mapping[str, object] | None, task: StoppedTask) -> Chosen:
    """From the task definition (``describe_task_definition``'s), else from the event's containers.

    The batch is the container that the monitor's TASK_PROFILER_CONTAINER names, else the
    essential one that is neither the monitor nor injected: never just the first of the event.
    """
    containers = _containers(definition)
    if not containers:
        return _choose_from_event(task)
    monitor = next((container for container in containers if _is_monitor(container)), None)
    batch = _wanted(monitor) or _essential(containers, monitor)
    by_name = {str(container.get("name")): container for container in containers}
    return Chosen(
        batch=batch,
        has_monitor=monitor is not None,
        batch_log=_log_place(by_name.get(batch or ""), task),
        monitor_log=_log_place(monitor, task),
    )


def batch_container(task: StoppedTask, name: str | None) -> EventContainer | None:
    """The batch as the event tells of it."""
    return next((container for container in task.containers if container.name == name), None)


def _choose_from_event(task: StoppedTask) -> Chosen:
    """Without a definition: the only container that can be it."""
    monitors = [one for one in task.containers if one.name == _MONITOR_NAME or _MONITOR_PROGRAM in (one.image or "")]
    candidates = [
        one.name for one in task.containers if one not in monitors and not _matches(one.name, _INJECTED + _ROUTERS)
    ]
    return Chosen(batch=candidates[0] if len(candidates) == 1 else None, has_monitor=bool(monitors))


def _containers(definition: Mapping[str, object] | None) -> list[Mapping[str, object]]:
    listed = (definition or {}).get("containerDefinitions")
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _is_monitor(container: Mapping[str, object]) -> bool:
    command = container.get("command")
    words = " ".join(str(word) for word in command) if isinstance(command, list) else ""
    is_wrapper = f"{_MONITOR_PROGRAM} run" in words
    return container.get("name") == _MONITOR_NAME or (
        _MONITOR_PROGRAM in f"{container.get('image')} {words}" and not is_wrapper
    )


def _wanted(monitor: Mapping[str, object] | None) -> str | None:
    environment = (monitor or {}).get("environment")
    for variable in environment if isinstance(environment, list) else []:
        if isinstance(variable, dict) and variable.get("name") == _WANTED and variable.get("value"):
            return str(variable["value"])
    return None


def _essential(containers: Sequence[Mapping[str, object]], monitor: Mapping[str, object] | None) -> str | None:
    """ECS counts a container as essential unless it says otherwise."""
    names = [
        str(container.get("name"))
        for container in containers
        if container is not monitor
        and container.get("essential", True)
        and "firelensConfiguration" not in container
        and not _matches(str(container.get("name")), _INJECTED)
    ]
    return names[0] if names else None


def _log_place(container: Mapping[str, object] | None, task: StoppedTask) -> LogPlace | None:
    configuration = (container or {}).get("logConfiguration")
    if not isinstance(configuration, dict) or configuration.get("logDriver") != _AWSLOGS or container is None:
        return None
    options = configuration.get("options")
    if not isinstance(options, dict) or not options.get("awslogs-group") or not options.get("awslogs-stream-prefix"):
        return None
    return LogPlace(
        group=str(options["awslogs-group"]),
        stream=f"{options['awslogs-stream-prefix']}/{container.get('name')}/{task.id}",
        region=str(options["awslogs-region"]) if options.get("awslogs-region") else None,
    )


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in patterns)

"""Which container of a task is the batch, which the monitor, and where they log to."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from forwarder.task.event import EventContainer, StoppedTask

_MONITOR_NAME = "task-monitor"
_MONITOR_IMAGE = "task-profiler"
# The program by its name or path, or as a module; "my-task-profiler" and "task-profiler-demo" are others.
_PROGRAM = r"(?<![\w.-])(?:task-profiler|-m\s+profiler)\s+"
_STARTS_MONITOR = re.compile(_PROGRAM + r"monitor(?![\w.-])")
_WRAPS_BATCH = re.compile(_PROGRAM + r"run(?![\w.-])")
# As the command of our own image, whose entry point is the program.
_MONITOR, _WRAP = "monitor", "run"


class Candidate(Struct, frozen=True, kw_only=True):
    """A container by its name; whether it starts the monitor, and whether its image at least is the monitor's."""

    name: str
    starts_monitor: bool = False
    uses_monitor_image: bool = False

    @property
    def has_monitor_name(self) -> bool:
        """Whether it has the name that only the monitor has."""
        return self.name == _MONITOR_NAME


def read_candidate(container: Mapping[str, object]) -> Candidate:
    """A container of a task definition."""
    command = _words(container.get("command"))
    started = " ".join([*_words(container.get("entryPoint")), *command])
    uses_monitor_image = has_monitor_image(container.get("image"))
    wraps_batch = _WRAPS_BATCH.search(started) is not None or (uses_monitor_image and command[:1] == [_WRAP])
    starts_monitor = _STARTS_MONITOR.search(started) is not None or (uses_monitor_image and command[:1] == [_MONITOR])
    return Candidate(
        name=str(container.get("name")),
        starts_monitor=starts_monitor and not wraps_batch,
        uses_monitor_image=uses_monitor_image and not wraps_batch,
    )


def has_monitor_image(image: object) -> bool:
    """Whether the image is called task-profiler; its registry and namespace say nothing."""
    return str(image or "").rsplit("/", 1)[-1].split("@", 1)[0].split(":", 1)[0] == _MONITOR_IMAGE


def find_monitor(candidates: Sequence[Candidate], batch: str | None) -> str | None:
    """The container with the monitor's name, else one that starts it, else one of its image that is not the batch."""
    named = (one.name for one in candidates if one.has_monitor_name)
    starting = (one.name for one in candidates if one.starts_monitor)
    alike = (one.name for one in candidates if one.uses_monitor_image and one.name != batch)
    return next(named, None) or next(starting, None) or next(alike, None)


def find_batches(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Those that can be the batch; one that has no more of the monitor than its image is it if all others are, too."""
    others = [one for one in candidates if not (one.has_monitor_name or one.starts_monitor)]
    return tuple(one.name for one in others if not one.uses_monitor_image) or tuple(one.name for one in others)


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


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

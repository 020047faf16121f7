"""Identifies the batch container and the monitor container of a task, and their log streams."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from forwarder.task.task_event import EventContainer, StoppedTask
from profiler.core.container_roles import Batch, ContainerRoles, TaskContainer, container_roles
from profiler.core.ecs_terms import AWSLOGS, CONTAINER_VARIABLE, awslogs_target
from profiler.core.json_fields import mapping, mappings


class LogStream(Struct, frozen=True, kw_only=True):
    """A log stream; ``region`` None: the function's region."""

    group: str
    stream: str
    region: str | None = None


class TaskContainers(Struct, frozen=True, kw_only=True):
    """The names of the batch and the monitor, None where unknown, and the known log streams by container.

    ``candidates`` are the batch, or all containers that could be it. ``default`` is the first candidate of the task
    definition, under which a run is recorded if nothing else distinguishes the candidates; None without a definition.
    """

    batch: str | None
    monitor: str | None
    candidates: tuple[str, ...] = ()
    default: str | None = None
    logs: Mapping[str, LogStream] = {}

    @property
    def batch_log(self) -> LogStream | None:
        """The log stream of the batch."""
        return self.logs.get(self.batch or "")

    @property
    def monitor_log(self) -> LogStream | None:
        """The log stream of the monitor."""
        return self.logs.get(self.monitor or "")


def identify_containers(definition: Mapping[str, object] | None, task: StoppedTask) -> TaskContainers:
    """Identify the containers from the task definition; without one, from the event's containers.

    Args:
        definition: the ``taskDefinition`` of the response to ``ecs:DescribeTaskDefinition``.
        task: the stopped task.
    """
    definitions = mappings((definition or {}).get("containerDefinitions"))
    by_name = {str(container.get("name")): container for container in definitions}
    if not by_name:
        listed = [TaskContainer(name=container.name, image=container.image) for container in task.containers]
        return _from_roles(container_roles(listed))
    described = [_describe(name, container) for name, container in by_name.items()]
    requested = _requested_batch(by_name.get(container_roles(described).monitor or ""))
    containers = _from_roles(container_roles(described, requested=requested))
    streams = ((name, _log_stream(container, task)) for name, container in by_name.items())
    return replace(
        containers,
        default=next(iter(containers.candidates), None),
        logs={name: stream for name, stream in streams if stream is not None},
    )


def batch_container(task: StoppedTask, name: str | None) -> EventContainer | None:
    """Return the batch in the event; with its name alone if the event does not list it, as after a failed start."""
    if name is None:
        return None
    listed = next((container for container in task.containers if container.name == name), None)
    return EventContainer(name=name) if listed is None else listed


def docker_labels(definition: Mapping[str, object] | None, name: str | None) -> Mapping[str, str]:
    """Return the ``dockerLabels`` of a container of the task definition."""
    for container in mappings((definition or {}).get("containerDefinitions")):
        if container.get("name") == name:
            return {label: str(value) for label, value in mapping(container.get("dockerLabels")).items()}
    return {}


def _from_roles(roles: ContainerRoles) -> TaskContainers:
    batch = roles.batch.name if isinstance(roles.batch, Batch) else None
    return TaskContainers(batch=batch, monitor=roles.monitor, candidates=roles.candidates)


def _describe(name: str, container: Mapping[str, object]) -> TaskContainer:
    """Describe a container of a task definition. It is essential by default."""
    image = container.get("image")
    return TaskContainer(
        name=name,
        image=image if isinstance(image, str) else None,
        command=(*_words(container.get("entryPoint")), *_words(container.get("command"))),
        essential=bool(container.get("essential", True)),
        firelens="firelensConfiguration" in container,
    )


def _words(value: object) -> tuple[str, ...]:
    return tuple(str(word) for word in value) if isinstance(value, list) else ()


def _requested_batch(monitor: Mapping[str, object] | None) -> str | None:
    for variable in mappings((monitor or {}).get("environment")):
        if variable.get("name") == CONTAINER_VARIABLE and variable.get("value"):
            return str(variable["value"])
    return None


def _log_stream(container: Mapping[str, object], task: StoppedTask) -> LogStream | None:
    configuration = mapping(container.get("logConfiguration"))
    if configuration.get("logDriver") != AWSLOGS:
        return None
    options = {name: str(value) for name, value in mapping(configuration.get("options")).items() if value}
    target = awslogs_target(options, str(container.get("name")), task.arn)
    if target.group is None or target.stream is None:
        return None
    return LogStream(group=target.group, stream=target.stream, region=target.region)

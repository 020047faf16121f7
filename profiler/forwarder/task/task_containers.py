"""The batch and the monitor of a stopped task: their log streams, and how the task ended."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.json_fields import mapping, mappings
from profiler.record.task_end import EventContainer, Outcome, StoppedTask, judge_candidates

if TYPE_CHECKING:  # forward_logs imports this module for LogStream, and identifies no containers
    from profiler.core.container_roles import ContainerRoles
    from profiler.task_definitions.containers import Container


class LogStream(Struct, frozen=True, kw_only=True):
    """A log stream; ``region`` None: the function's region."""

    group: str
    stream: str
    region: str | None = None


class TaskContainers(Struct, frozen=True, kw_only=True):
    """The names of the batch and the monitor, None where unknown, and the known log streams by container.

    ``candidates`` are the batch, or all containers that could be it. ``reported`` are those with a report: the monitor
    does not know which are essential. ``default`` is the first candidate of the task definition, under which a run is
    recorded if nothing else distinguishes the candidates; None without a definition.
    """

    batch: str | None
    monitor: str | None
    candidates: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    default: str | None = None
    logs: Mapping[str, LogStream] = {}

    @property
    def batch_log(self) -> LogStream | None:
        return self.logs.get(self.batch or "")

    @property
    def monitor_log(self) -> LogStream | None:
        return self.logs.get(self.monitor or "")


class Judgement(Struct, frozen=True, kw_only=True):
    """The outcome of a task and its batch container; None: unknown. ``warning`` is a sentence for the operator."""

    outcome: Outcome
    batch: EventContainer | None
    warning: str | None = None


def identify_containers(definition: Mapping[str, object] | None, task: StoppedTask) -> TaskContainers:
    """Identify the containers from the definition that ECS describes; without one, from the event's containers."""
    from profiler.core.container_roles import TaskContainer, container_roles  # see above
    from profiler.task_definitions.containers import as_task_container, read_containers, requested_batch, roles_of

    containers = read_containers(definition or {})
    if not containers:
        listed = [TaskContainer(name=container.name, image=container.image) for container in task.containers]
        return _from_roles(container_roles(listed))
    requested = requested_batch(containers)
    roles = roles_of(containers, requested=requested)
    measured = [replace(as_task_container(container), essential=None) for container in containers]
    streams = ((container.name, _log_stream(container, task)) for container in containers)
    return replace(
        _from_roles(roles),
        reported=container_roles(measured, requested=requested).candidates,
        default=next(iter(roles.candidates), None),
        logs={name: stream for name, stream in streams if stream is not None},
    )


def batch_container(task: StoppedTask, name: str | None) -> EventContainer | None:
    """Return the batch in the event; with its name alone if the event does not list it, as after a failed start."""
    if name is None:
        return None
    listed = next((container for container in task.containers if container.name == name), None)
    return EventContainer(name=name) if listed is None else listed


def judge(task: StoppedTask, containers: TaskContainers) -> Judgement:
    """Determine the batch and the outcome of a task. Several containers that could be the batch cause a warning."""
    candidates = containers.candidates
    outcome, batch = judge_candidates(task, candidates, default=containers.default, monitor=containers.monitor)
    warning = (
        f"Task {task.id} has several possible batch containers ({', '.join(candidates)}), which are judged together: "
        "set TASK_PROFILER_CONTAINER in the monitor's environment to the batch's name."
    )
    return Judgement(
        outcome=outcome, batch=batch_container(task, batch), warning=warning if len(candidates) > 1 else None
    )


def docker_labels(definition: Mapping[str, object] | None, name: str | None) -> Mapping[str, str]:
    """Return the ``dockerLabels`` of a container of the task definition."""
    for container in mappings((definition or {}).get("containerDefinitions")):
        if container.get("name") == name:
            return {label: str(value) for label, value in mapping(container.get("dockerLabels")).items()}
    return {}


def _from_roles(roles: "ContainerRoles") -> TaskContainers:

    batch = roles.batch
    return TaskContainers(batch=batch, monitor=roles.monitor, candidates=roles.candidates)


def _log_stream(container: "Container", task: StoppedTask) -> LogStream | None:
    from profiler.task_definitions.containers import log_target  # see above

    target = log_target(container, task.arn)
    if target.group is None or target.stream is None:
        return None
    return LogStream(group=target.group, stream=target.stream, region=target.region)

"""Selects the batch: the container of the task to report on. If the choice is ambiguous, nothing is guessed."""

from msgspec import Struct

from profiler.core.container_roles import ContainerRoles, TaskContainer, container_roles
from profiler.readers.ecs.task_metadata import RUNNING, STOPPED, ContainerMetadata, TaskMetadata

_FIRELENS_DRIVER = "awsfirelens"


class BatchSelection(Struct, frozen=True, kw_only=True):
    """The containers to report on, with the ``problem`` of the choice as a sentence for the user.

    ``is_present`` is False while the task does not list them: an agent may do so late, or not any more.
    """

    names: tuple[str, ...]
    problem: str | None = None
    is_present: bool = True


def select_batch(task: TaskMetadata, *, requested: str | None, own: ContainerMetadata | None) -> BatchSelection:
    """Select the batch: the requested container, else the only application container, else all candidates.

    ``own`` is the monitor's container; None for the one with the monitor's usual name.
    """
    if requested is not None:
        present = sorted({container.name for container in task.containers})
        problem = (
            f"TASK_PROFILER_CONTAINER names {requested!r}, which is not a container of this task "
            f"(it has: {', '.join(present) or 'none'}); correct the name."
        )
        is_present = requested in present
        return BatchSelection(names=(requested,), problem=None if is_present else problem, is_present=is_present)
    names = _roles(task, own).candidates
    if len(names) > 1:
        return BatchSelection(
            names=names,
            problem=f"Several containers could be the batch ({', '.join(names)}): set TASK_PROFILER_CONTAINER to one "
            "of them; until then each gets a report in its own log stream.",
        )
    if not names:
        return BatchSelection(
            names=(),
            problem="No container of this task can be the batch: the task holds only the monitor and containers "
            "injected by AWS; set TASK_PROFILER_CONTAINER to the name of the container to report on.",
            is_present=False,
        )
    return BatchSelection(names=names)


def has_run_unlisted(task: TaskMetadata, own: ContainerMetadata | None) -> bool:
    """Whether a batch that was never listed must have ended.

    A task is RUNNING when all of its containers have started, so the batch has started before, and is gone. While
    another container of the task runs, it may be the batch under another name.
    """
    if task.known_status not in (RUNNING, STOPPED):
        return False
    roles = _roles(task, own)
    ignored = {roles.monitor, *roles.injected}
    return all(container.is_stopped for container in _others(task, own) if container.name not in ignored)


def _roles(task: TaskMetadata, own: ContainerMetadata | None) -> ContainerRoles:
    drivers = {container.log_driver for container in task.containers}
    # Version 3 of the endpoint does not return the driver.
    may_have_router = _FIRELENS_DRIVER in drivers or drivers == {None}
    others = [
        TaskContainer(
            name=container.name,
            image=container.image,
            firelens=None if may_have_router and container.log_driver != _FIRELENS_DRIVER else False,
            injected=container.type not in (None, "NORMAL"),
        )
        for container in _others(task, own)
    ]
    return container_roles(others)


def _others(task: TaskMetadata, own: ContainerMetadata | None) -> list[ContainerMetadata]:
    def is_own(container: ContainerMetadata) -> bool:
        if own is None or None in (container.docker_id, own.docker_id):
            return own is not None and container.name == own.name
        return container.docker_id == own.docker_id

    return [container for container in task.containers if not is_own(container)]

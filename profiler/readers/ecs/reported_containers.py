"""Selects the batch: the container of the task to report on. If the choice is ambiguous, nothing is guessed."""

from msgspec import Struct

from profiler.core.container_roles import ContainerRoles, TaskContainer, container_roles
from profiler.readers.ecs.task_metadata import RUNNING, STOPPED, ContainerMetadata, TaskMetadata

_FIRELENS_DRIVER = "awsfirelens"
_APPLICATION_TYPE = "NORMAL"


class BatchSelection(Struct, frozen=True, kw_only=True):
    """The containers to report on.

    ``problem`` is a sentence for the user, None if the selection is unambiguous. ``is_present`` is False while the
    task does not list the containers: an agent may list a container late, or not any more.
    """

    names: tuple[str, ...]
    problem: str | None = None
    is_present: bool = True


def select_batch(task: TaskMetadata, *, requested: str | None, own: ContainerMetadata | None) -> BatchSelection:
    """Select the batch: the requested container, else the only application container.

    If several candidates remain, all of them are selected and ``problem`` lists them. ``requested`` is the value of
    TASK_PROFILER_CONTAINER; ``own`` is the monitor's container, None for the one with the monitor's usual name.
    """
    if requested is not None:
        return _select_requested(task, requested)
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


def _select_requested(task: TaskMetadata, requested: str) -> BatchSelection:
    present = sorted({container.name for container in task.containers})
    if requested in present:
        return BatchSelection(names=(requested,))
    listed = ", ".join(present) or "none"
    return BatchSelection(
        names=(requested,),
        problem=f"TASK_PROFILER_CONTAINER names {requested!r}, which is not a container of this task "
        f"(it has: {listed}); correct the name.",
        is_present=False,
    )


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
            injected=container.type not in (None, _APPLICATION_TYPE),
        )
        for container in _others(task, own)
    ]
    return container_roles(others)


def _others(task: TaskMetadata, own: ContainerMetadata | None) -> list[ContainerMetadata]:
    return [container for container in task.containers if own is None or not _is_own(container, own)]


def _is_own(container: ContainerMetadata, own: ContainerMetadata) -> bool:
    if container.docker_id is not None and own.docker_id is not None:
        return container.docker_id == own.docker_id
    return container.name == own.name

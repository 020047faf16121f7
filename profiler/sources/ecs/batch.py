"""Selects the batch: the container of the task to report on. If the choice is ambiguous, nothing is guessed."""

from msgspec import Struct

from profiler.core.ecs import MONITOR_NAME, is_injected_name, is_log_router_name, is_monitor_image, matches_any
from profiler.sources.ecs.task_metadata import RUNNING, STOPPED, ContainerMetadata, TaskMetadata

_FIRELENS_ROUTER_IMAGES = ("*fluent-bit*", "*fluentbit*", "*fluentd*")
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

    If several candidates remain, all of them are selected and ``problem`` names them.

    Args:
        task: The task.
        requested: The value of TASK_PROFILER_CONTAINER.
        own: The monitor's container, None if unknown.
    """
    if requested is not None:
        return _select_requested(task, requested)
    names = _candidates(task, own)
    if len(names) > 1:
        listed = ", ".join(names)
        return BatchSelection(
            names=names,
            problem=f"Several containers could be the batch ({listed}): set TASK_PROFILER_CONTAINER to one of them; "
            "until then each gets a report in its own log stream.",
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
    has_started = task.known_status in (RUNNING, STOPPED)
    return has_started and all(one.is_stopped for one in task.containers if _is_application(one, own))


def _candidates(task: TaskMetadata, own: ContainerMetadata | None) -> tuple[str, ...]:
    others = [container for container in task.containers if _is_application(container, own)]
    drivers = {container.log_driver for container in task.containers}
    without_routers = [container for container in others if not _is_log_router(container)]
    if _FIRELENS_DRIVER in drivers:
        others = without_routers
    elif drivers == {None}:  # version 3 of the endpoint does not return the driver
        others = without_routers or others
    # A batch that is wrapped in `task-profiler run` may have the monitor's image.
    chosen = [container for container in others if not _is_another_monitor(container)] or others
    return tuple(dict.fromkeys(container.name for container in chosen))


def _is_application(container: ContainerMetadata, own: ContainerMetadata | None) -> bool:
    if container.type not in (None, _APPLICATION_TYPE) or is_own(container, own):
        return False
    return not is_injected_name(container.name)


def is_own(container: ContainerMetadata, own: ContainerMetadata | None) -> bool:
    """Whether the monitor runs in this container; decided by its usual name if ``own`` is unknown."""
    if own is None:
        return container.name == MONITOR_NAME
    if container.docker_id is not None and own.docker_id is not None:
        return container.docker_id == own.docker_id
    return container.name == own.name


def _is_another_monitor(container: ContainerMetadata) -> bool:
    """Whether it is another copy of the monitor, judged by its name or its image."""
    return container.name == MONITOR_NAME or is_monitor_image(container.image)


def _is_log_router(container: ContainerMetadata) -> bool:
    if container.log_driver == _FIRELENS_DRIVER:
        return False
    return is_log_router_name(container.name) or matches_any(container.image or "", _FIRELENS_ROUTER_IMAGES)

"""Joins the attempts of a container that ECS restarts in place (restart policy) to one run."""

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata

# A start that differs by less is the same one: ECS restarts a container a minute after its start at the earliest.
_MIN_ATTEMPT_NS = NS_PER_SECOND


class _Run(Struct, kw_only=True):
    """The attempts of one container that were seen."""

    docker_id: str | None
    started_ns: int | None
    attempt_started_ns: int | None
    restarts: int = 0


class Restarts:
    """Follows the containers of a task by their names.

    A restart shows in ``RestartCount`` (endpoint v4), in a new Docker id or in a later start. Agents differ in which of
    these they show.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def join(self, task: TaskMetadata) -> TaskMetadata:
        """The task with one container for each name.

        Its start is that of the first attempt that was seen, everything else is that of the last one.
        ``restart_count`` counts the restarts.
        """
        latest = {container.name: task.container(container.name) or container for container in task.containers}
        return replace(task, containers=tuple(self._joined(container) for container in latest.values()))

    def _joined(self, container: ContainerMetadata) -> ContainerMetadata:
        run = self._runs.get(container.name)
        if run is None:
            run = self._runs[container.name] = _Run(
                docker_id=container.docker_id,
                started_ns=container.started_ns,
                attempt_started_ns=container.started_ns,
            )
        elif _is_new_attempt(run, container):
            run.restarts += 1
            run.attempt_started_ns = container.started_ns
        run.docker_id = container.docker_id or run.docker_id
        run.attempt_started_ns = run.attempt_started_ns or container.started_ns
        run.started_ns = run.started_ns or run.attempt_started_ns
        run.restarts = max(run.restarts, container.restart_count)
        return replace(
            container,
            started_ns=run.started_ns,
            attempt_started_ns=run.attempt_started_ns,
            restart_count=run.restarts,
        )


def _is_new_attempt(run: _Run, container: ContainerMetadata) -> bool:
    if None not in (run.docker_id, container.docker_id) and run.docker_id != container.docker_id:
        return True
    if run.attempt_started_ns is None or container.started_ns is None:
        return False
    return container.started_ns - run.attempt_started_ns >= _MIN_ATTEMPT_NS

"""Which container of a task is the monitor, which ones AWS injected, and which one is the batch,
in any document.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from profiler.core.ecs_terms import MONITOR_NAME, MONITOR_REPOSITORY

# Containers that ECS and other AWS services add to a task.
_INJECTED_NAMES = ("~internal~*", "aws-guardduty-agent*", "ecs-service-connect*")
_LOG_ROUTER_NAMES = ("log_router", "log-router", "firelens*")
_LOG_ROUTER_IMAGES = ("*fluent-bit*", "*fluentbit*", "*fluentd*")
# The program by its name or path, or as a module. "my-task-profiler" and "task-profiler-demo" are
# other programs.
_PROGRAM = r"(?<![\w.-])(?:task-profiler|-m\s+profiler)\s+"
_STARTS_MONITOR = re.compile(_PROGRAM + r"monitor(?![\w.-])")
_WRAPS_BATCH = re.compile(_PROGRAM + r"run(?![\w.-])")


class TaskContainer(Struct, frozen=True, kw_only=True):
    """A container; None: the document lacks the fact.

    ``command`` has the entry point, too; () is the image's own.
    """

    name: str
    image: str | None = None
    command: tuple[str, ...] | None = None
    essential: bool | None = None
    firelens: bool | None = None
    injected: bool = False

    @property
    def has_monitor_image(self) -> bool:
        """Whether the image's repository is ``task-profiler``, in any registry and namespace."""
        return repository_of_image(self.image).rpartition("/")[2] == MONITOR_REPOSITORY

    @property
    def wraps_batch(self) -> bool:
        """Whether the command starts a batch by ``task-profiler run``: ``run`` is enough with
        the monitor's image.
        """
        words = self.command or ()
        is_run = self.has_monitor_image and words[:1] == ("run",)
        return is_run or bool(_WRAPS_BATCH.search(" ".join(words)))

    @property
    def starts_monitor(self) -> bool:
        """Whether the command starts the monitor, which the monitor's image does by default."""
        if self.command is None or self.wraps_batch:
            return False
        is_default = self.has_monitor_image and self.command[:1] in {(), ("monitor",)}
        return is_default or bool(_STARTS_MONITOR.search(" ".join(self.command)))

    @property
    def may_be_monitor(self) -> bool:
        """Whether only the image suggests that it is the monitor.

        A batch that is wrapped can have the same image.
        """
        return self.command is None and self.has_monitor_image


class ContainerRoles(Struct, frozen=True, kw_only=True):
    """The names of the containers by role.

    ``candidates``: the batch, or all that could be it, as no order decides.
    """

    monitor: str | None
    injected: tuple[str, ...]
    candidates: tuple[str, ...]

    @property
    def batch(self) -> str | None:
        return self.candidates[0] if len(self.candidates) == 1 else None


def container_roles(
    containers: Sequence[TaskContainer], *, requested: str | None = None
) -> ContainerRoles:
    """Return the role of each container.

    The monitor has the monitor's name, else it starts the monitor, else only its image is the
    monitor's. The batch is the requested container, if there is one of this name, else the only one
    that is neither the monitor, nor injected, nor a log router, nor known to be not essential.
    """
    is_listed = any(container.name == requested for container in containers)
    candidates: Sequence[str]
    if requested is not None and is_listed:
        candidates = (requested,)
    else:
        candidates = _possible_batches(containers)
    chosen = frozenset(candidates)
    by_name = (container.name for container in containers if container.name == MONITOR_NAME)
    by_command = (container.name for container in containers if container.starts_monitor)
    by_image = (
        container.name
        for container in containers
        if container.may_be_monitor and container.name not in chosen
    )
    return ContainerRoles(
        monitor=next(by_name, None) or next(by_command, None) or next(by_image, None),
        injected=_container_names(
            [container for container in containers if is_injected(container)]
        ),
        candidates=candidates,
    )


def repository_of_image(image: str | None) -> str:
    """Return the image's name without tag and digest."""
    name = (image or "").split("@", 1)[0]
    registry, slash, rest = name.rpartition("/")
    return f"{registry}{slash}{rest.split(':', 1)[0]}"


def _possible_batches(containers: Sequence[TaskContainer]) -> tuple[str, ...]:
    """Return the possible batches.

    A hint by name or image alone counts only if another container is left.
    """
    others = [
        container
        for container in containers
        if container.essential is not False and not (container.firelens or is_injected(container))
        if container.name != MONITOR_NAME and not container.starts_monitor
    ]
    others = [container for container in others if not _may_be_log_router(container)] or others
    return _container_names(
        [container for container in others if not container.may_be_monitor] or others
    )


def is_injected(container: TaskContainer) -> bool:
    """Whether ECS or another AWS service has added the container."""
    return container.injected or _matches(container.name, _INJECTED_NAMES)


def _may_be_log_router(container: TaskContainer) -> bool:
    if container.firelens is not None:
        return container.firelens
    return _matches(container.name, _LOG_ROUTER_NAMES) or _matches(
        container.image or "", _LOG_ROUTER_IMAGES
    )


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text.lower(), pattern) for pattern in patterns)


def _container_names(containers: Sequence[TaskContainer]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(container.name for container in containers))

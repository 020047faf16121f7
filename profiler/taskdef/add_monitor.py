"""Adds the monitor to a task definition, or explains in one sentence why this is not possible.

The other containers and the task's CPU and memory never change. Fields that are unknown here are
kept.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from profiler.core.ecs import AWSLOGS, MONITOR_NAME
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping, mappings, text
from profiler.taskdef.containers import (
    RESERVATION_MB,
    Container,
    MonitorContainer,
    candidates,
    depends_on_monitor,
    find_batch,
    read_containers,
    task_memory_mb,
)

_MAX_CONTAINERS = 10
_WINDOWS = "WINDOWS"
_PID_MODE_TASK = "task"
_PID_MODE_HOST = "host"
_NO_NETWORK = "none"


class AddMonitorOptions(Struct, frozen=True, kw_only=True):
    """The options of ``taskdef add-monitor``.

    ``image`` None means the default for a new monitor, and no change of an existing monitor.
    """

    container: str | None = None
    image: str | None = None
    shared_pids: bool = False


class AddMonitorResult(Struct, frozen=True, kw_only=True):
    """The new definition, and notes for the user."""

    definition: Mapping[str, object]
    notes: tuple[str, ...] = ()


def add_monitor(
    definition: Mapping[str, object], options: AddMonitorOptions, *, default_image: str
) -> AddMonitorResult:
    """Add the monitor to a definition.

    Returns:
        The new definition, which is equal to ``definition`` if it contains the monitor as requested already.

    Raises:
        TaskProfilerError: if the monitor cannot work there, or would use memory that belongs to the batch.
    """
    _check_platform(definition)
    containers = read_containers(definition)
    if any(one.name == MONITOR_NAME for one in containers):
        added = _with_existing_monitor(definition, containers, options)
    else:
        added = _with_new_monitor(definition, containers, options, default_image)
    return _with_shared_pids(added) if options.shared_pids else added


def _with_existing_monitor(
    definition: Mapping[str, object], containers: Sequence[Container], options: AddMonitorOptions
) -> AddMonitorResult:
    """Keep an existing monitor unchanged except for a requested image."""
    notes = tuple(_other_batch_notes(containers, options.container))
    if options.image is None:
        return AddMonitorResult(definition=definition, notes=notes)
    parts = [
        {**raw, "image": options.image} if raw.get("name") == MONITOR_NAME else raw
        for raw in mappings(definition.get("containerDefinitions"))
    ]
    return AddMonitorResult(definition={**definition, "containerDefinitions": parts}, notes=notes)


def _with_new_monitor(
    definition: Mapping[str, object], containers: Sequence[Container], options: AddMonitorOptions, default_image: str
) -> AddMonitorResult:
    batch = find_batch(containers, options.container)
    if len(containers) >= _MAX_CONTAINERS:
        raise TaskProfilerError(
            f"The task definition has {len(containers)} containers already, and ECS allows {_MAX_CONTAINERS}: "
            "remove one, or start the batch by 'task-profiler run -- CMD' instead of adding a monitor."
        )
    if depends_on_monitor(containers, batch.name):
        raise TaskProfilerError(
            f"The batch {batch.name!r} depends on {MONITOR_NAME}, which is not in this task definition and will "
            "itself depend on the batch: remove that dependsOn."
        )
    monitor = MonitorContainer(
        image=options.image or default_image,
        batch=batch,
        has_batch_variable=options.container is not None or len(candidates(containers)) > 1,
        uses_gpu=any(one.uses_gpu for one in containers),
        uses_neuron=batch.uses_neuron,
    )
    notes = [*_memory_notes(definition, containers, monitor), *_log_notes(batch), *_neuron_notes(batch)]
    notes += _network_notes(definition)
    if options.image is None:
        notes.append(
            f"The monitor's image is the default, {default_image}: name the image that you have pushed by --image."
        )
    parts = [*mappings(definition.get("containerDefinitions")), monitor.definition()]
    return AddMonitorResult(definition={**definition, "containerDefinitions": parts}, notes=tuple(notes))


def _with_shared_pids(added: AddMonitorResult) -> AddMonitorResult:
    if added.definition.get("pidMode") == _PID_MODE_HOST:
        note = "pidMode is host already, so the monitor sees the batch's processes: it is left unchanged."
        return AddMonitorResult(definition=added.definition, notes=(*added.notes, note))
    return AddMonitorResult(definition={**added.definition, "pidMode": _PID_MODE_TASK}, notes=added.notes)


def _check_platform(definition: Mapping[str, object]) -> None:
    system = text(mapping(definition.get("runtimePlatform")).get("operatingSystemFamily")) or ""
    if system.upper().startswith(_WINDOWS):
        raise TaskProfilerError(
            f"The task definition is for {system}, where the monitor does not work: profile Linux tasks."
        )


def _network_notes(definition: Mapping[str, object]) -> Iterator[str]:
    if definition.get("networkMode") == _NO_NETWORK:
        yield (
            "The task's networkMode is none, so the monitor reaches neither the task metadata endpoint nor "
            "CloudWatch Logs and cannot report anything: start the batch by 'task-profiler run -- CMD' instead."
        )


def _other_batch_notes(containers: Sequence[Container], requested: str | None) -> Iterator[str]:
    if requested is None:
        return
    batch = find_batch(containers, requested)
    monitor = next(one for one in containers if one.name == MONITOR_NAME)
    if batch.name not in monitor.depends_on:
        yield (
            f"The existing {MONITOR_NAME} is kept, although it does not depend on {batch.name!r}: "
            "to create it for that container, remove it from the definition first."
        )


def _memory_notes(
    definition: Mapping[str, object], containers: Sequence[Container], monitor: MonitorContainer
) -> Iterator[str]:
    """Refuse if the containers may use all of the task's memory: the monitor would use memory of the batch."""
    task_mb = task_memory_mb(definition)
    if task_mb is None:
        return
    taken_mb = sum(one.memory_mb or one.memory_reservation_mb or 0 for one in containers)
    left_mb = task_mb - taken_mb
    if left_mb < RESERVATION_MB:
        raise TaskProfilerError(
            f"No memory is left for the monitor, because the containers may take {taken_mb} of the task's "
            f"{task_mb:g} MiB: raise the task's memory or lower a container's, so that {RESERVATION_MB} MiB are free."
        )
    if task_mb < monitor.memory_mb:
        raise TaskProfilerError(
            f"No memory is left for the monitor, whose limit of {monitor.memory_mb} MiB is above the task's "
            f"{task_mb:g} MiB, which ECS refuses: raise the task's memory."
        )
    if left_mb < monitor.memory_mb:
        yield (
            f"Only {left_mb:g} MiB of the task's memory are not assigned to other containers, and the monitor may use "
            f"{monitor.memory_mb} MiB: leave it that much if the batch uses all of its memory."
        )


def _log_notes(batch: Container) -> Iterator[str]:
    if batch.log_driver != AWSLOGS:
        yield (
            f"The batch {batch.name!r} does not log by awslogs, so the monitor cannot know its log stream: set "
            "TASK_PROFILER_LOG_GROUP and TASK_PROFILER_LOG_STREAM in the monitor's environment, "
            "and give the monitor a logConfiguration."
        )


def _neuron_notes(batch: Container) -> Iterator[str]:
    if batch.uses_neuron and not batch.neuron_devices:
        yield (
            f"The batch {batch.name!r} gets its Neuron devices through a resource requirement, which ECS allows for "
            "only one container of a task: list the devices in the monitor's linuxParameters.devices, or the monitor "
            "will not see them."
        )

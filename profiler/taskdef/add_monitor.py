"""Adds the monitor to a task definition, or says in one sentence why not. Pure.

Other containers and the task's CPU and memory are never changed, and fields that are unknown
here are kept.
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
    """``image`` None: the default for a new monitor, the present one for a monitor that is there already."""

    container: str | None = None
    image: str | None = None
    shared_pids: bool = False


class AddMonitorResult(Struct, frozen=True, kw_only=True):
    """The new definition, and sentences for the person who asked for it."""

    definition: Mapping[str, object]
    notes: tuple[str, ...] = ()


def add_monitor(
    definition: Mapping[str, object], options: AddMonitorOptions, *, default_image: str
) -> AddMonitorResult:
    """``definition`` with the monitor; equal to it if the monitor is there as wished.

    Raises TaskProfilerError where a monitor cannot work or would take what is the batch's.
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
    """A monitor that is there stays as its owner has it, but for another image."""
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
        notes.append(f"The monitor's image is {default_image}, by default: name the one that you pushed by --image.")
    parts = [*mappings(definition.get("containerDefinitions")), monitor.definition()]
    return AddMonitorResult(definition={**definition, "containerDefinitions": parts}, notes=tuple(notes))


def _with_shared_pids(added: AddMonitorResult) -> AddMonitorResult:
    if added.definition.get("pidMode") == _PID_MODE_HOST:
        note = "pidMode is host already, which shows the monitor the batch's processes too: it is left as it is."
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
            "The task's networkMode is none, so that the monitor reaches neither the task metadata endpoint nor "
            "CloudWatch Logs and can report nothing: start the batch by 'task-profiler run -- CMD' instead."
        )


def _other_batch_notes(containers: Sequence[Container], wanted: str | None) -> Iterator[str]:
    if wanted is None:
        return
    batch = find_batch(containers, wanted)
    monitor = next(one for one in containers if one.name == MONITOR_NAME)
    if batch.name not in monitor.depends_on:
        yield (
            f"The {MONITOR_NAME} that is there already is kept, and it does not depend on {batch.name!r}: "
            "remove it from the definition first to have it made for that container."
        )


def _memory_notes(
    definition: Mapping[str, object], containers: Sequence[Container], monitor: MonitorContainer
) -> Iterator[str]:
    """Refuse where the containers may fill the task's memory: the monitor would take what is the batch's."""
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
            f"Only {left_mb:g} MiB of the task's memory are promised to no other container, and the monitor may take "
            f"{monitor.memory_mb} MiB: leave it that much if the batch uses all that it may."
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
            f"The batch {batch.name!r} has its Neuron devices by a resource requirement, which ECS allows to one "
            "container of a task: list them in the monitor's linuxParameters.devices, or it will not see them."
        )

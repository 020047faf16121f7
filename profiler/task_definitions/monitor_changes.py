"""Adds the monitor to a task definition, or removes it.

The other containers and the task's size never change.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import (
    AWSLOGS,
    BATCH_LOG_GROUP,
    FARGATE,
    MONITOR_NAME,
    MONITOR_RESERVATION_MB,
    ReportStream,
    arn_region,
)
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty, mappings_in_list, text_or_none
from profiler.core.optional_math import known
from profiler.task_definitions.containers import (
    REPORT_STREAM_VARIABLE,
    DefinedContainer,
    calls_cloudwatch_logs,
    environment_of,
    find_batch,
    find_monitor,
    first_sign_of_windows,
    is_monitor_for,
    other_monitors,
    read_container,
    read_containers,
    task_memory_mb,
)
from profiler.task_definitions.definition_json import ChangedDefinition
from profiler.task_definitions.json_yaml_style import Function
from profiler.task_definitions.monitor_container import (
    DEFAULT_STREAM_PREFIX,
    NO_OWN_LOG,
    PID_MODE_ADDED,
    PID_MODE_LABEL,
    CallStacksAccess,
    MonitorContainer,
    OwnLog,
    default_image,
    upgrade_container,
)

_MAX_CONTAINERS = 10
_WITHOUT_NETWORK = (
    "The task's networkMode is none, so the monitor reaches neither the task metadata endpoint nor "
    "CloudWatch Logs and cannot report anything: start the batch with 'task-profiler run -- CMD' "
    "instead."
)


class AddMonitorOptions(Struct, frozen=True, kw_only=True):
    """The options of ``taskdef add-monitor``.

    ``container`` None: the only one that can be the batch. ``image`` None: the default for a new
    monitor. ``stacks`` sets ``pidMode: task``, as ``shared_pids``, and grants SYS_PTRACE.
    ``log_group`` None: the batch's. ``report_stream`` None: unchanged, else the default. ``region``
    is the log group's, if the definition has none. ``is_of_job``: the definition is the view of a
    job definition of AWS Batch, whose containers have a share, and a log group by default.
    """

    container: str | None = None
    image: str | None = None
    shared_pids: bool = False
    stacks: CallStacksAccess | None = None
    log_group: str | None = None
    report_stream: ReportStream | None = None
    default_report_stream: ReportStream = "batch"
    region: str | None = None
    settings: Mapping[str, str] = {}
    is_of_job: bool = False


def add_monitor(
    definition: Mapping[str, object],
    options: AddMonitorOptions,
    *,
    revision_arn: str | None = None,
    template_region: str | None = None,
) -> ChangedDefinition:
    """Add the monitor to a definition, or upgrade an existing one.

    A definition that is as requested does not change.

    The revision's Region precedes the options', and ``template_region``, a template's reference, is
    used last. Raises TaskProfilerError if the monitor cannot work there, or would use memory that
    belongs to the batch.
    """
    check_definition(definition)
    containers = read_containers(definition)
    existing = find_monitor(containers, options.image, options.container)
    region = arn_region(revision_arn) or options.region or template_region
    options = replace(_with_report_stream(options, existing), region=region)
    image = options.image or default_image(revision_arn)
    if existing is not None:
        added = _with_existing_monitor(definition, containers, existing, options)
    else:
        added = _with_new_monitor(definition, containers, options, image)
    family = definition.get("family")
    own_group = known(attrgetter("own_log_group"), added.monitor)
    if isinstance(family, Function) and own_group == _own_log_group_name(family):
        raise TaskProfilerError(
            "The report needs a log group of its own, and only a deployment knows the family "
            f"({family}): name the group with --log-group."
        )
    if options.shared_pids or options.stacks:
        return _with_shared_pids(added)
    return added


def refusal_of(definition: Mapping[str, object], monitor_mb: int) -> str | None:
    """Why a definition can have no monitor, whoever adds it; None: it can. The monitor, which may
    be there already, may use ``monitor_mb``.
    """
    containers = read_containers(definition)
    others = [container for container in containers if container.name != MONITOR_NAME]
    try:
        check_definition(definition)
        _check_single_name(containers)
        _check_container_count(others)
        for _ in _memory_notes(definition, others, monitor_mb):
            pass
    except TaskProfilerError as error:
        return str(error)
    return None


def check_definition(definition: Mapping[str, object]) -> None:
    """Raise TaskProfilerError for Windows tasks, for tasks without a network, and for a container
    without a name.
    """
    system = first_sign_of_windows(definition)
    if system:
        raise TaskProfilerError(
            f"The definition is for {system}, where the monitor does not work: profile Linux tasks."
        )
    if _has_no_network(definition):
        raise TaskProfilerError(_WITHOUT_NETWORK)
    for number, container in enumerate(_raw_containers(definition), 1):
        if not container.get("name"):
            raise TaskProfilerError(
                f"The container number {number} of the definition has no name, which ECS "
                'requires: give it a "name".'
            )


def _check_single_name(containers: Sequence[DefinedContainer]) -> None:
    """Raise TaskProfilerError if several containers have the monitor's name."""
    if [container.name for container in containers].count(MONITOR_NAME) > 1:
        raise TaskProfilerError(
            f"Several containers are called {MONITOR_NAME!r}, and ECS takes each name once: "
            "rename the one that is not Task Profiler's."
        )


def _check_container_count(containers: Sequence[DefinedContainer]) -> None:
    """Raise TaskProfilerError if ECS allows no container beside these."""
    if len(containers) >= _MAX_CONTAINERS:
        raise TaskProfilerError(
            f"The definition has {len(containers)} containers already, and ECS allows "
            f"{_MAX_CONTAINERS}: remove one, or start the batch with 'task-profiler run -- CMD' "
            "instead of adding a monitor."
        )


def default_image_note(image: str) -> str:
    """The note about a monitor with the default image."""
    return (
        f"The monitor's image is the default, {image}: name the image that you have pushed with "
        "--image."
    )


def no_registry_sentence(image: str) -> str:
    """The sentence about an image whose name has neither a registry nor an owner."""
    return (
        f"The image {image} contains no registry, so ECS looks for it in Docker Hub, which does "
        "not have it."
    )


def cannot_be_pulled(definition: Mapping[str, object], image: str) -> bool:
    """Whether no task of a definition gets an image: without a registry and an owner, a name is one
    of Docker's own images, and Fargate has no others. An instance may have it already.

    https://docs.docker.com/docker-hub/image-library/trusted-content/
    """
    required = definition.get("requiresCompatibilities")
    return isinstance(required, Sequence) and FARGATE in required and "/" not in image


def _registry_notes(definition: Mapping[str, object], image: str) -> Iterator[str]:
    """Why a monitor whose image was named may not start: only an instance can have the image."""
    if "/" not in image and not cannot_be_pulled(definition, image):
        yield f"{no_registry_sentence(image)} It starts on instances alone that have it already."


def log_group_note(group: str | None) -> str:
    """The note about the log group of the monitor's own stream."""
    return (
        f"Create the log group {group} if it does not exist, because ECS does not start a "
        "container whose log group is missing."
    )


def _with_report_stream(
    options: AddMonitorOptions, existing: DefinedContainer | None
) -> AddMonitorOptions:
    """The options with the chosen stream as a setting.

    The batch's is left out, unless it replaces another one.
    """
    is_set = existing is not None and REPORT_STREAM_VARIABLE in existing.environment
    stream = options.report_stream or (None if is_set else options.default_report_stream)
    if not stream or (stream == "batch" and not is_set):
        return options
    return replace(options, settings={REPORT_STREAM_VARIABLE: stream, **options.settings})


def _with_existing_monitor(
    definition: Mapping[str, object],
    containers: Sequence[DefinedContainer],
    existing: DefinedContainer,
    options: AddMonitorOptions,
) -> ChangedDefinition:
    """Upgrade an existing monitor, and keep what its owner added."""
    others = tuple(container for container in containers if container is not existing)
    batch = _batch_of(existing, others, options.container)
    notes: list[str] = []
    if options.container is not None and find_batch(others, options.container).name != batch.name:
        notes.append(
            f"The existing monitor is kept for {batch.name!r}: to create it for "
            f"{options.container!r}, remove it from the definition first."
        )
    others_kept = other_monitors(containers, existing, options.image)
    if others_kept:
        notes.append(
            f"Of several monitors, this is about {existing.name!r}: to change another one "
            f"({others_kept}), name its batch with --container."
        )
    present = _monitor(
        definition, others, batch, options, image=options.image or existing.image or ""
    )
    started_before = {*batch.depends_on}
    for _ in containers:  # directly and indirectly
        for container in containers:
            if container.name in started_before:
                started_before.update(container.depends_on)
    is_stricter = existing.name in started_before
    parts = list(_raw_containers(definition))
    old = parts.pop(containers.index(existing))
    has_image = bool(options.image)
    own, changes = upgrade_container(old, present, has_image=has_image, is_stricter=is_stricter)
    parts.append(own)
    if containers[-1] is not existing:
        # Airflow takes the first container's last line for the task's result.
        changes = (*changes, "The monitor moves to the end of the containers.")
    notes += changes
    notes += unreachable_notes(definition, environment_of(own))
    if present.image != existing.image:
        notes += _registry_notes(definition, present.image)
        notes += architecture_notes(definition, present.image)
    monitor = read_container(own)
    changed = definition
    if changes:
        changed = {**definition, "containerDefinitions": parts}
    return ChangedDefinition(
        definition=changed,
        notes=tuple(notes),
        changes=changes,
        batch=batch.name,
        containers=(*others, monitor),
        old_monitor=existing,
        monitor=monitor,
    )


def _batch_of(
    existing: DefinedContainer, others: Sequence[DefinedContainer], requested: str | None
) -> DefinedContainer:
    """The container that an existing monitor reports on."""
    for container in others:
        if is_monitor_for(existing, container.name):
            return container
    return find_batch(others, requested)


def _with_new_monitor(
    definition: Mapping[str, object],
    containers: Sequence[DefinedContainer],
    options: AddMonitorOptions,
    image: str,
) -> ChangedDefinition:
    """Add a monitor. Raises TaskProfilerError if there is no room for it."""
    batch = find_batch(containers, options.container)
    _check_container_count(containers)
    monitor = _monitor(definition, containers, batch, options, image=image)
    own = monitor.container_definition()
    notes = [*_memory_notes(definition, containers, monitor.memory_mb), *_log_notes(batch, monitor)]
    if batch.uses_neuron and not batch.neuron_devices:
        notes.append(
            f"The batch {batch.name!r} gets its Neuron devices through a resource requirement, "
            "which ECS allows for only one container of a task: list the devices in the "
            "monitor's linuxParameters.devices, or the monitor will not see them."
        )
    notes += unreachable_notes(definition, environment_of(own))
    notes += architecture_notes(definition, monitor.image)
    if options.image:
        notes += _registry_notes(definition, image)
    else:
        notes.append(default_image_note(image))
    parts = [*_raw_containers(definition), own]
    added = read_container(own)
    return ChangedDefinition(
        definition={**definition, "containerDefinitions": parts},
        notes=tuple(notes),
        batch=batch.name,
        containers=(*containers, added),
        monitor=added,
    )


def _monitor(
    definition: Mapping[str, object],
    others: Sequence[DefinedContainer],
    batch: DefinedContainer,
    options: AddMonitorOptions,
    *,
    image: str,
) -> MonitorContainer:
    """The monitor that the options ask for, with a log group of its own if the batch has none."""
    own_log = NO_OWN_LOG
    is_log_known = True
    for container in _raw_containers(definition):
        if container.get("name") == batch.name:
            log = mapping_or_empty(container.get("logConfiguration"))
            is_log_known = not isinstance(log.get("options"), Function)
    default_driver = AWSLOGS if options.is_of_job else None
    is_awslogs = (batch.log_driver or default_driver) == AWSLOGS
    if options.log_group or not is_awslogs or not is_log_known:
        default_group = _own_log_group_name(text_or_none(definition.get("family")) or batch.name)
        own_log = OwnLog(
            group=options.log_group or (BATCH_LOG_GROUP if options.is_of_job else default_group),
            region=text_or_none(batch.log_options.get("awslogs-region")) or options.region,
            stream_prefix=text_or_none(batch.log_options.get("awslogs-stream-prefix"))
            or DEFAULT_STREAM_PREFIX,
            is_requested=bool(options.log_group),
        )
    return MonitorContainer(
        image=image,
        batch=batch,
        uses_gpu=any(container.uses_gpu for container in others),
        uses_neuron=batch.uses_neuron,
        own_log=own_log,
        stacks=options.stacks,
        settings=options.settings,
        is_of_job=options.is_of_job,
    )


def _own_log_group_name(family: str) -> str:
    return f"/ecs/{family}"


def _raw_containers(definition: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    return mappings_in_list(definition.get("containerDefinitions"))


def _with_shared_pids(added: ChangedDefinition) -> ChangedDefinition:
    """Set pidMode.

    A label of the monitor remembers that it was not set, for ``taskdef remove-monitor``.
    """
    mode = added.definition.get("pidMode")
    if mode == "host":
        note = (
            "pidMode is host already, so the monitor sees the batch's processes: it is left "
            "unchanged."
        )
        return replace(added, notes=(*added.notes, note))
    if mode == "task":
        return added
    *others, own = _raw_containers(added.definition)  # the monitor is the last one
    labelled = {
        **own,
        "dockerLabels": {
            **mapping_or_empty(own.get("dockerLabels")),
            PID_MODE_LABEL: PID_MODE_ADDED,
        },
    }
    return replace(
        added,
        definition={
            **added.definition,
            "containerDefinitions": [*others, labelled],
            "pidMode": "task",
        },
    )


def unreachable_notes(
    definition: Mapping[str, object], environment: Mapping[str, object]
) -> Iterator[str]:
    """Why the report of the monitor with these environment variables does not arrive in its log
    stream.
    """
    if calls_cloudwatch_logs(environment) and not definition.get("taskRoleArn"):
        yield (
            "The definition has no taskRoleArn, so the monitor has no permission to write "
            "the report to the batch's log stream: give the task a role with logs:PutLogEvents, "
            "or send the report to the monitor's own stream with --report-stream monitor."
        )
    if _has_no_network(definition):
        yield _WITHOUT_NETWORK


def _has_no_network(definition: Mapping[str, object]) -> bool:
    return definition.get("networkMode") == "none"


def architecture_notes(definition: Mapping[str, object], image: str) -> Iterator[str]:
    """Why the monitor may not start: its image is not known to contain the task's architecture."""
    architecture = (
        text_or_none(mapping_or_empty(definition.get("runtimePlatform")).get("cpuArchitecture"))
        or ""
    )
    if architecture.upper() == "ARM64" and "arm64" not in image:
        yield (
            f"The task runs on ARM64, and the image {image} is not known to contain it: build the "
            "image for linux/arm64 too, because ECS does not start a container with an image of "
            "another architecture."
        )


def _memory_notes(
    definition: Mapping[str, object],
    containers: Sequence[DefinedContainer],
    monitor_mb: int,
) -> Iterator[str]:
    """Refuse if the containers may use all of the task's memory: the monitor would use memory of
    the batch. Raises TaskProfilerError.
    """
    task_mb = task_memory_mb(definition)
    if not task_mb:
        return
    taken_mb = 0
    for container in containers:
        taken_mb += container.memory_mb or container.memory_reservation_mb or 0
    left_mb = task_mb - taken_mb
    if left_mb < MONITOR_RESERVATION_MB:
        raise TaskProfilerError(
            f"No memory is left for the monitor, because the containers may take {taken_mb} of "
            f"the task's {task_mb:g} MiB: lower a container's memory or raise the task's, so that "
            f"{MONITOR_RESERVATION_MB} MiB are free."
        )
    if left_mb < monitor_mb:
        yield (
            f"Only {left_mb:g} MiB of the task's memory are not assigned to other containers, and "
            f"the monitor may use {monitor_mb} MiB: leave it that much if the batch uses "
            "all of its memory."
        )


def _log_notes(batch: DefinedContainer, monitor: MonitorContainer) -> Iterator[str]:
    own_log = monitor.own_log
    if not own_log.group:
        return
    subject = "The report"
    if batch.log_driver != AWSLOGS:
        subject = f"The batch {batch.name!r} does not log by awslogs, so the report"
    yield f"{subject} goes to the monitor's own log stream in the log group {own_log.group}."
    if not monitor.has_log_configuration:
        return
    yield log_group_note(own_log.group)
    if not own_log.region:
        yield (
            "The Region of the monitor's log group is unknown: set it with --region, because "
            "awslogs on Fargate needs awslogs-region."
        )


def remove_monitor(definition: Mapping[str, object], image: str | None = None) -> ChangedDefinition:
    """Remove the monitor, what depends on it, and the pidMode that was added with it.

    Raises as ``find_monitor``.
    """
    containers = read_containers(definition)
    monitor = find_monitor(containers, image)
    if monitor is None:
        return ChangedDefinition(definition=definition, containers=containers)
    raw = list(_raw_containers(definition))
    own = raw.pop(containers.index(monitor))
    notes = []
    others_kept = other_monitors(containers, monitor, image)
    if others_kept:
        notes.append(
            f"Of several monitors, {monitor.name!r} is removed: to remove another one "
            f"({others_kept}), repeat the command."
        )
    for container in containers:
        if monitor.name in container.depends_on:
            notes.append(f"The container {container.name!r} no longer depends on the monitor.")
    changed = {
        **definition,
        "containerDefinitions": [
            _without_dependency_on(monitor.name, container) for container in raw
        ],
    }
    if mapping_or_empty(own.get("dockerLabels")).get(PID_MODE_LABEL) == PID_MODE_ADDED:
        changed.pop("pidMode", None)
    left = tuple(container for container in containers if container is not monitor)
    return ChangedDefinition(
        definition=changed, notes=tuple(notes), containers=left, old_monitor=monitor
    )


def _without_dependency_on(monitor: str, container: Mapping[str, object]) -> Mapping[str, object]:
    dependencies = list(mappings_in_list(container.get("dependsOn")))
    left = [dependency for dependency in dependencies if dependency.get("containerName") != monitor]
    if left == dependencies:
        return container
    changed = {**container}
    del changed["dependsOn"]
    if left:
        changed["dependsOn"] = left
    return changed

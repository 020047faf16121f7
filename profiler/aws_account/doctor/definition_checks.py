"""Diagnoses a task definition before the first run: the findings of ``task_checks`` that it can
answer.
"""

from collections.abc import Iterable, Iterator, Mapping

from profiler.aws_account.doctor import task_checks
from profiler.aws_account.doctor.findings import Finding, note, ok, problem
from profiler.aws_account.instance_monitors import instance_monitor_of
from profiler.aws_account.report_paths import Permission, ReportPaths, task_role
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.core.container_roles import repository
from profiler.core.ecs_terms import CONTAINER_VARIABLE, MONITOR_REPOSITORY
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import text as string
from profiler.core.optional_math import known
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata, select_batch
from profiler.record.units import MIB, format_count
from profiler.settings import MonitorSettings, read_settings
from profiler.task_definitions.containers import (
    DefinedContainer,
    find_monitor,
    monitor_of,
    read_containers,
    task_memory_mb,
)
from profiler.task_definitions.monitor_changes import (
    AddMonitorOptions,
    add_monitor,
    architecture_notes,
    unreachable_notes,
)

_MONITOR = "monitor"
_ROLE = "role"
EXECUTION_ROLE = "execution role"
SCHEDULES = "schedules"
# The place of the task's id in the name of a log stream.
_ANY_TASK = "arn:aws:ecs:::task/cluster/TASK_ID"
_ENDPOINT = {"ECS_CONTAINER_METADATA_URI_V4": "http://169.254.170.2/v4/unknown"}


def schedule_findings(
    revision: str, pinned: Iterable[tuple[ScheduledTarget, Mapping[str, object]]], move_command: str
) -> Iterator[Finding]:
    """Whether the pinned schedules of a family, each with the definition that it starts, start
    ``revision``.
    """
    for target, pinned_definition in pinned:
        if target.pinned_revision == revision:
            yield ok(SCHEDULES, f"The {target.title} starts {revision}.")
        elif monitor_of(pinned_definition) is not None:
            pin = f"The {target.title} is pinned to {target.pinned_revision}"
            yield note(SCHEDULES, f"{pin}, and does not start {revision}.")
        else:
            yield unmonitored_finding(target, move_command)


def unmonitored_finding(target: ScheduledTarget, move_command: str) -> Finding:
    """The problem of a schedule that starts a revision without the monitor."""
    text = f"The {target.title} is pinned to {target.pinned_revision}, which has no monitor."
    return problem(SCHEDULES, text, f"Move it: {move_command}; by hand if that skips it.")


def definition_findings(
    definition: Mapping[str, object], add_command: str, *, default_image: str
) -> Iterator[Finding]:
    """All findings about a definition as RegisterTaskDefinition accepts it; ``add_command`` is
    for the advice.
    """
    containers = read_containers(definition)
    try:
        monitor = find_monitor(containers)
    except TaskProfilerError as error:
        yield problem(_MONITOR, str(error))
        return
    if monitor is None:
        yield from _without_monitor(definition, containers, add_command, default_image)
        return
    if instance_monitor_of(definition) is not None:
        yield ok(_MONITOR, "It is the monitor of an EC2 instance, so the task has no batch.")
        return
    yield from _form_findings(definition, monitor, add_command)
    for text in architecture_notes(definition, monitor.image or ""):
        yield note(_MONITOR, text)
    settings = read_settings({**monitor.variables, **_ENDPOINT})
    yield from task_checks.settings_findings(settings.problems)
    task = TaskMetadata(
        arn=_ANY_TASK,
        memory_limit_bytes=known(_bytes_of, task_memory_mb(definition)),
        containers=tuple(map(_as_container, containers)),
    )
    own = task.container(monitor.name)
    selection = select_batch(task, requested=settings.task.container, own=own)
    yield task_checks.batch_finding(selection)
    batches = [container for container in containers if container.name in selection.names]
    for batch in batches:
        described = _as_container(batch)
        yield from task_checks.limits_findings(described, task, own)
        yield from _processes(batch, monitor, definition, settings)
        yield from _accelerators(batch, monitor, containers)
        yield task_checks.log_finding(described, task, settings, own)
    for text in unreachable_notes(definition, monitor.environment):
        yield problem(task_checks.LOG, text)
    if repository(monitor.image) == MONITOR_REPOSITORY:
        yield problem(
            _MONITOR,
            f"The image {monitor.image} contains no registry, so ECS looks for it in Docker Hub, "
            "which does not have it.",
            "Push it with task-profiler setup image, and set the address that it prints.",
        )


def execution_role_finding(definition: Mapping[str, object], paths: ReportPaths) -> Finding | None:
    """Whether the execution role may pull the monitor's image; None: unknown, or not needed."""
    role = string(definition.get("executionRoleArn"))
    monitor = monitor_of(definition)
    if role is None or monitor is None or monitor.image is None:
        return None
    name = role.rpartition("/")[2]
    permission = paths.may_pull(role, monitor.image)
    if permission == "no role":
        return problem(
            EXECUTION_ROLE, f"The execution role {name} does not exist, so ECS starts no task."
        )
    if permission == "denied":
        return problem(
            EXECUTION_ROLE,
            (
                f"The execution role {name} does not allow the pull of the monitor's image "
                f"({monitor.image})."
            ),
            "Attach the policy AmazonECSTaskExecutionRolePolicy, or allow "
            "ecr:GetAuthorizationToken, ecr:BatchGetImage and ecr:GetDownloadUrlForLayer.",
        )
    if permission == "allowed":
        return ok(
            EXECUTION_ROLE,
            f"The policies of the execution role {name} allow the pull of the monitor's image.",
        )
    return None


def pull_obstacle(definition: Mapping[str, object], paths: ReportPaths) -> str | None:
    """Why the monitor's image would keep the tasks of a definition from starting; None: it does
    not, or this is unknown. Without the role itself, no task starts in any case.
    """
    role = string(definition.get("executionRoleArn"))
    monitor = monitor_of(definition)
    if role is None or monitor is None or monitor.image is None:
        return None
    if paths.may_pull(role, monitor.image) != "denied":
        return None
    finding = execution_role_finding(definition, paths)
    if finding is None:
        return None
    return f"{finding.text} {finding.advice or ''}".rstrip()


def role_problems(
    definition: Mapping[str, object],
    permission: Permission | None,
    paths: ReportPaths,
    add_command: str,
) -> Iterator[Finding]:
    """What the roles of a definition do not allow its monitor.

    ``permission`` is whether the task role may report.
    """
    pull = execution_role_finding(definition, paths)
    role = task_role(definition)
    if pull is not None and pull.level == "problem":
        yield pull
    if permission == "denied":
        yield problem(
            _ROLE,
            f"The task role {role} does not allow logs:PutLogEvents for the report.",
            f"Allow it: {add_command} --attach-policy --yes.",
        )
    elif permission == "no role":
        if role is None:
            what = "has no task role"
        else:
            what = f"has a task role that does not exist ({role})"
        own_stream = f"{add_command} --report-stream monitor --register"
        advice = f"Give it a role, or send the report to the monitor's own stream: {own_stream}."
        yield problem(_ROLE, f"The task definition {what}.", advice)


def _without_monitor(
    definition: Mapping[str, object],
    containers: tuple[DefinedContainer, ...],
    add_command: str,
    default_image: str,
) -> Iterator[Finding]:
    """Why there is no monitor, and how to add it."""
    wrapped = next((container for container in containers if container.wraps_batch), None)
    if wrapped is not None:
        yield ok(
            _MONITOR,
            (
                f"The container {wrapped.name} runs the batch with 'task-profiler run', without a "
                "monitor."
            ),
        )
        return
    try:
        added = add_monitor(definition, AddMonitorOptions(image=default_image))
    except TaskProfilerError as error:
        yield problem(_MONITOR, f"There is no monitor. {error}")
        return
    yield problem(
        _MONITOR, "There is no monitor, so the runs have no report.", f"Add it: {add_command}."
    )
    for text in added.notes:
        yield note(_MONITOR, text)


def _form_findings(
    definition: Mapping[str, object], monitor: DefinedContainer, add_command: str
) -> Iterator[Finding]:
    """Whether the monitor is as add-monitor would make it today."""
    requested = monitor.variables.get(CONTAINER_VARIABLE)
    try:
        added = add_monitor(definition, AddMonitorOptions(container=requested))
    except TaskProfilerError as error:
        yield problem(_MONITOR, str(error))
        return
    if added.changes:
        text = f"The monitor differs from a newly added one. {' '.join(added.changes)}"
        yield note(_MONITOR, text, f"Make these changes: {add_command}.")
        return
    yield ok(_MONITOR, f"The container {monitor.name} is the monitor ({monitor.image}).")


def _bytes_of(memory_mb: float) -> int:
    return round(memory_mb * MIB)


def _as_container(container: DefinedContainer) -> ContainerMetadata:
    return ContainerMetadata(
        name=container.name,
        image=container.image,
        memory_limit_bytes=known(_bytes_of, container.memory_mb),
        log_driver=container.log_driver,
        log_options={name: str(value) for name, value in container.log_options.items()},
    )


def _processes(
    batch: DefinedContainer,
    monitor: DefinedContainer,
    definition: Mapping[str, object],
    settings: MonitorSettings,
) -> Iterator[Finding]:
    mode = definition.get("pidMode")
    sees_processes = mode in ("task", "host")
    if sees_processes:
        yield ok(
            task_checks.PIDS, f"The processes of {batch.name} will be visible (pidMode {mode})."
        )
    else:
        yield task_checks.processes_not_visible(batch.name)
    may_trace = sees_processes and monitor.may_trace
    yield task_checks.level_finding(sees_processes=sees_processes, may_trace=may_trace)
    if settings.stacks != "off":
        yield task_checks.call_stacks_finding(settings.stacks, may_trace=may_trace, py_spy="")


def _accelerators(
    batch: DefinedContainer, monitor: DefinedContainer, containers: tuple[DefinedContainer, ...]
) -> Iterator[Finding]:
    gpus = task_checks.GPUS
    neuron = task_checks.NEURON
    devices = monitor.neuron_devices
    if any(container.uses_gpu for container in containers):
        if monitor.environment.get("NVIDIA_VISIBLE_DEVICES"):
            yield ok(gpus, "The task has GPUs, and the driver makes them visible to the monitor.")
        else:
            yield problem(
                gpus, "The task has GPUs, but the monitor cannot see them.", task_checks.GPU_ADVICE
            )
    if batch.uses_neuron and devices:
        yield ok(neuron, f"The monitor has {format_count(len(devices), 'Neuron device')}.")
    elif batch.uses_neuron:
        yield problem(
            neuron,
            "The batch has Neuron devices, but the monitor has none.",
            task_checks.NEURON_ADVICE,
        )

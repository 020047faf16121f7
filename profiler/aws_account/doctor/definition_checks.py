"""Diagnoses a task definition before the first run: the findings of ``task_checks`` that it can
answer.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from profiler.aws_account.cloudformation_owners import ROLE_REMEDY
from profiler.aws_account.doctor import task_checks
from profiler.aws_account.doctor.findings import Finding, Level, note, ok, problem
from profiler.aws_account.ecr_images import ecr_image
from profiler.aws_account.instance_monitors import instance_monitor_of
from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.report_prerequisites import Permission, ReportPathReader, task_role
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.core.commands_to_copy import command_line, option_words
from profiler.core.container_roles import repository_of_image
from profiler.core.ecs_terms import (
    AWSLOGS,
    CONTAINER_VARIABLE,
    EXTERNAL,
    MONITOR_NAME,
    MONITOR_REPOSITORY,
    arn_account,
    arn_region,
)
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import text_or_none as string
from profiler.core.optional_math import known, known_values
from profiler.core.version import __version__
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
    cannot_be_pulled,
    no_registry_sentence,
    unreachable_notes,
)

MONITOR = "monitor"
_ROLE = "role"
_IMAGE = "image"
_NEW_ROLE = "Create the role again, or give the definition another one."
_EXECUTION_ROLE = "execution role"
SCHEDULES = "schedules"
UNKNOWN_PART = "unknown"
_PUSH = f"Push it with {command_line('setup', 'image')}, and set the address that it prints."
# The place of the task's id in the name of a log stream.
_ANY_TASK = "arn:aws:ecs:::task/cluster/TASK_ID"
_ENDPOINT = {"ECS_CONTAINER_METADATA_URI_V4": "http://169.254.170.2/v4/unknown"}


def add_monitor_command(
    *families: str,
    clusters: Sequence[str] = (),
    scheduled: bool = False,
    services: bool = False,
    image: str | None = None,
) -> str:
    """The command that adds or updates the monitor of these families alone."""
    words: list[str] = []
    for family in families:
        words += ("--family", family)
    for cluster in clusters:
        words += ("--cluster", cluster)
    if scheduled:
        words.append("--scheduled")
    if services:
        words.append("--services")
    words += option_words({"--image": image})
    return command_line("taskdef", "add-monitor", *words)


def schedule_findings(
    planned: PlannedFamily, targets: Iterable[ScheduledTarget]
) -> Iterator[Finding]:
    """Whether the targets of a family start a task, and the pinned ones among them the revision
    of the plan.
    """
    problems = pinned_target_problems(planned)
    for target in targets:
        if target.identity_key in problems:
            yield problems[target.identity_key]
        elif not target.is_pin_of(planned.revision_arn):
            continue
        elif target.pinned_revision == planned.revision:
            yield ok(SCHEDULES, f"The {target.title} starts {planned.revision}.")
        else:
            pin = f"The {target.title} is pinned to {target.pinned_revision}"
            yield note(SCHEDULES, f"{pin}, and does not start {planned.revision}.")


def pinned_target_problems(planned: PlannedFamily) -> dict[tuple[str, ...], Finding]:
    """The problems of the family's schedules and rules by the keys of their targets: they start
    nothing, or no monitor.
    """
    move_command = f"{add_monitor_command(planned.family)} --register --update-schedules"
    problems = {
        target.identity_key: unmonitored_finding(target, move_command)
        for target in planned.unmonitored
    }
    for dead in planned.dead:
        advice = f"Move it: {move_command}." if dead.is_movable else dead.remedy
        problems[dead.target.identity_key] = problem(SCHEDULES, dead.sentence, advice)
    return problems


def unmonitored_finding(target: ScheduledTarget, move_command: str) -> Finding:
    """The problem of a schedule that starts a revision without the monitor."""
    text = f"The {target.title} is pinned to {target.pinned_revision}, which has no monitor."
    if target.kind == "state":
        return problem(SCHEDULES, text, "Set a revision with a monitor there.")
    return problem(SCHEDULES, text, f"Move it: {move_command}; by hand if that skips it.")


def definition_findings(
    definition: Mapping[str, object], command: str, *, default_image: str
) -> Iterator[Finding]:
    """All findings about a definition as RegisterTaskDefinition accepts it; ``command`` is
    for the advice.
    """
    containers = read_containers(definition)
    try:
        monitor = find_monitor(containers)
    except TaskProfilerError as error:
        yield problem(MONITOR, str(error))
        return
    if monitor is None:
        yield from _missing_monitor_findings(definition, containers, command, default_image)
        return
    if instance_monitor_of(definition) is not None:
        yield ok(MONITOR, "It is the monitor of an EC2 instance, so the task has no batch.")
        return
    yield from _form_findings(definition, monitor, command)
    for text in architecture_notes(definition, monitor.image or ""):
        yield note(MONITOR, text)
    settings = read_settings({**monitor.variables, **_ENDPOINT})
    yield from task_checks.settings_findings(settings.problems)
    task = TaskMetadata(
        arn=_ANY_TASK,
        memory_limit_bytes=known(_mebibytes_to_bytes, task_memory_mb(definition)),
        containers=tuple(map(_as_container_metadata, containers)),
    )
    own = task.container_or_name_only(monitor.name)
    selection = select_batch(task, requested=settings.task.container, own=own)
    yield task_checks.batch_finding(selection)
    batches = [container for container in containers if container.name in selection.names]
    for batch in batches:
        described = _as_container_metadata(batch)
        yield from task_checks.limits_findings(described, task, own)
        yield from _process_findings(batch, monitor, definition, settings)
        yield from _accelerator_findings(batch, monitor, containers)
        yield task_checks.log_finding(described, task, settings, own)
    for text in unreachable_notes(definition, monitor.environment):
        yield problem(task_checks.LOG, text)
    if repository_of_image(monitor.image) == MONITOR_REPOSITORY:
        yield problem(
            MONITOR,
            no_registry_sentence(monitor.image or ""),
            _PUSH,
        )


def _monitor_image(planned: PlannedFamily) -> str | None:
    """The image of the monitor that the plan ends with, whatever its name is."""
    monitor = planned.changed.monitor or monitor_of(planned.changed.definition)
    return known(attrgetter("image"), monitor)


def execution_role_findings(
    planned: PlannedFamily, paths: ReportPathReader, level: Level
) -> tuple[Finding, ...]:
    """What is said of this level of the execution role, which pulls the monitor's image; nothing
    of what is unknown, or not needed.
    """
    role = string(planned.changed.definition.get("executionRoleArn"))
    image = _monitor_image(planned)
    found = known_values((_pull_problem(planned, paths),))
    if role and image and not found:
        found = _deleted_or_allowed(role.rpartition("/")[2], paths.may_role_pull(role, image))
    return tuple(finding for finding in found if finding.level == level)


def _deleted_or_allowed(role: str, permission: Permission | None) -> tuple[Finding, ...]:
    """The finding that an execution role does not exist, or that it suffices for the monitor's
    image; none if this is unknown.
    """
    if permission == "no role":
        return (
            problem(
                _EXECUTION_ROLE,
                f"The execution role {role} does not exist, so ECS starts no task.",
                _NEW_ROLE,
            ),
        )
    if permission == "allowed":
        text = f"The policies of the execution role {role} allow the pull of the monitor's image."
        return (ok(_EXECUTION_ROLE, text),)
    return ()


def _pull_problem(planned: PlannedFamily, paths: ReportPathReader) -> Finding | None:
    """Why the execution role certainly does not pull the monitor's image, or why there is none
    that could; None: it does, this is unknown, or the role is gone.
    """
    role = string(planned.changed.definition.get("executionRoleArn"))
    image = _monitor_image(planned)
    if not image:
        return None
    if not role:
        return _missing_execution_role(planned, image)
    denial = paths.denial_of_role(
        paths.may_role_pull(role, image),
        "execution role",
        role.rpartition("/")[2],
        f"the pull of the monitor's image ({image})",
        "Attach the policy AmazonECSTaskExecutionRolePolicy, or allow ecr:GetAuthorizationToken, "
        "ecr:BatchGetImage and ecr:GetDownloadUrlForLayer.",
    )
    return None if denial is None else problem(_EXECUTION_ROLE, denial.text, denial.remedy)


def _missing_execution_role(planned: PlannedFamily, image: str) -> Finding | None:
    """A definition for external instances alone, whose monitor needs an execution role for its
    image or its log. On EC2, the instance's role does; on Fargate, ECS refuses the definition.

    https://docs.aws.amazon.com/AmazonECS/latest/developerguide/security-ecs-iam-role-overview.html
    """
    compatibilities = planned.changed.definition.get("requiresCompatibilities")
    if compatibilities != [EXTERNAL]:
        return None
    containers = planned.changed.containers
    drivers = [one.log_driver for one in containers if one.name != MONITOR_NAME]
    if ecr_image(image) is not None:
        what = f"pulls no image from Amazon ECR ({image})"
    elif AWSLOGS not in drivers:
        what = f"writes no log by {AWSLOGS}"
    else:
        return None
    return problem(
        _EXECUTION_ROLE,
        f"The definition has no executionRoleArn, without which an external instance {what}.",
        "Give it a role with the policy AmazonECSTaskExecutionRolePolicy.",
    )


def image_problems(planned: PlannedFamily, paths: ReportPathReader) -> tuple[Finding, ...]:
    """The problem of a monitor whose image the account's registry lacks; none: it is there, in
    another registry, or unknown.
    """
    image = _monitor_image(planned) or ""
    if image and cannot_be_pulled(planned.changed.definition, image):
        return (problem(_IMAGE, no_registry_sentence(image), _PUSH),)
    missing = paths.missing_image(image, arn_account(planned.revision_arn))
    if missing is None:
        return ()
    remedy = "push it, or name another image with --image"
    is_here = missing.region == arn_region(planned.revision_arn)
    if is_here and missing.name_without_registry == f"{MONITOR_REPOSITORY}:{__version__}":
        remedy = f"run {command_line('setup', 'image')}, or name another image with --image"
    where = "" if is_here else f" in {missing.region}"
    what = (
        f"ECR{where} has no image {missing.name_without_registry}, without which the tasks "
        "do not start"
    )
    return (problem(_IMAGE, f"{what}: {remedy}."),)


def image_pull_obstacle(planned: PlannedFamily, paths: ReportPathReader) -> str | None:
    """Why the monitor's image would keep the tasks of a definition from starting; None: it does
    not, or this is unknown.

    A role that does not exist is no obstacle: without it, no task starts anyway.
    """
    found = known_values((*image_problems(planned, paths), _pull_problem(planned, paths)))
    return next((f"{finding.text} {finding.advice or ''}".rstrip() for finding in found), None)


def start_problems(
    planned: PlannedFamily,
    permission: Permission | None,
    paths: ReportPathReader,
    command: str,
    *,
    of_all: str = "",
) -> Iterator[Finding]:
    """What keeps the tasks of a family from starting, or its monitor from reporting, in the
    account: the monitor's image, and the roles.

    ``permission`` is whether the task role may report; ``command`` changes this family alone, and
    ``of_all`` all families of a plan, if it is part of one.
    """
    yield from image_problems(planned, paths)
    yield from execution_role_findings(planned, paths, "problem")
    role = task_role(planned.changed.definition)
    # It changes roles alone, so that one command and one sentence are for all families.
    of_roles = of_all or command
    remedy = f"Allow it: {of_roles} --attach-policy --yes."
    owner = paths.why_stack_owns_role(role) if role and permission == "denied" else None
    if owner is not None:
        remedy = f"It is not changed, because {owner}. {ROLE_REMEDY.format(f'{of_roles} --policy')}"
    what = "logs:PutLogEvents for the report"
    denial = paths.denial_of_role(permission, "task role", role or "", what, remedy)
    if denial is not None:
        yield problem(_ROLE, denial.text, denial.remedy)
    elif permission == "no role" and not role:
        own_stream = f"{command} --report-stream monitor --register"
        advice = f"Give it a role, or send the report to the monitor's own stream: {own_stream}."
        yield problem(_ROLE, "The task definition has no task role.", advice)
    elif permission == "no role":
        yield problem(
            _ROLE,
            f"The task definition has a task role that does not exist ({role}), so ECS starts no "
            "task.",
            _NEW_ROLE,
        )


def _missing_monitor_findings(
    definition: Mapping[str, object],
    containers: tuple[DefinedContainer, ...],
    command: str,
    default_image: str,
) -> Iterator[Finding]:
    """Why there is no monitor, and how to add it."""
    wrapped = next((container for container in containers if container.wraps_batch), None)
    if wrapped is not None:
        yield ok(
            MONITOR,
            (
                f"The container {wrapped.name} runs the batch with 'task-profiler run', without a "
                "monitor."
            ),
        )
        return
    try:
        added = add_monitor(definition, AddMonitorOptions(image=default_image))
    except TaskProfilerError as error:
        yield problem(MONITOR, f"There is no monitor. {error}")
        return
    yield problem(
        MONITOR, "There is no monitor, so the runs have no report.", f"Add it: {command}."
    )
    for text in added.notes:
        yield note(MONITOR, text)


def _form_findings(
    definition: Mapping[str, object], monitor: DefinedContainer, command: str
) -> Iterator[Finding]:
    """Whether the monitor is as add-monitor would make it today."""
    requested = monitor.variables.get(CONTAINER_VARIABLE)
    try:
        added = add_monitor(definition, AddMonitorOptions(container=requested))
    except TaskProfilerError as error:
        yield problem(MONITOR, str(error))
        return
    if added.changes:
        text = f"The monitor differs from a newly added one. {' '.join(added.changes)}"
        yield note(MONITOR, text, f"Make these changes: {command}.")
        return
    yield ok(MONITOR, f"The container {monitor.name} is the monitor ({monitor.image}).")


def _mebibytes_to_bytes(memory_mb: float) -> int:
    return round(memory_mb * MIB)


def _as_container_metadata(container: DefinedContainer) -> ContainerMetadata:
    return ContainerMetadata(
        name=container.name,
        image=container.image,
        memory_limit_bytes=known(_mebibytes_to_bytes, container.memory_mb),
        log_driver=container.log_driver,
        log_options={name: str(value) for name, value in container.log_options.items()},
    )


def _process_findings(
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
        yield task_checks.processes_not_visible_finding(batch.name)
    may_trace = sees_processes and monitor.may_trace
    yield task_checks.level_finding(sees_processes=sees_processes, may_trace=may_trace)
    if settings.stacks != "off":
        yield task_checks.call_stacks_finding(settings.stacks, may_trace=may_trace, py_spy="")


def _accelerator_findings(
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

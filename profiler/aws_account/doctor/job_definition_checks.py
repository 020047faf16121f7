"""Diagnoses a job definition of AWS Batch before its first job."""

from collections.abc import Iterator

from profiler.aws_account.doctor.definition_checks import MONITOR
from profiler.aws_account.doctor.findings import Finding, note, ok, problem
from profiler.core.ecs_terms import CONTAINER_VARIABLE
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import text_or_none
from profiler.task_definitions.containers import (
    DefinedContainer,
    find_monitor,
    read_container,
)
from profiler.task_definitions.job_definitions import (
    JobDefinition,
    container_objects,
    is_on_fargate,
    total_share,
)
from profiler.task_definitions.job_monitor import add_to_job
from profiler.task_definitions.monitor_changes import AddMonitorOptions
from profiler.task_definitions.monitor_container import default_image

_SIZE = "size"


def job_definition_findings(job: JobDefinition, command: str) -> Iterator[Finding]:
    """All findings about a job definition; ``command`` is for the advice."""
    containers: tuple[DefinedContainer, ...] = ()
    try:
        containers = tuple(map(read_container, container_objects(job.definition)))
        monitor = find_monitor(containers)
    except TaskProfilerError as error:
        yield problem(MONITOR, str(error))
        return
    wrapped = [container.name for container in containers if container.wraps_batch]
    if monitor is not None:
        yield from _monitor_findings(job, monitor, command)
    elif wrapped:
        yield ok(
            MONITOR,
            f"The command of {wrapped[0]!r} begins with task-profiler run, which reports on it.",
        )
    else:
        yield from _missing_monitor_findings(job, command)
    total = total_share(container_objects(job.definition))
    if not is_on_fargate(job.definition) or not containers:
        return
    if total is None:
        yield problem(
            _SIZE,
            "A container has no VCPU or no MEMORY, which Fargate requires.",
            "Set both in its resourceRequirements.",
        )
    elif not total.is_legal_on_fargate:
        yield problem(
            _SIZE,
            f"The containers ask for {total.text} together, which is no size of Fargate.",
            "Change them so that their sum is one.",
        )
    else:
        yield ok(_SIZE, f"A job asks for {total.text}, a size of Fargate.")


def _monitor_findings(
    job: JobDefinition, monitor: DefinedContainer, command: str
) -> Iterator[Finding]:
    """Whether the monitor is as add-monitor would make it today."""
    requested = text_or_none(monitor.variables.get(CONTAINER_VARIABLE))
    try:
        added = add_to_job(job, AddMonitorOptions(container=requested), wraps=False)
    except TaskProfilerError as error:
        yield problem(MONITOR, str(error))
        return
    if added.definition != job.definition:
        yield note(MONITOR, " ".join(added.notes), f"Make these changes: {command}.")
        return
    yield ok(MONITOR, f"The container {monitor.name} is the monitor ({monitor.image}).")
    for sentence in added.notes:
        yield problem(MONITOR, sentence)


def _missing_monitor_findings(job: JobDefinition, command: str) -> Iterator[Finding]:
    """How to get reports: a second container, else the wrapper."""
    reasons = []
    for wraps, option in ((False, ""), (True, " --wrap")):
        try:
            added = add_to_job(job, AddMonitorOptions(image=default_image(job.arn)), wraps=wraps)
        except TaskProfilerError as error:
            reasons.append(str(error))
            continue
        yield problem(
            MONITOR,
            "There is no monitor, so the jobs have no report.",
            f"Add it: {command}{option}.",
        )
        for sentence in added.notes:
            yield note(MONITOR, sentence)
        return
    yield problem(MONITOR, f"There is no monitor. {reasons[-1]}")

"""``task-profiler doctor --task`` and ``--family``: reads a task definition and diagnoses it."""

from collections.abc import Iterator, Mapping
from shlex import quote

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.registered_definitions import TaskDefinitions, revision_of
from profiler.aws_account.scheduled_targets import ScheduledTarget, Schedules
from profiler.cli.taskdef.definition_output import STANDARD_INPUT, read_input, source_name
from profiler.cli.wiring.aws_options import open_clients
from profiler.core.errors import TaskProfilerError
from profiler.doctor.definition_checks import SCHEDULES, definition_findings, schedule_findings
from profiler.doctor.findings import Finding, note
from profiler.task_definitions.cloudformation import change_template, is_template
from profiler.task_definitions.containers import default_image
from profiler.task_definitions.definition_json import ChangedDefinition, TaskDefinitionDocument, read_document

_ADD = "task-profiler taskdef add-monitor"


def findings_of_file(file: str) -> Iterator[Finding]:
    """The findings about the definition in a file, a template or standard input.

    Raises:
        TaskProfilerError: if it cannot be read.
    """
    data, name = read_input(file), source_name(file)
    command = f"{_ADD} {quote(file)}" + ("" if file == STANDARD_INPUT else " --in-place")
    if is_template(data):
        for definition in _definitions_of_template(data, name):
            yield from definition_findings(definition, command, default_image=default_image(None))
    else:
        yield from _findings(read_document(data, name), command)


def findings_of_family(family: str, region: str | None, profile: str | None) -> Iterator[Finding]:
    """The findings about a family's latest revision in ECS, or ``family:revision``, and its pinned schedules.

    Raises:
        TaskProfilerError: if the definition cannot be read.
    """
    open_client = open_clients(region, profile)
    definitions = TaskDefinitions(open_client("ecs"))
    document = read_document(definitions.describe(family), family)
    command = f"{_ADD} --family {quote(family.partition(':')[0])} --register"
    yield from _findings(document, command)
    try:
        pinned = tuple(_pinned_schedules(open_client, definitions, document.arn or ""))
    except TaskProfilerError as error:
        yield note(SCHEDULES, f"{error} Whether they start this revision is unknown.")
        return
    revision = revision_of(document.arn or "") or family
    yield from schedule_findings(document.definition, revision, pinned, f"{command} --update-schedules")


def _findings(document: TaskDefinitionDocument, command: str) -> Iterator[Finding]:
    return definition_findings(document.definition, command, default_image=default_image(document.arn))


def _pinned_schedules(
    open_client: OpenClient, definitions: TaskDefinitions, revision_arn: str
) -> Iterator[tuple[ScheduledTarget, Mapping[str, object]]]:
    for target in Schedules(open_client("events"), open_client("scheduler")).targets():
        if target.is_pin_of(revision_arn):
            revision = target.pinned_revision or ""
            yield target, read_document(definitions.describe(revision), revision).definition


def _definitions_of_template(data: bytes, name: str) -> tuple[Mapping[str, object], ...]:
    definitions: list[Mapping[str, object]] = []

    def collect(definition: Mapping[str, object], _region: Mapping[str, object]) -> ChangedDefinition:
        definitions.append(definition)
        return ChangedDefinition(definition=definition)

    change_template(data, name, collect)
    return tuple(definitions)

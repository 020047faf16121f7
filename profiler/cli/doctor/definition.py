"""``task-profiler doctor --task`` and ``--family``: reads a task definition and diagnoses it."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote

from profiler import __version__
from profiler.cli.taskdef.definition_files import read_bytes
from profiler.cli.taskdef.ecs import TaskDefinitions, open_clients
from profiler.cli.taskdef.files import STANDARD_INPUT
from profiler.doctor.definition import definition_findings
from profiler.doctor.findings import Finding
from profiler.taskdef.cloudformation import DefinitionChange, change_template, is_template
from profiler.taskdef.containers import default_image
from profiler.taskdef.document import read_document

_ADD = "task-profiler taskdef add-monitor"


def findings_of_definition(
    file: str | None, family: str | None, region: str | None, profile: str | None
) -> Iterator[Finding]:
    """The findings about the definition in ``file``, else about that of ``family`` in ECS.

    Raises:
        TaskProfilerError: if it cannot be read.
    """
    if file is None:
        name = family or ""
        data = TaskDefinitions(open_clients(region, profile)("ecs")).describe(name)
        command = f"{_ADD} --family {quote(name.partition(':')[0])} --register"
    else:
        name = "standard input" if file == STANDARD_INPUT else file
        data = sys.stdin.buffer.read() if file == STANDARD_INPUT else read_bytes(Path(file))
        command = f"{_ADD} {quote(file)}" + ("" if file == STANDARD_INPUT else " --in-place")
    if file is not None and is_template(data):
        for definition in _definitions_of_template(data, name):
            yield from definition_findings(definition, command, default_image=default_image(None, __version__))
        return
    document = read_document(data, name)
    yield from definition_findings(document.definition, command, default_image=default_image(document.arn, __version__))


def _definitions_of_template(data: bytes, name: str) -> tuple[Mapping[str, object], ...]:
    found: list[Mapping[str, object]] = []

    def collect(definition: Mapping[str, object], _region: Mapping[str, object]) -> DefinitionChange:
        found.append(definition)
        return DefinitionChange(definition=definition)

    change_template(data, name, collect)
    return tuple(found)

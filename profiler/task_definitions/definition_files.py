"""Files with task definitions: reads and writes them, and applies a recommended size."""

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from profiler.core.ecs_terms import FARGATE
from profiler.core.errors import TaskProfilerError
from profiler.core.files import write_atomically
from profiler.core.json_fields import mapping, text
from profiler.record.record_model import TaskSize
from profiler.record.units import format_task_size
from profiler.sizing.choose_size import DeploymentTarget
from profiler.task_definitions.cloudformation import change_template, is_template
from profiler.task_definitions.definition_json import (
    ChangedDefinition,
    ChangedText,
    TaskDefinitionDocument,
    read_document,
)
from profiler.task_definitions.json_edits import with_members
from profiler.task_definitions.resize import with_size

_NEW_FILE_MODE = 0o644
_LAUNCH_TYPES = (FARGATE, "MANAGED_INSTANCES", "EC2")
_WINDOWS = "WINDOWS"
_X86 = "X86_64"
# Changes a definition: (definition, the ARN of its revision, a template's reference to the Region of its stack).
ChangeDefinition: TypeAlias = Callable[
    [Mapping[str, object], str | None, Mapping[str, object] | None], ChangedDefinition
]


class DefinitionFile(Struct, frozen=True, kw_only=True):
    """A task definition, its file, and the file's content."""

    path: Path
    data: bytes
    document: TaskDefinitionDocument

    @property
    def families(self) -> tuple[str, ...]:
        """The definition's family, if it has one."""
        family = text(self.document.definition.get("family"))
        return () if family is None else (family,)

    @property
    def target(self) -> DeploymentTarget:
        """Where its tasks will run: on Fargate if it requires that. The default of Fargate is Linux on X86_64."""
        required = self.document.definition.get("requiresCompatibilities")
        compatibilities = required if isinstance(required, list) else []
        platform = mapping(self.document.definition.get("runtimePlatform"))
        architecture = text(platform.get("cpuArchitecture")) or _X86
        return DeploymentTarget(
            launch_type=next((name for name in _LAUNCH_TYPES if name in compatibilities), None),
            cpu_architecture=architecture if FARGATE in compatibilities else None,
            windows=(text(platform.get("operatingSystemFamily")) or "").upper().startswith(_WINDOWS),
        )


def change_text(data: bytes, source_name: str, change: ChangeDefinition) -> ChangedText:
    """Change the task definition in a document, or each one in a CloudFormation template.

    Args:
        data: The document.
        source_name: Its name in error messages.
        change: Changes a definition.

    Raises:
        TaskProfilerError: if the document cannot be read, or a definition cannot be changed.
    """
    if is_template(data):
        return change_template(data, source_name, lambda definition, region: change(definition, None, region))
    document = read_document(data, source_name)
    changed = change(document.definition, document.arn, None)
    return ChangedText(
        before=document.text(document.definition),
        after=document.text(changed.definition),
        is_changed=changed.definition != document.definition or document.is_from_ecs,
        notes=changed.notes,
    )


def read_definition_file(path: Path) -> DefinitionFile:
    """Read a task definition. Raises TaskProfilerError if the file cannot be read or has no task definition."""
    data = read_bytes(path)
    return DefinitionFile(path=path, data=data, document=read_document(data, str(path)))


def read_bytes(path: Path) -> bytes:
    """Read the file. Raises TaskProfilerError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise TaskProfilerError(
            f"{path} cannot be read ({error.strerror}): name the file of a task definition."
        ) from error


def write_definition(path: Path, content: bytes, *, remedy: str) -> None:
    """Replace the file. An existing file keeps its permissions, and a link stays a link.

    Args:
        path: The file.
        content: The new content.
        remedy: What to do if the file cannot be written, for the error sentence.

    Raises:
        TaskProfilerError: if the file cannot be written.
    """
    try:
        target = path.resolve()
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else _NEW_FILE_MODE
        write_atomically(target, content, mode=mode)
    except OSError as error:
        raise TaskProfilerError(f"{path} cannot be written ({error.strerror}): {remedy}.") from error


def apply_size(file: DefinitionFile, size: TaskSize) -> str:
    """Write the size into the file and return a sentence about the result.

    The file is not touched if it already has this size. Only the size changes in it; a response of ECS becomes the
    definition in it.
    """
    before = file.document.definition
    changed = with_size(before, size)
    if changed == before and not file.document.is_from_ecs:
        return f"{file.path} has the recommended size already."
    if file.document.is_from_ecs:
        content = file.document.text(changed)
    else:
        changes = {name: str(value) for name, value in changed.items() if value != before.get(name)}
        content = with_members(file.data, changes)
    write_definition(file.path, content, remedy="make it writable")
    return f"{file.path} has {format_task_size(size.vcpu, size.memory_mb) or '-'} now."

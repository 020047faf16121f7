"""Files with task definitions: reads and writes them, and applies a recommended size.

A new size changes two members in the text of a file: everything else keeps its place and its form.
"""

import json
import re
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
from profiler.task_definitions.containers import read_containers, task_memory_mb
from profiler.task_definitions.definition_json import (
    ChangedDefinition,
    ChangedText,
    TaskDefinitionDocument,
    read_document,
)
from profiler.task_definitions.monitor_changes import check_platform

_LAUNCH_TYPES = (FARGATE, "MANAGED_INSTANCES", "EC2")
# Changes a definition: (definition, the ARN of its revision, a template's reference to the Region of its stack).
ChangeDefinition: TypeAlias = Callable[
    [Mapping[str, object], str | None, Mapping[str, object] | None], ChangedDefinition
]
_CPU_UNITS = 1024
_TASK_CPU = re.compile(r"\s*(\d{0,6}\.?\d{1,6})\s*(vcpu)?\s*", re.ASCII | re.IGNORECASE)
_SPACE = re.compile(r"[ \t\r\n]*")
_ERRORS = "surrogatepass"  # as json reads bytes


class DefinitionFile(Struct, frozen=True, kw_only=True):
    """A task definition, its file, and the file's content."""

    path: Path
    data: bytes
    document: TaskDefinitionDocument

    @property
    def families(self) -> tuple[str, ...]:
        family = text(self.document.definition.get("family"))
        return () if family is None else (family,)

    @property
    def target(self) -> DeploymentTarget:
        """Where its tasks will run: on Fargate if it requires that. The default of Fargate is Linux on X86_64.

        Raises TaskProfilerError for a definition of Windows.
        """
        check_platform(self.document.definition)
        required = self.document.definition.get("requiresCompatibilities")
        compatibilities = required if isinstance(required, list) else []
        platform = mapping(self.document.definition.get("runtimePlatform"))
        architecture = text(platform.get("cpuArchitecture")) or "X86_64"
        return DeploymentTarget(
            launch_type=next((name for name in _LAUNCH_TYPES if name in compatibilities), None),
            cpu_architecture=architecture if FARGATE in compatibilities else None,
        )


def change_text(data: bytes, source_name: str, change: ChangeDefinition) -> ChangedText:
    """Change the task definition in a document, or each one in a template, which ``source_name`` names in errors.

    Raises TaskProfilerError if the document cannot be read, or a definition cannot be changed.
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

    Raises TaskProfilerError with the remedy if it cannot be written.
    """
    try:
        target = path.resolve()
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
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


def with_size(definition: Mapping[str, object], size: TaskSize) -> Mapping[str, object]:
    """Set the task's ``cpu`` and ``memory``; a part of ``size`` that is None, and the containers, do not change.

    Raises TaskProfilerError if the containers do not fit into the new size, which ECS would refuse.
    """
    changes: dict[str, str] = {}
    if size.vcpu is not None:
        units = round(size.vcpu * _CPU_UNITS)
        reserved = sum(container.cpu_units for container in read_containers(definition))
        if reserved > units:
            raise TaskProfilerError(
                f"The containers reserve {reserved} CPU units, more than the {units} recommended for the task, which "
                "ECS refuses: lower their cpu first."
            )
        # An equal size in another notation ("1 vCPU", "2 GB") does not change.
        match = _TASK_CPU.fullmatch(str(definition.get("cpu")))
        if match is None or float(match[1]) * (_CPU_UNITS if match[2] else 1) != units:
            changes["cpu"] = str(units)
    if size.memory_mb is not None:
        _check_memory(definition, size.memory_mb)
        if task_memory_mb(definition) != size.memory_mb:
            changes["memory"] = f"{size.memory_mb:.0f}"
    return {**definition, **changes}


def _check_memory(definition: Mapping[str, object], memory_mb: float) -> None:
    containers = read_containers(definition)
    for container in containers:
        if container.memory_mb is not None and container.memory_mb > memory_mb:
            raise TaskProfilerError(
                f"The container {container.name!r} has a limit of {container.memory_mb} MiB, above the {memory_mb:.0f} "
                "MiB recommended for the task, which ECS refuses: lower or remove its memory first."
            )
    reserved_mb = sum(container.memory_reservation_mb or container.memory_mb or 0 for container in containers)
    if reserved_mb > memory_mb:
        raise TaskProfilerError(
            f"The containers reserve {reserved_mb} MiB, more than the {memory_mb:.0f} MiB recommended for the task, "
            "which ECS refuses: lower their memory or memoryReservation first."
        )


def with_members(data: bytes, changes: Mapping[str, str]) -> bytes:
    """Set members of the outermost object, which ``data`` must be. A member that is missing becomes the first one."""
    encoding = json.detect_encoding(data)
    text = data.decode(encoding, _ERRORS)
    first, spans = _member_spans(text)
    edits = []
    for name, value in changes.items():
        encoded = json.dumps(value)
        start, end = spans.get(name, (first, first))
        space = text[text.index("{") + 1 : first]
        edits.append((start, end, encoded if name in spans else f'"{name}": {encoded},{space}'))
    for start, end, encoded in sorted(edits, reverse=True):
        text = text[:start] + encoded + text[end:]
    return text.encode(encoding, _ERRORS)


def _member_spans(text: str) -> tuple[int, dict[str, tuple[int, int]]]:
    """Where the first member begins, and where the value of each member begins and ends."""
    decoder = json.JSONDecoder()
    spans: dict[str, tuple[int, int]] = {}
    at = first = _skip_space(text, _skip_space(text, 0) + 1)
    while text[at] != "}":
        name, at = decoder.raw_decode(text, at)
        start = _skip_space(text, _skip_space(text, at) + 1)
        _, end = decoder.raw_decode(text, start)
        spans[name] = start, end
        at = _skip_space(text, end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)
    return first, spans


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()

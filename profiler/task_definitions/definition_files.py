"""Files with task definitions: reads and writes them."""

import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from profiler.core.ecs_terms import FARGATE
from profiler.core.errors import TaskProfilerError
from profiler.core.files import write_atomically
from profiler.core.json_fields import mapping, text
from profiler.record.record_model import TaskSize
from profiler.record.units import format_task_size
from profiler.sizing.choose_size import DeploymentTarget
from profiler.task_definitions.definition_json import ChangedDefinition
from profiler.task_definitions.definition_texts import change_text, read_definitions
from profiler.task_definitions.monitor_changes import check_platform
from profiler.task_definitions.size_changes import with_size

_LAUNCH_TYPES = (FARGATE, "MANAGED_INSTANCES", "EC2")


class DefinitionFile(Struct, frozen=True, kw_only=True):
    """A file with task definitions, and its content."""

    path: Path
    data: bytes
    definitions: tuple[Mapping[str, object], ...]

    @property
    def families(self) -> tuple[str, ...]:
        found = (text(definition.get("family")) for definition in self.definitions)
        return tuple(family for family in found if family is not None)

    def definition_of(self, family: str) -> Mapping[str, object]:
        """The definition of the family, or the only one. Raises TaskProfilerError if there is none."""
        for definition in self.definitions:
            if len(self.definitions) == 1 or definition.get("family") == family:
                return definition
        raise TaskProfilerError(f"{self.path} has several task definitions, but none of the family {family}: name it.")


def target_of(definition: Mapping[str, object]) -> DeploymentTarget:
    """Where its tasks will run: on Fargate if it requires that. The default of Fargate is Linux on X86_64.

    Raises TaskProfilerError for a definition of Windows.
    """
    check_platform(definition)
    required = definition.get("requiresCompatibilities")
    compatibilities = required if isinstance(required, list) else []
    architecture = text(mapping(definition.get("runtimePlatform")).get("cpuArchitecture")) or "X86_64"
    return DeploymentTarget(
        launch_type=next((name for name in _LAUNCH_TYPES if name in compatibilities), None),
        cpu_architecture=architecture if FARGATE in compatibilities else None,
    )


def read_definition_file(path: Path) -> DefinitionFile:
    """Read a file. Raises TaskProfilerError if it cannot be read or has no task definition."""
    data = read_bytes(path)
    found = read_definitions(data, str(path))
    return DefinitionFile(path=path, data=data, definitions=tuple(definition for definition, _ in found))


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


def apply_size(file: DefinitionFile, family: str, size: TaskSize) -> tuple[str, ...]:
    """Write the size of the family into the file and return sentences about the result.

    The file is not touched if it already has this size. Only the size changes in it; a response of ECS becomes the
    definition in it. Raises TaskProfilerError if the definition cannot have this size.
    """
    own = file.definition_of(family)

    def change(definition: Mapping[str, object], *_: object) -> ChangedDefinition:
        return with_size(definition, size) if definition == own else ChangedDefinition(definition=definition)

    changed = change_text(file.data, str(file.path), change)
    if not changed.is_changed:
        return (f"{file.path} has the recommended size already.",)
    write_definition(file.path, changed.after, remedy="make it writable")
    return f"{file.path} has {format_task_size(size.vcpu, size.memory_mb) or '-'} now.", *changed.notes

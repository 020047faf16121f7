"""The recommended size, written into a task definition's file."""

import stat
from pathlib import Path

from msgspec import Struct

from profiler.cli.whole_file import write_atomically
from profiler.errors import TaskProfilerError
from profiler.record import TaskSize
from profiler.rightsizing import DeploymentTarget
from profiler.sizing.advice import Advice
from profiler.sizing.reasons import memory, vcpus
from profiler.taskdef.document import TaskDefinitionDocument, read_document
from profiler.taskdef.resize import read_run_target, with_size


class DefinitionFile(Struct, frozen=True, kw_only=True):
    """A task definition and the file it is in."""

    path: Path
    document: TaskDefinitionDocument

    @property
    def families(self) -> tuple[str, ...]:
        """Its family, if it has one."""
        family = read_run_target(self.document.definition).family
        return () if family is None else (family,)

    @property
    def target(self) -> DeploymentTarget:
        """Where its tasks are to run."""
        runs = read_run_target(self.document.definition)
        return DeploymentTarget(
            launch_type=runs.launch_type, cpu_architecture=runs.cpu_architecture, windows=runs.windows
        )


def read_definition(path: Path) -> DefinitionFile:
    """Raises TaskProfilerError if the file cannot be read or is no task definition."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TaskProfilerError(f"{path} cannot be read ({error.strerror}): name a task definition's file.") from error
    return DefinitionFile(path=path, document=read_document(data, str(path)))


def apply_size(definition: DefinitionFile, advice: Advice) -> str:
    """Write the size; the sentence says what was done. A file that has it already is not touched."""
    size = advice.choice.size
    document, path = definition.document, definition.path
    changed = with_size(document.definition, size)
    if changed == document.definition and not document.is_from_ecs:
        return f"{path} has the recommended size already."
    try:
        target = path.resolve()
        write_atomically(target, document.text(changed), mode=stat.S_IMODE(target.stat().st_mode))
    except OSError as error:
        raise TaskProfilerError(f"{path} cannot be written ({error.strerror}): make it writable.") from error
    return f"{path} has {format_size(size)} now."


def format_size(size: TaskSize) -> str:
    """``1 vCPU, 2048 MB``."""
    parts = (
        None if size.vcpu is None else vcpus(size.vcpu),
        None if size.memory_mb is None else memory(size.memory_mb),
    )
    return ", ".join(part for part in parts if part) or "-"

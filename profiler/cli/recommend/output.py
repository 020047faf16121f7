"""Recommendations for people, and the recommended size written into a task definition's file."""

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from profiler.cli.output import printable
from profiler.core.errors import TaskProfilerError
from profiler.core.files import write_atomically
from profiler.record.model import TaskSize
from profiler.sizing.advice import Advice
from profiler.sizing.policy import DeploymentTarget
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


_UNKNOWN = "-"
_COLOURS = {"high": "green", "medium": "yellow", "low": "red"}


def table(advices: Sequence[Advice]) -> Table:
    """A line a family; nothing in it is taken for markup."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    shown.add_column("Family", overflow="fold")
    shown.add_column("Runs", justify="right", no_wrap=True)
    shown.add_column("Current", no_wrap=True)
    shown.add_column("Recommended", no_wrap=True)
    shown.add_column("Saving", justify="right", no_wrap=True)
    shown.add_column("Confidence", no_wrap=True)
    for advice in advices:
        choice = advice.choice
        shown.add_row(
            Text(printable(advice.family)),
            str(advice.evidence.runs),
            _UNKNOWN if choice.current is None else format_size(choice.current),
            Text(format_size(choice.size), style="bold" if choice.changes else ""),
            _saving(choice.saving_percent),
            Text(advice.confidence, style=_COLOURS[advice.confidence]),
        )
    return shown


def sentences(advices: Sequence[Advice]) -> Iterator[Padding | Text]:
    """The reasons of each family."""
    for advice in advices:
        yield Text(f"\n{printable(advice.family)}", style="bold")
        for reason in advice.reasons:
            yield Padding(Text(f"- {printable(reason)}"), (0, 0, 0, 2), expand=False)


def _saving(percent: float | None) -> str:
    return _UNKNOWN if percent is None else f"{percent:.0f} %"

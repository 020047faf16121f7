"""Finds the sizes of task definitions that are written as plain numbers in a file of Terraform, in
YAML or in a template of CloudFormation. Such a file is read, and never written.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.definition_texts import LocatedDefinition, located_definitions
from profiler.task_definitions.json_yaml_tree import decoded_text

_SIZES = ("cpu", "memory")
_RESOURCE = re.compile(r'\s*resource\s+"aws_ecs_task_definition"\s+"([^"]+)"\s*\{')
_JOB_RESOURCE = '"aws_batch_job_definition"'
_MEMBER = re.compile(r"\s*(family|cpu|memory|count|for_each)\s*=\s*(.+?)\s*")
_NAME = re.compile(r'"[\w-]+"', re.ASCII)
_NUMBER = re.compile(r'\d+|"\d+"', re.ASCII)
_TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"')
# What is no code: comments and here-documents. A text is matched first, and kept.
_NO_CODE = re.compile(
    _TEXT.pattern + r"|(?:#|//)[^\n]*|/\*.*?(?:\*/|\Z)|<<-?(\w+)\r?\n.*?(?:^[ \t]*\1\s*$|\Z)",
    re.DOTALL | re.MULTILINE,
)


class WrittenSize(Struct, frozen=True, kw_only=True):
    """A definition in ``file``, what of its size is a number, and the lines of ``cpu`` and
    ``memory``.

    ``unnamed``: why no family's runs are its own, in a sentence; None if a family's are.
    """

    file: str
    definition: Mapping[str, object]
    lines: Mapping[str, int]
    unnamed: str | None = None

    def edit_hints(self, sized: Mapping[str, object]) -> Iterator[str]:
        """Where to write the size of another definition, if it is a plain number there."""
        for name in _SIZES:
            present = self.definition.get(name)
            if name in self.lines and present not in (None, sized.get(name)):
                line = self.lines[name]
                yield f"{self.file}:{line}: {name} is {present}, set {sized[name]}."


def is_only_read(data: bytes, file: str) -> bool:
    """Whether the file is one whose sizes are named and not changed. Raises TaskProfilerError."""
    if file.endswith(".tf"):
        return True
    return any(located.is_only_read for located in located_definitions(data, file))


def written_sizes(data: bytes, file: str) -> Sequence[WrittenSize]:
    """The definitions of such a file. Raises TaskProfilerError if there are none."""
    if file.endswith(".tf"):
        return _sizes_of_terraform(data, file)
    return [_located_size(located, file) for located in located_definitions(data, file)]


def _located_size(located: LocatedDefinition, file: str) -> WrittenSize:
    return WrittenSize(file=file, definition=located.definition, lines=located.size_lines)


def _sizes_of_terraform(data: bytes, file: str) -> Sequence[WrittenSize]:
    """The resources of task definitions."""
    code = _NO_CODE.sub(_kept_text, decoded_text(data, file))
    rows = list(enumerate(code.split("\n"), start=1))
    resources = []
    for at, (_, row) in enumerate(rows):
        start = _RESOURCE.match(row)
        if start:
            resources.append(_size_of_resource(rows[at:], file, start[1]))
    if not resources:
        of_jobs = ""
        if _JOB_RESOURCE in code:
            of_jobs = (
                " Job definitions read their sizes from a file (taskdef resize --job-definition "
                "NAME --write-sizes FILE)."
            )
        raise TaskProfilerError(
            f"{file} has no resource aws_ecs_task_definition: name the file that has it.{of_jobs}"
        )
    return resources


def _kept_text(match: re.Match[str]) -> str:
    """A text as it is; of what is no code, its ends of lines."""
    found = match[0]
    return found if found.startswith('"') else "\n" * found.count("\n")


def _size_of_resource(rows: Sequence[tuple[int, str]], file: str, name: str) -> WrittenSize:
    """The resource that begins in the first row. A size that is an expression is not known here."""
    definition: dict[str, object] = {}
    lines: dict[str, int] = {}
    repeats = False
    for number, field, value in _members_of_block(rows):
        repeats = repeats or field in ("count", "for_each")
        literal = (_NAME if field == "family" else _NUMBER).fullmatch(value)
        if literal and field in ("family", *_SIZES):
            definition[field] = value.strip('"')
            lines[field] = number
    unnamed = None
    if repeats or "family" not in definition:
        unnamed = f"{file}:{rows[0][0]}: the family of aws_ecs_task_definition.{name} is computed."
    return WrittenSize(file=file, definition=definition, lines=lines, unnamed=unnamed)


def _members_of_block(rows: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    """The members of the block that begins in the first row: line, name and value."""
    depth = 0
    for number, row in rows:
        member = _MEMBER.fullmatch(row) if depth == 1 else None
        if member:
            yield number, member[1], member[2]
        brackets = _TEXT.sub("", row)
        depth += sum(map(brackets.count, "{[(")) - sum(map(brackets.count, "}])"))
        if depth <= 0:
            return

"""Finds the sizes of task definitions in Terraform's language.

Such a file is read, and never written.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.text_tree import decoded

_RESOURCE = re.compile(r'\s*resource\s+"aws_ecs_task_definition"\s+"([^"]+)"\s*\{')
_MEMBER = re.compile(r"\s*(family|cpu|memory)\s*=\s*(.+?)\s*(?:(?:#|//).*)?")
_NO_BRACKETS = re.compile(r'"(?:\\.|[^"\\])*"|#.*|//.*')


class TerraformSize(Struct, frozen=True, kw_only=True):
    """A resource of ``file``: its family, what of its size is a number, and the lines of ``cpu``
    and ``memory``.
    """

    file: str
    definition: Mapping[str, object]
    lines: Mapping[str, int]

    def hints(self, sized: Mapping[str, object]) -> Iterator[str]:
        """What to write where, to get the size of another definition."""
        for name in ("cpu", "memory"):
            if sized.get(name) != self.definition.get(name):
                yield f"{self.file}:{self.lines[name]}: set {name} = {sized[name]}"


def terraform_sizes(data: bytes, file: str) -> Sequence[TerraformSize]:
    """The resources of task definitions. Raises TaskProfilerError if there are none."""
    rows = list(enumerate(decoded(data, file).splitlines(), start=1))
    resources = []
    for at, (_, row) in enumerate(rows):
        start = _RESOURCE.match(row)
        if start is not None:
            resources.append(_resource(rows[at:], file, start[1]))
    if not resources:
        raise TaskProfilerError(
            f"{file} has no resource aws_ecs_task_definition: name the file that has it."
        )
    return resources


def _resource(rows: Sequence[tuple[int, str]], file: str, name: str) -> TerraformSize:
    """The resource that begins in the first row. A size that is an expression is not known here."""
    definition: dict[str, object] = {"family": name}
    lines = {"cpu": rows[0][0], "memory": rows[0][0]}
    depth = 0
    for number, row in rows:
        member = _MEMBER.fullmatch(row) if depth == 1 else None
        if member is not None:
            lines[member[1]] = number
            value = member[2].strip('"')
            if member[1] == "family" or value.isdecimal():
                definition[member[1]] = value
        brackets = _NO_BRACKETS.sub("", row)
        depth += sum(map(brackets.count, "{[(")) - sum(map(brackets.count, "}])"))
        if depth <= 0:
            break
    return TerraformSize(file=file, definition=definition, lines=lines)

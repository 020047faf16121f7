"""Finds the sizes of task definitions in Terraform's language. Such a file is read, and never written."""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

_RESOURCE = re.compile(r'\s*resource\s+"aws_ecs_task_definition"\s+"([^"]+)"\s*\{')
_MEMBER = re.compile(r'\s*(family|cpu|memory)\s*=\s*(?:"([^"$]+)"|(\d+))\s*(?:#.*|//.*)?$')
_NAME = re.compile(r"\s*(cpu|memory)\s*=")
_WITHOUT_BRACKETS = re.compile(r'"(?:\\.|[^"\\])*"|#.*|//.*')


class TerraformSize(Struct, frozen=True, kw_only=True):
    """A resource: what of its family and its size is written as a value, and the lines of ``cpu`` and ``memory``."""

    name: str
    definition: Mapping[str, object]
    lines: Mapping[str, int]

    def hints(self, file: str, sized: Mapping[str, object]) -> Iterator[str]:
        """What to write where, for the size of another definition."""
        for name in ("cpu", "memory"):
            if sized.get(name) != self.definition.get(name):
                line = self.lines.get(name)
                where = f"{self.name}: add" if line is None else f"{line}: set"
                yield f"{file}:{where} {name} = {sized[name]}"


def terraform_sizes(text: str) -> Iterator[TerraformSize]:
    """The resources of task definitions. A member that is an expression is not known here."""
    rows = list(enumerate(text.splitlines(), start=1))
    for start, (_, opening) in enumerate(rows):
        if (resource := _RESOURCE.match(opening)) is None:
            continue
        definition: dict[str, object] = {}
        lines: dict[str, int] = {}
        depth = 0
        for number, row in rows[start:]:
            if depth == 1 and (name := _NAME.match(row)):
                lines[name[1]] = number
            if depth == 1 and (member := _MEMBER.match(row)):
                definition[member[1]] = member[2] or member[3]
            brackets = _WITHOUT_BRACKETS.sub("", row)
            depth += sum(map(brackets.count, "{[(")) - sum(map(brackets.count, "}])"))
            if depth <= 0:
                break
        yield TerraformSize(name=resource[1], definition=definition, lines=lines)

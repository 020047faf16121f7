"""A task definition as text: read, and written back in its own style. Pure."""

import json
import re
from collections.abc import Mapping
from typing import NoReturn

from msgspec import Struct

from profiler.errors import TaskProfilerError
from profiler.sources.json_fields import mapping, mappings, text

# What DescribeTaskDefinition answers and RegisterTaskDefinition does not take.
READ_ONLY = frozenset(
    {
        "compatibilities",
        "deleteRequestedAt",
        "deregisteredAt",
        "registeredAt",
        "registeredBy",
        "requiresAttributes",
        "revision",
        "status",
        "taskDefinitionArn",
    }
)
_SYSTEM_TAG = "aws:"
_FIRST_INDENT = re.compile(rb"\{\r?\n([ \t]{1,8})\S")
_INDENT = "  "


class TaskDefinitionDocument(Struct, frozen=True, kw_only=True):
    """A definition as RegisterTaskDefinition takes it, where it came from, and how its text looks.

    ``is_from_ecs``: it was read from what ECS answers, so that its own text is another. ``arn`` is
    then the revision's, where the answer has it.
    """

    definition: Mapping[str, object]
    is_from_ecs: bool = False
    arn: str | None = None
    indent: str = _INDENT
    ascii_only: bool = False

    def text(self, definition: Mapping[str, object]) -> bytes:
        """``definition`` as JSON in this document's indentation and spelling of characters."""
        lines = json.dumps(definition, indent=self.indent, ensure_ascii=self.ascii_only)
        return f"{lines}\n".encode(errors="backslashreplace")  # half a surrogate pair becomes its JSON escape


def read_document(data: bytes, source_name: str) -> TaskDefinitionDocument:
    """A definition from plain JSON or from DescribeTaskDefinition's answer, whole or only its taskDefinition.

    Raises TaskProfilerError, which names ``source_name``, when it is neither.
    """
    outer = _json(data, source_name)
    described = outer.get("taskDefinition")
    definition = described if isinstance(described, dict) else outer
    containers = definition.get("containerDefinitions")
    if not isinstance(containers, list) or not containers or not all(isinstance(item, dict) for item in containers):
        raise TaskProfilerError(
            f"{source_name} is no task definition, because it has no containerDefinitions: give the JSON that "
            "'aws ecs register-task-definition' takes or 'aws ecs describe-task-definition' prints."
        )
    arn = text(definition.get("taskDefinitionArn"))
    is_answer = definition is not outer or arn is not None
    if is_answer:
        definition = _without_read_only_fields(definition, outer.get("tags"))
    indent = _FIRST_INDENT.match(data)
    return TaskDefinitionDocument(
        definition=definition,
        is_from_ecs=is_answer,
        arn=arn,
        indent=indent[1].decode() if indent else _INDENT,
        ascii_only=data.isascii(),
    )


def _json(data: bytes, source_name: str) -> Mapping[str, object]:
    try:
        return mapping(json.loads(data, parse_constant=_reject_constant))
    except (ValueError, RecursionError) as error:
        where = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise TaskProfilerError(f"{source_name} is not valid JSON: correct the mistake{where}.") from error


def _reject_constant(constant: str) -> NoReturn:
    """Python's reader takes NaN and Infinity, which are no JSON."""
    raise ValueError(constant)


def _without_read_only_fields(described: Mapping[str, object], tags: object) -> Mapping[str, object]:
    """Without what only ECS writes. An empty list of tags, and tags of AWS's own, are refused by the API."""
    definition = {name: value for name, value in described.items() if name not in READ_ONLY}
    own_tags = [dict(tag) for tag in mappings(tags) if not str(tag.get("key")).lower().startswith(_SYSTEM_TAG)]
    return {**definition, "tags": own_tags} if own_tags else definition

"""Task definitions as JSON text: reads them and writes them back in the same style."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping, mappings, text
from profiler.core.timestamps import json_moment_ns

# Fields that DescribeTaskDefinition returns and RegisterTaskDefinition does not accept.
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
_FIRST_INDENT = re.compile(rb"\{\r?\n([ \t]{1,8})\S")
_INDENT = "  "


class TaskDefinitionDocument(Struct, frozen=True, kw_only=True):
    """A definition that RegisterTaskDefinition accepts, its origin, and the style of its text.

    ``is_from_ecs`` is True if it was read from a response of ECS, whose text differs from the definition.
    ``arn`` and ``registered_ns`` are then the revision's ARN and time, if the response contains them.
    """

    definition: Mapping[str, object]
    is_from_ecs: bool = False
    arn: str | None = None
    registered_ns: int | None = None
    indent: str = _INDENT
    ascii_only: bool = False

    def text(self, definition: Mapping[str, object]) -> bytes:
        """``definition`` as JSON with this document's indentation and character escapes."""
        lines = json.dumps(definition, indent=self.indent, ensure_ascii=self.ascii_only)
        return f"{lines}\n".encode()


class ChangedDefinition(Struct, frozen=True, kw_only=True):
    """A definition after the monitor was added or removed, and notes for the user.

    ``changes`` are the notes that name a change of an existing monitor. ``batch`` is the container's name, empty if
    unknown.
    """

    definition: Mapping[str, object]
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    batch: str = ""
    had_monitor: bool = False


class ChangedText(Struct, frozen=True, kw_only=True):
    """A document before and after a change, in one style. ``is_changed`` is False if it is right already."""

    before: bytes
    after: bytes
    is_changed: bool
    notes: tuple[str, ...] = ()


def json_style(data: bytes) -> Callable[[Mapping[str, object]], bytes]:
    """Return a function that writes JSON with the indentation and the character escapes of ``data``."""
    return TaskDefinitionDocument(definition={}, indent=_indent(data), ascii_only=data.isascii()).text


def _indent(data: bytes) -> str:
    indent = _FIRST_INDENT.match(data)
    return indent[1].decode() if indent else _INDENT


def read_document(data: bytes, source_name: str) -> TaskDefinitionDocument:
    """Read a definition as JSON, a response of DescribeTaskDefinition, or the taskDefinition of a response.

    Raises TaskProfilerError, which begins with ``source_name``, if ``data`` is none of them.
    """
    outer = mapping(read_json(data, source_name))
    described = outer.get("taskDefinition")
    definition: dict[str, object] = described if isinstance(described, dict) else dict(outer)
    containers = definition.get("containerDefinitions")
    if not isinstance(containers, list) or not containers or not all(isinstance(item, dict) for item in containers):
        raise TaskProfilerError(
            f"{source_name} is not a task definition, because it has no containerDefinitions: give the JSON that "
            "'aws ecs register-task-definition' takes or 'aws ecs describe-task-definition' prints."
        )
    arn = text(definition.get("taskDefinitionArn"))
    registered_ns = json_moment_ns(definition.get("registeredAt"))
    is_answer = isinstance(described, dict) or arn is not None
    if is_answer:  # the API rejects an empty list of tags and AWS's own tags
        definition = {name: value for name, value in definition.items() if name not in READ_ONLY}
        tags = [dict(tag) for tag in mappings(outer.get("tags")) if not str(tag.get("key")).lower().startswith("aws:")]
        definition |= {"tags": tags} if tags else {}
    return TaskDefinitionDocument(
        definition=definition,
        is_from_ecs=is_answer,
        arn=arn,
        registered_ns=registered_ns,
        indent=_indent(data),
        ascii_only=data.isascii(),
    )


def read_json(data: bytes, source_name: str) -> Any:  # noqa: ANN401  any JSON
    """Read JSON. Raises TaskProfilerError with the line of a mistake."""
    try:
        return json.loads(data)
    except ValueError as error:
        where = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise TaskProfilerError(f"{source_name} is not valid JSON: correct the mistake{where}.") from error

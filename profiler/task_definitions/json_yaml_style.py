"""Writes new values in the style of a JSON or YAML text: its indentation, spaces, escapes and
ends of lines.
"""

import json
import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from profiler.task_definitions.json_yaml_tree import Node

INDENT = "  "
# Everything else is written in quotes.
_PLAIN = re.compile(r"[A-Za-z_/][\w/.+@-]*(:+[\w/.+@-]+)*", re.ASCII)
_WORDS_WITH_A_MEANING = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


class Function(str):
    """The text that stands for an intrinsic function: ``value`` as JSON, ``written`` and
    ``flow`` in YAML.
    """

    __slots__ = ("flow", "value", "written")
    value: object
    written: str
    flow: str

    @classmethod
    def of(cls, text: str, value: object, *, written: str, flow: str) -> "Function":
        function = cls(text)
        function.value = value
        function.written = written
        function.flow = flow
        return function


_REGION = "!Ref AWS::Region"
# The template's reference to the Region of its stack.
TEMPLATE_REGION = Function.of(_REGION, {"Ref": "AWS::Region"}, written=_REGION, flow=_REGION)


class TextStyle(Struct, frozen=True, kw_only=True):
    """The style of a text.

    ``dash_indent`` is before the dash of an item that belongs to a key, in YAML.
    """

    is_yaml: bool = False
    indent: str = INDENT
    dash_indent: str = INDENT
    comma: str = ", "
    colon: str = ": "
    newline: str = "\n"
    ascii_only: bool = False

    def one_line(self, value: object) -> str:
        """The value on one line; in YAML, with brackets if it has parts."""
        if self.is_yaml:
            if isinstance(value, dict | list):
                return self._flow(value)
            return self._yaml_scalar(value, in_flow=False)
        return json.dumps(
            _functions_as_json(value),
            separators=(self.comma, self.colon),
            ensure_ascii=self.ascii_only,
        )

    def lines(self, value: object, margin: str) -> str:
        """The value on as many lines as it needs, which begin with ``margin`` except for the
        first.
        """
        if self.is_yaml:
            return self.block(value, margin).replace("\n", self.newline)
        written = json.dumps(
            _functions_as_json(value), indent=self.indent, ensure_ascii=self.ascii_only
        )
        return written.replace("\n", self.newline + margin)

    def block_member(self, name: str, value: object, margin: str) -> str:
        """A member of a mapping in a block of YAML."""
        if isinstance(value, dict | list) and value:
            inner = margin + self.dash_indent
            if isinstance(value, dict):
                inner = margin + self.indent
            return f"{self.one_line(name)}:\n{inner}{self.block(value, inner)}"
        return f"{self.one_line(name)}: {self.one_line(value)}"

    def block(self, value: object, margin: str) -> str:
        """A block of YAML with lines that begin with ``margin``, except for the first."""
        parts = [self.one_line(value)]
        if isinstance(value, dict) and value:
            parts = [self.block_member(name, item, margin) for name, item in value.items()]
        elif isinstance(value, list) and value:
            parts = [f"- {self.block(item, margin + INDENT)}" for item in value]
        return f"\n{margin}".join(parts)

    def _flow(self, value: object) -> str:
        if isinstance(value, dict):
            # Parsers of YAML 1.1 may refuse a colon in a plain key, such as Fn::If.
            members = []
            for name, item in value.items():
                key = json.dumps(name) if ":" in name else self._flow(name)
                members.append(f"{key}: {self._flow(item)}")
            return f"{{{', '.join(members)}}}"
        if isinstance(value, list):
            return f"[{', '.join(map(self._flow, value))}]"
        return self._yaml_scalar(value, in_flow=True)

    def _yaml_scalar(self, value: object, *, in_flow: bool) -> str:
        if not isinstance(value, str):
            return json.dumps(value)
        if isinstance(value, Function):
            return value.flow if in_flow else value.written
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS_WITH_A_MEANING:
            return value
        if not value.isprintable():
            return json.dumps(value)
        return "'" + value.replace("'", "''") + "'"


def _functions_as_json(value: object) -> object:
    """The value with functions as JSON."""
    if isinstance(value, dict):
        return {name: _functions_as_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_functions_as_json(item) for item in value]
    if isinstance(value, Function):
        return value.value
    return value


def style_of(text: str, root: Node, *, is_yaml: bool) -> TextStyle:
    """The style of a text with this tree."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if is_yaml:
        widths: dict[str, int] = {}  # of the first block of each kind
        for kind, width in _block_indents(text, root):
            if width >= 0:
                widths.setdefault(kind, width)
        return TextStyle(
            is_yaml=True,
            indent=" " * widths.get("mapping", len(INDENT)),
            dash_indent=" " * widths.get("sequence", len(INDENT)),
            newline=newline,
        )
    style = TextStyle(newline=newline, ascii_only=text.isascii())
    if not root.children:
        return style
    first = root.children[0]
    space = text[root.start + 1 : first.start]
    if "\n" in space:
        style = replace(style, indent=space.rpartition("\n")[2])
    if text[: first.node.start].endswith('":'):  # compact
        style = replace(style, comma=",", colon=":")
    return style


def column(text: str, at: int) -> int:
    """The column of a place, from 0."""
    return at - text.rfind("\n", 0, at) - 1


def _block_indents(text: str, node: Node) -> Iterator[tuple[str, int]]:
    """The kinds and the indents of the blocks that belong to a key."""
    if node.is_flow:
        return
    for child in node.children:
        inner = child.node
        if child.key and inner.children and not inner.is_flow:
            yield inner.kind, column(text, inner.start) - column(text, child.start)
        yield from _block_indents(text, inner)

"""The values of a JSON or YAML text, and where each of them is written."""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.errors import TaskProfilerError
from profiler.core.json_levels import MAX_LEVELS, TooManyLevelsError, within_levels
from profiler.core.text import install_hint

_SPACE = re.compile(r"[ \t\r\n]*")
_ERRORS = "surrogatepass"  # as json reads bytes
_YAML_TAG = "tag:yaml.org,2002:"


class Node(Struct, frozen=True, kw_only=True):
    """A value and its place.

    ``is_flow``: in brackets, as all of JSON. ``tag`` is the user's own, such as ``!Sub``.
    """

    start: int
    end: int
    kind: Literal["scalar", "mapping", "sequence"]
    scalar: object = None
    children: "tuple[Child, ...]" = ()
    is_flow: bool = True
    tag: str | None = None

    @property
    def members(self) -> Mapping[str, "Node"]:
        return {child.key: child.node for child in self.children}


class Child(Struct, frozen=True, kw_only=True):
    """An item of a sequence, or a member of a mapping, which starts with its key."""

    key: str = ""
    start: int = 0
    node: Node

    @property
    def end(self) -> int:
        return self.node.end


def decoded_text(data: bytes, source_name: str) -> str:
    """The text. Raises TaskProfilerError if it has no encoding of Unicode."""
    try:
        return data.decode(json.detect_encoding(data), _ERRORS)
    except ValueError as error:
        raise TaskProfilerError(
            f"{source_name} is not a text in UTF-8: save it with this encoding."
        ) from error


def encoded_like(text: str, like: bytes) -> bytes:
    """The text in the encoding of ``like``, with its byte order mark."""
    return text.encode(json.detect_encoding(like), _ERRORS)


def read_json(data: bytes, source_name: str) -> Any:  # noqa: ANN401  any JSON
    """Read JSON. Raises TaskProfilerError with the line of a mistake."""
    try:
        return json.loads(within_levels(data.decode(json.detect_encoding(data), _ERRORS)))
    except TooManyLevelsError as error:
        raise _too_many_levels(source_name) from error
    except ValueError as error:
        where = ""
        if isinstance(error, json.JSONDecodeError):
            where = f" in line {error.lineno}"
        raise TaskProfilerError(
            f"{source_name} is not valid JSON: correct the mistake{where}."
        ) from error


def _too_many_levels(source_name: str) -> TaskProfilerError:
    return TaskProfilerError(
        f"{source_name} has too many levels: give a task definition or a template."
    )


def json_tree(text: str, source_name: str) -> Node:
    """The tree of a text that is valid JSON. Raises TaskProfilerError."""
    try:
        within_levels(text)
    except TooManyLevelsError as error:
        raise _too_many_levels(source_name) from error
    return _json_node(text, _place_after_space(text, 0))


def _json_node(text: str, start: int) -> Node:
    if text[start] not in "{[":
        scalar, end = json.JSONDecoder().raw_decode(text, start)
        return Node(start=start, end=end, kind="scalar", scalar=scalar)
    children = []
    at = _place_after_space(text, start + 1)
    while text[at] not in "}]":
        key = ""
        value_start = at
        if text[start] == "{":
            key, key_end = json.JSONDecoder().raw_decode(text, at)
            value_start = _place_after_space(text, _place_after_space(text, key_end) + 1)
        children.append(Child(key=key, start=at, node=_json_node(text, value_start)))
        at = _place_after_space(text, children[-1].end)
        if text[at] == ",":
            at = _place_after_space(text, at + 1)
    kind: Literal["mapping", "sequence"] = "mapping" if text[start] == "{" else "sequence"
    return Node(start=start, end=at + 1, kind=kind, children=tuple(children))


def _place_after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if not match else match.end()


def yaml_tree(text: str, source_name: str) -> Node:
    """The tree of a YAML text. Raises TaskProfilerError with the line of a mistake."""
    try:
        # Not always installed.
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ImportError as error:
        raise TaskProfilerError(
            f"Task definitions in YAML need ruamel.yaml: {install_hint('ruamel.yaml')}."
        ) from error
    yaml = YAML(typ="safe", pure=True)
    try:
        return _YamlReader(text, yaml, source_name).document()
    except TooManyLevelsError as error:
        raise _too_many_levels(source_name) from error
    except (YAMLError, ValueError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = "" if line is None else f" in line {line + 1}"
        raise TaskProfilerError(
            f"{source_name} is not valid YAML: correct the mistake{where}."
        ) from error


class _YamlReader:
    """Builds the tree from the parser's events.

    An alias is refused, as by CloudFormation: it has several places.
    """

    # A class of an optional library.
    def __init__(self, text: str, yaml: Any, source_name: str) -> None:  # noqa: ANN401
        self._text = text
        self._source_name = source_name
        self._resolver = yaml.resolver
        self._events = iter(yaml.parse(text))
        self._level = 0

    def document(self) -> Node:
        """The only document of the text."""
        root = Node(start=0, end=0, kind="scalar")
        documents = 0
        for event in self._events:
            if type(event).__name__ == "DocumentStartEvent":
                documents += 1
                root = self._node(next(self._events))
        if documents > 1:
            raise ValueError
        return root

    def _node(self, event: Any) -> Node:  # noqa: ANN401  as above
        start = event.start_mark.index
        end = event.end_mark.index
        kind = type(event).__name__
        if kind == "AliasEvent":
            where = f"{self._source_name} has an alias in line {event.start_mark.line + 1}"
            raise TaskProfilerError(f"{where}: write the value in place of *{event.anchor}.")
        tag = None
        if event.tag and not event.tag.startswith(_YAML_TAG):
            tag = str(event.tag)
        if kind == "ScalarEvent":
            written = self._text[start:end].rstrip()
            return Node(
                start=start,
                end=start + len(written),
                kind="scalar",
                scalar=self._scalar(event),
                tag=tag,
            )
        if kind == "SequenceStartEvent":
            return self._collection(event, "sequence", tag)
        return self._collection(event, "mapping", tag)

    def _collection(
        self,
        start: Any,  # noqa: ANN401
        kind: Literal["mapping", "sequence"],
        tag: str | None,
    ) -> Node:
        self._level += 1
        if self._level > MAX_LEVELS:
            raise TooManyLevelsError
        children: list[Child] = []
        begin = start.start_mark.index
        at = begin
        while not type(event := next(self._events)).__name__.endswith("EndEvent"):
            first = self._node(event)
            node = first
            key = ""
            mark = "-"
            if kind == "mapping":
                node = self._node(next(self._events))
                key = str(first.scalar)
                mark = ":"
                at = first.end
                if key in (child.key for child in children):
                    raise ValueError
            if node.start == node.end:  # an empty value, whose mark is at the next one
                at = self._text.index(mark, at) + 1
                node = replace(node, start=at, end=at)
            if kind == "sequence":
                children.append(Child(start=node.start, node=node))
            else:
                children.append(Child(key=key, start=first.start, node=node))
            at = node.end
        self._level -= 1
        # The mark of a block's end is at the next value, too.
        if start.flow_style:
            end = event.end_mark.index
        else:
            end = max((child.end for child in children), default=0)
        return Node(
            start=begin,
            end=end,
            kind=kind,
            children=tuple(children),
            is_flow=start.flow_style,
            tag=tag,
        )

    def _scalar(self, event: Any) -> object:  # noqa: ANN401  as above
        """The value of the types that task definitions have; everything else is a text."""
        value = str(event.value)
        tag = event.tag
        if tag is None and event.implicit[0]:
            from ruamel.yaml.nodes import ScalarNode  # as above

            tag = str(self._resolver.resolve(ScalarNode, value, event.implicit))
        match (tag or "").removeprefix(_YAML_TAG):
            case "null":
                return None
            case "bool":
                return value.lower() == "true"
            case "int" if value.lstrip("+-").isdecimal():
                return int(value)
            case "float" if value.replace(".", "", 1).isdecimal():
                return float(value)
        return value

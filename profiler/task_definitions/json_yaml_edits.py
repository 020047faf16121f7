"""Changes values in a JSON or YAML text: only differences are written, in the style of the text."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct

from profiler.core.json_fields import mapping_or_empty
from profiler.task_definitions.json_yaml_style import Function, TextStyle, column
from profiler.task_definitions.json_yaml_tree import Child, Node

_DASH = re.compile(r"^[ ]*-(?=\s)", re.MULTILINE)


class TextEdit(NamedTuple):
    """Replaces a part of the text."""

    start: int
    end: int
    text: str


class MemberNames(NamedTuple):
    """How a text names the members of a definition.

    Members of ``free`` mappings keep their names.
    """

    read: Callable[[str], str] = str
    write: Callable[[object], object] = lambda value: value
    free: frozenset[str] = frozenset()

    def inside(self, name: str) -> "MemberNames":
        """The names in the value of a member."""
        return MemberNames() if name in self.free else self


def with_edits(text: str, edits: Iterable[TextEdit], start: int = 0, end: int | None = None) -> str:
    """A part of the text with the edits. Of two edits at one place, an insertion is the first."""
    parts: list[str] = []
    at = start
    for edit in sorted(edits, key=lambda edit: edit[:2]):
        parts += text[at : edit.start], edit.text
        at = edit.end
    return "".join((*parts, text[at:end]))


class EditFinder(Struct, frozen=True, kw_only=True):
    """Finds the edits of a text.

    ``keeps_types``: a number stays a number, and digits in quotes stay in quotes.
    """

    text: str
    style: TextStyle
    keeps_types: bool = False

    def edits(
        self, node: Node, before: object, after: object, names: MemberNames
    ) -> list[TextEdit]:
        """The edits that change the value of the node from ``before`` to ``after``."""
        if before == after:
            return []
        inner_edits = None
        if node.children:
            if isinstance(before, dict) and isinstance(after, dict):
                inner_edits = self._edits_in_mapping(node, before, after, names)
            elif isinstance(before, list) and isinstance(after, list):
                inner_edits = self._edits_in_sequence(node, before, after, names)
        if inner_edits is None:
            return [self._replacement(node, names.write(after))]
        return inner_edits

    def _edits_in_mapping(
        self,
        node: Node,
        before: Mapping[str, object],
        after: Mapping[str, object],
        names: MemberNames,
    ) -> list[TextEdit] | None:
        """The edits, None if nothing of the mapping is kept."""
        children = [(names.read(child.key), child) for child in node.children]
        kept = [child for name, child in children if name in after or name not in before]
        if not kept:
            return None
        edits = []
        own = dict(children)
        previous = None
        for name, value in after.items():
            is_changed = name not in before or before[name] != value
            if name in own:
                previous = own[name]
                if is_changed:
                    inner = names.inside(name)
                    edits += self.edits(previous.node, before.get(name), value, inner)
            elif is_changed:
                ((key, written),) = mapping_or_empty(names.write({name: value})).items()
                entry = partial(self._entry_text, node, key, written)
                edits.append(self._inserted(node, previous, kept[0], entry))
        return edits + list(self._removals(node, kept))

    def _entry_text(self, parent: Node, key: str, value: object, margin: str | None) -> str:
        """A member of a mapping, or an item of a list, which has no key."""
        is_member = parent.kind == "mapping"
        if parent.is_flow:
            if margin is None:
                written = self.style.one_line(value)
            else:
                written = self.style.lines(value, margin)
            if is_member:
                return f"{self.style.one_line(key)}{self.style.colon}{written}"
            return written
        if is_member:
            return self.style.block_member(key, value, margin or "").replace(
                "\n", self.style.newline
            )
        return f"- {self.style.lines(value, (margin or '') + '  ')}"

    def _edits_in_sequence(
        self, node: Node, before: Sequence[object], after: Sequence[object], names: MemberNames
    ) -> list[TextEdit] | None:
        """The edits, None if nothing of the list is kept.

        Functions are always kept; a moved item keeps its text.
        """
        sources = _old_places(before, after)
        in_place = _kept_order(sources)
        kept = []
        for index, child in enumerate(node.children):
            is_kept_function = index not in sources and isinstance(before[index], Function)
            if index in in_place or is_kept_function:
                kept.append(child)
        if not kept:
            return None
        edits: list[TextEdit] = []
        last_in_place = -1
        for at, source in enumerate(sources):
            if source in in_place:
                last_in_place = at
        previous: Child | None = None
        for at, (source, value) in enumerate(zip(sources, after, strict=True)):
            place = kept[-1] if at > last_in_place else previous
            if source is None:
                entry = partial(self._entry_text, node, "", names.write(value))
                edits.append(self._inserted(node, place, kept[0], entry))
                continue
            child = node.children[source]
            changes = self.edits(child.node, before[source], value, names)
            if source in in_place:
                edits += changes
                previous = child
            else:
                entry = partial(self._moved_text, node, child, changes)
                edits.append(self._inserted(node, place, kept[0], entry))
        return edits + list(self._removals(node, kept))

    def _moved_text(
        self, parent: Node, child: Child, changes: Sequence[TextEdit], _margin: str | None
    ) -> str:
        """The text of an item that moves to another place of its list, with its changes."""
        if parent.is_flow:
            return with_edits(self.text, changes, child.start, child.end)
        return "- " + with_edits(self.text, changes, child.start, self._line_end(child.end))

    def _inserted(
        self, parent: Node, previous: Child | None, first: Child, write: Callable[[str | None], str]
    ) -> TextEdit:
        """Insert after a child, or before ``first``.

        ``write`` gets the margin of the lines, None for one line.
        """
        neighbour = previous or first
        if not parent.is_flow:
            start = self._entry_start(parent, first)
            margin = " " * column(self.text, start)
            if previous is None:
                return TextEdit(start, start, write(margin) + self.style.newline + margin)
            at = self._line_end(previous.end)
            return TextEdit(at, at, self.style.newline + margin + write(margin))
        gap = self._space_after_comma(parent)
        has_lines = "\n" in gap
        if parent.kind == "sequence" and neighbour.node.children:
            has_lines = "\n" in self.text[neighbour.start : neighbour.end]
        if not has_lines or self.style.is_yaml:
            written = write(None)
        elif "\n" in gap:
            written = write(gap.rpartition("\n")[2])
        else:
            written = write(self._margin(neighbour.end))
        if previous is None:
            return TextEdit(first.start, first.start, f"{written},{gap}")
        return TextEdit(previous.end, previous.end, f",{gap}{written}")

    def _margin(self, at: int) -> str:
        """The space at the start of the line."""
        line = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        return line[: len(line) - len(line.lstrip())]

    def _space_after_comma(self, parent: Node) -> str:
        """The space after a comma between the children."""
        first, *others = parent.children
        if others:
            gap = self.text[first.end : others[0].start].partition(",")[2]
        else:  # one child: after the bracket, if it is on a line of its own
            gap = self.text[parent.start + 1 : first.start]
            if "\n" not in gap:
                gap = self.style.comma[1:]
        if gap.strip():  # a comment
            return " "
        return gap

    def _removals(self, parent: Node, kept: Sequence[Child]) -> Iterator[TextEdit]:
        """Removes the other children: with the comma before them in brackets, with their lines in
        a block, or up to the next child.
        """
        is_after_kept = False
        for index, child in enumerate(parent.children):
            if child in kept:
                is_after_kept = True
                continue
            start = self._entry_start(parent, child)
            line_start = self.text.rfind("\n", 0, start) + 1
            if parent.is_flow and is_after_kept:
                yield TextEdit(parent.children[index - 1].end, child.end, "")
            elif not parent.is_flow and line_start and not self.text[line_start:start].strip():
                previous_end = line_start - 1
                if self.text[:previous_end].endswith("\r"):
                    previous_end -= 1
                yield TextEdit(previous_end, self._line_end(child.end), "")
            elif index + 1 < len(parent.children):
                following = parent.children[index + 1]
                yield TextEdit(start, self._entry_start(parent, following), "")

    def _entry_start(self, parent: Node, child: Child) -> int:
        """Where a child starts: with the key, or with the dash of a block."""
        if parent.is_flow or parent.kind == "mapping":
            return child.start
        index = parent.children.index(child)
        start = parent.start
        if index:
            start = parent.children[index - 1].end
        if self.text[start] == "-":
            return start
        dash = _DASH.search(self.text, start, child.start + 1)
        if not dash:
            return child.start
        return dash.end() - 1

    def _replacement(self, node: Node, value: object) -> TextEdit:
        """The edit that writes a new value in the place of the node."""
        old = self.text[node.start : node.end]
        written = self._in_same_form(node, old, self._with_type_of(node, value))
        return TextEdit(node.start, node.end, written if old else f" {written}")

    def _with_type_of(self, node: Node, value: object) -> object:
        """The value as a text or a number, as the node has it, if types are kept."""
        if not self.keeps_types:
            return value
        if isinstance(node.scalar, str) and type(value) is int:
            return str(value)
        if type(node.scalar) is int and isinstance(value, str) and value.isdecimal():
            return int(value)
        return value

    def _in_same_form(self, node: Node, old: str, value: object) -> str:
        """The value in the form of the text that it replaces: quotes, a block, or lines."""
        if not self.style.is_yaml:
            if "\n" in old:
                return self.style.lines(value, self._margin(node.start))
            return self.style.one_line(value)
        if old[:1] in ("'", '"') and isinstance(value, str) and value.isdecimal():
            return f"{old[0]}{value}{old[0]}"
        if not node.children or node.is_flow:
            return self.style.one_line(value)
        # A list may start in the column of its key, and nothing else.
        shift = "  "
        if node.kind == "sequence" and isinstance(value, list) and value:
            shift = ""
        return shift + self.style.lines(value, shift + " " * column(self.text, node.start))

    def _line_end(self, at: int) -> int:
        """The end of the line of a place, without its newline."""
        end = self.text.find("\n", at)
        if end == -1:
            return len(self.text)
        if self.text[at:end].endswith("\r"):
            return end - 1
        return end


def _old_places(before: Sequence[object], after: Sequence[object]) -> list[int | None]:
    """The place that each item had before the change, by its value or its name; None for a new
    one.
    """
    if len(before) == len(after) == 1 and isinstance(before[0], dict):
        return [0]
    left: dict[str, list[int]] = {}
    for index, item in enumerate(before):
        left.setdefault(_matching_key(item), []).append(index)
    sources: list[int | None] = []
    for item in after:
        same_items = left.get(_matching_key(item))
        sources.append(same_items.pop(0) if same_items else None)
    return sources


def _matching_key(item: object) -> str:
    """What two items have in common that count as one: the name, the type, else the value."""
    if isinstance(item, dict):
        for member in ("name", "type"):
            if item.get(member) is not None:
                return f"{member} {item[member]}"
    return json.dumps(item, sort_keys=True, default=str)


def _kept_order(sources: Sequence[int | None]) -> frozenset[int]:
    """The sources that keep their order."""
    in_order: set[int] = set()
    last = -1
    for source in sources:
        if source is not None and source > last:
            in_order.add(source)
            last = source
    return frozenset(in_order)

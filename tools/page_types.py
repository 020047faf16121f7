"""Writes the JavaScript types of the report page's rows: ``python -m tools.page_types``.

The scripts of the page name them in their comments, and TypeScript checks these.
"""

import inspect
import sys
import types
import typing
from pathlib import Path

import msgspec

from profiler.report_page import page_rows
from profiler.report_page.page_rows import PageRow

FILE = Path(__file__).parents[1] / "profiler" / "report_page" / "assets" / "page_rows.d.ts"
_HEADER = "// Written by `make page-types` from profiler/report_page/page_rows.py.\n"
_PLAIN = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}


def page_types() -> str:
    """The text of the file: an interface for each row."""
    rows = [
        row
        for _, row in inspect.getmembers(page_rows, inspect.isclass)
        if issubclass(row, PageRow) and row is not PageRow
    ]
    return "\n".join([_HEADER, *map(_interface_text, rows)])


def _interface_text(row: type[PageRow]) -> str:
    first, *others = (inspect.getdoc(row) or "").splitlines()
    lines = [f"/** {first}", *(f" * {line}".rstrip() for line in others)]
    lines += [" */", f"export interface {row.__name__} {{"]
    hints = typing.get_type_hints(row)
    for field in msgspec.structs.fields(row):
        kinds = _type_alternatives(hints[field.name])
        mark = "" if field.required else "?"
        lines.append(f"  {field.encode_name}{mark}: {' | '.join(kinds)};")
    return "\n".join([*lines, "}", ""])


def _type_alternatives(hint: object) -> list[str]:
    """The alternatives of a type; a field without a value is left out, so null is none."""
    if typing.get_origin(hint) in {types.UnionType, typing.Union}:
        alternatives = [part for part in typing.get_args(hint) if part is not type(None)]
    else:
        alternatives = [hint]
    return list(dict.fromkeys(_type_of(part) for part in alternatives))


def _type_of(hint: object) -> str:
    if typing.get_origin(hint) is list:
        (element,) = typing.get_args(hint)
        return f"Array<{_element_type(element)}>"
    if typing.get_origin(hint) is tuple:
        return f"[{', '.join(_element_type(part) for part in typing.get_args(hint))}]"
    if isinstance(hint, type) and issubclass(hint, PageRow):
        return hint.__name__
    if isinstance(hint, type) and hint in _PLAIN:
        return _PLAIN[hint]
    raise TypeError(f"The page has no type for {hint}.")


def _element_type(hint: object) -> str:
    """The type of an element, whose missing value is null."""
    alternatives = _type_alternatives(hint)
    if type(None) in typing.get_args(hint):
        alternatives.append("null")
    return " | ".join(alternatives)


if __name__ == "__main__":
    FILE.write_text(page_types(), encoding="utf-8")
    sys.stdout.write(f"{FILE}\n")

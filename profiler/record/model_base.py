"""The base class of the record's parts, the names of their fields in JSON, and their JSON
Schema.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

# Of the one line of a record: a longer one is none.
MAX_LINE_BYTES = 64 * 1024
_UNIT_SPELLINGS = {"mb": "MB", "mhz": "MHz"}


def json_name(python_name: str) -> str:
    """The name in JSON: ``max_memory_used_mb`` becomes ``maxMemoryUsedMB``."""
    if "_" not in python_name:  # half of the names; `run` waits for all of them
        return python_name
    name, *others = python_name.split("_")
    for part in others:
        name += _UNIT_SPELLINGS.get(part) or part.capitalize()
    return name


class Model(Struct, frozen=True, omit_defaults=True, rename=json_name):
    """Base class of all parts: immutable, without absent values in JSON, and with names in camel
    case there.
    """


M = TypeVar("M", bound=Model)


def absent_if_empty(part: M, absent: M) -> M:
    """The part; ``absent``, its default, which JSON leaves out, if it says no more than that."""
    return absent if part == absent else part


class JsonLine(Struct, frozen=True, kw_only=True, rename=json_name):
    """Base class of the lines that a command prints with ``--json``: an unknown value is null."""


def json_schema_of_type(described: type[Struct], title: str) -> dict[str, Any]:
    """Generate the JSON Schema (2020-12) of a type, with its docstrings as descriptions.

    A paragraph of a docstring becomes one line.
    """
    return json_schema_of_types((described,), title)


def json_schema_of_types(described: Sequence[type[Struct]], title: str) -> dict[str, Any]:
    """Generate the JSON Schema of values that are each of one of the types."""
    from inspect import cleandoc  # slow to import, and every command imports this module

    schemas, definitions = msgspec.json.schema_components(described, ref_template="#/$defs/{name}")
    for definition in definitions.values():
        # Python 3.13 removes the indentation of docstrings, older versions keep it.
        paragraphs = cleandoc(definition["description"]).split("\n\n")
        definition["description"] = "\n\n".join(" ".join(text.split()) for text in paragraphs)
    root = schemas[0] if len(schemas) == 1 else {"anyOf": [*schemas]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **root,
        "$defs": definitions,
    }

"""The base class of the record's parts, and the names of their fields in JSON."""

from msgspec import Struct

_UNIT_SPELLINGS = {"mb": "MB", "mhz": "MHz"}


def json_name(python_name: str) -> str:
    """The name in JSON: ``max_memory_used_mb`` becomes ``maxMemoryUsedMB``."""
    first, *others = python_name.split("_")
    return first + "".join(_UNIT_SPELLINGS.get(part, part.capitalize()) for part in others)


class Model(Struct, frozen=True, omit_defaults=True, rename=json_name):
    """Base class of all parts: immutable, without absent values in JSON, and with names in camel case there."""

"""A record in which every field has a value."""

import itertools
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields, replace

from profiler.record.activity_model import NO_STACKS
from profiler.record.record_model import Record

NUMBERS = itertools.count(1)


def filled(kind: Any) -> Any:
    """A value of a type of the record with all its parts. Each number is there once."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Annotated, Union, UnionType):
        return filled(arguments[0])
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind(**{field.name: filled(field.type) for field in fields(kind)})
    if origin is tuple:
        return (filled(arguments[0]),)
    if origin is Mapping:
        return {"0.25": filled(arguments[1])}
    number = next(NUMBERS)
    return (
        True
        if kind is bool
        else float(number)
        if kind is float
        else number
        if kind is int
        else f"text {number}"
    )


# A getter that reads another field is noticed by its number.
FULL: Record = replace(filled(Record), status="failure", stacks=NO_STACKS)

"""Reads single fields of JSON from other programs. A field of the wrong type counts as absent."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from profiler.core.json_levels import within_levels

_T = TypeVar("_T")
_Line = TypeVar("_Line", str, bytes)
Json = object

MAX_COUNT = 2**63 - 1


def decoded_or_none(decode: Callable[[_Line], _T], line: _Line) -> _T | None:
    """The value; None for a line that cannot be decoded.

    The error is dropped, because it may quote a value.
    """
    try:
        return decode(within_levels(line))
    except (msgspec.DecodeError, UnicodeError):
        return None


def mapping_or_empty(value: Json) -> Mapping[str, Json]:
    """``value`` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def mappings_in_list(value: Json) -> Iterator[Mapping[str, Json]]:
    """The objects in ``value`` if it is a list; other items are skipped."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def field_at(value: Json, path: str) -> Json:
    """The field at a path such as ``task.family``; None where an object on the way lacks it."""
    for name in path.split("."):
        value = mapping_or_empty(value).get(name)
    return value


def text_or_none(value: Json) -> str | None:
    """``value`` if it is a non-empty string, else None."""
    return value if isinstance(value, str) and value else None


def count_or_none(value: Json) -> int | None:
    """``value`` if it is an integer from 0 to 2^63 - 1, else None."""
    if type(value) is int and 0 <= value <= MAX_COUNT:
        return value
    return None


def positive_number(value: Json) -> float | None:
    """``value`` if it is a number above 0 and up to 2^63 - 1, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value <= MAX_COUNT else None


def integer_or_none(value: Json) -> int | None:
    """``value`` if it is a signed 32-bit integer (such as an exit code), else None."""
    if isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31:
        return value
    return None


def with_uncapitalized_names(value: Json) -> Any:  # noqa: ANN401  the same kind of JSON
    """The value with names that begin in lower case, as ECS's API has them; in the targets of
    EventBridge they begin with capitals.
    """
    return _with_renamed_keys(value, str.lower)


def with_capitalized_names(value: Json) -> Any:  # noqa: ANN401  the same kind of JSON
    """The value with names that begin with capitals."""
    return _with_renamed_keys(value, str.upper)


def _with_renamed_keys(value: Json, initial: Callable[[str], str]) -> Any:  # noqa: ANN401  as above
    if isinstance(value, dict):
        return {
            initial(name[:1]) + name[1:]: _with_renamed_keys(item, initial)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_with_renamed_keys(item, initial) for item in value]
    return value

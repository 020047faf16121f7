"""Removes from a decoded report, as not measured, what log lines of any program, or broken
meters, can have in it.

A negative number, NaN, a number beyond any machine and a time outside the years 1970 to 2200 are
impossible.
"""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import GenericAlias, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, DecodeError, Meta, Struct, StructMeta, defstruct
from msgspec.json import Decoder
from msgspec.structs import astuple, fields, replace

from profiler.core.json_levels import TooManyLevelsError, within_levels
from profiler.core.optional_math import known_members, known_values
from profiler.core.timestamps import parse_datetime
from profiler.record.device_limits import MAX_CELSIUS, MAX_MHZ, MAX_WATTS
from profiler.record.model_base import MAX_LINE_BYTES

# The endings of the names that have a unit, and a number beyond any machine in that unit.
_LIMITS = (
    ("_ms", 9e12),  # 285 years: in nanoseconds, 64 bits
    ("_mb", 1e10),  # 10 PB
    ("_size", 1e6),  # vCPUs
    ("_used", 1e6),
    ("_percent", 1e8),  # one vCPU in use of a millionth
    ("exit_code", 2**31 - 1),
    ("xids", 2**31 - 1),
    ("_celsius", MAX_CELSIUS),
    ("_watts", MAX_WATTS),
    ("_mhz", MAX_MHZ),
)
_MAX_NUMBER = 1e18
_MAX_CHARACTER_BYTES = 4  # in UTF-8
# A step is more than nothing, a larger size saves less than nothing; all others are at least 0.
_LEAST = {"step_ms": sys.float_info.min, "exit_code": -(2**31), "saving_percent": -1e8}
# The lists of numbers in which none can be absent.
_WITHOUT_GAPS = frozenset({"xids"})
_TIME_ENDING = "_at"
_NUMBERS = (float, int)

# What other programs write for numbers that JSON does not have, an exponent that a double does not
# have, and what stands for a part that is absent.
# Few lines have it: it is compiled when it is searched.
_NOT_A_VALUE = r"NaN|Infinity|null|[eE]\+?\d{3}"
# The bounded types take as long to make as it takes to look at the values of so many lines, and
# most processes read fewer.
_LINES_WITHOUT_BOUNDED_TYPES = 200

S = TypeVar("S", bound=Struct)


_decoder = cache(Decoder)


def is_too_long(line: str | bytes) -> bool:
    """Whether a line is longer than any that a monitor writes, so that it is invalid."""
    if isinstance(line, bytes):
        return len(line) > MAX_LINE_BYTES
    if len(line) * _MAX_CHARACTER_BYTES <= MAX_LINE_BYTES:
        return False
    return len(line.encode(errors="replace")) > MAX_LINE_BYTES


def decode_leniently(kind: type[S], line: bytes | str) -> S:
    """Decode a line.

    NaN, infinities and numbers beyond a double are not JSON; they count as missing, and so does a
    part that is null.

    Raises msgspec.DecodeError or UnicodeDecodeError for another line.
    """
    try:
        return cast("S", _decoder(kind).decode(within_levels(line)))
    except TooManyLevelsError:
        raise
    except DecodeError:
        text = line.decode() if isinstance(line, bytes) else line
        if not re.search(_NOT_A_VALUE, text):
            raise
        import json  # for such lines alone

        with suppress(ValueError):
            document = json.loads(
                text,
                parse_constant=lambda _: None,
                parse_float=_finite_float,
                object_pairs_hook=_without_null_members,
            )
            return cast("S", _decoder(kind).decode(json.dumps(document)))
        raise


def _without_null_members(members: Sequence[tuple[str, object]]) -> dict[str, object]:
    return known_members(dict(members))


def _finite_float(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def decode_without_impossible(kind: type[S], line: bytes | str) -> S:
    """Decode a line as ``decode_leniently`` does, without what is impossible.

    Raises msgspec.DecodeError or UnicodeDecodeError for another line.
    """
    value = decode_leniently(kind, line)
    lines = _decoded_lines(kind)
    lines.count += 1
    if lines.count > _LINES_WITHOUT_BOUNDED_TYPES and is_within_bounds(kind, line):
        return value
    return without_impossible(value) or value


class _DecodedLines(Struct):
    """How many lines of a type this process has decoded."""

    count: int = 0


@cache
def _decoded_lines(_kind: type[Struct]) -> _DecodedLines:
    return _DecodedLines()


def is_within_bounds(kind: type[Struct], line: bytes | str) -> bool:
    """Whether ``without_impossible`` is known to change nothing of a line, because a decoder that
    knows the limits takes it: far faster than a look at each value.

    A number at its very limit is not known: the decoder rounds large whole numbers.
    """
    try:
        _bounded_decoder(kind).decode(line)
    except (DecodeError, UnicodeError):
        return False
    return True


@cache
def _bounded_decoder(kind: type[Struct]) -> Decoder[Struct]:
    return Decoder(_bounded_type(kind, _MAX_NUMBER), dec_hook=_possible_time)


class _PossibleTime:
    """A time that is possible."""


_MOMENT = _PossibleTime()


def _possible_time(_kind: type, text: object) -> _PossibleTime:
    """A time in a line. Raises ValueError, for the decoder, if it is not possible."""
    if isinstance(text, str) and parse_datetime(text) is not None:
        return _MOMENT
    raise ValueError("it is no time")


@cache
def _bounded_type(kind: type[Struct], limit: float) -> type[Struct]:
    """A type of the fields that ``without_impossible`` looks at, with their possible values."""
    described = {described.name: described for described in fields(kind)}
    members: list[tuple[str, Any, Any]] = []
    for _position, name, least, own_limit, _default in _fields_to_check(kind):
        annotation = _field_type(name, described[name].type, least, own_limit or limit)
        if annotation is not None:
            absent = msgspec.field(default=None, name=described[name].encode_name)
            members.append((name, annotation, absent))
    return defstruct(f"Bounded{kind.__name__}", members, gc=False)


def _field_type(name: str, annotation: object, least: float, limit: float) -> Any:  # noqa: ANN401
    """The type of the possible values of a field; None if all are."""
    bounded: list[Any] = []
    for member in get_args(annotation) if isinstance(annotation, UnionType) else (annotation,):
        if member in (int, float):
            bounded.append(Annotated[float, Meta(ge=least, le=math.nextafter(limit, 0))])
        elif member is str and name.endswith(_TIME_ENDING):
            bounded.append(_PossibleTime)
        elif isinstance(member, StructMeta):
            bounded.append(_bounded_type(member, limit))
        elif get_origin(member) in (tuple, Mapping):
            *keys, item = (each for each in get_args(member) if each is not Ellipsis)
            items = _field_type("", item, 0.0, limit)
            if items is not None:
                bounded.append(GenericAlias(dict if keys else list, (*keys, items)))
    return Union[(*bounded, None)] if bounded else None


def without_impossible(value: S, limit: float = _MAX_NUMBER) -> S | None:
    """The value, itself if all is possible; None if a field that it needs is not.

    ``limit``: of fields without unit.
    """
    changed: dict[str, object] = {}
    values = astuple(value)  # faster than one field after the other
    for position, name, least, own_limit, default in _fields_to_check(type(value)):
        before = values[position]
        if before is default:
            continue
        limit_here = own_limit or limit
        # Most of them are such numbers, and a call would take as long again.
        if type(before) in _NUMBERS and least <= before <= limit_here:
            continue
        if isinstance(before, Struct):
            after: object = without_impossible(before, limit_here)
        else:
            after = _possible_value(name, before, limit_here)
        if after is before:
            continue
        if after is not None:
            changed[name] = after
        elif default is NODEFAULT:
            return None
        else:
            changed[name] = default
    return replace(value, **changed) if changed else value


@cache
def _fields_to_check(
    kind: type[Struct],
) -> tuple[tuple[int, str, float, float | None, object], ...]:
    """The fields to look at: position, name, least number, limit (None: the parent's), and the
    value if it is absent, which NODEFAULT says of a required one.
    """
    checked = []
    for position, field in enumerate(fields(kind)):
        if field.name.endswith(_TIME_ENDING) or _may_hold_numbers(field.type):
            default = field.default
            if default is NODEFAULT and not field.required:
                default = None  # a list, or the metrics: neither becomes impossible as a whole
            least = _LEAST.get(field.name, 0.0)
            checked.append((position, field.name, least, _limit_by_field_name(field.name), default))
    return tuple(checked)


def _limit_by_field_name(name: str) -> float | None:
    for ending, limit in _LIMITS:
        if name.endswith(ending):
            return limit
    return None


def _may_hold_numbers(annotation: object) -> bool:
    """Whether a field of this type can hold numbers or parts."""
    return any(
        member in (int, float)
        or isinstance(member, StructMeta)
        or get_origin(member) is tuple
        or (get_origin(member) is Mapping and str not in get_args(member)[1:])
        for member in (annotation, *get_args(annotation))
    )


def _possible_value(name: str, value: object, limit: float) -> object:
    """The value itself if it is possible; None if it is not; a changed copy if a part of it is
    not.

    A map with an impossible member is None: what it leaves out has a meaning of its own.
    """
    if isinstance(value, tuple):
        return _possible_items(name, value, limit)
    if isinstance(value, dict):
        members = tuple(value.values())
        return value if _possible_items("", members, limit) is members else None
    is_possible = True
    if isinstance(value, _NUMBERS):
        is_possible = _LEAST.get(name, 0.0) <= value <= limit
    elif isinstance(value, str) and name.endswith(_TIME_ENDING):
        is_possible = parse_datetime(value) is not None
    return value if is_possible else None


def _possible_items(name: str, values: tuple[object, ...], limit: float) -> tuple[object, ...]:
    """The items of a list.

    A series keeps its length: an impossible number of it is a step without a measurement.
    """
    if not values or isinstance(values[0], str):
        return values
    if isinstance(values[0], Struct):
        kept = []
        is_same = True
        for before in cast("tuple[Struct, ...]", values):
            after = without_impossible(before, limit)
            is_same = is_same and after is before
            if after is not None:
                kept.append(after)
        return values if is_same else tuple(kept)
    numbers = cast("Sequence[float]", values)
    try:
        are_possible = min(numbers) >= 0 and max(numbers) <= limit
    except TypeError:  # some are None, which is slower to find out first
        known = cast("list[float]", known_values(values))
        are_possible = not known or (min(known) >= 0 and max(known) <= limit)
    if are_possible:
        return values
    kept_numbers = (_possible_value("", value, limit) for value in values)
    return known_values(kept_numbers) if name in _WITHOUT_GAPS else tuple(kept_numbers)

"""The two ways in which the impossible values of a line are found: a look at each value, and a
decoder that knows the limits.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from profiler.core.json_levels import MAX_LEVELS, TooManyLevelsError
from profiler.record.impossible_values import (
    decode_leniently,
    decode_without_impossible,
    is_too_long,
    is_within_bounds,
    without_impossible,
)
from profiler.record.model_base import MAX_LINE_BYTES
from profiler.record.record_model import Report, encode
from tests.cases import each_case
from tests.changed_records import changed_lines, leaves
from tests.full_record import FULL
from tests.shown_runs import etl

_TIME = "2026-11-20T03:12:44.000Z"
_FULL = json.loads(encode(Report(time=_TIME, type="task.report", record=FULL)))


def _with(place: tuple[Any, ...], value: object) -> bytes:
    """The line with another value at a place."""
    changed = json.loads(json.dumps(_POSSIBLE))
    part = changed
    *parents, name = place
    for key in parents:
        part = part[key]
    part[name] = value
    return json.dumps(changed).encode()


def _possible(value: Any, name: str = "") -> Any:
    """The value with small numbers, and with a time in place of each text that may be one."""
    if isinstance(value, dict):
        return {key: _possible(member, key) for key, member in value.items()}
    if isinstance(value, list):
        return [*map(_possible, value)]
    if isinstance(value, str):
        return _TIME if name.endswith("At") or name in ("from", "to") else value
    return value if isinstance(value, bool) else value % 90 + 1


_POSSIBLE = _possible(_FULL)
_PLACES = [place for place in leaves(_POSSIBLE) if place != ("type",)]
_NUMBERS = [
    *(-1, -1e-300, -(2**31) - 1, 200, 1e6 + 1, 2**31, 1e8 + 1, 1e10 + 1, 9e12 + 1, 1e18 + 129),
    *(10**30, 1e300),
]


def _is_unchanged(line: bytes) -> bool:
    value = decode_leniently(Report, line)
    return without_impossible(value) is value


def test_a_full_record_is_within_the_bounds() -> None:
    line = json.dumps(_POSSIBLE).encode()
    assert is_within_bounds(Report, line)
    assert _is_unchanged(line)


@pytest.mark.diagonal(20)
@pytest.mark.parametrize("place", _PLACES, ids=lambda place: ".".join(map(str, place)))
def test_both_ways_agree_on_each_field(place: tuple[Any, ...]) -> None:
    """Each number and each time of the record in turn is impossible in several ways."""
    values: list[Any] = [*_NUMBERS, 0, 1, 1.5, "", "1969-01-01T00:00:00Z", "2026-11-20", _TIME]
    decoded = 0
    for value in values:
        line = _with(place, value)
        try:
            is_unchanged = _is_unchanged(line)
        except msgspec.DecodeError:
            continue
        decoded += 1
        assert is_within_bounds(Report, line) == is_unchanged, value
    assert decoded or isinstance(_value_at(place), bool)


def _value_at(place: tuple[Any, ...]) -> object:
    value = _POSSIBLE
    for key in place:
        value = value[key]
    return value


@given(changed_lines() | changed_lines([_POSSIBLE]))
def test_what_is_within_the_bounds_stays_as_it_is(line: bytes) -> None:
    try:
        decode_leniently(Report, line)
    except msgspec.DecodeError:
        return
    if is_within_bounds(Report, line):
        assert _is_unchanged(line)


@pytest.mark.parametrize(
    ("place", "limit"),
    [
        (("record", "metrics", "durationMs"), 9_000_000_000_000),
        (("record", "exitCode"), 2**31 - 1),
        (("record", "metrics", "maxPids"), 10**18),
    ],
)
@given(st.integers(-2000, 2000))
@example(0)
@example(1)
def test_no_number_beyond_its_limit_is_within_the_bounds(
    place: tuple[Any, ...], limit: int, difference: int
) -> None:
    """Also of the whole numbers that a double rounds to the limit."""
    line = _with(place, limit + difference)
    assert _is_unchanged(line) == (difference <= 0)
    assert not (difference > 0 and is_within_bounds(Report, line))


def test_an_impossible_value_is_missing_in_whichever_line_of_a_process() -> None:
    """A process that reads many lines finds them in the other way."""
    line = json.loads(encode(etl()))
    line["record"]["exitCode"] = 2**31
    honest = encode(etl())
    for _ in range(450):
        assert decode_without_impossible(Report, json.dumps(line)).record.exit_code is None
        assert decode_without_impossible(Report, honest) == etl()


@pytest.mark.parametrize("line", [b"", b"{", b"\xff", b'{"record":NaN}', b"[]"])
def test_what_is_no_json_is_not_within_the_bounds(line: bytes) -> None:
    assert not is_within_bounds(Report, line)


def _line_type() -> type[msgspec.Struct]:
    """A type of which this process has decoded no line: what is known of others is kept."""

    class Part(msgspec.Struct, frozen=True, kw_only=True):
        used_mb: float

    class Line(msgspec.Struct, frozen=True, kw_only=True):
        name: str = ""
        exit_code: int | None = None
        started_at: str | None = None
        part: Part | None = None
        parts: tuple[Part, ...] = ()
        steps: tuple[float | None, ...] = ()
        xids: tuple[int, ...] = ()
        words: tuple[str, ...] = ()
        shares: Mapping[str, float] | None = None
        tags: Mapping[str, str] = {}

    return Line


@each_case(
    "given, kept",
    [
        ({"name": "-1", "words": ["-1"], "tags": {"a": "-1"}}, None),
        ({"exit_code": 137, "started_at": _TIME, "steps": [1, None, 2], "xids": [13]}, None),
        ({"exit_code": 2**31}, {}),
        ({"started_at": "1969-01-01T00:00:00Z"}, {}),
        ({"part": {"used_mb": 1}}, None),
        ({"part": {"used_mb": 1e11}}, {}),
        ({"parts": [{"used_mb": 1}, {"used_mb": -1}]}, {"parts": [{"used_mb": 1}]}),
        ({"steps": [1, -1, 2]}, {"steps": [1, None, 2]}),
        ({"steps": [None, -1]}, {"steps": [None, None]}),
        ({"xids": [13, -1]}, {"xids": [13]}),
        ({"shares": {"a": 1}}, None),
        ({"shares": {"a": 1, "b": -1}}, {}),
    ],
)
def test_the_first_line_of_a_type_keeps_what_is_possible(
    given: dict[str, Any], kept: dict[str, Any] | None
) -> None:
    """``kept``: what is left of an impossible line."""
    kind, line = _line_type(), msgspec.json.encode(given)
    expected = msgspec.convert(given if kept is None else kept, kind)
    assert decode_without_impossible(kind, line) == expected
    assert is_within_bounds(kind, line) == (kept is None)


def test_a_line_is_measured_in_bytes() -> None:
    assert not is_too_long(b"x" * MAX_LINE_BYTES)
    assert is_too_long(b"x" * (MAX_LINE_BYTES + 1))
    assert not is_too_long("x" * MAX_LINE_BYTES)
    assert is_too_long("é" * (MAX_LINE_BYTES // 2 + 1))
    assert not is_too_long("\ud800" * (MAX_LINE_BYTES // 4))


def test_a_line_of_too_many_levels_is_refused_at_once() -> None:
    with pytest.raises(TooManyLevelsError):
        decode_leniently(Report, b'{"record":' + b"[" * (MAX_LEVELS + 1))

"""Text from other programs, sizes and times as people write them, the text of a moment,
and the clock.
"""

import re
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.clock import Ticker
from profiler.core.quantity_parsing import parse_duration_ms, parse_memory_mb, parse_seconds
from profiler.core.text import (
    NARROW_SIGNS,
    beginning_of,
    columns_of,
    did_you_mean,
    end_of,
    first_names,
    first_whole_letters,
    install_hint,
    listed,
    listed_and_more,
    names_and_more,
    on_one_line,
    printable,
    without_surrogates,
)
from profiler.core.timestamps import (
    format_datetime,
    format_local,
    instant_of_local,
    local_time,
    local_zone,
    parse_datetime,
    parse_ns,
    subtract_ms,
    with_local_times,
)
from tests.cases import each_case
from tests.fakes import seconds


def test_a_single_name_that_would_be_left_out_is_shown() -> None:
    assert [names_and_more("abcde"[:count]) for count in range(6)] == [
        "",
        "a",
        "a, b",
        "a, b, c",
        "a, b, c, d",
        "a, b, c and 2 more",
    ]
    assert [listed_and_more("abcd"[:count], 2) for count in range(5)] == [
        "",
        "a",
        "a and b",
        "a, b and c",
        "a, b and 2 more",
    ]


def test_lone_surrogates_are_replaced_and_other_text_stays() -> None:
    assert without_surrogates("größer 🚀") == "größer 🚀"
    assert without_surrogates("a\udc80\ud800b") == "a??b"
    assert (
        without_surrogates("a\udc80b", "\N{REPLACEMENT CHARACTER}") == "a\N{REPLACEMENT CHARACTER}b"
    )


def test_control_characters_and_changes_of_direction_are_escaped_or_blank() -> None:
    text = "a\x1b[31m\tb\n\N{RIGHT-TO-LEFT OVERRIDE}c\udc80"
    assert printable(text) == r"a\x1b[31m\tb\n\u202ec\udc80"
    assert on_one_line(text) == "a [31m b  c?"
    assert [first_names("abcdef"[:count]) for count in (5, 6)] == [
        "a, b, c, d, e",
        "a, b, c, d, e, …",
    ]


@given(st.text(st.characters(categories=None)))
def test_any_text_can_be_printed_and_written(text: str) -> None:
    for clean in (printable(text), on_one_line(text)):
        assert clean.isprintable()
    assert without_surrogates(text).encode().decode() == without_surrogates(text)


@pytest.mark.parametrize(
    ("parse", "written"),
    [
        (
            parse_memory_mb,
            {"900MB": 900, "1.5GB": 1536, "900 MB": 900, "2gib": 2048, "0.5mib": 0.5},
        ),
        (parse_memory_mb, {"900m": 900, "0.5g": 512, "999999999GB": 1023999998976}),
        (
            parse_duration_ms,
            {"90s": 90_000, "10m": 600_000, "1.5h": 5_400_000, "0.2 S": 200, "1h30m": 5_400_000},
        ),
        (parse_duration_ms, {"1h 30m": 5_400_000, "100ms": 100, "10": 10_000, "2d": 172_800_000}),
        (parse_seconds, {"60": 60, "0.5": 0.5, "1m": 60}),
    ],
)
def test_quantities_are_written_with_their_units(
    parse: Callable[[str], float], written: dict[str, float]
) -> None:
    assert {text: parse(text) for text in written} == written


@each_case("parse", [parse_memory_mb, parse_duration_ms, parse_seconds])
@each_case(
    "text",
    [
        *(
            "",
            "0",
            "0MB",
            "0.0s",
            "-1",
            "-1s",
            "-1MB",
            "nan",
            "inf",
            "1e9",
            "1e9s",
            "1_0s",
            "9" * 10,
            "9" * 400 + "MB",
        ),
        *(
            "MB",
            "1h30",
            "10w",
            "5KB",
            "5 m b",
            " 5s",
            "5s ",
            "0.0001MB",
            "0.0001",
            "٣s",
            "5s\n",
            "1.MB",
            ".5h",
        ),
    ],
)
def test_other_values_are_errors_that_say_what_to_write(parse: object, text: str) -> None:
    assert callable(parse)
    with pytest.raises(ValueError, match=r"^'.*' is not a .*: write .* as in .* or .*\.$"):
        parse(text)


def test_reads_rfc3339_with_any_fraction_and_nothing_else() -> None:
    times: dict[object, int | None] = {
        "2025-02-27T05:06:19.394790335Z": 1740632779394790335,
        "2025-02-27T05:06:19Z": 1740632779000000000,
        "2025-02-27T05:06:19.5Z": 1740632779500000000,
        "2025-02-27T06:06:19.5+01:00": 1740632779500000000,
        "2020-10-02T00:51:32.51467703Z": 1601599892514677030,
        "0001-01-01T00:00:00Z": None,
        "9999-12-31T23:59:59-01:00": None,
        "2025-13-01T00:00:00Z": None,
        "2025-02-27T05:06:19": None,
        None: None,
        5: None,
    }
    assert {text: parse_ns(text) for text in times} == times


def test_a_time_needs_a_zone() -> None:
    moments = {
        "2026-03-01T10:00:03+01:00": datetime(2026, 3, 1, 9, 0, 3, tzinfo=UTC),
        "2026-03-01T10:00:03.123456789Z": datetime(2026, 3, 1, 10, 0, 3, 123456, tzinfo=UTC),
        "1970-01-01T00:00:00Z": datetime(1970, 1, 1, tzinfo=UTC),
        "1969-12-31T23:59:59Z": None,
        "9999-12-31T23:59:59-01:00": None,
        "2026-03-01": None,
        None: None,
    }
    assert {text: parse_datetime(text) for text in moments} == moments
    first = datetime(1970, 1, 1, tzinfo=UTC)  # what is outside the calendar is not subtracted
    assert subtract_ms(first, 1) == first
    assert subtract_ms(datetime(2026, 1, 1, tzinfo=UTC), None) == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.usefixtures("los_angeles")
def test_a_person_gets_the_times_of_this_machine() -> None:
    text = "A run was due at 2026-11-20T01:00:06.000Z; the one of 9999-01-01T00:00:00Z was not."
    assert with_local_times(text) == (
        "A run was due at 2026-11-19 17:00; the one of 9999-01-01T00:00:00Z was not."
    )
    assert local_zone() == "PST/PDT"
    assert format_local(parse_ns("2026-11-20T14:00:00Z")) == "2026-11-20 06:00"
    assert format_local(None) is None


def test_a_zone_that_cannot_be_is_utc(set_zone: Callable[[str], None]) -> None:
    moment_ns = parse_ns("2026-11-20T14:00:00Z")
    for zone in ("XYZ-25:30", "XYZ25"):
        set_zone(zone)
        assert (format_local(moment_ns), local_zone()) == ("2026-11-20 14:00", "UTC")
    set_zone("XYZ-23:30")
    assert (format_local(moment_ns), local_zone()) == ("2026-11-21 13:30", "XYZ")


@pytest.mark.parametrize("zone", [":bad", "bad", "Nowhere/Town", "FOO0"])
def test_what_is_no_zone_is_utc(set_zone: Callable[[str], None], zone: str) -> None:
    """The C library calls UTC by the first letters, such as ``Nowhere``."""
    set_zone(zone)
    assert local_zone() == "UTC"
    assert f"{local_time(0):%Z}" == "UTC"


@pytest.mark.parametrize(
    ("zone", "names"),
    [("UTC", "UTC"), ("GMT0", "GMT"), ("GMT0BST", "GMT/BST"), ("WET0WEST", "WET/WEST")],
)
def test_a_zone_without_an_offset_keeps_its_name(
    set_zone: Callable[[str], None], zone: str, names: str
) -> None:
    set_zone(zone)
    assert local_zone() == names
    assert f"{local_time(0):%Z}" == names.partition("/")[0]


@pytest.mark.usefixtures("los_angeles")
def test_a_local_time_is_an_instant() -> None:
    instants = {
        "2026-11-20T06:00:00": "2026-11-20T14:00:00.000Z",
        "2026-07-20T06:00:00": "2026-07-20T13:00:00.000Z",
        "2026-11-01T01:30:00": "2026-11-01T08:30:00.000Z",  # comes twice: the first
        "2026-03-08T02:00:00": "2026-03-08T10:00:00.000Z",  # does not exist: the end of the gap
        "2026-03-08T02:30:00.250": "2026-03-08T10:00:00.000Z",
        "2026-03-08T01:59:59.999": "2026-03-08T09:59:59.999Z",
    }
    assert {
        local: format_datetime(instant_of_local(datetime.fromisoformat(local)))
        for local in instants
    } == instants


def test_ticks_lie_on_a_grid_and_lateness_does_not_accumulate() -> None:
    ticker = Ticker(seconds(100), seconds(1))
    assert ticker.seconds_to_next(seconds(100)) == 1
    assert ticker.seconds_to_next(seconds(101.25)) == 0.75
    assert ticker.missed == 0
    assert ticker.seconds_to_next(seconds(104.5)) == 0.5
    assert ticker.missed == 2
    assert ticker.seconds_to_next(seconds(104.5)) == 1.5


def test_a_hint_to_install_a_package_is_right_under_pipx_too() -> None:
    assert (
        install_hint("ruamel.yaml")
        == "pip install ruamel.yaml (with pipx: pipx inject task-profiler ruamel.yaml)"
    )


def test_the_most_similar_names_are_suggested_once_each() -> None:
    known = ("nightly-etl", "nightly-load", "billing")
    names = ("nightly-elt", "nightly_etl", "biling")
    assert did_you_mean(names, known) == " Did you mean nightly-etl and billing?"


def test_a_name_without_a_similar_one_gets_no_suggestion() -> None:
    assert did_you_mean(("orders",), ("billing",)) == ""


@pytest.mark.parametrize(
    ("names", "text"),
    [((), ""), (("a",), "a"), (("a", "b"), "a or b"), (("a", "b", "c"), "a, b or c")],
)
def test_a_list_in_a_sentence(names: tuple[str, ...], text: str) -> None:
    """Commas separate all names but the last one."""
    assert listed(iter(names), "or") == text


def test_our_own_signs_take_one_column_and_others_as_many_as_unicode_says() -> None:
    assert {unicodedata.east_asian_width(sign) for sign in NARROW_SIGNS} <= set("ANH")
    assert [columns_of(text) for text in ("● a · b …", "● é", "● 漢字", "\uff21")] == [9, 3, 6, 2]


FLAG = "\U0001f1e9\U0001f1ea"  # of Germany, of two regional indicators
THUMB = "\U0001f44d\U0001f3fd"  # with the tone of a skin
LETTER = "e\u0301"
ESCAPES = ("\\x1b", "\\u202e", "\\U000e0041")


@each_case("sign", [FLAG, THUMB, LETTER, *ESCAPES])
@each_case("beside", ["", "ab", FLAG, f"a{FLAG}{FLAG}"])
def test_a_cut_at_any_place_leaves_each_sign_whole_or_out(sign: str, beside: str) -> None:
    signs = re.findall(rf"{FLAG}|{THUMB}|{LETTER}|\\\w+|.", beside + 2 * sign)
    text = "".join(signs)
    beginnings = {"".join(signs[:number]) for number in range(len(signs) + 1)}
    ends = {"".join(signs[number:]) for number in range(len(signs) + 1)}
    for columns in range(columns_of(text) + 2):
        room = partial(_fitting, columns)
        assert beginning_of(text, columns) == max(filter(room, beginnings), key=columns_of)
        assert end_of(text, columns) == max(filter(room, ends), key=columns_of)
    for length in range(len(signs[0]), len(text) + 1):
        if sign not in ESCAPES:  # they are of our own terminal's texts
            fitting = [one for one in beginnings if len(one) <= length]
            assert first_whole_letters(text, length) == max(fitting, key=len)


def _fitting(columns: int, text: str) -> bool:
    return columns_of(text) <= columns


def test_what_only_looks_like_a_part_is_cut_anywhere() -> None:
    assert end_of("C:\\users", 5) == "users"
    assert beginning_of(FLAG + FLAG[0] + "ab", 3) == FLAG + FLAG[0]
    assert end_of("\u0301" * 100_000, 1) == ""

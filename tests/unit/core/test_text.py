"""Text from other programs, and sizes and times as people write them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.quantities import parse_duration_ms, parse_memory_mb, parse_seconds
from profiler.core.text import on_one_line, printable, without_surrogates


def test_lone_surrogates_are_replaced_and_other_text_stays() -> None:
    assert without_surrogates("größer 🚀") == "größer 🚀"
    assert without_surrogates("a\udc80\ud800b") == "a??b"
    assert without_surrogates("a\udc80b", "\N{REPLACEMENT CHARACTER}") == "a\N{REPLACEMENT CHARACTER}b"


def test_control_characters_and_changes_of_direction_are_escaped_or_blank() -> None:
    text = "a\x1b[31m\tb\n\N{RIGHT-TO-LEFT OVERRIDE}c\udc80"
    assert printable(text) == r"a\x1b[31m\tb\n\u202ec\udc80"
    assert on_one_line(text) == "a [31m b  c?"


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
            {"900MB": 900, "1.5GB": 1536, "900 MB": 900, "2gib": 2048, "0.5mib": 0.5, "900m": 900, "0.5g": 512},
        ),
        (parse_memory_mb, {"999999999GB": 1023999998976}),
        (
            parse_duration_ms,
            {"90s": 90_000, "10m": 600_000, "1.5h": 5_400_000, "0.2 S": 200, "1h30m": 5_400_000, "1h 30m": 5_400_000},
        ),
        (parse_duration_ms, {"100ms": 100, "10": 10_000, "2d": 172_800_000}),
        (parse_seconds, {"60": 60, "0.5": 0.5, "1m": 60}),
    ],
)
def test_quantities_are_written_with_their_units(parse: Callable[[str], float], written: dict[str, float]) -> None:
    assert {text: parse(text) for text in written} == written


@pytest.mark.parametrize("parse", [parse_memory_mb, parse_duration_ms, parse_seconds])
@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "0MB", "0.0s", "-1", "-1s", "-1MB", "nan", "inf", "1e9", "1e9s", "1_0s", "9" * 10, "9" * 400 + "MB"),
        *("MB", "1h30", "10w", "5KB", "5 m b", " 5s", "5s ", "0.0001MB", "0.0001", "٣s", "5s\n", "1.MB", ".5h"),
    ],
)
def test_other_values_are_errors_that_say_what_to_write(parse: object, text: str) -> None:
    assert callable(parse)
    with pytest.raises(ValueError, match=r"^'.*' is not a .*: write .* as in .* or .*\.$"):
        parse(text)

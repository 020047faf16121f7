"""Times of RFC 3339: the usual form by the minute, all others by the pattern."""

from hypothesis import given
from hypothesis import strategies as st

from profiler.core.timestamps import (
    NS_PER_SECOND,
    format_datetime,
    formatted_datetime,
    parse_datetime,
    parse_ns,
)
from tests.cases import each_case

_MINUTE = 1_772_359_200 * NS_PER_SECOND  # 2026-03-01T10:00:00Z


@each_case(
    ("text", "expected"),
    [
        ("2026-03-01T10:00:02.500000001Z", _MINUTE + 2_500_000_001),
        ("2026-03-01T10:00:02.5Z", _MINUTE + 2_500_000_000),
        ("2026-03-01T10:00:02.123456789987654321Z", _MINUTE + 2_123_456_789),
        ("2026-03-01T10:00:59Z", _MINUTE + 59 * NS_PER_SECOND),
        ("2026-03-01t10:00:02.5z", _MINUTE + 2_500_000_000),
        ("2026-03-01 11:00:02.5+01:00", _MINUTE + 2_500_000_000),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("2200-12-31T23:59:59.9Z", 7_289_654_399_900_000_000),
        # Not times, though all but the last two grow as texts do.
        ("2026-03-01T10:00:02.5ZZ", None),
        ("2026-03-01T10:00:02.1234567890123456789Z", None),
        ("2026-03-01T10:00:60.1Z", None),
        ("2026-03-01T10:00:2.51Z", None),
        ("2026-03-01T10:00:02.\u0663Z", None),
        ("2026-03-01T10:00:\u0660\u0662.5Z", None),
        ("2026-03-01T10:00:02.Z", None),
        ("2026-03-01T10:00:+2.5Z", None),
        ("2026-03-01T24:00:00.1Z", None),
        ("2026-02-30T10:00:00.1Z", None),
        ("2201-01-01T00:00:00.0Z", None),
        ("1970-01-01T00:00:00.5Z", None),
        ("0001-01-01T00:00:00Z", None),
        ("", None),
        (7, None),
    ],
)
def test_a_time_is_one_of_1970_to_2200_in_the_forms_of_rfc_3339(
    text: object, expected: int | None
) -> None:
    assert parse_ns(text) == expected


@given(
    st.from_regex(
        r"20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-7][0-9]", fullmatch=True
    ),
    st.integers(0, 999_999_999),
)
def test_the_usual_form_is_what_the_same_time_with_an_offset_is(head: str, fraction: int) -> None:
    """The pattern reads the offset's form."""
    assert parse_ns(f"{head}.{fraction:09}Z") == parse_ns(f"{head}.{fraction:09}+00:00")


@each_case(
    "text",
    [
        *("2026-11-20T03:12:44.000Z", "2026-11-20T03:12:44Z", "2026-11-20 03:12:44.000Z"),
        *("2026-11-20T03:12:44.123+02:00", "2026-W47-5T03:12:44.000Z", "2026-11-20T03:12:44,000Z"),
        *("2026-11-20T24:00:00.000Z", "2026-02-30T03:12:44.000Z", "1969-11-20T03:12:44.000Z"),
        *("2201-11-20T03:12:44.000Z", "2026-11-20", "", None),
    ],
)
def test_a_formatted_time_is_the_moment_of_its_text(text: str | None) -> None:
    moment = parse_datetime(text)
    expected = None if moment is None else format_datetime(moment)
    assert formatted_datetime(text) == expected

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.timestamps import format_datetime, format_ms, parse_datetime, parse_ns, subtract_ms


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2025-02-27T05:06:19.394790335Z", 1740632779394790335),
        ("2025-02-27T05:06:19Z", 1740632779000000000),
        ("2025-02-27T05:06:19.5Z", 1740632779500000000),
        ("2025-02-27T06:06:19.5+01:00", 1740632779500000000),
        ("2020-10-02T00:51:32.51467703Z", 1601599892514677030),
    ],
)
def test_reads_rfc3339_with_any_fraction(text: str, ns: int) -> None:
    assert parse_ns(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "",
        "yesterday",
        "2025-13-01T00:00:00Z",
        "2025-02-27T05:06:19",
        None,
        5,
    ],
)
def test_other_text_is_not_a_time(text: object) -> None:
    assert parse_ns(text) is None


@given(st.text())
def test_never_raises(text: str) -> None:
    parse_ns(text)
    parse_datetime(text)
    parse_datetime(text, default_zone=UTC)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
def test_a_time_outside_the_calendar_is_no_time(text: str) -> None:
    assert parse_ns(text) is None
    assert parse_datetime(text) is None


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-01T10:00:03+01:00", datetime(2026, 3, 1, 9, 0, 3, tzinfo=UTC)),
        ("2026-03-01T10:00:03.123456789Z", datetime(2026, 3, 1, 10, 0, 3, 123456, tzinfo=UTC)),
        ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
        ("1969-12-31T23:59:59Z", None),
        ("2026-03-01T10:00:03", None),
        ("2026-03-01", None),
        ("", None),
        (None, None),
    ],
)
def test_a_time_needs_a_zone_or_a_default(text: str | None, moment: datetime | None) -> None:
    assert parse_datetime(text) == moment
    assert parse_datetime("2026-03-01T10:00:03", default_zone=UTC) == datetime(2026, 3, 1, 10, 0, 3, tzinfo=UTC)


def test_what_is_outside_the_calendar_is_not_subtracted() -> None:
    first = datetime(1, 1, 1, tzinfo=UTC)
    assert subtract_ms(first, 1) == first
    assert subtract_ms(first, 1e300) == first
    assert subtract_ms(datetime(2026, 1, 1, tzinfo=UTC), None) == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_datetime_is_written_with_milliseconds() -> None:
    assert format_datetime(datetime(2026, 3, 1, 10, 0, 3, 123999, tzinfo=UTC)) == "2026-03-01T10:00:03.123Z"


@given(st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1)))  # noqa: DTZ001  hypothesis wants naive bounds
def test_what_is_written_can_be_read(moment: datetime) -> None:
    text = format_ms(int(moment.replace(tzinfo=UTC).timestamp() * 1000) * 1_000_000)
    assert len(text) == len("2026-11-20T03:12:45.123Z")
    assert format_ms(parse_ns(text) or 0) == text

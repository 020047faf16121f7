from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.timestamps import format_ms, parse_ns


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
def test_anything_else_is_no_time(text: object) -> None:
    assert parse_ns(text) is None


@given(st.text())
def test_never_raises(text: str) -> None:
    parse_ns(text)


@given(st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1)))  # noqa: DTZ001  hypothesis wants naive bounds
def test_what_is_written_can_be_read(moment: datetime) -> None:
    text = format_ms(int(moment.replace(tzinfo=UTC).timestamp() * 1000) * 1_000_000)
    assert len(text) == len("2026-11-20T03:12:45.123Z")
    assert format_ms(parse_ns(text) or 0) == text

"""Sizes and times as people write them."""

from collections.abc import Callable

import pytest

from profiler.core.quantities import parse_duration_ms, parse_memory_mb, parse_seconds


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

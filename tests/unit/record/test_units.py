"""Numbers as texts for people; tests/browser/test_page_formats.py compares the page's JavaScript with them."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.record.units import (
    format_change,
    format_count,
    format_duration,
    format_memory,
    format_part,
    format_peak,
    format_percent,
    format_task_size,
    format_usd,
    format_vcpu,
)
from tests.formats import CHANGES, DOLLARS, DURATIONS, MEMORY, PERCENTS, VCPUS


@pytest.mark.parametrize(("milliseconds", "expected"), DURATIONS)
def test_durations(milliseconds: float, expected: str) -> None:
    assert format_duration(milliseconds) == expected


@pytest.mark.parametrize(("megabytes", "expected"), MEMORY)
def test_memory(megabytes: float, expected: str) -> None:
    assert format_memory(megabytes) == expected


def test_a_peak_that_the_kernel_did_not_count_may_have_been_higher() -> None:
    assert [format_peak(10.46, source) for source in ("kernel", "sampled", None)] == ["10 MB", "≥10 MB", "≥10 MB"]


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [("0.1 vCPU", "2 vCPU", "0.1 of 2 vCPU"), ("300 MB", "2 GB", "300 MB of 2 GB"), ("3 %", "100 %", "3 of 100 %")],
)
def test_a_part_of_a_whole_has_one_unit_if_they_share_it(part: str, whole: str, expected: str) -> None:
    assert format_part(part, whole) == expected


@pytest.mark.parametrize(("count", "expected"), VCPUS)
def test_vcpus(count: float, expected: str) -> None:
    assert format_vcpu(count) == expected


@pytest.mark.parametrize(("percent", "expected"), PERCENTS)
def test_percentages(percent: float, expected: str) -> None:
    assert format_percent(percent) == expected


@pytest.mark.parametrize(("new", "old", "expected"), CHANGES)
def test_changes(new: float, old: float, expected: str) -> None:
    assert format_change(new, old, format_memory) == expected


@pytest.mark.parametrize(("usd", "expected"), DOLLARS)
def test_dollars(usd: float, expected: str) -> None:
    assert format_usd(usd) == expected


@pytest.mark.parametrize(
    ("vcpu", "memory_mb", "expected"),
    [(1, 2048, "1 vCPU, 2 GB"), (0.25, 512, "0.25 vCPU, 512 MB"), (2, None, "2 vCPU"), (None, 64, "64 MB"),
     (None, None, None)],
)  # fmt: skip
def test_task_sizes(vcpu: float | None, memory_mb: float | None, expected: str | None) -> None:
    assert format_task_size(vcpu, memory_mb) == expected


def test_counts() -> None:
    assert [format_count(count, "run") for count in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


@given(st.floats(1e-12, 1e9))
def test_an_amount_that_is_not_zero_has_two_significant_digits_and_is_near(usd: float) -> None:
    text = format_usd(usd)
    assert re.fullmatch(r"\$\d+\.\d{2,}", text)
    assert len(text[1:].replace(".", "").lstrip("0")) >= 2
    assert float(text[1:]) == pytest.approx(usd, rel=0.051, abs=0)


@given(st.floats(0, 1e9))
def test_memory_is_in_megabytes_only_below_a_gigabyte(megabytes: float) -> None:
    number, unit = format_memory(megabytes).split()
    assert not number.endswith(".0")
    if unit == "MB":
        assert float(number) < 1024
        assert float(number) == pytest.approx(megabytes, abs=0.5)
    else:
        assert unit == "GB"
        assert float(number) * 1024 == pytest.approx(megabytes, abs=51.3)


@given(value=st.floats(0, allow_nan=False, allow_infinity=False))
@pytest.mark.parametrize("formatter", [format_duration, format_memory, format_vcpu, format_usd])
def test_every_finite_amount_has_a_text(formatter: Callable[[float], str], value: float) -> None:
    assert re.fullmatch(r"\$?\d+(\.\d+)?[a-zA-Z]*( \w+)?", formatter(value))

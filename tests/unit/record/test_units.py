"""Numbers and series as texts; tests/browser/test_page_formats.py compares the page's JavaScript
with them.
"""

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from profiler.record.sparkline import GAP, draw_sparkline
from profiler.record.units import (
    format_change,
    format_count,
    format_duration,
    format_gpu_hours,
    format_memory,
    format_part,
    format_percent,
    format_period,
    format_usd,
    format_usd_a_month,
    format_value,
    format_vcpu,
    rounded_usd,
)
from tests.formats import CHANGES, DOLLARS, DOLLARS_A_MONTH, DURATIONS, MEMORY, PERCENTS, VCPUS

AMOUNTS = {
    format_duration: DURATIONS,
    format_memory: MEMORY,
    format_vcpu: VCPUS,
    format_percent: PERCENTS,
    format_usd: DOLLARS,
    format_usd_a_month: DOLLARS_A_MONTH,
}


def test_amounts_and_changes() -> None:
    for formatter, rows in AMOUNTS.items():
        assert tuple((value, formatter(value)) for value, _ in rows) == rows
    assert (
        tuple((new, old, format_change(new, old, format_memory)) for new, old, _ in CHANGES)
        == CHANGES
    )


def test_thousands_have_a_comma_in_counts_too() -> None:
    assert format_count(999, "run") == "999 runs"
    assert format_count(14, "day") == "14 days"
    assert format_count(1_250_000, "family") == "1,250,000 families"
    assert format_value(32_768, "count") == "32,768"
    assert format_gpu_hours(1234.5) == "1,234.5 idle GPU-hours"


def test_a_period_has_no_tenths_that_nobody_measured() -> None:
    shown = [format_period(period_ms) for period_ms in (1_000, 1_520, 9_996, 59_949, 60_000)]
    assert shown == ["1 s", "1.5 s", "10 s", "59.9 s", "1m 00s"]


def test_a_part_of_a_whole_has_one_unit_if_they_share_it() -> None:
    assert format_part("0.1 vCPU", "2 vCPU") == "0.1 of 2 vCPU"
    assert format_part("300 MB", "2 GB") == "300 MB of 2 GB"


@given(value=st.floats(0, 1e18))
@pytest.mark.parametrize("formatter", [format_duration, format_memory, format_vcpu, format_usd])
def test_every_finite_amount_has_a_text(formatter: Callable[[float], str], value: float) -> None:
    assert re.fullmatch(r"\$?\d[\d,]*(\.\d+)?[a-zA-Z]*( \w+)?", formatter(value))


@given(usd=st.floats(-1e9, 1e9).filter(lambda usd: not 0 < abs(usd) < 1e-12))
@example(usd=0.045)
@example(usd=0.145)
@example(usd=-0.004)
def test_an_amount_for_programs_has_the_digits_of_its_text(usd: float) -> None:
    amount = rounded_usd(usd)
    assert format_usd(amount) == format_usd(usd)
    assert format_usd_a_month(amount) == format_usd_a_month(usd)
    assert float(format_usd(abs(usd)).lstrip("$").replace(",", "")) == abs(amount)


BLOCKS = "▁▂▃▄▅▆▇█"


def test_one_character_for_each_value_or_the_peak_of_several() -> None:
    rising = [0, 1, 2, 3, 4, 5, 6, 7]
    assert draw_sparkline(rising, width=8, top=7) == BLOCKS
    assert draw_sparkline([0, None, 7], width=8, top=7) == "▁ █"
    assert draw_sparkline([0, 0, 0, 100, 0, None, None, None], width=4, top=100) == "▁█▁ "
    assert draw_sparkline([0, 200], width=2, top=100) == "▁█"


@given(
    values=st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=300),
    width=st.integers(1, 130),
    top=st.floats(1, 100),
)
def test_no_peak_and_no_measured_part_is_lost(
    values: list[float | None], width: int, top: float
) -> None:
    line = draw_sparkline(values, width=width, top=top)
    measured = [value for value in values if value is not None]
    assert (line.strip(GAP) == "") == (not measured)
    if measured:
        highest = max(BLOCKS.index(character) for character in line if character != GAP)
        alone = draw_sparkline([max(measured)], width=1, top=top)
        assert BLOCKS[highest] == alone

"""A time series as one line of text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.record.sparkline import GAP, sparkline

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.:-=+*#"
VALUES = st.lists(st.none() | st.floats(), max_size=300)
WIDTHS = st.integers(-2, 130)
TOPS = st.floats(allow_nan=False)


def test_one_character_for_each_value() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], width=8, top=7) == BLOCKS


def test_ascii_has_as_many_levels() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], width=8, top=7, ascii_only=True) == ASCII


def test_a_value_without_measurement_is_a_gap() -> None:
    assert sparkline([0, None, 7, math.nan, math.inf], width=8, top=7) == "▁ █  "


def test_a_bucket_shows_its_peak() -> None:
    assert sparkline([0, 0, 0, 100, 0, None, None, None], width=4, top=100) == "▁█▁ "


def test_values_outside_the_scale_have_the_outermost_blocks() -> None:
    assert sparkline([-5, 200], width=2, top=100) == "▁█"


@pytest.mark.parametrize("top", [0.0, -1.0])
def test_without_a_scale_every_value_is_lowest(top: float) -> None:
    assert sparkline([0, 5], width=2, top=top) == "▁▁"


@given(values=VALUES, width=WIDTHS, top=TOPS, ascii_only=st.booleans())
def test_the_line_has_its_length_and_its_characters(
    values: list[float | None], width: int, top: float, *, ascii_only: bool
) -> None:
    line = sparkline(values, width=width, top=top, ascii_only=ascii_only)
    assert len(line) == min(max(width, 0), len(values))
    assert set(line) <= set(ASCII if ascii_only else BLOCKS) | {GAP}


@given(
    values=st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=300),
    width=st.integers(1, 130),
    top=st.floats(1, 100),
)
def test_no_peak_and_no_measured_part_is_lost(values: list[float | None], width: int, top: float) -> None:
    line = sparkline(values, width=width, top=top)
    measured = [value for value in values if value is not None]
    assert (line.strip(GAP) == "") == (not measured)
    if measured:
        highest = max(BLOCKS.index(character) for character in line if character != GAP)
        alone = sparkline([max(measured)], width=1, top=top)
        assert BLOCKS[highest] == alone


@given(values=st.lists(st.floats(0, 100), min_size=2, max_size=50), top=st.floats(1, 100))
def test_a_larger_value_is_never_drawn_lower(values: list[float], top: float) -> None:
    ordered = sorted(values)
    levels = [BLOCKS.index(character) for character in sparkline(ordered, width=len(ordered), top=top)]
    assert levels == sorted(levels)

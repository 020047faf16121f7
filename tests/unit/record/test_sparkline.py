"""A time series as one line of text."""

from hypothesis import given
from hypothesis import strategies as st

from profiler.record.sparkline import GAP, sparkline

BLOCKS = "▁▂▃▄▅▆▇█"


def test_one_character_for_each_value_or_the_peak_of_several() -> None:
    rising = [0, 1, 2, 3, 4, 5, 6, 7]
    assert sparkline(rising, width=8, top=7) == BLOCKS
    assert sparkline(rising, width=8, top=7, ascii_only=True) == "_.:-=+*#"
    assert sparkline([0, None, 7], width=8, top=7) == "▁ █"
    assert sparkline([0, 0, 0, 100, 0, None, None, None], width=4, top=100) == "▁█▁ "
    assert sparkline([0, 200], width=2, top=100) == "▁█"


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

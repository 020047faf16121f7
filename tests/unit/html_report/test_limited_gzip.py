"""Compressed JSON of a limited length."""

import base64
import gzip
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.html_report.limited_gzip import LimitedGzip, to_json

TEXTS = st.lists(st.text(max_size=60) | st.integers() | st.none(), max_size=60)


def parsed(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


@given(values=TEXTS, max_characters=st.integers(200, 2000), has_gaps=st.booleans())
def test_an_array_is_no_longer_than_it_may_be(values: list[object], max_characters: int, *, has_gaps: bool) -> None:
    data = LimitedGzip(max_characters)
    count = data.write_array(values, share=0.5, has_gaps=has_gaps)
    text = data.finish()
    assert len(text) <= max_characters
    found = parsed(text)
    if has_gaps:
        assert all(shown in {None, value} for shown, value in zip(found, values, strict=True))
    else:
        assert found == values[:count]


def test_what_compression_saves_is_room_for_more() -> None:
    chance = random.Random(1)
    block = chance.randbytes(1000).hex()
    repeated, different = LimitedGzip(300_000), LimitedGzip(300_000)
    assert repeated.write_array([block] * 1000) == 1000
    assert different.write_array(chance.randbytes(1000).hex() for _ in range(1000)) < 300
    assert len(repeated.finish()) < len(different.finish()) <= 300_000


def test_the_first_elements_are_there_even_if_they_do_not_fit() -> None:
    data = LimitedGzip(100)
    assert data.write_array(["a" * 1000, "b" * 1000, "c"], at_least=2) == 2


def test_a_gap_takes_the_place_of_what_does_not_fit() -> None:
    data = LimitedGzip(1000)
    assert data.write_array(["a", "b" * 10_000, "c"], has_gaps=True) == 2
    assert parsed(data.finish()) == ["a", None, "c"]


def test_equal_data_is_equal_text() -> None:
    def text() -> str:
        data = LimitedGzip(1000)
        data.write_array(["a", 1])
        return data.finish()

    assert text() == text()


def test_numbers_without_an_end_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(float("nan"))

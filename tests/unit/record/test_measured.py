"""Numbers with what is known of them."""

import pytest

from profiler.record.measured import (
    UNKNOWN,
    Approximately,
    AtLeast,
    Exactly,
    Measured,
    measured_from,
    scaled_number,
    total_of_known,
)
from profiler.record.units import format_memory, format_usd


@pytest.mark.parametrize(
    ("number", "text", "words", "most"),
    [
        (Exactly(512), "512 MB", "512 MB", "up to 512 MB"),
        (AtLeast(512), "≥512 MB", "at least 512 MB", "up to 512 MB or more"),
        (Approximately(512), "≈ 512 MB", "about 512 MB", "up to about 512 MB"),
        (UNKNOWN, "", "", ""),
    ],
)
def test_a_number_in_a_list_and_in_a_sentence(
    number: Measured, text: str, words: str, most: str
) -> None:
    assert number.text(format_memory) == text
    assert number.sentence_words(format_memory) == words
    assert number.maximum_words(format_memory) == most


def test_the_mark_of_money_stands_apart() -> None:
    assert AtLeast(0.12).text(format_usd) == "≥ $0.12"
    assert AtLeast(0.12).sentence_words(format_usd) == "at least $0.12"


def test_what_a_record_says_of_a_number() -> None:
    assert measured_from(3) == Exactly(3)
    assert measured_from(0, is_least=True) == AtLeast(0)
    assert measured_from(0, is_least=True, is_estimate=True) == Approximately(0)
    assert measured_from(None) is measured_from(None, is_least=True) is UNKNOWN
    assert UNKNOWN.value is None


def test_a_sum_with_a_lower_bound_is_one() -> None:
    assert total_of_known([Exactly(1), Exactly(2)]) == Exactly(3)
    assert total_of_known([Exactly(1), AtLeast(2)]) == AtLeast(3)
    assert total_of_known([AtLeast(1), Approximately(2)]) == Approximately(3)
    assert total_of_known([Exactly(1), UNKNOWN]) == Exactly(1), "what is unknown is left out"
    assert total_of_known([UNKNOWN]) is total_of_known([]) is UNKNOWN


def test_a_multiple_keeps_what_is_known() -> None:
    assert scaled_number(Exactly(2), 30) == Exactly(60)
    assert scaled_number(AtLeast(2), 30) == AtLeast(60)
    assert scaled_number(Approximately(2), 30) == Approximately(60)
    assert scaled_number(UNKNOWN, 30) is UNKNOWN

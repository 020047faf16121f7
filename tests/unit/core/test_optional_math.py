"""Values that may be unknown: 0 is known, and what is unknown stays unknown."""

from collections.abc import Iterator

from profiler.core.optional_math import (
    difference,
    first_known,
    first_of,
    known,
    known_members,
    known_values,
    max_known,
    min_known,
    product,
    quotient,
    rounded,
    sum_known,
)


def test_zero_is_a_known_value() -> None:
    assert first_known(0, 5) == 0
    assert first_of((None, 0, 5)) == 0
    assert known_values((None, 0, 5)) == (0, 5)
    assert known_members({"a": None, "b": 0}) == {"b": 0}
    assert (max_known(None, 0), min_known(0, None), sum_known(None, 0)) == (0, 0, 0)
    assert (difference(0, 0), product(0, 2), quotient(0, 2), rounded(0, 1)) == (0, 0, 0, 0)
    assert known(str, 0) == "0"


def test_an_unknown_value_stays_unknown() -> None:
    assert first_known(None, 5) == 5
    assert first_of(()) is None
    assert (max_known(None), min_known(), sum_known(None, None)) == (None, None, None)
    assert (difference(None, 1), difference(1, None)) == (None, None)
    assert (product(None, 1), product(1, None)) == (None, None)
    assert (quotient(None, 2), rounded(None, 1), known(str, None)) == (None, None, None)


def test_what_comes_after_the_first_known_value_is_not_asked_for() -> None:
    asked: list[str] = []

    def answers() -> Iterator[str | None]:
        for answer in (None, "first", "second"):
            asked.append(str(answer))
            yield answer

    assert first_of(answers()) == "first"
    assert asked == ["None", "first"]

from hypothesis import given
from hypothesis import strategies as st

from profiler.core.text import on_one_line, printable, without_surrogates


def test_lone_surrogates_are_replaced_and_other_text_stays() -> None:
    assert without_surrogates("größer 🚀") == "größer 🚀"
    assert without_surrogates("a\udc80\ud800b") == "a??b"
    assert without_surrogates("a\udc80b", "\N{REPLACEMENT CHARACTER}") == "a\N{REPLACEMENT CHARACTER}b"


def test_control_characters_and_changes_of_direction_are_escaped_or_blank() -> None:
    text = "a\x1b[31m\tb\n\N{RIGHT-TO-LEFT OVERRIDE}c\udc80"
    assert printable(text) == r"a\x1b[31m\tb\n\u202ec\udc80"
    assert on_one_line(text) == "a [31m b  c?"


@given(st.text(st.characters(categories=None)))
def test_any_text_can_be_printed_and_written(text: str) -> None:
    for clean in (printable(text), on_one_line(text)):
        assert clean.isprintable()
    assert without_surrogates(text).encode().decode() == without_surrogates(text)

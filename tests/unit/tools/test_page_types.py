"""The JavaScript types of the report page are those of its rows."""

import pytest
from msgspec import Struct

from tools.page_types import FILE, _type_of, page_types


def test_the_committed_types_are_those_of_the_rows() -> None:
    assert FILE.read_text() == page_types(), "run `make page-types`"


def test_a_type_that_the_page_does_not_know_is_refused() -> None:
    class Other(Struct):
        """No row."""

    with pytest.raises(TypeError, match="no type"):
        _type_of(Other)


def test_a_missing_element_is_null_and_a_missing_field_is_left_out() -> None:
    assert _type_of(list[int | None]) == "Array<number | null>"
    assert _type_of(tuple[str, float | None]) == "[string, number | null]"

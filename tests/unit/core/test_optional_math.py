"""What is not known is neither 0 nor counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.optional_math import max_known, mean_known, sum_known

VALUES = st.lists(st.none() | st.integers(-(2**63), 2**63))


@given(VALUES)
def test_the_known_values_alone_count(values: list[int | None]) -> None:
    known = [value for value in values if value is not None]
    assert max_known(*values) == max(known, default=None)
    assert sum_known(*values) == (sum(known) if known else None)
    assert mean_known(*values) == (pytest.approx(sum(known) / len(known)) if known else None)

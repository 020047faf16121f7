"""What is not known is neither 0 nor counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.known import largest, mean, total

VALUES = st.lists(st.none() | st.integers(-(2**63), 2**63))


def test_nothing_known_is_not_0() -> None:
    assert (largest(), total(), mean()) == (None, None, None)
    assert (largest(None, None), total(None), mean(None)) == (None, None, None)


def test_0_is_known() -> None:
    assert (largest(None, 0), total(0, None), mean(None, 0)) == (0, 0, 0)


@given(VALUES)
def test_the_known_values_alone_count(values: list[int | None]) -> None:
    known = [value for value in values if value is not None]
    assert largest(*values) == max(known, default=None)
    assert total(*values) == (sum(known) if known else None)
    assert mean(*values) == (pytest.approx(sum(known) / len(known)) if known else None)

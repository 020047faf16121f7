"""The lists of descriptors that poll and select watch."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from profiler.readers.linux.watched_descriptors import poll_descriptors, select_descriptors


@given(st.lists(st.integers(0, 2000), unique=True))
def test_the_descriptors_of_both_lists_are_read_back(numbers: list[int]) -> None:
    memory = b"".join(struct.pack("=ihh", number, 1, 0) for number in numbers)
    assert poll_descriptors(memory) == numbers
    bits = sum(1 << number for number in numbers)
    assert select_descriptors([bits.to_bytes(256, "little")]) == sorted(numbers)

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.neuron.neuron_monitor_process import LineSplitter


def split(*chunks: bytes, max_bytes: int = 100) -> tuple[list[bytes], int]:
    splitter = LineSplitter(max_bytes)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    splitter.finish()
    return lines, splitter.dropped


def test_a_line_may_come_in_pieces_and_pieces_may_hold_several_lines() -> None:
    assert split(b'{"a"', b":1}", b'\n{"b":2}\n{"c":3}\n{"d') == ([b'{"a":1}', b'{"b":2}', b'{"c":3}'], 1)


def test_empty_lines_are_passed_over() -> None:
    assert split(b"\n\na\n\nb\n\n") == ([b"a", b"b"], 0)


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_line_that_is_too_long_is_dropped_and_the_next_one_is_whole(size: int) -> None:
    stream = b"first\n" + b"x" * 11 + b"\n" + b"y" * 10 + b"\nlast\n"
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert split(*chunks, max_bytes=10) == ([b"first", b"y" * 10, b"last"], 1)


def test_a_line_that_is_too_long_is_not_kept_in_memory() -> None:
    splitter = LineSplitter(10)
    for _ in range(1000):
        assert splitter.feed(b"x" * 10) == []
    assert (len(splitter._buffer), splitter.dropped) == (0, 1)
    assert splitter.feed(b"\nnext\n") == [b"next"]


def test_a_half_line_at_the_end_is_dropped_and_counted_once() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"whole\nhal") == [b"whole"]
    assert splitter.finish()
    assert not splitter.finish()
    assert splitter.dropped == 1


def test_a_stream_that_ends_in_a_line_that_is_too_long_counts_it_once() -> None:
    assert split(b"x" * 200) == ([], 1)


@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(0, 200)), st.integers(0, 20))
def test_any_chunking_of_a_stream_gives_the_same_lines(parts: list[bytes], cuts: list[int], max_bytes: int) -> None:
    stream = b"\n".join(parts)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    chunks = [stream[start:end] for start, end in pairwise(places)]
    *whole, half = stream.split(b"\n")
    fitting = [line for line in whole if line and len(line) <= max_bytes]
    dropped = sum(len(line) > max_bytes for line in whole) + bool(half)
    assert split(*chunks, max_bytes=max_bytes) == (fitting, dropped)

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.neuron.neuron_monitor_process import LineSplitter


def split(*chunks: bytes, max_bytes: int = 100) -> tuple[list[bytes], int]:
    splitter = LineSplitter(max_bytes)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    splitter.finish()
    return lines, splitter.dropped


def test_a_line_that_is_too_long_is_not_kept_in_memory() -> None:
    splitter = LineSplitter(10)
    for _ in range(1000):
        assert splitter.feed(b"x" * 10) == []
    assert (len(splitter._buffer), splitter.dropped) == (0, 1)
    assert splitter.feed(b"\nnext\n") == [b"next"]


@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(0, 200)), st.integers(0, 20))
def test_any_chunking_of_a_stream_gives_the_same_lines(parts: list[bytes], cuts: list[int], max_bytes: int) -> None:
    stream = b"\n".join(parts)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    chunks = [stream[start:end] for start, end in pairwise(places)]
    *whole, half = stream.split(b"\n")
    fitting = [line for line in whole if line and len(line) <= max_bytes]
    dropped = sum(len(line) > max_bytes for line in whole) + bool(half)
    assert split(*chunks, max_bytes=max_bytes) == (fitting, dropped)

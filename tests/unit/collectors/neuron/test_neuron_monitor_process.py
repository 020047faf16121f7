from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.neuron.neuron_monitor_supervisor import LineSplitter


def test_a_line_that_is_too_long_is_not_kept_in_memory() -> None:
    splitter = LineSplitter()
    for _ in range(20):
        assert splitter.feed(b"x" * 2**20) == []
    assert len(splitter._rest) < 4 * 2**20
    assert splitter.feed(b"\nnext\n")[1:] == [b"next"]


@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(0, 200)))
def test_any_chunking_of_a_stream_gives_the_same_lines(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"\n".join(parts)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    splitter = LineSplitter()
    lines = [line for start, end in pairwise(places) for line in splitter.feed(stream[start:end])]
    assert lines == [line for line in stream.split(b"\n")[:-1] if line]

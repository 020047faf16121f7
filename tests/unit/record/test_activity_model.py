"""The line of call stacks."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.record.activity_model import STACKS_BEGINNING, decode_stacks, is_stacks_line
from profiler.record.record_model import encode
from tests.shown_runs import waiting, waiting_stacks

LINE = msgspec.json.encode(waiting_stacks())


def test_the_line_is_recognized_and_decoded() -> None:
    assert LINE.startswith(STACKS_BEGINNING)
    assert decode_stacks(LINE) == waiting_stacks()
    for line in (LINE, LINE.replace(b'":', b'": '), b"  " + LINE, LINE[:500]):
        assert is_stacks_line(line)


@pytest.mark.parametrize(
    "line",
    [
        encode(waiting()),
        b"",
        b"{}",
        b'"task.stacks"',
        b'a log line with {"type":"task.stacks"}',
        b'{"topic":"task.stacks","text":"of another program"}',
        b'{"text":"\\"type\\":\\"task.stacks\\""}',
    ],
)
def test_other_lines_are_not(line: bytes) -> None:
    assert not is_stacks_line(line)


@given(st.binary() | st.integers(0, len(LINE) - 1).map(lambda length: LINE[:length]))
def test_a_damaged_line_is_none(line: bytes) -> None:
    assert decode_stacks(line) is None
    assert is_stacks_line(line) in (True, False)


def test_steps_with_impossible_times_are_left_out() -> None:
    first, *others = waiting_stacks().steps
    line = msgspec.json.encode(replace(waiting_stacks(), steps=(replace(first, duration_ms=-1), *others)))
    assert decode_stacks(line) == replace(waiting_stacks(), steps=tuple(others))

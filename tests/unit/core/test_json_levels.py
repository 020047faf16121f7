"""The limit of nested levels is the same for every text, reader and version of Python."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.json_fields import decoded_or_none
from profiler.core.json_levels import MAX_LEVELS, TooManyLevelsError, within_levels
from profiler.forwarder.line_kinds import InvalidReport, decode_report_line

_PACKAGE = Path(__file__).parents[3] / "profiler"


def _nested(levels: int, opening: str, closing: str) -> str:
    return opening * levels + closing * levels


@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
@pytest.mark.parametrize("form", [str, str.encode])
def test_a_hundred_levels_are_read_and_one_more_is_not(
    brackets: tuple[str, str], form: Callable[[str], Any]
) -> None:
    levels = MAX_LEVELS // len([one for one in brackets[0] if one in "[{"])
    text = form(_nested(levels, *brackets))
    assert within_levels(text) is text
    with pytest.raises(TooManyLevelsError, match="it has more than 100 nested levels"):
        within_levels(form(f"[{_nested(levels, *brackets)}]"))


def test_the_end_of_a_text_is_no_condition() -> None:
    with pytest.raises(TooManyLevelsError):
        within_levels("[" * (MAX_LEVELS + 1))
    within_levels("[" * MAX_LEVELS)
    within_levels("]" * 1000)


def test_brackets_in_texts_are_no_levels() -> None:
    within_levels(json.dumps(["[" * 1000, '"[' * 1000, "\\[" * 1000, '\\"{' * 1000]))
    closed_in_texts = '["]", ' * (MAX_LEVELS + 1) + "0" + "]" * (MAX_LEVELS + 1)
    with pytest.raises(TooManyLevelsError):
        within_levels(closed_in_texts)
    escaped = '["\\"]", ' * (MAX_LEVELS + 1) + "0" + "]" * (MAX_LEVELS + 1)
    with pytest.raises(TooManyLevelsError):
        within_levels(escaped)


_TEXTS = st.text(alphabet='[]{}"\\a,:é😀', max_size=8)
_VALUES = st.recursive(
    _TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3)
)


def _levels(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_levels, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_levels, value), default=0)
    return 0


@given(value=_VALUES, around=st.integers(80, 120))
def test_the_levels_are_those_of_the_value(value: Any, around: int) -> None:
    text = "[" * around + json.dumps(value, ensure_ascii=False) + "]" * around
    try:
        within_levels(text)
        is_within = True
    except TooManyLevelsError:
        is_within = False
    assert is_within == (around + _levels(value) <= MAX_LEVELS)


@pytest.mark.parametrize("levels", [101, 600, 5_000, 100_000])
def test_a_deep_value_is_refused_wherever_it_stands(levels: int) -> None:
    deep = _nested(levels, "[", "]")
    assert decoded_or_none(msgspec.json.decode, deep) is None
    line = f'{{"type": "task.report", "time": "2026-11-25T00:00:00Z", "more": {deep}}}'
    read = decode_report_line(line)
    assert isinstance(read, InvalidReport)
    assert "more than 100 nested levels" in read.reason


def test_no_reader_relies_on_the_limit_of_python() -> None:
    """The envelope of CloudWatch Logs has four levels, and what programs wrote is a text in it. Of
    a container's stats only members with few levels are taken, whatever the others are.
    """
    relying = [
        path.relative_to(_PACKAGE).as_posix()
        for path in _PACKAGE.rglob("*.py")
        if "RecursionError" in path.read_text()
    ]
    assert sorted(relying) == ["forwarder/subscription.py", "readers/ecs/container_stats.py"]

"""Ids, and the parent of a run."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.otlp.trace_context import SpanParent, find_parent, parse_traceparent, span_id, trace_id

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@given(st.text())
def test_ids_are_never_zero_and_always_the_same(task_id: str) -> None:
    assert re.fullmatch(r"[0-9a-f]{32}", trace_id(task_id))
    assert re.fullmatch(r"[0-9a-f]{16}", span_id(task_id, "run"))
    assert int(trace_id(task_id), 16)
    assert int(span_id(task_id, "run"), 16)
    assert trace_id(task_id) == trace_id(task_id)


def test_ids_are_those_of_all_releases() -> None:
    """A replay by a newer forwarder must meet the spans of an older one."""
    assert trace_id("158d1c80") == "4f4db8e886003c013a725edd5842a1e8"
    assert span_id("158d1c80", "run") == "5f394b3474cd7718"


@pytest.mark.parametrize("name", ["TRACEPARENT", "traceparent", "TraceParent"])
def test_a_valid_parent_is_found_in_any_letter_case(name: str) -> None:
    expected = SpanParent(trace_id=TRACE, span_id=SPAN, flags=1)
    assert find_parent(None, {"host": "x", "TRACEPARENT": "?"}, {name: f" 00-{TRACE}-{SPAN}-01 "}) == expected


def test_a_later_version_may_have_more_fields() -> None:
    assert parse_traceparent(f"01-{TRACE}-{SPAN}-00-more") == SpanParent(trace_id=TRACE, span_id=SPAN, flags=0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0g",
        f"00-{TRACE}0-{SPAN}-01",
        f"01-{TRACE}-{SPAN}-01more",
        f"\N{ARABIC-INDIC DIGIT ZERO}0-{TRACE}-{SPAN}-01",
    ],
)
def test_an_invalid_parent_is_none(text: str) -> None:
    assert parse_traceparent(text) is None


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    parse_traceparent(text)

"""Members of a JSON object, changed in its text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.task_definitions.definition_files import with_members

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5) | st.sampled_from(["cpu", "memory"]), JSON, min_size=1, max_size=5)


@given(
    made=OBJECTS,
    indent=st.none() | st.integers(0, 4),
    ascii_only=st.booleans(),
    encoding=st.sampled_from(["utf-8", "utf-16", "utf-8-sig"]),
)
def test_only_the_members_named_change(
    made: dict[str, Any], indent: int | None, *, ascii_only: bool, encoding: str
) -> None:
    data = json.dumps(made, indent=indent, ensure_ascii=ascii_only).encode(encoding, "surrogatepass")
    changed = with_members(data, {"cpu": "256", "memory": "512"})
    assert json.loads(changed) == {**made, "cpu": "256", "memory": "512"}
    assert with_members(changed, {"cpu": "256", "memory": "512"}) == changed
    assert json.detect_encoding(changed) == json.detect_encoding(data)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"cpu":"1", "a" : [1,2]}\n', b'{"cpu":"2", "a" : [1,2]}\n'),
        (b'{ "a": {"cpu": "1"} }', b'{ "cpu": "2", "a": {"cpu": "1"} }'),
        (b'{"a": 1e3, "cpu"\t:\n 1024 }', b'{"a": 1e3, "cpu"\t:\n "2" }'),
    ],
)
def test_the_form_stays(before: bytes, after: bytes) -> None:
    assert with_members(before, {"cpu": "2"}) == after

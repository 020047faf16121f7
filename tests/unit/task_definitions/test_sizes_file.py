"""The file of sizes keeps what it has, in one form, and gets only sizes that Fargate has."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.sizes_file import SizesFile, read_sizes, source_sizes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=3,
)
WHOLE = st.integers(min_value=1)
MEMBERS = st.dictionaries(
    st.text(),
    st.builds(
        lambda others, cpu, memory: {**others, "cpu": cpu, "memory": memory},
        st.dictionaries(st.text(), JSON, max_size=3),
        WHOLE,
        WHOLE,
    ),
    max_size=4,
)


@given(MEMBERS)
def test_what_is_read_is_written_and_its_form_is_stable(members: dict[str, Any]) -> None:
    read = read_sizes(json.dumps(members).encode(), "sizes.json")
    assert read.members == members
    assert read_sizes(read.file_content, "sizes.json").file_content == read.file_content


@given(MEMBERS)
def test_a_new_size_keeps_all_other_members(members: dict[str, Any]) -> None:
    before = {**members, "etl": {"cpu": 1, "memory": 1, "owner": "team"}}
    after = SizesFile(members=before).with_size("etl", {"cpu": 256, "memory": 512}, why="it fits")
    etl = {"cpu": 256, "memory": 512, "owner": "team", "why": "it fits"}
    assert after.members == {**before, "etl": etl}


@pytest.mark.parametrize("size", [("256", "4096"), ("100", "512"), ("x", "512"), (None, None)])
def test_a_size_that_fargate_does_not_have_is_refused(size: tuple[str | None, str | None]) -> None:
    with pytest.raises(TaskProfilerError, match="Fargate has no size with cpu"):
        source_sizes({}, {"cpu": size[0], "memory": size[1]})


def test_sizes_are_whole_numbers_of_the_units_that_ecs_takes() -> None:
    assert source_sizes({}, {"cpu": "0.5 vCPU", "memory": "1 GB"}) == {"cpu": 512, "memory": 1024}


def test_of_containers_only_what_changes_is_named() -> None:
    before = [{"name": "batch", "memory": 2048, "cpu": 10}, {"name": "side", "memory": 64}]
    after = [{"name": "batch", "memory": 512, "cpu": 10}, {"name": "side", "memory": 64}]
    sizes = source_sizes(
        {"containerDefinitions": before},
        {"cpu": "256", "memory": "512", "containerDefinitions": after},
    )
    assert sizes["containers"] == {"batch": {"memory": 512}}

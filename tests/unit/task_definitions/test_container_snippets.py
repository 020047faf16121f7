"""The monitor's container in four formats; OpenTofu and the TypeScript compiler read two of them
in tests/iac.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

import profiler
from profiler.task_definitions.container_snippets import (
    ContainerFormat,
    ContainerRequest,
    camel_case,
    container_text,
)

FILE = Path(profiler.__file__).parent.parent / "taskdef" / "monitor-container.json"
REQUEST = ContainerRequest(
    image="111122223333.dkr.ecr.us-west-2.amazonaws.com/task-profiler:0.1.0",
    log_group="/ecs/nightly-etl",
    region="us-west-2",
)
names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)
modes = st.sampled_from([None, "on", "moments", "off"])
asked = st.builds(
    ContainerRequest,
    image=names,
    container=names,
    log_group=names,
    region=names,
    stream_prefix=names,
    stacks=modes,
)


def test_json_is_the_documented_file() -> None:
    assert container_text(REQUEST, "json") == FILE.read_text()


@settings(deadline=None, max_examples=20)
@given(asked)
def test_cloudformation_is_the_same_container(request: ContainerRequest) -> None:
    (container,) = YAML(typ="safe").load(container_text(request, "cloudformation"))
    assert camel_case(container) == json.loads(container_text(request, "json"))


CDK = (
    'fromRegistry("team/a${b}:1")',
    'findContainer("etl")',
    '"/ecs/%{c}"',
    "seconds(120)",
    'TASK_PROFILER_CONTAINER: "etl"',
    'user: "0"',
    "Capability.SYS_PTRACE",
    'pidMode = "task"',
)


@pytest.mark.parametrize(
    ("container_format", "parts"),
    [
        (
            "terraform",
            ('"team/a$${b}:1"', '"/ecs/%%{c}"', 'add = ["SYS_PTRACE"]'),
        ),  # no interpolation
        ("cloudformation", ("awslogs-region: !Ref AWS::Region\n",)),
        ("cdk", CDK),
    ],
)
def test_each_language_has_its_own_form(
    container_format: ContainerFormat, parts: tuple[str, ...]
) -> None:
    request = ContainerRequest(
        image="team/a${b}:1",
        container="etl",
        log_group="/ecs/%{c}",
        report_stream="monitor",
        stacks="moments",
    )
    text = container_text(request, container_format)
    assert [
        part for part in (*parts, "TASK_PROFILER_REPORT_STREAM", "moments") if part not in text
    ] == []

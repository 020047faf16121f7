"""The monitor's container in four formats; OpenTofu and the TypeScript compiler read two of them in tests/iac."""

import json
from pathlib import Path

import msgspec
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
from profiler.task_definitions.monitor_container import StacksAccess

FILE = Path(profiler.__file__).parent.parent / "taskdef" / "monitor-container.json"
REQUEST = ContainerRequest(
    image="111122223333.dkr.ecr.us-west-2.amazonaws.com/task-profiler:0.1.0",
    log_group="/ecs/nightly-etl",
    region="us-west-2",
)
names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)
modes = st.sampled_from([None, "on", "moments", "off"])
asked = st.builds(
    ContainerRequest, image=names, container=names, log_group=names, region=names, stream_prefix=names, stacks=modes
)


def test_json_is_the_documented_file() -> None:
    assert container_text(REQUEST, "json") == FILE.read_text()


@settings(deadline=None, max_examples=20)
@given(asked)
def test_cloudformation_is_the_same_container(request: ContainerRequest) -> None:
    (container,) = YAML(typ="safe").load(container_text(request, "cloudformation"))
    assert camel_case(container) == json.loads(container_text(request, "json"))


@pytest.mark.parametrize("container_format", ["json", "terraform", "cloudformation", "cdk"])
def test_the_own_stream_is_one_variable_in_every_format(container_format: ContainerFormat) -> None:
    plain = container_text(REQUEST, container_format)
    text = container_text(msgspec.structs.replace(REQUEST, report_stream="monitor"), container_format)
    assert "TASK_PROFILER_REPORT_STREAM" in text
    assert "TASK_PROFILER_REPORT_STREAM" not in plain


@pytest.mark.parametrize("mode", ["on", "moments", "off"])
def test_stacks_are_in_every_format(mode: StacksAccess) -> None:
    request = ContainerRequest(image="i", log_group="g", stacks=mode)
    container = json.loads(container_text(request, "json"))
    assert (container["user"], container["linuxParameters"]) == ("0", {"capabilities": {"add": ["SYS_PTRACE"]}})
    assert container["environment"][-1] == {"name": "TASK_PROFILER_STACKS", "value": mode}
    assert 'add = ["SYS_PTRACE"]' in container_text(request, "terraform")
    cdk = container_text(request, "cdk")
    for part in (f'TASK_PROFILER_STACKS: "{mode}" }}', 'user: "0"', "Capability.SYS_PTRACE", 'pidMode = "task"'):
        assert part in cdk


CDK = (
    'fromRegistry("team/a${b}:1")',
    'findContainer("etl")',
    '"/ecs/%{c}"',
    "seconds(120)",
    'TASK_PROFILER_CONTAINER: "etl"',
)


@pytest.mark.parametrize(
    ("container_format", "parts"),
    [
        ("terraform", ('"team/a$${b}:1"', '"/ecs/%%{c}"')),  # no interpolation
        ("cloudformation", ("awslogs-region: !Ref AWS::Region\n",)),
        ("cdk", CDK),
    ],
)
def test_each_language_has_its_own_form(container_format: ContainerFormat, parts: tuple[str, ...]) -> None:
    request = ContainerRequest(image="team/a${b}:1", container="etl", log_group="/ecs/%{c}")
    text = container_text(request, container_format)
    assert [part for part in parts if part not in text] == []

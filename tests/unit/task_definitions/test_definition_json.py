"""What is read from a task definition in JSON, and from a response of ECS."""

import json
from typing import Any

import pytest
from botocore.session import Session

from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.definition_json import READ_ONLY, read_document
from tests.cases import each_case

ARN = "arn:aws:ecs:us-west-2:111122223333:task-definition/nightly:7"
PLAIN = {"family": "nightly", "containerDefinitions": [{"name": "batch"}], "volumes": []}
DESCRIBED = {
    "taskDefinitionArn": ARN,
    "revision": 7,
    "status": "ACTIVE",
    **PLAIN,
    "requiresAttributes": [{"name": "x"}],
    "compatibilities": ["EC2"],
    "registeredAt": "2026-11-20T03:12:45.123000+00:00",
    "registeredBy": "arn:aws:iam::111122223333:root",
    "deregisteredAt": 1.5,
}


TAGS = [{"key": "team", "value": "data"}, {"key": "aws:cloudformation:stack-name", "value": "x"}]


@pytest.mark.parametrize(
    ("answer", "tags"),
    [
        (PLAIN, {}),
        (DESCRIBED, {}),
        ({"taskDefinition": DESCRIBED, "tags": []}, {}),
        ({"taskDefinition": DESCRIBED, "tags": TAGS}, {"tags": TAGS[:1]}),
    ],
)
def test_what_ecs_describes_becomes_what_it_registers_without_tags_of_aws(
    answer: Any, tags: dict[str, Any]
) -> None:
    """An empty list of tags is refused by ECS."""
    document = read_document(json.dumps(answer).encode(), "a.json")
    assert document.definition == {**PLAIN, **tags}
    is_described = answer is not PLAIN
    assert document.is_from_ecs is is_described
    assert document.arn == (ARN if is_described else None)


def test_fields_that_ecs_only_answers_with_are_those_that_boto3_does_not_send() -> None:
    model = Session().get_service_model("ecs")
    sent = set(model.operation_model("RegisterTaskDefinition").input_shape.members)
    answered = set(
        model.operation_model("DescribeTaskDefinition")
        .output_shape.members["taskDefinition"]
        .members
    )
    assert answered - sent == READ_ONLY


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{\n  "family": "x"\n  "cpu": 1}', "not valid JSON: correct the mistake in line 3"),
        (b"", "not valid JSON"),
        (b"[]", "not a task definition"),
        (b'{"containerDefinitions": []}', "not a task definition"),
        (b'{"taskDefinition": {"family": "x"}}', "not a task definition"),
        (b'{"ContainerDefinitions": [{"Name": "batch"}]}', "not a task definition"),
    ],
)
def test_anything_else_is_refused_with_a_sentence_that_names_the_source(
    data: bytes, said: str
) -> None:
    with pytest.raises(TaskProfilerError) as refused:
        read_document(data, "a.json")
    assert str(refused.value).startswith("a.json is")
    assert said in str(refused.value)
    assert refused.value.exit_code == 1


@each_case("said", [{}, "FARGATE", None, [{}, 1, None, []], [["FARGATE"]]])
def test_launch_types_in_no_known_form_are_unknown(said: object) -> None:
    data = json.dumps({**PLAIN, "compatibilities": said})
    assert read_document(data.encode(), "etl.json").compatibilities == frozenset()

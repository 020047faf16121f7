"""The text of a task definition: what is read, and how it is written back."""

import json
from contextlib import suppress
from typing import Any

import pytest
from botocore.session import Session
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.definition_json import READ_ONLY, read_document

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


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def test_plain_json_is_taken_as_it_is() -> None:
    document = read_document(encoded(PLAIN), "a.json")
    assert (document.definition, document.is_from_ecs, document.arn) == (PLAIN, False, None)


@pytest.mark.parametrize("answer", [DESCRIBED, {"taskDefinition": DESCRIBED, "tags": []}])
def test_what_ecs_describes_becomes_what_it_registers(answer: dict[str, Any]) -> None:
    """An empty list of tags is refused by ECS."""
    document = read_document(encoded(answer), "a.json")
    assert document.definition == PLAIN
    assert (document.is_from_ecs, document.arn) == (True, ARN)


def test_tags_are_kept_except_for_those_of_aws() -> None:
    tags = [{"key": "team", "value": "data"}, {"key": "aws:cloudformation:stack-name", "value": "x"}]
    document = read_document(encoded({"taskDefinition": DESCRIBED, "tags": tags}), "a.json")
    assert document.definition == {**PLAIN, "tags": tags[:1]}


def test_fields_that_ecs_only_answers_with_are_those_that_boto3_does_not_send() -> None:
    model = Session().get_service_model("ecs")
    sent = set(model.operation_model("RegisterTaskDefinition").input_shape.members)
    answered = set(model.operation_model("DescribeTaskDefinition").output_shape.members["taskDefinition"].members)
    assert answered - sent == READ_ONLY


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{\n  "family": "x"\n  "cpu": 1}', "not valid JSON: correct the mistake in line 3"),
        (b"", "not valid JSON"),
        (b'{"a": NaN}', "not valid JSON"),
        (b"\xff\xfe\xfa", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "not a task definition"),
        (b"{}", "not a task definition"),
        (b'{"containerDefinitions": []}', "not a task definition"),
        (b'{"containerDefinitions": ["batch"]}', "not a task definition"),
        (b'{"taskDefinition": {"family": "x"}}', "not a task definition"),
        (b'{"ContainerDefinitions": [{"Name": "batch"}]}', "not a task definition"),
    ],
)
def test_anything_else_is_refused_with_a_sentence_that_names_the_source(data: bytes, said: str) -> None:
    with pytest.raises(TaskProfilerError) as refused:
        read_document(data, "a.json")
    assert str(refused.value).startswith("a.json is")
    assert said in str(refused.value)
    assert refused.value.exit_code == 1


@pytest.mark.parametrize("indent", [1, 2, 4, "\t"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_text_is_written_back_in_its_own_style(indent: int | str, *, ascii_only: bool) -> None:
    text = json.dumps({**PLAIN, "note": "täglich"}, indent=indent, ensure_ascii=ascii_only) + "\n"
    document = read_document(text.encode(), "a.json")
    assert document.text(document.definition).decode() == text


def test_text_without_lines_is_printed_with_two_spaces() -> None:
    document = read_document(encoded(PLAIN), "a.json")
    assert document.text(document.definition).decode() == json.dumps(PLAIN, indent=2) + "\n"


def test_a_byte_order_mark_and_a_lone_surrogate_raise_nothing() -> None:
    data = '﻿{"containerDefinitions": [{"name": "ä"}], "odd": "\\ud800"}'.encode()
    document = read_document(data, "a.json")
    assert json.loads(document.text(document.definition)) == json.loads(data.decode("utf-8-sig"))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), values, max_size=4))
def test_numbers_texts_and_the_order_of_fields_stay_as_they_were(fields: dict[str, Any]) -> None:
    fields = {f"x-{name}": value for name, value in fields.items()} | PLAIN
    document = read_document(encoded(fields), "a.json")
    assert json.dumps(json.loads(document.text(document.definition))) == json.dumps(fields)


@given(st.binary(max_size=64) | values.map(encoded))
def test_any_input_is_read_or_refused(data: bytes) -> None:
    with suppress(TaskProfilerError):
        assert read_document(data, "a.json").definition

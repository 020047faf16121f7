"""A revision that somebody registers at the same moment is not hidden by ours."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError
from msgspec.structs import replace

from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.revision_registration import register_or_find, register_overtaken_again
from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.definition_json import ChangedDefinition, TaskDefinitionDocument

FAMILY = "arn:aws-us-gov:ecs:us-gov-west-1:111122223333:task-definition/nightly"


def definition(image: str) -> dict[str, Any]:
    return {"family": "nightly", "containerDefinitions": [{"name": "batch", "image": image}]}


PLAN = {**definition("etl:1"), "memory": "512"}
PLANNED = PlannedFamily(
    family="nightly",
    action="resize",
    document=TaskDefinitionDocument(definition=definition("etl:1"), arn=f"{FAMILY}:5"),
    changed=ChangedDefinition(definition=PLAN),
)


class PlayedEcs:
    """A family whose revisions are given; what is registered gets the number 8."""

    def __init__(self, revisions: Mapping[str, Mapping[str, Any]], refusal: str = "") -> None:
        self._revisions = revisions
        self._refusal = refusal
        self.registered: list[Mapping[str, object]] = []

    def describe(self, name: str) -> bytes:
        if name not in self._revisions:
            raise TaskProfilerError(f"The task definition {name!r} could not be read")
        described: dict[str, Any] = {"taskDefinitionArn": f"{FAMILY}:6", "status": "ACTIVE"}
        return json.dumps({"taskDefinition": {**described, **self._revisions[name]}}).encode()

    def register(self, definition: Mapping[str, object]) -> str:
        if self._refusal:
            raise TaskProfilerError(self._refusal)
        self.registered.append(definition)
        return f"{FAMILY}:8"


@pytest.mark.parametrize(
    ("revisions", "new"),
    [
        ({}, 6),
        ({}, 7),
        ({"nightly:6": {**definition("etl:2"), "status": "INACTIVE"}}, 7),
        ({"nightly:6": {**definition("etl:2"), "status": "DELETE_IN_PROGRESS"}}, 7),
        ({"nightly:6": PLAN}, 7),
    ],
    ids=["the next number", "deleted", "deregistered", "being deleted", "the same plan"],
)
def test_a_revision_that_hides_nothing_stays(
    revisions: Mapping[str, Mapping[str, Any]], new: int
) -> None:
    ecs = PlayedEcs(revisions)
    register_overtaken_again(ecs, PLANNED, f"{FAMILY}:{new}")
    assert ecs.registered == []


@pytest.mark.parametrize("repetitions", [0, 1, 2])
def test_a_hidden_revision_is_registered_again_as_it_was(repetitions: int) -> None:
    """boto3 registers the plan's revision again after an answer that did not arrive."""
    repeated = {f"nightly:{7 + number}": PLAN for number in range(repetitions)}
    ecs = PlayedEcs({"nightly:6": definition("etl:2"), **repeated})
    with pytest.raises(TaskProfilerError, match=r"nightly:6 was registered meanwhile.* nightly:8"):
        register_overtaken_again(ecs, PLANNED, f"{FAMILY}:{7 + repetitions}")
    assert ecs.registered == [definition("etl:2")]


def test_without_an_answer_a_newer_revision_of_somebody_else_leaves_it_open() -> None:
    ecs = PlayedEcs({"nightly": definition("etl:2")}, refusal="AWS did not answer.")
    with pytest.raises(TaskProfilerError, match=r"nightly:6 was .*perhaps one of this plan"):
        register_or_find(ecs, PLANNED)


def test_without_an_answer_the_plans_own_base_is_nobodys_new_revision() -> None:
    base = {**definition("etl:1"), "taskDefinitionArn": f"{FAMILY}:5"}
    ecs = PlayedEcs({"nightly": base}, refusal="AWS did not answer.")
    with pytest.raises(TaskProfilerError) as raised:
        register_or_find(ecs, PLANNED)
    assert str(raised.value) == "AWS did not answer."


def test_the_copy_of_a_hidden_revision_says_that_our_size_does_not_count() -> None:
    tags = [{"key": "task-profiler:resized-from", "value": "5/1024/2048"}]
    sized = {**definition("etl:1"), "memory": "512", "tags": tags}
    planned = replace(PLANNED, changed=ChangedDefinition(definition=sized))
    ecs = PlayedEcs({"nightly:6": definition("etl:2")})
    with pytest.raises(TaskProfilerError, match="call it again"):
        register_overtaken_again(ecs, planned, f"{FAMILY}:7")
    restored = {"key": "task-profiler:restored-over", "value": "7"}
    assert ecs.registered == [{**definition("etl:2"), "tags": [restored]}]


class ThrottledEcs(PlayedEcs):
    """ECS answers no reading."""

    def describe(self, name: str) -> bytes:
        answer: Any = {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}
        refusal = ClientError(answer, "DescribeTaskDefinition")
        raise TaskProfilerError(f"{name} could not be read: wait a minute.") from refusal


def test_a_revision_that_cannot_be_read_may_be_hidden() -> None:
    ecs = ThrottledEcs({"nightly:6": definition("etl:2")})
    with pytest.raises(TaskProfilerError, match=r"nightly:6 could not be read, .*nightly:7 hides"):
        register_overtaken_again(ecs, PLANNED, f"{FAMILY}:7")
    assert ecs.registered == []


def test_a_hidden_revision_that_cannot_come_back_is_named() -> None:
    ecs = PlayedEcs({"nightly:6": definition("etl:2")}, refusal="AWS refused.")
    with pytest.raises(TaskProfilerError, match=r"nightly:7 hides it.*AWS refused"):
        register_overtaken_again(ecs, PLANNED, f"{FAMILY}:7")

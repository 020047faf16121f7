"""Sizes that the input of a schedule or of a rule sets in place of the definition's."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.aws_account.target_overrides import (
    SizeOverrides,
    size_overrides,
    why_target_is_refused,
)
from profiler.task_definitions.size_changes import SeenMemory
from tests.cases import each_case

ARN = "arn:aws:ecs:us-east-1:123456789012:task-definition/nightly:1"
SMALL = {
    "cpu": "256",
    "memory": "512",
    "containerDefinitions": [{"name": "batch", "memory": 480}, {"name": "log", "memory": 32}],
}
WITH_TIME = (
    '{"containerOverrides": [{"name": "batch", "environment": '
    '[{"name": "TIME", "value": "<aws.scheduler.scheduled-time>"}]}]}'
)


def schedule(source: object) -> ScheduledTarget:
    given = source if isinstance(source, str) else json.dumps(source)
    return ScheduledTarget(
        kind="schedule",
        name="night",
        group="default",
        cluster_arn="jobs",
        definition_arn=ARN,
        content={"Target": {"Input": given}},
    )


def rule(content: dict[str, Any], expression: str | None = "rate(1 day)") -> ScheduledTarget:
    return ScheduledTarget(
        kind="rule",
        name="night",
        group="default",
        cluster_arn="jobs",
        definition_arn=ARN,
        content=content,
        rule={} if expression is None else {"ScheduleExpression": expression},
    )


def of_batch(**sizes: object) -> dict[str, Any]:
    return {"containerOverrides": [{"name": "batch", **sizes}]}


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"containerOverrides": [{"name": "batch", "command": ["etl", "--memory", "4"]}]},
        WITH_TIME,
        {"cpu": None, "ephemeralStorage": {"sizeInGiB": 50}},
        [1],
    ],
)
def test_an_input_without_sizes_overrides_nothing(source: object) -> None:
    assert size_overrides(schedule(source)).is_empty


@each_case(
    ("source", "refusal"),
    [
        (
            of_batch(memory=1024),
            "its input gives containers more than the task's 0.25 vCPU, 512 MB",
        ),
        (of_batch(memory=470), None),
        (of_batch(memoryReservation=490), "its input gives containers more than"),
        (of_batch(cpu=512), "its input gives containers more than"),
        (of_batch(cpu=256), None),
        ({"memory": "8 GB"}, "its input makes it 0.25 vCPU, 8 GB, which Fargate does not have"),
        ({"memory": "8192", "cpu": "1 vCPU"}, None),
        ({"cpu": "0.5 vCPU", "memory": "1 GB", **of_batch(memory=900)}, None),
        ({"cpu": "512"}, "its input makes it 0.5 vCPU, 512 MB, which Fargate does not have"),
        ({"cpu": "much"}, "its input overrides a size with a value that is not known"),
        (of_batch(memory="900"), "its input overrides a size with a value that is not known"),
        ('{"containerOverrides": ', "its input cannot be read, so it can override sizes"),
        ('{"memory": "<aws.scheduler.execution-id>"}', "its input overrides a size with a value"),
        ("[" * 100_000, "its input cannot be read"),
    ],
)
def test_a_size_holds_what_a_schedule_overrides_or_the_reason_says_why_not(
    source: object, refusal: str | None
) -> None:
    found = size_overrides(schedule(source)).why_definition_is_refused(SMALL)
    assert (found or "").startswith(refusal or "")
    assert (found is None) == (refusal is None)


def test_a_size_of_the_definition_that_is_newer_than_the_list_is_accepted() -> None:
    large = {**SMALL, "cpu": "65536", "memory": "524288"}
    assert size_overrides(schedule(of_batch(memory=1024))).why_definition_is_refused(large) is None
    assert size_overrides(schedule({"cpu": "256"})).why_definition_is_refused(large) is not None


NOT_THERE = "its input overrides the container {}, which the definition does not have"


@each_case(
    ("source", "place", "refusal"),
    [
        (of_batch(command=["etl"]), {}, None),
        ({"containerOverrides": [{"name": "btch"}]}, {}, NOT_THERE.format("btch")),
        ({"containerOverrides": [{"name": "Batch"}]}, {}, NOT_THERE.format("Batch")),
        (
            {"containerOverrides": [{"name": "b"}, {"name": "a"}, {"name": "log"}]},
            {},
            "its input overrides the containers a, b, which the definition does not have",
        ),
        ({"containerOverrides": [{"command": ["etl"]}]}, {}, "its input overrides a container"),
        ({"containerOverrides": [{}]}, {}, None),
        ('{"containerOverrides": [{"name": "<aws.scheduler.execution-id>"}]}', {}, None),
        (of_batch(memory=1024), {"LaunchType": "FARGATE"}, "its input gives containers more than"),
        (of_batch(memory=1024), {"LaunchType": "EC2"}, None),
        (of_batch(memory=1024), {}, None),
        (
            of_batch(memory=1024),
            {"CapacityProviderStrategy": [{"capacityProvider": "FARGATE_SPOT"}]},
            "its input gives containers more than",
        ),
        (of_batch(memory=1024), {"CapacityProviderStrategy": [{"capacityProvider": "a"}]}, None),
        ({"memory": "<aws.scheduler.execution-id>"}, {"LaunchType": "FARGATE"}, None),
    ],
)
def test_run_task_refuses_containers_that_are_not_there_and_sizes_that_fargate_lacks(
    source: object, place: dict[str, object], refusal: str | None
) -> None:
    """Names differ by their case, too."""
    target = schedule(source)
    target.content["Target"]["EcsParameters"] = place
    assert (why_target_is_refused(target, SMALL) or "").startswith(refusal or "")
    assert (why_target_is_refused(target, SMALL) is None) == (refusal is None)
    if refusal is None:
        return
    written = json.dumps({"Overrides": source, **place})
    capitals = replace(target, content={}, request=json.loads(written.replace('"c', '"C')))
    assert (why_target_is_refused(capitals, SMALL) or "").startswith(refusal)


@each_case(
    ("template", "is_unknown"),
    [
        ('{"containerOverrides": [{"name": "batch", "command": [<key>]}]}', False),
        ('{"containerOverrides": [{"name": "batch", "command": ["--key=<key>"]}]}', False),
        ('{"containerOverrides": [{"name": "batch", "memory": <key>}]}', True),
        ('{"containerOverrides": [{"name": "<key>", "memory": 900}]}', True),
        ('{"containerOverrides": [<key>]}', True),
        ('{"containerOverrides": <key>}', True),
        ('{"memory": "<key>"}', True),
        ("<key>", True),
        ('"a text of <key>"', True),
        ('{"environment": <key>', True),
    ],
)
def test_a_variable_of_a_transformer_overrides_only_where_it_can_be_a_size(
    template: str, *, is_unknown: bool
) -> None:
    target = rule({"InputTransformer": {"InputTemplate": template, "InputPathsMap": {}}})
    assert bool(size_overrides(target).unknown) == is_unknown


def test_a_part_of_an_event_can_override_sizes() -> None:
    """A part of an event can override sizes and one of a timed rule cannot."""
    given = {"InputPath": "$.detail"}
    assert size_overrides(rule(given, expression=None)).unknown
    assert size_overrides(rule(given)).is_empty
    both = rule(given)
    assert size_overrides(replace(both, rule={**both.rule, "EventPattern": "{}"})).unknown


def test_the_least_memory_holds_what_a_schedule_gives_to_a_container() -> None:
    seen = SeenMemory(needs_mb={"batch": 100, "log": 10})
    overrides = size_overrides(schedule(of_batch(memory=900)))
    assert overrides.least_memory_mb(SMALL, seen) == 910
    assert SizeOverrides().least_memory_mb(SMALL, seen) == 110
    of_task = size_overrides(schedule({"memory": "2 GB", **of_batch(memory=900)}))
    assert of_task.least_memory_mb(SMALL, seen) == 0

"""What an account says about a family: its due times, what overrides its size, what starts it."""

import json
from typing import Any
from unittest.mock import Mock

import pytest

from profiler.aws_account.cloudformation_owners import CloudFormationOwners
from profiler.aws_account.family_circumstances import FamilyAccount, circumstances_of
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.aws_account.tagged_revisions import TaggedRevisions
from profiler.task_definitions.definition_json import TaskDefinitionDocument
from profiler.task_definitions.size_changes import SeenMemory

DEFINITIONS = "arn:aws:ecs:us-east-1:123456789012:task-definition"
DOCUMENT = TaskDefinitionDocument(
    arn=f"{DEFINITIONS}/nightly:3",
    definition={
        "cpu": "1024",
        "memory": "2048",
        "containerDefinitions": [{"name": "batch", "memory": 1900, "cpu": 500}],
    },
)


def schedule(name: str, definition: str, source: Any = None, **settings: Any) -> ScheduledTarget:
    arn = f"{DEFINITIONS}/{definition}"
    target: dict[str, Any] = {"EcsParameters": {"TaskDefinitionArn": arn}}
    if source is not None:
        target["Input"] = json.dumps(source)
    content = {"ScheduleExpression": "cron(0 2 * * ? *)", **settings, "Target": target}
    return ScheduledTarget(
        kind="schedule",
        name=name,
        group="default",
        cluster_arn="jobs",
        definition_arn=arn,
        content=content,
    )


def account(*targets: ScheduledTarget, others: tuple[str, ...] = ()) -> FamilyAccount:
    return FamilyAccount(
        targets=lambda: targets,
        owners=CloudFormationOwners(Mock()),
        tagged=TaggedRevisions(Mock()),
        other_starters=lambda _family: others,
        now_ns=0,
    )


def test_due_times_are_of_the_familys_own_schedules_that_are_enabled() -> None:
    quarter = "cron(0/15 * * * ? *)"
    targets = (
        schedule("night", "nightly"),
        schedule("other", "weekly", ScheduleExpression=quarter),
        schedule("off", "nightly", ScheduleExpression=quarter, State="DISABLED"),
    )
    found = account(*targets).circumstances("nightly", DOCUMENT, SeenMemory())
    assert found.intervals_ms == dict.fromkeys((2, 3), 24 * 3_600_000)


def test_an_override_says_what_its_containers_need_of_the_task() -> None:
    overrides = {"containerOverrides": [{"name": "batch", "memory": 900, "cpu": 300}]}
    target = schedule("night", "nightly", overrides)
    seen = SeenMemory(needs_mb={"batch": 100})
    (found,) = account(target).circumstances("nightly", DOCUMENT, seen).overrides
    assert found.target == "the schedule night"
    assert found.least_memory_mb == 900
    assert found.least_vcpu == 300 / 1024


def test_a_starter_of_an_older_revision_is_named() -> None:
    """What starts an older revision is named and a schedule without a revision is not."""
    targets = (
        schedule("older", "nightly:1"),
        schedule("newest", "nightly:3"),
        schedule("free", "nightly"),
    )
    found = account(*targets, others=("Airflow", "schedule")).starters_of_older("nightly", DOCUMENT)
    assert found == ("the schedule older", "Airflow")


def test_a_definition_alone_says_its_system_its_stack_and_its_owners_tag() -> None:
    definition = {
        "runtimePlatform": {"operatingSystemFamily": "LINUX"},
        "tags": [{"key": "task-profiler:resize", "value": "off"}],
    }
    found = circumstances_of(TaskDefinitionDocument(definition=definition, stack="jobs"))
    assert found.operating_system == "LINUX"
    assert found.off_tag == "task-profiler:resize"
    assert found.stack == "jobs"


@pytest.mark.parametrize(
    ("value", "is_off"),
    [
        ("off", True),
        ("Off", True),
        (" OFF ", True),
        ("false", True),
        (False, True),
        ("no", True),
        ("on", False),
        ("true", False),
        ("", False),
    ],
)
def test_the_owners_tag_counts_as_people_and_yaml_write_it(*, value: object, is_off: bool) -> None:
    definition = {"tags": [{"key": "task-profiler:resize", "value": value}]}
    found = circumstances_of(TaskDefinitionDocument(definition=definition))
    assert (found.off_tag is not None) == is_off

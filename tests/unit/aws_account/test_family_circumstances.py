"""What an account says about a family: its due times, what overrides its size, what starts it."""

import json
from collections.abc import Iterable
from typing import Any
from unittest.mock import Mock

from profiler.aws_account.cloudformation_owners import CloudFormationOwners
from profiler.aws_account.family_circumstances import (
    FamilyCircumstancesReader,
    circumstances_of,
    overrides_of_runs,
)
from profiler.aws_account.registered_definitions import TaggedRevisions
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.core.timestamps import NS_PER_DAY, NS_PER_MINUTE, format_ms
from profiler.record.record_model import Metrics, Report
from profiler.sizing.sized_revision import TargetOverride
from profiler.task_definitions.definition_json import TaskDefinitionDocument
from profiler.task_definitions.size_changes import SeenMemory
from tests.cases import each_case
from tests.fakes import START_NS
from tests.family_windows import window_of
from tests.runs import report

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


def account(*targets: ScheduledTarget, others: tuple[str, ...] = ()) -> FamilyCircumstancesReader:
    return FamilyCircumstancesReader(
        targets=lambda: targets,
        of_services=lambda: ("api",),
        owners=CloudFormationOwners(Mock()),
        tagged=TaggedRevisions(Mock()).of_family,
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
    found = account(*targets).circumstances_of_family("nightly", DOCUMENT, SeenMemory())
    assert found.intervals_ms == dict.fromkeys((2, 3), 24 * 3_600_000)


def test_an_override_says_what_its_containers_need_of_the_task() -> None:
    overrides = {"containerOverrides": [{"name": "batch", "memory": 900, "cpu": 300}]}
    target = schedule("night", "nightly", overrides)
    seen = SeenMemory(needs_mb={"batch": 100})
    (found,) = account(target).circumstances_of_family("nightly", DOCUMENT, seen).overrides
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
    found = account(*targets, others=("Airflow", "schedule")).titles_starting_older_revisions(
        "nightly", DOCUMENT
    )
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


@each_case(
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


# Overrides by starters that nobody knows.

UNLIMITED: dict[str, Any] = {
    "cpu": "1024",
    "memory": "4096",
    "containerDefinitions": [{"name": "batch"}, {"name": "proxy", "memory": 256}],
}
NEWEST = TaskDefinitionDocument(arn=f"{DEFINITIONS}/nightly:3", definition=UNLIMITED)
IN_FILE = TaskDefinitionDocument(definition=UNLIMITED)


def quarters(count: int, *, start: float = 0, revision: int = 3, **more: Any) -> list[Report]:
    """Runs from a day on, one each quarter of an hour."""
    made = []
    for number in range(count):
        began_ns = START_NS + round(start * NS_PER_DAY) + number * 15 * NS_PER_MINUTE
        size = more.get("size", (1, 4096))
        metrics = {"memory_size_mb": more.get("limit_mb", size[1])}
        task = f"{revision}-{size}-{began_ns}"
        began = format_ms(began_ns)
        made.append(
            report(
                size=size,
                revision=str(revision),
                task_id=task,
                metrics=metrics,
                started_at=began,
                others=more.get("others"),
            )
        )
    return made


def overrides(
    reports: Iterable[Report], document: TaskDefinitionDocument
) -> tuple[TargetOverride, ...]:
    window = window_of(reports, days=35)
    found = overrides_of_runs(document, window, SeenMemory(needs_mb={"proxy": 20}))
    assert all(override.target == "what starts its runs" for override in found)
    return found


@each_case("document", [NEWEST, IN_FILE], ids=["account", "file"])
@each_case(
    "reports",
    [
        [*quarters(96 * 7), *quarters(1, start=6.9, limit_mb=3072)],
        [*quarters(96 * 7), *quarters(1, start=4.501, limit_mb=3072)],
        quarters(96 * 7, limit_mb=3072),
        [
            *quarters(73, revision=2),
            *quarters(1, start=0.3, revision=2, limit_mb=3072),
            *quarters(30, start=1),
        ],
    ],
    ids=["hours ago", "days ago", "each run", "before a deployment"],
)
def test_a_container_s_limit_that_the_definition_does_not_give_is_an_override(
    reports: list[Report], document: TaskDefinitionDocument
) -> None:
    (found,) = overrides(reports, document)
    assert found.least_memory_mb == 3072 + 20


def test_a_sidecar_s_limit_can_be_overridden_too() -> None:
    others = {"proxy": Metrics(max_memory_used_mb=20, memory_size_mb=1024)}
    (found,) = overrides([*quarters(200), *quarters(1, start=0.4, others=others)], NEWEST)
    assert found.least_memory_mb == 1024
    defined = {"proxy": Metrics(max_memory_used_mb=20, memory_size_mb=256)}
    assert overrides(quarters(200, others=defined), NEWEST) == ()


def test_a_part_of_the_tasks_size_can_be_overridden_too() -> None:
    """ECS takes the other part from the definition, and has no 0.25 vCPU with 8 GB."""
    (found,) = overrides([*quarters(200), *quarters(1, start=0.4, size=(1, 8192))], NEWEST)
    assert (found.vcpu, found.memory_mb) == (None, 8192)
    (found,) = overrides([*quarters(200), *quarters(1, start=0.4, size=(2, 4096))], IN_FILE)
    assert (found.vcpu, found.memory_mb) == (2, None)
    assert overrides([*quarters(200), *quarters(1, start=0.4, size=(2, 8192))], NEWEST) == ()


def test_what_an_earlier_revision_gave_to_all_its_runs_is_nobodys_override() -> None:
    earlier = quarters(200, revision=1, limit_mb=1900)
    at_another_size = quarters(200, revision=2, start=3, size=(1, 8192))
    assert overrides([*earlier, *at_another_size, *quarters(200, start=6)], NEWEST) == ()
    of_machine = quarters(200, limit_mb=1937.4)
    assert overrides(of_machine, NEWEST) == ()

"""The plan for an account of 150 families: what many families have in common is said once."""

from typing import get_args
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from profiler.aws_account.planned_family import Action, PlannedFamily
from profiler.aws_account.rollout import Rollout
from profiler.aws_account.rollout_request import RolloutRequest
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.cli.taskdef_command import _plan_table
from profiler.record.family_owner import FamilyOwner
from profiler.task_definitions.containers import DefinedContainer
from profiler.task_definitions.definition_json import ChangedDefinition
from tests.terminals import texts

SAME = "The monitor logs to the batch's group."
OTHER = "The batch logs to Splunk."
ROLE = "Without a task role the monitor cannot write."


def plan(*planned: PlannedFamily) -> list[str]:
    return texts(_plan_table(planned, None, adds=True))


def family(number: int, *notes: str, problems: tuple[str, ...] = ()) -> PlannedFamily:
    return PlannedFamily(
        family=f"job-{number:03}", action="add monitor", notes=notes, problems=problems
    )


def test_a_note_of_many_families_is_said_once_with_their_number() -> None:
    rows = plan(*(family(number, SAME, *[OTHER] * (number == 7)) for number in range(150)))
    assert len([row for row in rows if row.startswith("job-")]) == 150
    assert len([row for row in rows if SAME in row]) == 1
    assert f"- job-000, job-001, job-002 and 147 more: {SAME}" in rows
    assert [row for row in rows if OTHER in row] == [
        row for row in rows if row.startswith("job-007")
    ]
    assert len(rows) <= 153


def test_a_note_of_few_families_stays_in_their_rows() -> None:
    rows = plan(*(family(number, SAME) for number in range(3)))
    assert [row.startswith("job-00") for row in rows if SAME in row] == [True] * 3
    assert len([row for row in rows if row.startswith("-")]) == 0


def test_problems_come_after_the_notes() -> None:
    rows = plan(*(family(number, SAME, problems=(ROLE,)) for number in range(5)))
    assert rows[-2:] == [
        f"- job-000, job-001, job-002 and 2 more: {SAME}",
        f"- job-000, job-001, job-002 and 2 more: {ROLE}",
    ]


def test_schedules_of_a_family_that_is_left_alone_count_nowhere() -> None:
    """Neither in what ``setup`` counts, nor in what add-monitor says of pinned schedules."""
    for action in get_args(Action):
        is_counted = PlannedFamily(family="etl", action=action).counts_targets
        assert is_counted is (action not in ("skipped", "refused", "failed"))
    owner = FamilyOwner(service="AWS Batch", evidence="its cluster")
    assert not PlannedFamily(family="etl", action="up to date", owner=owner).counts_targets
    wrapper = DefinedContainer(name="batch", command=("task-profiler", "run", "--", "etl"))
    wrapped = ChangedDefinition(definition={}, containers=(wrapper,))
    assert PlannedFamily(family="etl", action="refused", changed=wrapped).counts_targets


@pytest.mark.parametrize(
    ("clusters", "said"),
    [
        ((), "1 of 2 schedules and rules is pinned"),
        (("jobs", "jobs-2"), "1 of 2 schedules and rules is pinned"),
        (("jobs",), "1 of 2 schedules and rules in all clusters is pinned"),
    ],
)
def test_pinned_schedules_in_other_clusters_count_and_the_sentence_says_so(
    clusters: tuple[str, ...], said: str
) -> None:
    """``setup --cluster jobs`` counts one of them; --update-schedules moves both."""
    definition_arn = "arn:aws:ecs:eu-west-1:111122223333:task-definition/etl"
    near, far = (
        ScheduledTarget(
            kind="schedule",
            name=name,
            group="default",
            cluster_arn=f"arn:aws:ecs:eu-west-1:111122223333:cluster/{name}",
            definition_arn=definition_arn + revision,
            content={},
        )
        for name, revision in (("jobs", ""), ("jobs-2", ":1"))
    )
    rollout = Rollout(
        open_client=Mock(),
        request=RolloutRequest(clusters=clusters),
        plan_change=Mock(),
        wall_ns=Mock(),
        on_step=Mock(),
        on_problem=Mock(),
    )
    rollout.starters.scheduled_targets = (near, far)
    planned = PlannedFamily(family="etl", action="add monitor", pinned=(far,), movable=(far,))
    sentence = rollout.pinned_sentence([planned], [planned])
    assert sentence is not None
    assert sentence.startswith(said)
    assert sentence.endswith("--register --update-schedules moves them.")
    left = replace(planned, pinned=(near, far))
    assert str(rollout.pinned_sentence([left], [left])).endswith("moves 1 of them.")
    fixed = replace(planned, movable=())
    assert str(rollout.pinned_sentence([fixed], [fixed])).endswith("moves none of them.")


def test_a_note_of_many_families_that_differs_by_their_names_alone_is_said_once() -> None:
    rows = plan(*(family(number, f"The schedule job-{number:03} is late.") for number in range(9)))
    assert rows[-1] == "- job-000, job-001, job-002 and 6 more: The schedule FAMILY is late."
    assert not [row for row in rows[:-1] if "schedule" in row]


def test_a_name_within_another_word_is_not_the_familys() -> None:
    """Who is called like a word of the sentence keeps it as it is."""
    named = [
        PlannedFamily(family=name, action="add monitor", notes=("The etl-2 is an etl.", SAME))
        for name in ("etl", "etl-3", "an", "is")
    ]
    assert "- etl, etl-3, an, is: The etl-2 is an etl." in plan(*named)
    late = [
        PlannedFamily(family=name, action="add monitor", notes=(f"See /ecs/{name}-logs.",))
        for name in "abcde"
    ]
    assert [row.split()[-1] for row in plan(*late)[1:6]] == [
        f"/ecs/{name}-logs." for name in "abcde"
    ]

"""The executions of state machines, as ListExecutions pages them, and what machines start that
execute each other.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.scheduled_machines import read_executions, read_machine_schedules
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.aws_account.target_contents import execution_target
from profiler.core.timestamps import NS_PER_SECOND
from profiler.schedules.schedule_model import ReadTasks, Schedule
from tests.step_functions import executing, machine, running

ARN = "arn:aws:states:eu-west-1:123456789012:stateMachine:nightly"
NOW = datetime(2026, 11, 28, 8, tzinfo=UTC)
SINCE = timedelta(days=3)
SCHEDULE = Schedule(
    kind="schedule",
    name="nightly",
    expression="cron(0 2 * * ? *)",
    cluster_arn=ARN,
    definition_arn="etl",
    machine_arn=ARN,
)


class Listing:
    """Step Functions with these pages of executions; ``read`` counts those that were read."""

    def __init__(self, pages: Sequence[Sequence[Mapping[str, object]]]) -> None:
        self._pages = pages
        self.read = 0

    def get_paginator(self, operation: str) -> "Listing":
        assert operation == "list_executions"
        return self

    def paginate(self, **selection: str) -> Iterator[Mapping[str, Any]]:
        assert selection == {"stateMachineArn": ARN}
        for number, executions in enumerate(self._pages, 1):
            self.read = number
            yield {"executions": executions, "nextToken": "more"}


def began(hours_ago: float, **more: object) -> Mapping[str, object]:
    return {"name": f"{hours_ago}", "startDate": NOW - timedelta(hours=hours_ago), **more}


def listed(*pages: Sequence[Mapping[str, object]]) -> tuple[ReadTasks, Listing]:
    listing = Listing(pages)
    now_ns, since_ns = (_ns(moment) for moment in (NOW, NOW - SINCE))
    return read_executions(lambda _: listing, [SCHEDULE], now_ns, since_ns)[ARN], listing


def _ns(moment: datetime) -> int:
    return int(moment.timestamp()) * NS_PER_SECOND


def names(found: ReadTasks) -> list[str]:
    return [task.arn.rpartition("/")[2] for task in found.tasks or ()]


@pytest.mark.parametrize(
    ("old", "read", "has_second"),
    [
        (began(300), 1, False),
        (began(300, redriveCount=0), 1, False),
        (began(300, redriveCount=1, redriveDate=NOW), 2, True),
    ],
)
def test_an_old_execution_that_was_redriven_ends_no_listing(
    old: Mapping[str, object], read: int, *, has_second: bool
) -> None:
    """It may be listed by the time at which it was started again."""
    found, listing = listed([old, began(1)], [began(6)])
    assert listing.read == read
    assert names(found) == ["1", "6"][: 2 if has_second else 1]


def test_what_lies_behind_a_cut_listing_is_not_known() -> None:
    again = began(300, redriveCount=1, redriveDate=NOW)
    found, listing = listed(*([began(hours), again] for hours in (1, 2, 3, 4, 5, 6)))
    assert listing.read == 5
    assert found.known_since_ns == _ns(NOW - timedelta(hours=5))


def arn_of(name: str) -> str:
    return ARN.replace("nightly", name)


class Machines:
    """Step Functions with machines by their names, each with the names of those that it executes
    and whether it runs a task; ``refused`` may not be read, and ``asked`` counts the calls.
    """

    def __init__(self, executes: Mapping[str, Sequence[str]], *tasks: str) -> None:
        self._executes = executes
        self._tasks = tasks
        self.refused: set[str] = set()
        self.asked = Counter[str]()

    def describe_state_machine(self, stateMachineArn: str) -> Mapping[str, Any]:
        name = stateMachineArn.rpartition(":")[2]
        self.asked[name] += 1
        code = "AccessDeniedException" if name in self.refused else "StateMachineDoesNotExist"
        if code == "AccessDeniedException" or name not in self._executes:
            details: Any = {"Error": {"Code": code, "Message": name}}
            raise ClientError(details, "DescribeStateMachine")
        states = {one: executing(arn_of(one)) for one in self._executes[name]}
        if name in self._tasks:
            states["Run"] = running({"TaskDefinition": f"of-{name}"})
        definition = {**machine({"Type": "Pass", "End": True}), "States": states}
        return {"definition": json.dumps(definition), "type": "STANDARD", "creationDate": NOW}


def started(
    machines: Machines, *names: str, calls: int = 1000, idle: dict[str, int] | None = None
) -> tuple[dict[str, str], list[str]]:
    """The families that the schedules of these machines start, and what is said; ``calls``: so many
    may be made.
    """
    said: list[str] = []
    schedules = read_machine_schedules(
        lambda _: machines,
        [
            ScheduledTarget(
                kind="rule",
                name=name,
                group="default",
                content={},
                rule={"ScheduleExpression": "rate(1 day)"},
                **execution_target(arn_of(name)),
            )
            for name in names
        ],
        said.append,
        now_ns=_ns(NOW),
        idle=idle,
        may_continue=lambda: machines.asked.total() < calls,
    )
    return {one.schedule.name: one.schedule.definition_arn for one in schedules}, said


UNKNOWN = "It is unknown whether all schedules of state machines start tasks or jobs: "


def chain(length: int) -> dict[str, list[str]]:
    """Machines of which each executes the next one."""
    inner = {f"m{number}": [f"m{number + 1}"] for number in range(length)}
    return {**inner, f"m{length}": []}


@pytest.mark.parametrize(("length", "is_known"), [(20, True), (21, False), (60, False)])
def test_a_chain_of_machines_that_is_not_read_to_its_end_is_not_known_to_start_nothing(
    length: int, *, is_known: bool
) -> None:
    """It is read again at the next look."""
    idle: dict[str, int] = {}
    machines = Machines(chain(length), f"m{length}")
    found, said = started(machines, "m0", idle=idle)
    assert found == ({"m0": f"of-m{length}"} if is_known else {})
    assert said == ([] if is_known else [f"{UNKNOWN}m0 executes more than 20 others."])
    assert idle == {}
    assert machines.asked.total() == 21


def test_a_chain_that_starts_something_before_its_end_is_judged_and_the_rest_is_said() -> None:
    found, said = started(Machines(chain(30), "m3", "m30"), "m0")
    assert found == {"m0": "of-m3"}
    assert said == [f"{UNKNOWN}m0 executes more than 20 others."]


def test_a_machine_that_many_execute_is_read_once() -> None:
    outer = {f"o{number}": ["shared"] for number in range(150)}
    machines = Machines({**outer, "shared": ["deep"], "deep": ["shared"]}, "deep")
    found, said = started(machines, *outer)
    assert found == dict.fromkeys(outer, "of-deep")
    assert said == []
    assert machines.asked == dict.fromkeys((*outer, "shared", "deep"), 1)


@pytest.mark.parametrize("own", ["o1", ""])
def test_a_machine_that_may_not_be_read_is_asked_for_once_and_said(own: str) -> None:
    """What the others start themselves is judged all the same."""
    outer = {f"o{number}": ["shared", "open"] for number in range(150)}
    machines = Machines({**outer, "open": [], "shared": []}, own)
    machines.refused = {"shared"}
    idle: dict[str, int] = {}
    found, said = started(machines, *outer, idle=idle)
    assert found == ({own: f"of-{own}"} if own else {})
    assert len(said) == 1
    assert said[0].startswith(f"{UNKNOWN}AWS refused (AccessDeniedException: shared)")
    assert machines.asked == dict.fromkeys((*outer, "shared", "open"), 1)
    assert idle == {}


def test_no_inner_machine_is_read_without_time_and_none_is_known_to_start_nothing() -> None:
    idle: dict[str, int] = {}
    machines = Machines({"a": ["inner"], "b": [], "inner": []}, "inner")
    found, said = started(machines, "a", "b", calls=1, idle=idle)
    assert (found, idle) == ({}, {})
    assert said == [f"{UNKNOWN}the invocation ran out of time."]
    assert machines.asked == {"a": 1}

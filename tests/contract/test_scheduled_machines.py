"""``task-profiler schedules`` of schedules and rules that start state machines of Step Functions."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from subprocess import CompletedProcess
from typing import Any

import pytest
from moto.scheduler.models import scheduler_backends
from moto.stepfunctions.models import stepfunctions_backends

from tests.aws_proxy import AwsProxy, ProxiedAccount
from tests.step_functions import (
    EXECUTE,
    change_machine,
    executing,
    machine,
    machine_arn,
    make_machine,
    publish,
    running,
)
from tools.moto_server import FakeAws, fake_aws

ROLE = "arn:aws:iam::123456789012:role/start"
UNIVERSAL = "arn:aws:scheduler:::aws-sdk:sfn:startExecution"
# It was due an hour ago, and is due once a day.
DUE = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=1)
DAILY = f"cron({DUE.minute} {DUE.hour} * * ? *)"


class Account(ProxiedAccount):
    """Has the families ``extract`` and ``load``, and schedules that are older than their due
    times.
    """

    def __init__(self, aws: FakeAws, proxy: AwsProxy) -> None:
        super().__init__(aws, proxy)
        self.machines = aws.client("stepfunctions")
        for family in ("extract", "load"):
            container = {"name": "batch", "image": "etl:26", "memory": 64}
            self.ecs.register_task_definition(family=family, containerDefinitions=[container])

    def machine(self, name: str, *families: str) -> str:
        states = {f"Run {family}": run_of(family) for family in families}
        first = next(iter(states), "Wait")
        wait = {"Wait": {"Type": "Wait", "Seconds": 1, "End": True}}
        make_machine(self.machines, name, {"StartAt": first, "States": states or wait})
        self.created(name, DUE - timedelta(days=30))
        return machine_arn(self.machines, name)

    def created(self, name: str, at: datetime) -> None:
        """Let a machine be created at a time."""
        arn = machine_arn(self.machines, name)
        made = stepfunctions_backends["123456789012"]["us-east-1"].describe_state_machine(arn)
        made.creation_date = at.replace(tzinfo=None)

    def executed(self, name: str, began: datetime, *, ended: datetime | None = None) -> None:
        """An execution of a machine."""
        arn = machine_arn(self.machines, name)
        started = self.machines.start_execution(stateMachineArn=arn)["executionArn"]
        (execution,) = (
            one
            for of_machine in stepfunctions_backends["123456789012"]["us-east-1"].state_machines
            for one in of_machine.executions
            if one.execution_arn == started
        )
        execution.start_date = began
        if ended is not None:
            execution.status, execution.stop_date = "SUCCEEDED", ended

    def schedule(self, name: str, arn: str, expression: str = DAILY, **more: Any) -> None:
        self.scheduler.create_schedule(
            Name=name,
            ScheduleExpression=expression,
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": arn, "RoleArn": ROLE, **more},
        )
        made = scheduler_backends["123456789012"]["us-east-1"].get_schedule("default", name)
        made.creation_date = made.last_modified_date = (DUE - timedelta(days=30)).timestamp()

    def rule(self, name: str, arn: str) -> None:
        self.events.put_rule(Name=name, ScheduleExpression=DAILY)
        self.events.put_targets(Rule=name, Targets=[{"Id": "1", "Arn": arn, "RoleArn": ROLE}])

    def rows(self, *words: str) -> dict[str, dict[str, Any]]:
        done = self.run("--json", *words)
        return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}

    def run(self, *words: str) -> CompletedProcess[str]:
        return self.command("schedules", *words)


def run_of(family: str) -> Mapping[str, object]:
    return running({"Cluster": "jobs", "TaskDefinition": family})


@pytest.fixture
def account() -> Iterator[Account]:
    nothing: dict[str, Any] = {"Events": []}
    with fake_aws() as aws, AwsProxy(aws.url, answers={"LookupEvents": nothing}) as proxy:
        yield Account(aws, proxy)


def test_a_machines_runs_are_missed_or_have_run_by_its_executions(account: Account) -> None:
    both = account.machine("nightly", "extract", "load")
    missed = account.machine("silent", "load")
    running = account.machine("slow", "load")
    account.machine("mails")
    account.schedule("night", both)
    account.schedule("lost", missed)
    account.schedule("long", UNIVERSAL, Input=json.dumps({"StateMachineArn": running}))
    account.schedule("mail", machine_arn(account.machines, "mails"))
    account.rule("often", account.machine("other", "extract"))
    account.executed("other", DUE, ended=DUE + timedelta(minutes=20))
    account.executed("nightly", DUE, ended=DUE + timedelta(minutes=20))
    account.executed("nightly", DUE - timedelta(days=1), ended=DUE - timedelta(hours=23))
    account.executed("slow", DUE + timedelta(seconds=20))
    rows = account.rows()
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "night": "ran",
        "lost": "missed",
        "long": "running",
        "often": "ran",
    }
    assert rows["lost"]["stateMachine"] == "silent"
    assert (rows["night"]["family"], rows["lost"]["family"]) == ("extract, load", "load")
    assert rows["night"]["cluster"] is rows["night"]["queue"] is None
    assert set(account.rows("extract")) == {"night", "often"}
    assert set(account.rows("--cluster", "jobs")) == set(rows)
    assert "Cluster, state machine" in " ".join(account.run().stdout.split())


def test_of_two_schedules_of_one_machine_one_is_missed(account: Account) -> None:
    arn = account.machine("nightly", "load")
    account.schedule("one", arn)
    account.schedule("two", arn)
    account.executed("nightly", DUE, ended=DUE + timedelta(minutes=20))
    rows = account.rows().values()
    assert sorted(row["outcome"] for row in rows) == ["missed", "ran"]
    (reason,) = (row["reason"] for row in rows if row["reason"])
    assert reason.startswith("AWS does not distinguish its executions from the executions of ")


def test_a_version_of_another_family_is_another_schedule_of_the_machine(account: Account) -> None:
    arn = account.machine("nightly", "extract")
    publish(account.machines, "nightly", "live")
    account.created("nightly", DUE - timedelta(days=30))
    change_machine(account.machines, "nightly", machine(run_of("load")))
    account.schedule("one", arn)
    account.schedule("two", f"{arn}:1")
    account.executed("nightly", DUE, ended=DUE + timedelta(minutes=20))
    both = account.rows()
    assert {row["family"] for row in both.values()} == {"extract", "load"}
    # The version was created just now, before which an execution may have been forgotten.
    assert sorted(row["outcome"] for row in both.values()) == ["ran", "unknown"]
    assert account.rows("extract")["two"]["outcome"] == both["two"]["outcome"]
    assert account.rows("load")["one"]["outcome"] == both["one"]["outcome"]


def test_who_started_a_late_execution_is_not_known(account: Account) -> None:
    account.schedule("night", account.machine("nightly", "load"))
    account.executed("nightly", DUE + timedelta(minutes=40), ended=DUE + timedelta(minutes=50))
    row = account.rows()["night"]
    assert row["outcome"] == "unknown"
    assert row["reason"] == (
        "An execution began 40m 00s after the due time, and Step Functions does not say who "
        "started it."
    )


@pytest.mark.parametrize("refused", ["ListExecutions", "DescribeStateMachine"])
def test_without_a_right_nothing_is_missed(account: Account, refused: str) -> None:
    account.schedule("night", account.machine("nightly", "load"))
    account.proxy.refused = {refused}
    done = account.run("--json")
    assert "missed" not in done.stdout
    assert f"states:{refused}" in f"{done.stdout}{done.stderr}"


def test_an_express_machine_has_no_list_of_executions(account: Account) -> None:
    account.machines.create_state_machine(
        name="quick", definition=json.dumps(machine(run_of("load"))), roleArn=ROLE, type="EXPRESS"
    )
    account.schedule("night", machine_arn(account.machines, "quick"))
    row = account.rows()["night"]
    assert (row["outcome"], "type Express" in row["reason"]) == ("unknown", True)
    assert "ListExecutions" not in account.proxy.operations


def test_a_schedule_of_a_deleted_machine_starts_nothing(account: Account) -> None:
    account.schedule("night", account.machine("nightly", "load"))
    account.schedule("kept", account.machine("other", "load"))
    arn = machine_arn(account.machines, "nightly")
    account.machines.delete_state_machine(stateMachineArn=arn)
    done = account.run()
    assert done.returncode == 1
    assert "The schedule night starts nothing: the state machine nightly" in done.stderr


def test_a_version_that_a_schedule_names_by_its_number_is_what_it_starts(account: Account) -> None:
    """And is judged: its revision may be gone, although the machine's definition names none."""
    arn = account.machine("nightly", "load:1")
    publish(account.machines, "nightly", "live")
    change_machine(account.machines, "nightly", machine(run_of("load")))
    alias = account.machines.list_state_machine_aliases(stateMachineArn=arn)
    (live,) = alias["stateMachineAliases"]
    account.machines.delete_state_machine_alias(stateMachineAliasArn=live["stateMachineAliasArn"])
    account.ecs.register_task_definition(
        family="load", containerDefinitions=[{"name": "batch", "image": "etl:27", "memory": 64}]
    )
    account.ecs.deregister_task_definition(taskDefinition="load:1")
    account.schedule("latest", arn)
    assert account.run().returncode == 0
    account.schedule("old", f"{arn}:1")
    done = account.run()
    assert done.returncode == 1
    sentence = "state machine nightly, version 1 is pinned to load:1, which was deregistered"
    assert sentence in " ".join(done.stderr.split())


def test_a_machine_that_was_created_again_has_no_list_of_earlier_executions(
    account: Account,
) -> None:
    account.schedule("night", account.machine("nightly", "load"))
    account.schedule("kept", account.machine("other", "load"))
    account.created("nightly", DUE + timedelta(minutes=20))
    rows = account.rows()
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "night": "unknown",
        "kept": "missed",
    }
    assert rows["night"]["reason"] == "An execution of this time is no longer known."


# State machines that execute others.

NESTED = [
    (EXECUTE, "Parameters"),
    ("arn:aws:states:::states:startExecution", "Arguments"),
    ("arn:aws:states:::states:startExecution.waitForTaskToken", "Parameters"),
    ("arn:aws:states:::aws-sdk:sfn:startExecution", "Parameters"),
    ("arn:aws:states:::aws-sdk:sfn:startSyncExecution", "Parameters"),
]


def nest(
    account: Account, outer: str, inner_arn: str, *, field: str = "Parameters", **more: Any
) -> str:
    """A machine that executes another one."""
    state = executing(inner_arn, field=field, **more)
    make_machine(account.machines, outer, machine(state))
    account.created(outer, DUE - timedelta(days=30))
    return machine_arn(account.machines, outer)


@pytest.mark.parametrize(("resource", "field"), NESTED)
def test_a_machine_that_executes_another_one_is_judged_by_its_own_executions(
    account: Account, resource: str, field: str
) -> None:
    """Also over two machines, and in a branch of a Map; one that executes another account's, or one
    that an execution computes, starts nothing that is known.
    """
    load = account.machine("load", "load", "extract")
    middle = nest(account, "middle", load, resource=resource, field=field)
    account.schedule("night", nest(account, "nightly", f"{middle}:live"))
    account.schedule("direct", middle)
    branch = {"StartAt": "Run", "States": {"Run": executing(load, resource, field)}}
    make_machine(
        account.machines, "each", machine({"Type": "Map", "ItemProcessor": branch, "End": True})
    )
    account.created("each", DUE - timedelta(days=30))
    account.schedule("items", machine_arn(account.machines, "each"))
    elsewhere = load.replace("123456789012", "210987654321")
    account.schedule("other", nest(account, "other", elsewhere, resource=resource, field=field))
    computed = {"Type": "Task", "Resource": resource, "End": True}
    given: dict[str, Any] = {"Parameters": {"StateMachineArn.$": "$.next"}}
    make_machine(account.machines, "computed", machine({**computed, **given}))
    account.schedule("unknown", machine_arn(account.machines, "computed"))
    publish(account.machines, "middle", "live")
    account.created("middle", DUE - timedelta(days=30))
    account.executed("nightly", DUE, ended=DUE + timedelta(minutes=20))
    rows = account.rows()
    assert {name: (row["outcome"], row["family"]) for name, row in rows.items()} == {
        "night": ("ran", "extract, load"),
        "direct": ("missed", "extract, load"),
        "items": ("missed", "extract, load"),
    }
    assert set(account.rows("load")) == set(rows)


def test_machines_that_execute_each_other_are_read_once(account: Account) -> None:
    load = account.machine("load", "load")
    first = nest(account, "first", load.replace("load", "second"))
    nest(account, "second", first)
    state = {"StartAt": "Run", "States": {"Run": executing(first), "Load": run_of("load")}}
    change_machine(account.machines, "second", state)
    account.schedule("night", first)
    account.proxy.operations.clear()
    assert account.rows()["night"]["family"] == "load"
    # Each machine once for the account's states, and for the schedule.
    assert account.proxy.operations.count("DescribeStateMachine") == 3 + 2


@pytest.mark.parametrize("has_own", [True, False])
def test_an_inner_machine_that_may_not_be_read_is_said(
    account: Account,
    has_own: bool,  # noqa: FBT001
) -> None:
    """What the outer one starts itself is judged all the same."""
    load = account.machine("load", "load")
    outer = nest(account, "outer", load)
    if has_own:
        states = {"Run": executing(load), "Extract": run_of("extract")}
        change_machine(account.machines, "outer", {"StartAt": "Run", "States": states})
    account.schedule("night", outer)

    def refuse(operation: str, body: bytes) -> None:
        is_of_load = b":stateMachine:load" in body and operation == "DescribeStateMachine"
        account.proxy.refused = {operation} if is_of_load else set()

    account.proxy.before = refuse
    done = account.run("--json")
    assert "unknown whether all schedules of state machines start tasks" in done.stderr
    found = [json.loads(line)["family"] for line in done.stdout.splitlines()]
    assert found == (["extract"] if has_own else [])


def test_an_inner_machine_that_was_deleted_starts_nothing(account: Account) -> None:
    load = account.machine("load", "load")
    account.schedule("night", nest(account, "outer", load))
    account.schedule("kept", account.machine("other", "extract"))
    account.machines.delete_state_machine(stateMachineArn=load)
    assert set(account.rows()) == {"kept"}

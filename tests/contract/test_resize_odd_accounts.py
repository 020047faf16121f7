"""``taskdef resize`` in odd accounts: each family that must stay stands beside one that must still
be resized.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec.structs import replace

from profiler.aws_account.registered_definitions import TaskDefinitions
from profiler.core.optional_math import known_members
from profiler.record.record_model import Metrics
from tests.aws_proxy import AwsProxy
from tests.command_line import run_here
from tests.family_windows import lately
from tests.resize_account import (
    ACCOUNT,
    BATCH,
    CLUSTER,
    DEFINITIONS,
    KILLED,
    LOG_GROUP,
    MONITOR,
    NEW,
    OLD,
    STOPPED_GROUP,
    Account,
)
from tests.runs import lines, report, slowdown
from tests.step_functions import (
    RUN_TASK,
    change_machine,
    executing,
    machine,
    machine_arn,
    make_machine,
    publish,
    running,
)
from tools.moto_server import (
    OwnedResource,
    begin_schedule_long_ago,
    create_schedule_long_ago,
    fake_aws,
)

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

SCHEDULE = "AWS::Scheduler::Schedule"
RULE = "AWS::Events::Rule"
DEFINITION = "AWS::ECS::TaskDefinition"


TEMPLATE = """\
Resources:
  Group: {Type: AWS::Logs::LogGroup}
  Job:
    Type: AWS::ECS::TaskDefinition
    Properties:
      Family: control
      Cpu: 1024
      Memory: 2048
      ContainerDefinitions:
        - Name: batch
          LogConfiguration:
            LogDriver: awslogs
            Options: {awslogs-group: !Ref Group, awslogs-stream-prefix: ecs}
"""


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """An account with a family that each test must see resized."""
    with fake_aws() as aws:
        made = Account(aws, tmp_path)
        made.oversized("control")
        yield made


@pytest.fixture
def proxy(account: Account) -> Iterator[AwsProxy]:
    with AwsProxy(account.aws.url) as made:
        account.url = made.url
        yield made


def owned(physical_id: str, resource_type: str, **more: str) -> OwnedResource:
    return OwnedResource(
        stack_name="jobs", physical_resource_id=physical_id, resource_type=resource_type, **more
    )


def registered(account: Account, *words: str) -> dict[str, dict[str, Any]]:
    """The rows of a call that registers the control."""
    rows, _ = account.rows("--register", "--update-schedules", *words)
    assert account.newest("control") == [2]
    return rows


# Managed Instances


def test_only_what_still_runs_on_fargate_is_resized(account: Account) -> None:
    """A definition may allow both, and its runs say where they were."""
    managed: dict[str, Any] = {"launch_type": "MANAGED_INSTANCES"}
    allowed = {
        "managed": ["MANAGED_INSTANCES"],
        "on-ec2-before": ["EC2", "MANAGED_INSTANCES"],
        "moved": ["FARGATE", "MANAGED_INSTANCES"],
        "back": ["FARGATE", "MANAGED_INSTANCES"],
        "tried": ["FARGATE", "MANAGED_INSTANCES"],
    }
    for name, platforms in allowed.items():
        account.family(name, requiresCompatibilities=platforms)
    account.add_runs("managed", 25, **managed)
    account.add_runs("on-ec2-before", 25, **managed)
    account.add_runs("moved", 25)
    account.add_runs("moved", 5, **managed)
    account.add_runs("back", 5, **managed)
    account.add_runs("back", 25)
    account.add_runs("tried", 12)
    account.add_runs("tried", 1, **managed)
    account.add_runs("tried", 12)
    account.write_runs()
    rows = registered(account)
    where = "on Managed Instances, where the size is only a reservation"
    for name in ("managed", "on-ec2-before", "moved"):
        assert rows[name]["action"] == "none"
        of_which = "newest runs" if name == "moved" else "runs"
        assert rows[name]["reason"].startswith(f"its {of_which} are {where}")
        assert rows[name]["savingUsdPerMonth"] is None
    assert account.newest(*allowed) == [1, 1, 1, 2, 2]


# Overrides


def test_a_size_holds_what_a_schedule_gives_to_a_container(account: Account) -> None:
    account.oversized("nightly")
    overrides = {"containerOverrides": [{"name": "batch", "memory": 1500}]}
    account.schedule("night", "nightly", overrides)
    rows = registered(account)
    assert rows["nightly"]["to"]["memoryMB"] == 2048
    assert rows["control"]["to"]["memoryMB"] == 512


def test_a_size_holds_the_limit_that_an_unknown_starter_gives_to_a_container(
    account: Account,
) -> None:
    """Step Functions can override it, and no schedule says so."""
    unlimited = {name: value for name, value in BATCH.items() if name != "memory"}
    account.family("stepped", containerDefinitions=[unlimited, MONITOR])
    account.runs("stepped", 25, metrics={"memory_size_mb": 1900})
    account.family("watched", containerDefinitions=[unlimited, MONITOR])
    of_monitor = Metrics(memory_size_mb=900, max_memory_used_mb=20)
    account.runs("watched", 24, others={"task-monitor": replace(of_monitor, memory_size_mb=128)})
    account.runs("watched", 1, others={"task-monitor": of_monitor})
    rows = registered(account)
    assert rows["stepped"]["to"] == {"vcpu": 0.25, "memoryMB": 2048}
    assert "what starts its runs overrides sizes" in rows["stepped"]["reason"]
    assert rows["watched"]["to"] == {"vcpu": 0.25, "memoryMB": 1024}
    assert rows["control"]["to"] == {"vcpu": 0.25, "memoryMB": 512}


@pytest.mark.slow
def test_the_limit_of_an_earlier_revision_or_of_a_machine_is_nobodys_override(
    account: Account,
) -> None:
    unlimited = {name: value for name, value in BATCH.items() if name != "memory"}
    account.family("machine", containerDefinitions=[unlimited, MONITOR])
    account.runs("machine", 25, metrics={"memory_size_mb": 1937.4})
    account.family("limited")
    account.runs("limited", 25, metrics={"memory_size_mb": 1900})
    account.family("limited", containerDefinitions=[unlimited, MONITOR])
    account.runs("limited", 5, revision=2)
    rows = registered(account)
    assert rows["limited"]["to"] == {"vcpu": 0.25, "memoryMB": 512}
    assert rows["machine"]["to"] == {"vcpu": 0.25, "memoryMB": 512}


@pytest.mark.parametrize(
    "source",
    [
        {"memory": "8 GB"},
        {"containerOverrides": [{"name": "batch", "cpu": 900}]},
        '{"memory": 1e999}',
        '{"containerOverrides": [{"name": "batch", "memory": "<aws.scheduler.execution-id>"}]}',
        "not JSON",
    ],
)
def test_a_schedule_whose_overrides_do_not_fit_into_the_new_size_is_named(
    account: Account, source: object
) -> None:
    account.oversized("nightly")
    account.schedule("night", "nightly", source)
    rows = registered(account)
    assert rows["nightly"]["action"] == "none"
    assert "the schedule night" in rows["nightly"]["reason"]
    assert account.newest("nightly") == [1]


@pytest.mark.parametrize(
    "overrides",
    [
        {"Memory": "8 GB"},
        {"ContainerOverrides": [{"Name": "batch", "Cpu": 900}]},
        {"ContainerOverrides": [{"Name": "batch", "Memory": "<aws.scheduler.execution-id>"}]},
        {"containerOverrides": [{"name": "batch", "cpu": 900}]},
    ],
)
def test_a_schedule_that_calls_run_task_itself_is_read_like_another_one(
    account: Account, overrides: dict[str, object]
) -> None:
    account.oversized("nightly", "weekly")
    names = ("TaskDefinition", "Overrides")
    if "containerOverrides" in overrides:  # the whole request as ECS's API names it
        names = ("taskDefinition", "overrides")
    account.universal_schedule("night", dict(zip(names, ("nightly", overrides), strict=True)))
    account.universal_schedule("week", {"TaskDefinition": "weekly:1", "Cluster": "jobs"})
    rows = registered(account)
    assert "the schedule night" in rows["nightly"]["reason"]
    assert account.newest("nightly", "weekly") == [1, 2]


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"Memory": "8 GB"}, "Parameters"),
        ({"ContainerOverrides": [{"Name": "batch", "Cpu": 900}]}, "Arguments"),
        ({"ContainerOverrides": [{"Name": "batch", "Memory.$": "$.memory"}]}, "Parameters"),
        ("{% $states.input.overrides %}", "Arguments"),
    ],
)
def test_a_state_of_step_functions_is_read_like_a_schedule(
    account: Account, overrides: object, field: str
) -> None:
    account.oversized("nightly", "weekly")
    request = {"TaskDefinition": "nightly", "Overrides": overrides}
    account.state_machine("night", request, field)
    commands = {"ContainerOverrides": [{"Name": "batch", "Command.$": "$.commands"}]}
    account.state_machine("week", {"TaskDefinition": "weekly", "Overrides": commands})
    rows = registered(account)
    assert "the state 'Run' of the state machine night" in rows["nightly"]["reason"]
    assert account.newest("nightly", "weekly") == [1, 2]


def test_a_size_holds_what_a_state_of_step_functions_gives_to_a_container(account: Account) -> None:
    account.oversized("nightly")
    overrides = {"ContainerOverrides": [{"Name": "batch", "Memory": 1500}]}
    account.state_machine("night", {"TaskDefinition": "nightly", "Overrides": overrides})
    rows = registered(account)
    assert rows["nightly"]["to"]["memoryMB"] == 2048
    assert rows["control"]["to"]["memoryMB"] == 512


@pytest.mark.parametrize(
    ("of_state", "of_machine", "resource", "is_ended"),
    [
        (900, None, RUN_TASK, True),
        (None, 900, "arn:aws:states:::ecs:runTask.waitForTaskToken", True),
        (3600, None, RUN_TASK, False),
        (900, 900, "arn:aws:states:::ecs:runTask", False),  # it does not wait for the task
    ],
)
def test_a_smaller_size_keeps_a_run_within_the_timeout_of_its_state(
    account: Account,
    of_state: int | None,
    of_machine: int | None,
    resource: str,
    is_ended: bool,  # noqa: FBT001
) -> None:
    """A run of 13 minutes is up to 1.2 times as long with half a vCPU."""
    account.family("nightly")
    slower = {"slowdown_at_vcpu": slowdown(v0_25=(1.8, 2), v0_5=(1.1, 1.2)), "duration_ms": 780_000}
    account.runs("nightly", 25, p95=0.4, metrics=slower)
    state = {**running({"TaskDefinition": "nightly"}, resource), "TimeoutSeconds": of_state}
    made = machine(known_members(state), **known_members({"TimeoutSeconds": of_machine}))
    make_machine(account.aws.client("stepfunctions"), "night", made)
    rows, _ = account.rows()
    if not is_ended:
        assert rows["nightly"]["to"] == {"vcpu": 0.5, "memoryMB": 1024}
        return
    assert rows["nightly"]["action"] == "none"
    assert rows["nightly"]["reason"] == (
        "with 0.5 vCPU, 1 GB, a run would take up to 15m 36s, and the state 'Run' of the state "
        "machine night ends it after 15m 00s"
    )


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("kind", ["schedule", "rule", "universal", "state"])
@pytest.mark.parametrize(("count", "propagates"), [(20, True), (19, True), (20, False)])
def test_no_tag_is_added_that_a_task_has_no_room_for(
    account: Account,
    kind: str,
    count: int,
    propagates: bool,  # noqa: FBT001
) -> None:
    """The definition has 30 tags, and what starts it as many as make 50."""
    account.oversized("control", "nightly")
    of_definition = [{"key": f"tag-{number}", "value": ""} for number in range(30)]
    arn = f"{DEFINITIONS}/nightly:1"
    account.ecs.tag_resource(resourceArn=arn, tags=of_definition)
    own: dict[str, Any] = {
        "Tags": [{"Key": f"own-{number}", "Value": ""} for number in range(count)]
    }
    if propagates:
        own["PropagateTags"] = "TASK_DEFINITION"
    parameters = {"TaskDefinitionArn": f"{DEFINITIONS}/nightly", **own}
    if kind == "universal":
        account.universal_schedule("night", {"TaskDefinition": "nightly", **own})
    elif kind == "state":
        account.state_machine("night", {"TaskDefinition": "nightly", **own})
    elif kind == "rule":
        account.rule("night", "nightly", EcsParameters=parameters)
    else:
        target = {"Arn": CLUSTER, "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/schedules"}
        account.aws.client("scheduler").create_schedule(
            Name="night",
            ScheduleExpression="cron(0 3 * * ? *)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={
                **target,
                "EcsParameters": {
                    **parameters,
                    "Tags": [{f"own-{number}": "1"} for number in range(count)],
                },
            },
        )
    rows, _ = account.rows("--register")
    is_full = count == 20 and propagates
    assert account.newest("control", "nightly") == [2, 1 if is_full else 2]
    assert ("which with one more would be over 50" in rows["nightly"]["reason"]) is is_full


def test_tags_of_aws_itself_do_not_count_to_the_fifty(account: Account) -> None:
    """Nobody can propagate them, and AWS does not count them."""
    account.oversized("nightly")
    of_definition = [{"key": f"tag-{number}", "value": ""} for number in range(30)]
    of_aws = {"key": "aws:servicecatalog:applicationName", "value": "jobs"}
    arn = f"{DEFINITIONS}/nightly:1"
    account.ecs.tag_resource(resourceArn=arn, tags=[*of_definition, of_aws])
    own = [{"Key": f"own-{number}", "Value": ""} for number in range(19)]
    account.rule("night", "nightly", EcsParameters={**propagating("nightly"), "Tags": own})
    rows, _ = account.rows()
    assert rows["nightly"]["action"] == "resize"
    account.ecs.tag_resource(resourceArn=arn, tags=[{"key": "one-more", "value": ""}])
    rows, _ = account.rows()
    assert "which with one more would be over 50" in rows["nightly"]["reason"]


def propagating(definition: str) -> dict[str, str]:
    """The parameters of a target that gives its tasks the definition's tags."""
    arn = f"{DEFINITIONS}/{definition}"
    return {"TaskDefinitionArn": arn, "PropagateTags": "TASK_DEFINITION"}


@pytest.mark.parametrize("kind", ["", "rule", "schedule", "universal", "off"])
def test_a_run_of_a_state_machine_does_not_last_until_the_next_is_due(
    account: Account, kind: str
) -> None:
    """A run of 13 minutes is up to 1.2 times as long with half a vCPU, and the next execution is
    due 15 minutes later: no smaller size is taken. The controls have no due times.
    """
    account.family("nightly")
    slower = {"slowdown_at_vcpu": slowdown(v0_25=(1.8, 2), v0_5=(1.1, 1.2)), "duration_ms": 780_000}
    account.runs("nightly", 25, p95=0.4, metrics=slower)
    account.state_machine("night", {"TaskDefinition": "nightly"})
    arn = machine_arn(account.aws.client("stepfunctions"), "night")
    often = "cron(0/15 * * * ? *)"
    role = f"arn:aws:iam::{ACCOUNT}:role/start"
    target = {"Arn": arn, "RoleArn": role}
    if kind == "universal":
        target["Arn"] = "arn:aws:scheduler:::aws-sdk:sfn:startExecution"
        target["Input"] = json.dumps({"StateMachineArn": f"{arn}:live"})
    if kind == "rule":
        events = account.aws.client("events")
        events.put_rule(Name="often", ScheduleExpression=often)
        events.put_targets(Rule="often", Targets=[{"Id": "1", **target}])
    elif kind:
        account.aws.client("scheduler").create_schedule(
            Name="often",
            ScheduleExpression=often,
            FlexibleTimeWindow={"Mode": "OFF"},
            Target=target,
            State="DISABLED" if kind == "off" else "ENABLED",
        )
    rows, _ = account.rows()
    if kind in ("", "off"):
        assert rows["nightly"]["to"] == {"vcpu": 0.5, "memoryMB": 1024}
    else:
        assert "and the next one is due 15m 00s after its start" in rows["nightly"]["reason"]


def starts(account: Account, name: str, target: str, **more: Any) -> None:
    """A schedule that starts a state machine each night."""
    account.aws.client("scheduler").create_schedule(
        Name=name,
        ScheduleExpression="cron(0 3 * * ? *)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": target, "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/start", **more},
    )


@pytest.mark.slow
def test_a_family_that_schedules_start_by_state_machines_is_scheduled(account: Account) -> None:
    """Directly, by a version, by a request, by another machine, by an event. The controls are the
    families of a machine that nothing starts, and of one that only such a machine executes.
    """
    client = account.aws.client("stepfunctions")
    machines = ("direct", "numbered", "asked", "inner", "event", "nobody", "within", "elsewhere")
    account.oversized("plain", *machines)
    account.schedule("plain", "plain:1")
    for name in machines:
        cluster = "others" if name == "elsewhere" else "jobs"
        account.state_machine(name, {"TaskDefinition": name, "Cluster": cluster})
    arns = {name: machine_arn(client, name) for name in machines}
    make_machine(client, "outer", machine(executing(arns["inner"])))
    make_machine(client, "idle", machine(executing(arns["within"])))
    starts(account, "direct", arns["direct"])
    starts(account, "elsewhere", arns["elsewhere"])
    publish(client, "numbered", "live")
    starts(account, "numbered", f"{arns['numbered']}:1")
    asked = json.dumps({"StateMachineArn": arns["asked"]})
    starts(account, "asked", "arn:aws:scheduler:::aws-sdk:sfn:startExecution", Input=asked)
    starts(account, "outer", machine_arn(client, "outer"))
    events = account.aws.client("events")
    events.put_rule(Name="event", EventPattern='{"source": ["jobs"]}')
    role = f"arn:aws:iam::{ACCOUNT}:role/start"
    events.put_targets(Rule="event", Targets=[{"Id": "1", "Arn": arns["event"], "RoleArn": role}])
    started = {"plain", "direct", "numbered", "asked", "inner", "event"}
    rows, _ = account.rows("--scheduled")
    assert set(rows) == started | {"elsewhere"}
    rows, _ = account.rows("--scheduled", "--cluster", "jobs")
    assert set(rows) == started
    with AwsProxy(account.aws.url) as proxy:
        account.url = proxy.url
        proxy.refused = {"GET /schedules/asked"}
        done = account.resize("--scheduled")
    assert done.returncode == 1
    assert "The schedule asked could not be read: AWS refused" in done.stderr


@pytest.mark.parametrize("kind", ["", "inner", "outer", "limit", "limit of the machine"])
def test_a_machine_that_another_one_executes_has_its_due_times_and_timeouts(
    account: Account, kind: str
) -> None:
    """Over two machines. The controls are due once a day, or do not wait for the execution."""
    account.family("nightly")
    slower = {"slowdown_at_vcpu": slowdown(v0_25=(1.8, 2), v0_5=(1.1, 1.2)), "duration_ms": 780_000}
    account.runs("nightly", 25, p95=0.4, metrics=slower)
    account.state_machine("inner", {"TaskDefinition": "nightly"})
    client = account.aws.client("stepfunctions")
    limits: dict[str, Any] = {"TimeoutSeconds": 900} if kind == "limit" else {}
    inner_arn = machine_arn(client, "inner")
    make_machine(client, "middle", machine(executing(inner_arn, **limits)))
    limits = {"TimeoutSeconds": 900} if kind == "limit of the machine" else {}
    middle_arn = machine_arn(client, "middle")
    make_machine(client, "outer", machine(executing(f"{middle_arn}:live"), **limits))
    not_waiting = executing(inner_arn, "arn:aws:states:::states:startExecution", TimeoutSeconds=60)
    make_machine(client, "control", machine(not_waiting, TimeoutSeconds=60))
    for name in ("inner", "outer"):
        account.aws.client("scheduler").create_schedule(
            Name=name,
            ScheduleExpression="cron(0/15 * * * ? *)" if name == kind else "cron(0 3 * * ? *)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={
                "Arn": machine_arn(client, name),
                "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/start",
            },
        )
    rows, _ = account.rows("--register")
    reason = rows["nightly"]["reason"]
    if kind == "":
        assert rows["nightly"]["to"] == {"vcpu": 0.5, "memoryMB": 1024}
        assert account.newest("nightly") == [2]
        return
    assert account.newest("nightly") == [1]
    if kind.startswith("limit"):
        name = "middle" if kind == "limit" else "outer"
        assert f"the state 'Run' of the state machine {name} ends it after 15m 00s" in reason
    else:
        assert "and the next one is due 15m 00s after its start" in reason


@pytest.mark.slow
def test_a_machines_schedule_that_somebody_changes_after_the_plan_counts(
    account: Account, proxy: AwsProxy
) -> None:
    account.family("nightly")
    slower = {"slowdown_at_vcpu": slowdown(v0_25=(1.8, 2), v0_5=(1.1, 1.2)), "duration_ms": 780_000}
    account.runs("nightly", 25, p95=0.4, metrics=slower)
    account.state_machine("night", {"TaskDefinition": "nightly"})
    scheduler = account.aws.client("scheduler")
    settings: dict[str, Any] = {
        "Name": "often",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": machine_arn(account.aws.client("stepfunctions"), "night"),
            "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/start",
        },
    }
    scheduler.create_schedule(ScheduleExpression="cron(0 3 * * ? *)", **settings)

    def change(operation: str, _body: bytes) -> None:
        """At the beginning of the act, which lists the buses again."""
        if operation == "ListEventBuses" and proxy.operations.count(operation) == 2:
            scheduler.update_schedule(ScheduleExpression="cron(0/15 * * * ? *)", **settings)

    assert account.rows()[0]["nightly"]["to"]["vcpu"] == 0.5
    proxy.operations.clear()
    proxy.before = change
    done = account.resize("--register")
    assert "and the next one is due 15m 00s after its start" in done.stdout
    assert account.newest("nightly") == [1]


def test_the_version_that_an_alias_starts_counts_and_no_older_one(account: Account) -> None:
    """Whatever the machine was edited to since then."""
    account.oversized("nightly")
    request = {"TaskDefinition": "nightly", "Overrides": {"Memory": "8 GB"}}
    account.state_machine("night", request)
    client = account.aws.client("stepfunctions")
    publish(client, "night", "live")
    change_machine(client, "night", machine({"Type": "Pass", "End": True}))
    rows = registered(account)
    state = "the state 'Run' of the state machine night, version 1"
    assert state in rows["nightly"]["reason"]
    assert account.newest("nightly") == [1]
    publish(client, "night", "live")
    assert account.rows("--register")[0]["nightly"]["to"]["memoryMB"] == 512


@pytest.mark.parametrize("kind", ["", "rule", "schedule"])
def test_a_version_that_is_started_by_its_number_counts(account: Account, kind: str) -> None:
    """The control is a version that nothing starts."""
    account.oversized("nightly")
    account.state_machine("night", {"TaskDefinition": "nightly", "Overrides": {"Memory": "8 GB"}})
    client = account.aws.client("stepfunctions")
    arn = machine_arn(client, "night")
    publish(client, "night", "live")
    client.delete_state_machine_alias(stateMachineAliasArn=f"{arn}:live")
    change_machine(client, "night", machine({"Type": "Pass", "End": True}))
    target = {"Arn": f"{arn}:1", "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/start"}
    if kind == "rule":
        events = account.aws.client("events")
        events.put_rule(Name="night", ScheduleExpression="rate(1 day)")
        events.put_targets(Rule="night", Targets=[{"Id": "1", **target}])
    elif kind:
        account.aws.client("scheduler").create_schedule(
            Name="night",
            ScheduleExpression="rate(1 day)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target=target,
        )
    rows = registered(account)
    assert account.newest("nightly") == [1 if kind else 2]
    assert ("the state machine night, version 1" in rows["nightly"]["reason"]) is bool(kind)


@pytest.mark.slow
def test_state_machines_that_may_not_be_read_are_unknown_and_in_nobodys_way(
    account: Account, proxy: AwsProxy
) -> None:
    account.state_machine("night", {"TaskDefinition": "control"})
    for refused in ("ListStateMachines", "DescribeStateMachine", "ListStateMachineAliases"):
        proxy.refused = {refused}
        done = account.resize()
        assert done.returncode == 0
        what = "aliases of state machines" if "Alias" in refused else "state machines of Step"
        assert f"It is unknown what {what}" in done.stderr
        read = ("ListStateMachines", "DescribeStateMachine")
        if "Alias" in refused:
            read = ("ListStateMachineAliases", "DescribeStateMachineAlias")
        assert f"allow states:{read[0]} and states:{read[1]}." in done.stderr
    registered(account)


def test_the_revision_in_a_request_of_run_task_is_named_and_not_moved(account: Account) -> None:
    account.oversized("weekly")
    request = {"TaskDefinition": "weekly:1", "Cluster": "jobs"}
    account.universal_schedule("week", request)
    done = account.resize("--register", "--update-schedules")
    assert "The schedule week is pinned to weekly:1, by the input" in done.stdout
    schedule = account.aws.client("scheduler").get_schedule(Name="week")
    assert json.loads(schedule["Target"]["Input"]) == request
    assert account.newest("control", "weekly") == [2, 2]


@pytest.mark.parametrize("text", ["not JSON", "[]", '{"TaskDefinition": 7}'])
def test_a_request_of_run_task_that_cannot_be_read_is_not_in_the_way(
    account: Account, text: str
) -> None:
    account.universal_schedule("odd", text)
    registered(account)


def test_a_transformer_that_may_override_a_size_is_named(
    account: Account,
) -> None:
    """A transformer that may override a size is named and another is not in the way."""
    account.oversized("nightly", "weekly")
    overrides = '{"containerOverrides": [{"name": "batch", %s: <size>}]}'
    for name, field in (("nightly", '"memory"'), ("weekly", '"command"')):
        transformer = {
            "InputPathsMap": {"size": "$.detail.size"},
            "InputTemplate": overrides % field,
        }
        account.rule(name, name, bus=f"{name}-bus", InputTransformer=transformer)
    rows = registered(account)
    assert "the rule nightly-bus/nightly" in rows["nightly"]["reason"]
    assert account.newest("nightly", "weekly") == [1, 2]


def test_without_the_right_to_read_schedules_nothing_is_registered(
    account: Account, proxy: AwsProxy
) -> None:
    proxy.refused = {"GET /schedules"}
    done = account.resize("--register")
    assert done.returncode == 1
    assert "scheduler:ListSchedules" in done.stderr
    proxy.refused = set()
    registered(account)


@pytest.mark.parametrize(
    ("operation", "right"),
    [
        ("ListTaskDefinitionFamilies", "ecs:ListTaskDefinitionFamilies"),
        ("DescribeTaskDefinition", "ecs:DescribeTaskDefinition"),
        ("ListClusters", "ecs:ListClusters"),
        ("ListServices", "ecs:ListServices"),
        ("DescribeServices", "ecs:DescribeServices"),
        ("ListEventBuses", "events:ListEventBuses"),
        ("ListRules", "events:ListRules"),
        ("ListTargetsByRule", "events:ListTargetsByRule"),
        ("GetResources", "tag:GetResources"),
        ("RegisterTaskDefinition", "ecs:RegisterTaskDefinition"),
    ],
)
def test_each_refused_call_is_named_and_registers_nothing(
    account: Account, proxy: AwsProxy, operation: str, right: str
) -> None:
    account.rule("night", "control:1")
    account.family("api")
    account.ecs.create_service(
        cluster="jobs", serviceName="api", taskDefinition="api", desiredCount=0
    )
    proxy.refused = {operation}
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 1
    assert right in done.stderr
    assert account.newest("control") == [1]
    assert account.started_by_rule("night") == "control:1"
    proxy.refused = set()
    registered(account)


def test_a_schedule_that_may_not_be_moved_is_named_and_the_revision_stays(
    account: Account, proxy: AwsProxy
) -> None:
    account.rule("night", "control:1")
    proxy.refused = {"PutTargets"}
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 1
    assert "events:PutTargets" in done.stderr
    assert account.newest("control") == [2]


# Owners


def test_a_stack_that_tagged_nothing_owns_its_definition(account: Account) -> None:
    account.oversized("nightly")
    account.aws.own(owned(f"{DEFINITIONS}/nightly:1", DEFINITION))
    rows = registered(account)
    assert rows["nightly"]["action"] == "none"
    assert rows["nightly"]["reason"].startswith("the stack jobs of CloudFormation owns it")
    assert rows["nightly"]["to"] == {"vcpu": 0.25, "memoryMB": 512}


def test_a_stack_owns_what_was_registered_behind_its_back(account: Account) -> None:
    account.family("nightly")
    tags = [{"key": "task-profiler:resized-from", "value": "1/1024/2048"}]
    account.family("nightly", (0.5, 2048), tags=tags)
    account.runs("nightly", 20)
    account.runs("nightly", 25, revision=2, size=(0.5, 2048))
    account.aws.own(owned(f"{DEFINITIONS}/nightly:1", DEFINITION))
    rows = registered(account)
    assert rows["nightly"]["reason"].startswith("the stack jobs of CloudFormation owns it")


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_stack_owns_what_has_many_revisions_of_ours_on_top(
    account: Account,
    is_ours: bool,  # noqa: FBT001
) -> None:
    """A call reads three of them; a deployment by somebody else in between ends the stack's."""
    account.family("nightly", containerDefinitions=[BATCH])
    image = "etl:26" if is_ours else "etl:27"
    for number in range(6):
        monitor = {**MONITOR, "image": f"team/task-profiler:{number}"}
        batch = {**BATCH, "image": image if number == 5 else "etl:26"}
        account.family("nightly", containerDefinitions=[batch, monitor])
    account.runs("nightly", 25, revision=7)
    account.aws.own(owned(f"{DEFINITIONS}/nightly:1", DEFINITION))
    rows = registered(account)
    said = "the stack jobs of CloudFormation owns it"
    assert rows["nightly"]["reason"].startswith(said) is is_ours
    assert account.newest("nightly") == [7 if is_ours else 8]


def test_a_resource_that_was_deleted_from_its_stack_is_free(account: Account) -> None:
    account.aws.own(owned(f"{DEFINITIONS}/control:1", DEFINITION, resource_status="DELETE_SKIPPED"))
    registered(account)


def test_a_definition_beyond_the_first_hundred_resources_of_a_stack_is_left_alone(
    account: Account,
) -> None:
    account.oversized("nightly")
    for number in range(100):
        account.aws.own(owned(f"topic-{number}", "AWS::SNS::Topic"))
    account.aws.own(owned(f"{DEFINITIONS}/nightly:1", DEFINITION))
    rows = registered(account)
    assert rows["nightly"]["reason"].startswith("the stack jobs of CloudFormation owns it")


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_without_the_right_to_ask_for_owners_nothing_is_registered(
    account: Account, proxy: AwsProxy, words: tuple[str, ...]
) -> None:
    """Without the right to ask for owners nothing is registered and the right is named."""
    proxy.refused = {"DescribeStackResources"}
    done = account.resize("--register", *words)
    assert done.returncode == 1
    assert "allow cloudformation:DescribeStackResources" in done.stderr
    assert "RegisterTaskDefinition" not in proxy.operations
    proxy.refused = set()
    registered(account)


def test_a_revert_of_ours_needs_no_owner(account: Account, proxy: AwsProxy) -> None:
    registered(account)
    account.runs("control", 1, revision=2, size=NEW, **KILLED)
    proxy.refused = {"DescribeStackResources"}
    assert account.resize("--register").returncode == 0
    assert account.described("control")[0]["memory"] == "2048"


def test_schedules_and_rules_of_a_stack_are_not_moved(account: Account) -> None:
    account.schedule("free", "control:1")
    account.schedule("stacks", "control:1")
    account.schedule("bucket", "control:1")
    account.rule("stacks-rule", "control:1")
    account.rule("stacks-rule", "control:1", bus="other")
    account.rule("free-rule", "control:1", bus="third")
    account.aws.own(
        owned("stacks", SCHEDULE),
        owned("bucket", "AWS::S3::Bucket"),
        owned("other|stacks-rule", RULE),
    )
    done = account.resize("--register", "--update-schedules")
    assert account.started_by_schedule("free") == "control:2"
    assert account.started_by_schedule("stacks") == "control:1"
    assert account.started_by_schedule("bucket") == "control:1"
    assert account.started_by_rule("stacks-rule") == "control:2"
    assert account.started_by_rule("stacks-rule", "other") == "control:1"
    assert account.started_by_rule("free-rule", "third") == "control:2"
    skipped = (
        "schedule stacks skipped: the stack jobs of CloudFormation owns it: set control:2 there"
    )
    assert skipped in done.stdout
    assert "schedule bucket skipped: CloudFormation answers only for the AWS::S3" in done.stdout


def test_a_schedule_whose_start_date_has_passed_moves_without_it(account: Account) -> None:
    account.schedule("night", "control:1")
    begin_schedule_long_ago("night")
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 0, done.stderr
    assert "moved schedule night to control:2, without its start date" in done.stdout
    assert account.started_by_schedule("night") == "control:2"
    moved = account.aws.client("scheduler").get_schedule(Name="night")
    assert "StartDate" not in moved
    assert moved["ScheduleExpression"] == "cron(0 3 * * ? *)"


def test_a_rate_whose_start_date_has_passed_is_named(account: Account) -> None:
    account.schedule("often", "control:1", expression="rate(7 days)", State="DISABLED")
    begin_schedule_long_ago("often")
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 1
    assert "its rate begins anew: update it by hand" in done.stderr
    assert account.newest("control") == [2]
    assert account.started_by_schedule("often") == "control:1"


@pytest.mark.parametrize("command", ["resize", "add-monitor"])
def test_a_rate_that_an_update_may_start_again_is_named_and_not_updated(
    account: Account, proxy: AwsProxy, command: str
) -> None:
    """One that is disabled, or begins later, starts nothing then. An update of a rule's target is
    none of its expression.
    """
    if command == "add-monitor":
        account.family("control", containerDefinitions=[BATCH])
    pin = f"control:{account.newest('control')[0]}"
    later = datetime.now(UTC) + timedelta(days=9)
    account.schedule("often", pin, expression="rate(7 days)")
    account.schedule("off", pin, expression="rate(7 days)", State="DISABLED")
    account.schedule("later", pin, expression="rate(7 days)", StartDate=later)
    account.rule("daily", pin)
    words: tuple[str, ...] = ("resize", "control", "--from", str(account.file))
    if command == "add-monitor":
        words = ("add-monitor", "control", "--image", "team/task-profiler:1")
    done = account.command("taskdef", *words, "--register", "--update-schedules")
    assert done.returncode == 0, done.stderr
    said = (
        f"The schedule often is pinned to {pin}, and AWS does not document whether an update "
        "starts its rate again, at once: set the revision there by hand."
    )
    assert said in " ".join(done.stdout.split())
    (new,) = {account.started_by_schedule(name) for name in ("off", "later")}
    assert new == f"control:{account.newest('control')[0]}" != pin
    assert account.started_by_rule("daily") == new
    assert account.started_by_schedule("often") == pin
    assert "PUT /schedules/often" not in proxy.operations


def test_a_schedule_that_is_over_is_neither_named_nor_updated(
    account: Account, proxy: AwsProxy
) -> None:
    """AWS does not say whether an update of it starts its task again. One that is only disabled
    may be enabled again.
    """
    account.oversized("nightly")
    once = "at(2026-02-01T00:00:00)"
    too_large = {"containerOverrides": [{"name": "batch", "memory": 1900}]}
    account.schedule("past", "nightly:1", too_large, once)
    account.schedule("past-off", "nightly:1", expression=once, State="DISABLED")
    account.schedule("ended", "nightly:1", EndDate=datetime(2026, 2, 1, tzinfo=UTC))
    account.schedule("later", "nightly:1", expression="at(2031-01-01T00:00:00)")
    account.schedule("off", "nightly:1", State="DISABLED")
    for name in ("past", "past-off", "ended"):
        create_schedule_long_ago(name, "us-east-1")
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 0, done.stderr
    assert "2 schedules moved" in done.stderr
    assert "past" not in done.stdout
    assert "ended" not in done.stdout
    over, moved = ("past", "past-off", "ended"), ("later", "off")
    assert [account.started_by_schedule(name) for name in over] == ["nightly:1"] * 3
    assert [account.started_by_schedule(name) for name in moved] == ["nightly:2"] * 2
    updated = {name for name in proxy.operations if name.startswith("PUT /schedules/")}
    assert updated == {"PUT /schedules/later", "PUT /schedules/off"}


def test_schedules_of_one_name_in_two_groups_are_two(account: Account) -> None:
    account.oversized("nightly")
    account.aws.client("scheduler").create_schedule_group(Name="team")
    account.schedule("night", "control:1", GroupName="team")
    account.schedule("night", "nightly:1")
    registered(account)
    assert account.started_by_schedule("night", "team") == "control:2"
    assert account.started_by_schedule("night") == "nightly:2"


def test_a_service_with_an_external_controller_runs_the_family_of_its_task_set(
    account: Account,
) -> None:
    account.oversized("api")
    account.ecs.create_service(
        cluster="jobs",
        serviceName="api",
        desiredCount=0,
        deploymentController={"type": "EXTERNAL"},
    )
    account.ecs.create_task_set(cluster="jobs", service="api", taskDefinition="api")
    rows = registered(account)
    assert rows["api"]["reason"] == "a service runs it"


# Schedules are moved once


def test_a_schedule_put_back_moves_again_only_if_its_family_is_named(
    account: Account,
) -> None:
    """A schedule that somebody put back is left and moved again if its family is named."""
    account.schedule("night", "control:1")
    registered(account)
    assert account.started_by_schedule("night") == "control:2"
    account.aws.client("scheduler").delete_schedule(Name="night")
    account.schedule("night", "control:1")
    plan = account.resize("--register", "--update-schedules")
    assert account.started_by_schedule("night") == "control:1"
    assert "task-profiler taskdef resize control" in " ".join(plan.stdout.split())
    assert account.resize("control", "--register", "--update-schedules").returncode == 0
    assert account.started_by_schedule("night") == "control:2"


def test_a_schedule_moves_only_from_an_equal_older_revision(
    account: Account,
) -> None:
    """A schedule moves from an equal older revision and not from one of another size."""
    account.family("nightly", (2.0, 4096))
    account.family("nightly")
    account.family("nightly")
    account.runs("nightly", 25, revision=3)
    account.schedule("chosen", "nightly:1")
    account.schedule("older", "nightly:2")
    registered(account)
    assert account.started_by_schedule("older") == "nightly:4"
    assert account.started_by_schedule("chosen") == "nightly:1"


# Few calls


@pytest.mark.slow
def test_a_call_reads_three_revisions_of_a_family_at_most(
    account: Account, proxy: AwsProxy
) -> None:
    families = [f"family-{number}" for number in range(4)]
    for name in families:
        for _ in range(30):
            account.family(name)
        account.runs(name, 25, revision=30)
        account.schedule(name, f"{name}:7")
    account.ecs.deregister_task_definition(taskDefinition="family-0:29")
    proxy.operations.clear()
    registered(account)
    assert proxy.operations.count("DescribeTaskDefinition") <= 3 * 5
    assert account.newest(*families) == [31] * 4


def test_a_family_of_many_revisions_takes_no_more_calls(account: Account, proxy: AwsProxy) -> None:
    """ECS lists 100 of them a page, and a family can have a million."""
    proxy._page_size = 2
    counts = []
    for number in (4, 40):
        while account.newest("control") < [number]:
            account.family("control")
        account.ecs.deregister_task_definition(taskDefinition=f"control:{number - 2}")
        account.ecs.deregister_task_definition(taskDefinition=f"control:{number // 2}")
        proxy.operations.clear()
        done = account.resize()
        assert done.returncode == 0, done.stderr
        counts.append(Counter(proxy.operations))
    assert counts[0] == counts[1]


def test_throttling_is_waited_out(account: Account) -> None:
    account.oversized("nightly", "weekly")
    with AwsProxy(account.aws.url, throttled_share=3) as proxy:
        account.url = proxy.url
        registered(account)
        assert proxy.throttled
    assert account.newest("nightly", "weekly") == [2, 2]


# Tags that somebody wrote


@pytest.mark.parametrize(
    ("tag", "reason"),
    [
        ("garbage", "no size before is known"),
        ("1/16384/122880", "says 16 vCPU, 120 GB, but forged:1 has 1 vCPU, 2 GB"),
        ("77/300/512", "which Fargate does not have"),
        ("1/" + "9" * 200 + "/512", "so somebody changed the tag"),
        (None, "The revision forged:2 has no tag task-profiler:resized-from"),
    ],
)
def test_a_tag_that_somebody_wrote_puts_nothing_back(
    account: Account, tag: str | None, reason: str
) -> None:
    account.family("forged")
    tags = {} if tag is None else {"tags": [{"key": "task-profiler:resized-from", "value": tag}]}
    account.family("forged", NEW, containerDefinitions=[{"name": "batch", "image": "x"}], **tags)
    account.runs("forged", 20)
    account.runs("forged", 1, revision=2, size=NEW, **KILLED)
    asked = account.resize("forged", "--revert", "--register")
    assert reason in " ".join(asked.stdout.split())
    registered(account)
    after, _ = account.described("forged")
    assert after["cpu"] in ("256", "512", "1024")
    assert int(after["memory"]) <= 2048


def test_a_family_is_put_back_on_request_without_any_run(account: Account) -> None:
    registered(account)
    account.file.write_bytes(b"")
    plan = account.resize("control", "--revert")
    assert "revert" in plan.stdout
    assert account.newest("control") == [2]
    assert account.resize("control", "--revert", "--register").returncode == 0
    after, tags = account.described("control")
    assert after["cpu"] == "1024"
    assert after["memory"] == "2048"
    assert after["containerDefinitions"][0]["memory"] == 1900
    assert tags == {"task-profiler:reverted-from": "2/256/512"}


def test_a_pattern_moves_no_target_of_a_family_that_is_put_back_already(account: Account) -> None:
    """Somebody may have pinned it for a reason. The family's name moves it."""
    registered(account)
    account.file.write_bytes(b"")
    assert account.resize("control", "--revert", "--register").returncode == 0
    account.schedule("by-hand", "control:2")
    moving = ("--revert", "--register", "--update-schedules")
    by_pattern = account.resize("contr*", *moving)
    assert by_pattern.returncode == 0
    assert account.started_by_schedule("by-hand") == "control:2"
    assert "name the family to move it" in " ".join(by_pattern.stdout.split())
    assert account.resize("control", *moving).returncode == 0
    assert account.started_by_schedule("by-hand") == "control:3"


# Who presses


def test_more_than_five_registrations_need_a_word(account: Account) -> None:
    names = [f"family-{number}" for number in range(6)]
    account.oversized(*names)
    refused = account.resize("--register")
    assert refused.returncode == 2
    assert "7 families would be registered" in refused.stderr
    assert account.newest("control", *names) == [1] * 7
    assert account.resize("--register", "--yes").returncode == 0
    assert account.newest("control", *names) == [2] * 7


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("n", 1),
        ("", 1),
        (EOFError(), 1),
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        (signal.SIGHUP, 129),
    ],
)
def test_a_person_at_a_terminal_is_asked(
    account: Account, monkeypatch: pytest.MonkeyPatch, answer: object, code: int
) -> None:
    """A no, the end of the input and each signal end it with their own exit codes."""
    account.oversized(*(f"family-{number}" for number in range(6)))
    questions: list[str] = []

    def answered(question: str) -> str:
        questions.append(question)
        if isinstance(answer, EOFError):
            raise answer
        if isinstance(answer, signal.Signals):
            os.kill(os.getpid(), answer)
        return str(answer)

    monkeypatch.setattr("profiler.cli.resize_command._is_at_terminal", lambda: True)
    monkeypatch.setattr(click.termui, "visible_prompt_func", answered)
    done = account.resize("--register")
    assert done.returncode == code
    no = "Nothing was registered, because the answer was no."
    assert (no in done.stderr) is isinstance(answer, str)
    ended = "The command was ended before it was done."
    assert (ended in done.stderr) is isinstance(answer, EOFError)
    assert len(questions) == 1
    assert account.newest("control") == [1]


@pytest.mark.parametrize(
    "place", [{"account_id": "210987654321"}, {"region": "us-gov-west-1"}, {"region": "us-east-1"}]
)
def test_runs_of_another_account_or_region_judge_nothing_and_are_named(
    account: Account, place: dict[str, str]
) -> None:
    """Such as a file of one account with the credentials of another one."""
    account.family("nightly")
    given: dict[str, Any] = {"account_id": ACCOUNT, "region": "us-east-1"} | place
    made = [
        report(number, family="nightly", revision="1", task_id=str(number), size=OLD, **given)
        for number in range(25)
    ]
    account.file.write_bytes(lines(lately(made, time.time_ns())))
    rows, _ = account.rows("--register", "nightly")
    if given == {"account_id": ACCOUNT, "region": "us-east-1"}:  # an honest control
        assert account.newest("nightly") == [2]
        return
    assert account.newest("nightly") == [1]
    assert rows["nightly"]["action"] == "none"
    assert rows["nightly"]["reason"] == (
        f"its runs are of account {given['account_id']} in {given['region']}, not of account "
        f"{ACCOUNT} in us-east-1: check --profile and --region"
    )


def test_an_interrupted_call_prints_the_total_of_what_it_registered(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.oversized("nightly")
    register = TaskDefinitions.register

    def interrupted(self: TaskDefinitions, definition: dict[str, object]) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return register(self, definition)

    monkeypatch.setattr(TaskDefinitions, "register", interrupted)
    done = account.resize("--register", "--json")
    assert done.returncode == 130
    assert json.loads(done.stdout.splitlines()[-1])["changes"] == 1


def test_the_first_are_those_with_the_largest_savings(account: Account) -> None:
    account.family("large", (4.0, 8192))
    account.runs("large", 25, size=(4.0, 8192))
    account.oversized("small")
    rows, total = account.rows("--register", "--first", "1")
    assert len(rows) == 3
    assert total["changes"] == 1
    assert total["savingUsdPerMonth"] == rows["large"]["savingUsdPerMonth"]
    assert account.newest("large", "small", "control") == [2, 1, 1]


@pytest.mark.slow
def test_the_first_count_everything_and_name_the_families_that_need_more(account: Account) -> None:
    names = [f"killed-{number}" for number in range(6)]
    for name in names:
        account.family(name)
        account.runs(name, 3)
        account.runs(name, 1, **KILLED)
    done = account.resize("--register", "--first", "1")
    assert done.returncode == 0, done.stderr
    assert account.newest("control", *names) == [2, *([1] * 6)]
    assert "task-profiler: 1 registered." in done.stderr
    assert "--first 1 leaves out 6 families that need more: killed-0, killed-1," in done.stderr
    done = account.resize("--register", "--first", "3")
    assert sum(account.newest(*names)) == 6 + 3
    assert "--first 3 leaves out 3 families that need more: killed-3," in done.stderr


def test_the_total_counts_what_was_registered_and_a_refusal_is_a_sentence(
    account: Account, proxy: AwsProxy
) -> None:
    account.oversized("denied")
    proxy.denied = {"denied"}
    done = account.resize("--register", "--json")
    total = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 1
    assert total["changes"] == 1
    assert total["savingUsdPerMonth"] == 0.19
    assert "ecs:RegisterTaskDefinition" in done.stderr


@pytest.mark.parametrize("act", [("--register",), ("--apply", "control.json")])
def test_container_insights_alone_registers_and_writes_nothing(
    account: Account, act: tuple[str, ...]
) -> None:
    environment = account.aws.environment()
    refused = run_here(environment, "taskdef", "resize", "--from", "insights:jobs", *act)
    assert refused.returncode == 2
    assert f"{act[0]} needs runs with peaks and ends" in refused.stderr
    assert account.newest("control") == [1]


def test_log_groups_are_read_for_the_days_alone(account: Account, proxy: AwsProxy) -> None:
    account.put_reports("/ecs/jobs")
    environment = account.aws.environment() | {"AWS_ENDPOINT_URL": proxy.url}
    words = ("taskdef", "resize", "--from", "logs:/ecs/jobs", "--days", "40")
    done = run_here(environment, *words)
    assert done.returncode == 0
    assert "--since" not in done.stderr
    reads = [json.loads(body) for name, body in proxy.bodies if name == "FilterLogEvents"]
    assert reads
    of_groups = [read for read in reads if read["logGroupName"] != STOPPED_GROUP]
    assert {read["endTime"] > read["startTime"] for read in of_groups} == {True}


# Whose lines: every family may write into the log group of another one


def test_reports_of_another_family_from_tasks_with_another_prefix_change_nothing(
    account: Account, proxy: AwsProxy
) -> None:
    account.family("victim")
    account.runs("victim", 25, peak_mb=1800)
    account.put_reports(LOG_GROUP)
    account.runs("victim", 25)
    account.put_reports(LOG_GROUP, prefix="attacker")
    rows = account.resize_by_logs("--memory-margin", "20")
    assert rows["victim"]["action"] == "none"
    assert rows["victim"]["runs"] == 25
    assert rows["victim"]["evidence"]["unconfirmed"] == 25
    assert account.newest("control", "victim") == [2, 1]
    assert proxy.operations.count("DescribeTaskDefinition") <= 3 * 2


def test_reports_alone_that_are_not_where_the_definition_sends_them_are_counted(
    account: Account,
) -> None:
    account.put_reports(LOG_GROUP)
    account.oversized("victim")
    account.put_reports("/ecs/web")
    done = account.resize("--from", "logs:*")
    assert "25 runs do not count" in done.stdout
    rows = account.resize_by_logs()
    assert rows["victim"]["action"] == "none"
    assert account.newest("control", "victim") == [2, 1]


@pytest.mark.slow
def test_families_with_prefixes_of_their_own_in_one_group_are_resized(account: Account) -> None:
    account.put_reports(LOG_GROUP)
    for name in ("team-a", "team-b"):
        account.moved_logs(name, LOG_GROUP, prefix=name)
        account.runs(name, 25)
        account.put_reports(LOG_GROUP, prefix=name)
    rows = account.resize_by_logs()
    assert {row["runs"] for row in rows.values()} == {25}
    assert account.newest("control", "team-a", "team-b") == [2, 2, 2]


def test_runs_in_the_group_of_an_older_revision_do_not_count(account: Account) -> None:
    account.put_reports(LOG_GROUP)
    account.oversized("moved")
    account.put_reports(LOG_GROUP)
    account.moved_logs("moved", "/ecs/moved")
    rows = account.resize_by_logs()
    assert rows["moved"]["evidence"]["unconfirmed"] == 25
    assert account.newest("control", "moved") == [2, 2]


def test_runs_in_a_group_of_the_same_name_in_another_region_do_not_count(
    account: Account,
) -> None:
    account.put_reports(LOG_GROUP)
    batch, monitor = deepcopy(BATCH), deepcopy(MONITOR)
    for container in (batch, monitor):
        container["logConfiguration"]["options"]["awslogs-region"] = "us-west-2"
    account.family("west", containerDefinitions=[batch, monitor])
    account.runs("west", 25)
    account.put_reports(LOG_GROUP)
    rows = account.resize_by_logs()
    assert rows["west"]["evidence"]["unconfirmed"] == 25
    assert account.newest("control", "west") == [2, 1]


def test_a_template_that_computes_its_log_group_is_sized_by_the_runs_of_any_group(
    account: Account, tmp_path: Path
) -> None:
    account.put_reports("/ecs/deployed")
    template = tmp_path / "jobs.yaml"
    template.write_text(TEMPLATE)
    done = account.command("taskdef", "resize", "--from", "logs:*", "--apply", str(template))
    assert done.returncode == 0, done.stderr
    assert f"{template}:7: cpu is 1024, set 256." in done.stdout
    assert f"{template}:8: memory is 2048, set 512." in done.stdout


def test_a_batch_with_another_driver_has_its_reports_in_the_monitors_stream(
    account: Account,
) -> None:
    account.put_reports(LOG_GROUP)
    fluent = {**BATCH, "logConfiguration": {"logDriver": "awsfirelens", "options": {}}}
    account.family("nightly", containerDefinitions=[fluent, MONITOR])
    account.runs("nightly", 25)
    account.put_reports(LOG_GROUP)
    account.resize_by_logs()
    assert account.newest("control", "nightly") == [2, 2]


# Two at once


def test_a_definition_that_changes_between_plan_and_registration_is_the_base(
    account: Account, proxy: AwsProxy
) -> None:
    deployed: list[str] = []

    def deploy(operation: str, _body: bytes) -> None:
        if operation == "DescribeStackResources" and not deployed:
            deployed.append(operation)
            image = {"name": "batch", "image": "etl:27", "memory": 1900}
            account.family("control", containerDefinitions=[image])

    proxy.before = deploy
    assert account.resize("--register").returncode == 0
    after, _ = account.described("control")
    assert after["containerDefinitions"][0]["image"] == "etl:27"


def test_a_definition_that_is_registered_at_the_same_moment_comes_back(
    account: Account, proxy: AwsProxy
) -> None:
    deployed: list[str] = []

    def deploy(operation: str, _body: bytes) -> None:
        if operation == "RegisterTaskDefinition" and not deployed:
            deployed.append(operation)
            image = {"name": "batch", "image": "etl:27", "memory": 1900}
            account.family("control", containerDefinitions=[image])

    account.rule("night", "control:1")
    proxy.before = deploy
    done = account.resize("--register", "--update-schedules", "--json")
    assert done.returncode == 1
    assert (
        "control: control:2 was registered meanwhile, so it was registered again as control:4, "
        "after control:3: call it again." in done.stderr
    )
    assert json.loads(done.stdout.splitlines()[-1])["changes"] == 0
    after, _ = account.described("control")
    assert after["containerDefinitions"][0]["image"] == "etl:27"
    assert after["cpu"] == "1024"
    assert account.started_by_rule("night") == "control:1"
    account.runs("control", 25, revision=4)
    rows, _ = account.rows("--register")
    assert rows["control"]["action"] == "resize", rows["control"]["reason"]
    assert account.newest("control") == [5]
    account.family("control")
    account.runs("control", 25, revision=6)
    rows, _ = account.rows("--register")
    assert "a later revision has the old size again" in rows["control"]["reason"]


@pytest.mark.slow
def test_two_calls_at_once_register_one_size(account: Account) -> None:
    account.oversized("nightly")
    with ThreadPoolExecutor() as threads:
        assert list(threads.map(register_in_a_process, [account, account])) == [0, 0]
    for name in ("nightly", "control"):
        after, tags = account.described(name)
        assert after["cpu"] == "256"
        assert after["memory"] == "512"
        assert tags["task-profiler:resized-from"].split("/")[1:] == ["1024", "2048"]


def register_in_a_process(account: Account) -> int:
    words = (sys.executable, "-m", "profiler", "taskdef", "resize", "--register")
    environment = {**os.environ, **account.aws.environment()}
    done = subprocess.run(
        [*words, "--from", str(account.file)], env=environment, capture_output=True, check=False
    )
    return done.returncode


# GitHub Actions


def test_the_summary_of_github_actions_has_the_plan(account: Account, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    environment = account.aws.environment() | {"GITHUB_STEP_SUMMARY": str(summary)}
    words = ("taskdef", "resize", "--from", str(account.file), "--format", "github")
    done = run_here(environment, *words)
    assert "::notice title=task-profiler taskdef resize%3A control::control: resize" in done.stdout
    assert "| control | resize | 1 vCPU, 2 GB | 0.25 vCPU, 512 MB | $0.19 |" in summary.read_text()
    assert "| EVIDENCE | PEAK |" in summary.read_text()

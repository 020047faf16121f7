"""``task-profiler setup proof`` in an account on moto: the plan, the rights, the table, and what is
left afterwards.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from profiler.aws_account.proof.plan import SHARED_PLAN_RIGHTS, SHARED_RIGHTS
from profiler.aws_account.proof.task_plan import PLAN_RIGHTS, PROOF_RIGHTS
from profiler.cli.setup import proof_output
from profiler.record.record_model import Report
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_source import RunFilter
from tests.log_subscriptions import put_lines
from tests.proof_account import (
    ACCOUNT,
    ARN,
    FUNCTION_GROUP,
    PlayedTask,
    ProofAccount,
    proof_account,
)
from tools.local_answers import answer_here, answer_over_sockets

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

GROUP = "/ecs/task-profiler-proof-"
CHANGING = (
    *("CreateLogGroup", "PutSubscriptionFilter", "PutRolePolicy", "RegisterTaskDefinition"),
    *("RunTask", "StopTask", "DeleteLogGroup", "DeleteRolePolicy", "DeregisterTaskDefinition"),
    *("DeleteTaskDefinitions", "DeleteSubscriptionFilter"),
)
# Steps that the proof undoes, by the operation of the first call after each.
STEPS = (
    *("DescribeLogGroups", "CreateLogGroup", "PutSubscriptionFilter", "PutRolePolicy"),
    *("RegisterTaskDefinition", "GetQueueAttributes", "RunTask", "DescribeTasks"),
)


@pytest.fixture
def account(tmp_path: Path) -> Iterator[ProofAccount]:
    with proof_account(tmp_path) as made:
        yield made


def rows_of(account: ProofAccount, *words: str) -> list[dict[str, Any]]:
    done = account.prove("--yes", "--json", *words)
    assert done.stdout, done.stderr
    first, *_ = done.stdout.splitlines()  # moto prints, too
    found: list[dict[str, Any]] = json.loads(first)["rows"]
    differing = [row for row in found if row["state"] == "differs"]
    assert done.returncode == bool(differing)
    assert all(row["remedy"] for row in differing)
    return found


def differing(found: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(row["task"], row["check"]) for row in found if row["state"] == "differs"}


def check_nothing_is_left(account: ProofAccount) -> None:
    groups = account.aws.client("logs").describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]
    assert groups == []
    policies = account.aws.client("iam").list_role_policies(RoleName="nightly-task")
    assert policies["PolicyNames"] == []
    ecs = account.aws.client("ecs")
    listed = ecs.list_task_definitions(familyPrefix="task-profiler-proof", status="ACTIVE")
    assert listed["taskDefinitionArns"] == []
    assert [task for task in account.tasks if task.described["lastStatus"] != "STOPPED"] == []


def test_the_plan_names_everything_and_changes_nothing(account: ProofAccount) -> None:
    done = account.prove("--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["as"] == "The schedule night"
    assert plan["subnets"] == ["subnet-1"]
    assert plan["securityGroups"] == ["sg-1"]
    assert plan["launchType"] == "FARGATE"
    assert plan["networkMode"] == "awsvpc"
    assert plan["taskRole"].endswith(":role/nightly-task")
    assert plan["image"].endswith("/task-profiler:0.1.0")
    assert plan["runs"] == ["success", "failure", "memory"]
    assert 0 < plan["usd"] < 0.01
    assert plan["makes"][0].startswith(GROUP)
    assert "subscription filter" in plan["makes"][1]
    assert "nightly-task" in plan["makes"][2]
    assert not {*CHANGING} & {*account.proxy.operations}
    assert not [body for _, body in account.proxy.bodies if b"Action=PutRolePolicy" in body]


def test_the_plan_is_lines_for_people(account: ProofAccount) -> None:
    done = account.prove()
    assert "The schedule night" in done.stdout
    assert "Nothing was changed" in done.stderr


def test_every_row_is_ok_and_nothing_is_left(account: ProofAccount) -> None:
    found = rows_of(account)
    assert {row["state"] for row in found} == {"ok"}
    assert len(account.tasks) == 3
    check_nothing_is_left(account)


def test_the_rights_of_the_plan_are_the_calls_that_are_made(account: ProofAccount) -> None:
    """Of a proof that succeeds, one that is interrupted, and one like a service."""
    account.aws.client("events").put_rule(Name="other", ScheduleExpression="rate(1 day)")
    assert account.prove("--yes").returncode == 0
    account.change = run_on
    press_ctrl_c(account, "DescribeTasks")
    assert account.prove("--yes").returncode == 130
    account.aws.client("scheduler").delete_schedule(Name="night")
    account.aws.client("ecs").create_service(
        cluster="jobs", serviceName="api", taskDefinition="nightly", desiredCount=0
    )
    assert account.prove("--subnets", "subnet-1").returncode == 0
    account.delete_stack()
    assert account.prove("--subnets", "subnet-1").returncode == 0
    called = {_action(operation, body) for operation, body in account.proxy.bodies}
    no_right = {"sts:GetCallerIdentity"}
    of_default_image = {"ecr:DescribeRepositories", "ecr:DescribeImages"}
    by_ecs = {"iam:PassRole"}
    of_tasks = {*PLAN_RIGHTS, *PROOF_RIGHTS}
    all_rights = of_tasks | {*SHARED_PLAN_RIGHTS, *SHARED_RIGHTS}
    assert (called - no_right - of_default_image) | by_ecs == all_rights


def _action(operation: str, body: bytes) -> str:
    """The IAM action of a call."""
    services = {
        "cloudformation": ("DescribeStacks",),
        "events": ("ListEventBuses", "ListRules", "ListTargetsByRule"),
        "logs": (
            *("CreateLogGroup", "DeleteLogGroup", "DescribeLogGroups", "FilterLogEvents"),
            *("PutSubscriptionFilter", "DeleteSubscriptionFilter", "DescribeAccountPolicies"),
            "DescribeSubscriptionFilters",
        ),
        "sqs": ("GetQueueAttributes",),
        "ecr": ("DescribeRepositories", "DescribeImages"),
        "sts": ("GetCallerIdentity",),
    }
    if operation.startswith("GET /schedules"):
        return f"scheduler:{'ListSchedules' if operation == 'GET /schedules' else 'GetSchedule'}"
    if operation == "POST /":
        return f"iam:{body.decode().partition('Action=')[2].partition('&')[0]}"
    for service, operations in services.items():
        if operation in operations:
            return f"{service}:{operation}"
    return f"ecs:{operation}"


def test_without_a_stack_the_monitor_alone_is_proven(account: ProofAccount) -> None:
    def end_alone(task: PlayedTask) -> None:
        task.ended = None

    account.delete_stack()
    account.change = end_alone
    plan = json.loads(account.prove("--json").stdout)
    assert plan["stack"] is None
    assert plan["stays"] == "nothing"
    assert plan["image"].startswith(f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/")
    found = rows_of(account)
    assert differing(found) == set()
    unchecked = {(row["task"], row["check"]) for row in found if row["state"] == "not checked"}
    of_tasks = {
        (task, check)
        for task in ("success", "failure", "memory")
        for check in ("ECS's event", "notification")
    }
    assert unchecked == of_tasks | {("all", "subscription"), ("all", "the queues")}
    why = {row["seen"] for row in found if row["state"] == "not checked"}
    assert why == {"no stack task-profiler; task-profiler setup stack deploys it"}
    assert "PutSubscriptionFilter" not in account.proxy.operations
    check_nothing_is_left(account)


def test_a_named_stack_must_be_there(account: ProofAccount) -> None:
    done = account.prove("--yes", "--name", "other")
    assert done.returncode == 1
    assert "There is no stack 'other'" in " ".join(done.stderr.split())
    assert not {*CHANGING} & {*account.proxy.operations}


def test_without_a_stack_the_cluster_must_be_there(account: ProofAccount) -> None:
    account.delete_stack()
    done = account.prove("--cluster", "jbos", "--yes")
    assert done.returncode == 1
    assert "There is no ECS cluster jbos" in " ".join(done.stderr.split())
    assert "Did you mean jobs?" in done.stderr


def test_a_family_that_does_not_exist_has_a_sentence_with_a_similar_name(
    account: ProofAccount,
) -> None:
    for name in ("nihgtly", "nightly:99", "NIGHTLY:99"):
        done = account.prove("--like", name, "--yes")
        assert done.returncode == 1
        said = " ".join(done.stderr.split())
        assert f"There is no task definition '{name}': check the name" in said
        assert "Did you mean nightly?" in said
    assert not {*CHANGING} & {*account.proxy.operations}


def described_as(**cluster: Any) -> dict[str, Any]:
    """ECS's answer about the cluster."""
    known = {"clusterArn": f"{ARN}:cluster/jobs", "clusterName": "jobs", "status": "ACTIVE"}
    return {"clusters": [known | cluster], "failures": []}


@pytest.mark.parametrize("status", ["INACTIVE", "PROVISIONING", "DEPROVISIONING", "FAILED"])
def test_a_cluster_that_takes_no_task_is_refused_before_anything_is_made(
    account: ProofAccount, status: str
) -> None:
    account.proxy.answers["DescribeClusters"] = described_as(status=status)
    done = account.prove("--subnets", "subnet-1", "--yes")
    assert done.returncode == 1
    said = f"The ECS cluster jobs is {status}, so no task can start there: run the command again"
    if status == "INACTIVE":
        said = "There is no ECS cluster jobs in us-east-1: check the name"
    assert said in done.stderr
    assert "Did you mean" not in done.stderr
    assert "CreateLogGroup" not in account.proxy.operations


def test_a_cluster_that_is_deleted_meanwhile_leaves_nothing_behind(account: ProofAccount) -> None:
    gone = (
        400,
        {"Content-Type": "application/x-amz-json-1.1"},
        b'{"__type": "ClusterNotFoundException", "message": "The referenced cluster was inactive."}',
    )
    answer = account.proxy.answer

    def answer_gone(request: Any, body: bytes) -> Any:
        answered = answer(request, body)
        return gone if account.proxy.operations[-1] in ("RunTask", "ListTasks") else answered

    account.change = lambda _task: False
    with patch.object(account.proxy, "answer", answer_gone):
        answer_here(account.proxy.url, answer_gone)
        done = account.prove("--yes", "--json")
    assert done.returncode == 1
    assert "were not stopped" not in done.stderr
    (result,) = map(json.loads, done.stdout.splitlines())
    assert "The referenced cluster was inactive" in json.dumps(result["rows"])
    check_nothing_is_left(account)


@pytest.mark.parametrize(
    ("provider", "launch_type", "used"),
    [
        ("FARGATE_SPOT", "FARGATE", "FARGATE_SPOT"),
        ("instances", "FARGATE", None),
        ("instances", "EC2", "instances"),
        ("managed", "MANAGED_INSTANCES", "managed"),
    ],
)
def test_the_clusters_default_providers_take_a_target_that_names_none(
    account: ProofAccount, provider: str, launch_type: str, used: str | None
) -> None:
    strategy = [{"capacityProvider": provider, "weight": 1, "base": 0}]
    account.proxy.answers["DescribeClusters"] = described_as(
        defaultCapacityProviderStrategy=strategy, capacityProviders=[provider]
    )
    scheduler = account.aws.client("scheduler")
    target = scheduler.get_schedule(Name="night")["Target"]
    del target["EcsParameters"]["LaunchType"]
    family = "plain"
    account.aws.client("ecs").register_task_definition(
        family=family,
        requiresCompatibilities=[launch_type],
        networkMode="awsvpc",
        cpu="256",
        memory="512",
        containerDefinitions=[{"name": "etl", "image": "etl:1"}],
    )
    target["EcsParameters"]["TaskDefinitionArn"] = f"{ARN}:task-definition/{family}"
    scheduler.update_schedule(
        Name="night",
        ScheduleExpression="cron(0 3 * * ? *)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target=target,
    )
    plan = json.loads(account.prove("--json").stdout)
    assert plan["capacityProviders"] == ([used] if used else [])
    assert plan["launchType"] == (None if used else launch_type)
    account.prove("--yes")
    asked = account.tasks[0].request
    assert ("capacityProviderStrategy" in asked, asked.get("launchType")) == (
        bool(used),
        plan["launchType"],
    )
    bodies = account.proxy.bodies
    registered = [json.loads(body) for name, body in bodies if name == "RegisterTaskDefinition"]
    assert {tuple(each["requiresCompatibilities"]) for each in registered} == {(launch_type,)}


def test_managed_instances_without_a_capacity_provider_are_refused_before_anything_is_made(
    account: ProofAccount,
) -> None:
    ecs = account.aws.client("ecs")
    for family, launch_types in (
        ("managed", ["MANAGED_INSTANCES"]),
        ("either", ["MANAGED_INSTANCES", "FARGATE"]),
    ):
        ecs.register_task_definition(
            family=family,
            requiresCompatibilities=launch_types,
            networkMode="awsvpc",
            cpu="256",
            memory="512",
            containerDefinitions=[{"name": "etl", "image": "etl:1"}],
        )
    words = ("--json", "--subnets", "subnet-1")
    refused = account.prove(*words, "--like", "managed")
    assert refused.returncode == 1
    assert "The family managed shows no capacity provider" in refused.stderr
    assert json.loads(account.prove(*words, "--like", "either").stdout)["launchType"] == "FARGATE"
    check_nothing_is_left(account)


def test_a_provider_that_the_cluster_has_no_more_is_said_before_anything_is_made(
    account: ProofAccount,
) -> None:
    scheduler = account.aws.client("scheduler")
    target = scheduler.get_schedule(Name="night")["Target"]
    del target["EcsParameters"]["LaunchType"]
    strategy = [{"capacityProvider": "FARGATE_SPOT", "weight": 1, "base": 0}]
    target["EcsParameters"]["CapacityProviderStrategy"] = strategy
    scheduler.update_schedule(
        Name="night",
        ScheduleExpression="cron(0 3 * * ? *)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target=target,
    )
    for providers in (["FARGATE_SPOT"], []):
        account.proxy.answers["DescribeClusters"] = described_as(capacityProviders=providers)
        done = account.prove("--json", *(() if providers else ("--yes",)))
        assert done.returncode == (0 if providers else 1)
    assert (
        "The schedule night starts tasks with the capacity provider FARGATE_SPOT, which the cluster "
        "jobs does not have, so ECS starts none"
    ) in done.stderr
    check_nothing_is_left(account)


def test_a_schedule_that_calls_run_task_itself_shows_where_tasks_run(
    account: ProofAccount,
) -> None:
    scheduler = account.aws.client("scheduler")
    scheduler.delete_schedule(Name="night")
    network = {"AwsvpcConfiguration": {"Subnets": ["subnet-7"], "SecurityGroups": ["sg-7"]}}
    request = {
        "Cluster": "jobs",
        "TaskDefinition": "nightly",
        "LaunchType": "FARGATE",
        "NetworkConfiguration": network,
    }
    scheduler.create_schedule(
        Name="asks",
        ScheduleExpression="cron(0 3 * * ? *)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": "arn:aws:scheduler:::aws-sdk:ecs:runTask",
            "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/schedules",
            "Input": json.dumps(request),
        },
    )
    plan = json.loads(account.prove("--json").stdout)
    assert (plan["as"], plan["subnets"]) == ("The schedule asks", ["subnet-7"])
    assert (plan["launchType"], plan["securityGroups"]) == ("FARGATE", ["sg-7"])


def test_a_rule_without_subnets_is_no_example_if_a_schedule_has_some(
    account: ProofAccount,
) -> None:
    """Rules are read first."""
    events = account.aws.client("events")
    events.put_rule(Name="broken", ScheduleExpression="rate(1 day)")
    parameters = {"TaskDefinitionArn": f"{ARN}:task-definition/nightly"}
    role = f"arn:aws:iam::{ACCOUNT}:role/rules"
    target = {
        "Id": "1",
        "Arn": f"{ARN}:cluster/jobs",
        "RoleArn": role,
        "EcsParameters": parameters,
    }
    events.put_targets(Rule="broken", Targets=[target])
    plan = json.loads(account.prove("--json").stdout)
    assert plan["as"] == "The schedule night"
    assert plan["subnets"] == ["subnet-1"]


def test_a_service_shows_where_its_tasks_run(account: ProofAccount) -> None:
    account.aws.client("scheduler").delete_schedule(Name="night")
    subnet = account.aws.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    network = {
        "awsvpcConfiguration": {
            "subnets": [subnet],
            "securityGroups": [],
            "assignPublicIp": "ENABLED",
        }
    }
    account.aws.client("ecs").create_service(
        cluster="jobs",
        serviceName="api",
        taskDefinition="nightly",
        desiredCount=0,
        launchType="FARGATE",
        networkConfiguration=network,
    )
    plan = json.loads(account.prove("--json").stdout)
    assert plan["as"] == "The service api"
    assert plan["subnets"] == [subnet]
    assert plan["publicAddress"] is True


def test_options_replace_the_schedules_network_and_roles(account: ProofAccount) -> None:
    words = ("--subnets", "subnet-8,subnet-9", "--security-groups", "sg-9", "--task-role", "other")
    plan = json.loads(account.prove("--json", *words).stdout)
    assert plan["subnets"] == ["subnet-8", "subnet-9"]
    assert plan["securityGroups"] == ["sg-9"]
    assert plan["taskRole"] == "other"
    assert any("other" in problem for problem in plan["problems"])  # it does not exist


@pytest.mark.slow
def test_without_schedule_and_service_the_subnets_are_given_or_asked_for(
    account: ProofAccount,
) -> None:
    account.aws.client("scheduler").delete_schedule(Name="night")
    refused = account.prove()
    assert refused.returncode == 1
    assert "name --subnets, --task-role and --execution-role" in " ".join(refused.stderr.split())
    like = account.prove("--like", "nightly")
    assert like.returncode == 1
    assert "name them with --subnets" in " ".join(like.stderr.split())
    given = account.prove("--json", "--subnets", "subnet-1", "--like", "nightly")
    assert json.loads(given.stdout)["launchType"] == "FARGATE"
    roles = ("--task-role", "nightly-task", "--execution-role", "nightly-execution")
    alone = account.prove("--json", "--subnets", "subnet-1", *roles)
    assert json.loads(alone.stdout)["as"] == "The options"


class RefreshedRuns:
    """The documents as searches show them: without the event's word until the index has been
    refreshed, which the third search is the first to see.
    """

    def __init__(self, account: ProofAccount) -> None:
        self.account = account
        self.searches = 0

    def runs(self, _selection: RunFilter) -> Iterator[PastRun]:
        self.searches += 1
        for task in self.account.tasks:
            report = msgspec.json.decode(json.dumps(task.report()), type=Report)
            yield PastRun(report=report, is_confirmed=self.searches > 2)


def test_a_document_is_awaited_until_the_search_shows_that_it_is_confirmed(
    account: ProofAccount,
) -> None:
    documents = RefreshedRuns(account)
    with patch.object(proof_output, "open_search", lambda *_: documents):
        found = rows_of(account, "--from", "https://search:9200")
    assert {row["state"] for row in found} == {"ok"}
    assert documents.searches == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--json", "--markdown", "--yes"), "use one of them"),
        (("--markdown",), "use it with --yes"),
        (("--from", "logs:/ecs/*"), "give its address"),
    ],
)
def test_options_that_do_not_fit_are_refused_as_usage(
    account: ProofAccount, words: tuple[str, ...], sentence: str
) -> None:
    done = account.prove(*words)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())
    assert account.proxy.operations == []


def test_the_markdown_has_no_account_id_name_or_arn(account: ProofAccount) -> None:
    def refuse(task: PlayedTask) -> bool:
        return bool(task.scenario != "memory")

    account.change = refuse
    done = account.prove("--yes", "--markdown")
    assert done.returncode == 1
    assert "| memory | task | differs |" in done.stdout
    for private in (ACCOUNT, "arn:", "nightly", "jobs", "subnet-1", "sg-1", GROUP, "RESOURCE"):
        assert private not in done.stdout


def test_an_account_wide_subscription_needs_no_filter(account: ProofAccount) -> None:
    destination = f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:task-profiler-forward-logs"
    document = {"DestinationArn": destination, "FilterPattern": '{ $.type = "task.*" }'}
    policy = {"policyDocument": json.dumps(document), "selectionCriteria": ""}
    account.proxy.answers["DescribeAccountPolicies"] = {"accountPolicies": [policy]}
    assert {row["state"] for row in rows_of(account)} == {"ok"}
    assert "PutSubscriptionFilter" not in account.proxy.operations
    check_nothing_is_left(account)


def test_a_filter_that_is_removed_meanwhile_is_a_row(account: ProofAccount) -> None:
    def remove(task: PlayedTask) -> None:
        logs = account.aws.client("logs")
        (group,) = logs.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]
        name = group["logGroupName"]
        for found in logs.describe_subscription_filters(logGroupName=name)["subscriptionFilters"]:
            logs.delete_subscription_filter(logGroupName=name, filterName=found["filterName"])

    account.change = remove
    found = rows_of(account)
    assert differing(found) == {("all", "subscription")}
    (row,) = [one for one in found if one["state"] == "differs"]
    assert row["remedy"].startswith("No subscription of the log group /ecs/task-profiler-proof-")
    check_nothing_is_left(account)


def test_a_role_that_may_not_put_is_a_row_with_doctors_remedy(account: ProofAccount) -> None:
    def print_report(task: PlayedTask) -> None:
        *lines, report = task.streams["batch"]
        task.streams = {"batch": lines, "task-monitor": [report]}
        iam = account.aws.client("iam")
        for name in iam.list_role_policies(RoleName="nightly-task")["PolicyNames"]:
            iam.delete_role_policy(RoleName="nightly-task", PolicyName=name)

    account.change = print_report
    found = rows_of(account)
    assert differing(found) == {(task, "report") for task in ("success", "failure", "memory")}
    remedy = next(row["remedy"] for row in found if row["state"] == "differs")
    assert "does not allow logs:PutLogEvents for the report" in remedy
    check_nothing_is_left(account)


def test_a_message_of_these_tasks_in_a_queue_is_a_row(account: ProofAccount) -> None:
    sqs = account.aws.client("sqs")
    url = sqs.get_queue_url(QueueName="task-profiler-TaskStoppedDeadLetterQueue")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="of another task")

    def fail(task: PlayedTask) -> None:
        sqs.send_message(QueueUrl=url, MessageBody=json.dumps({"detail": {"taskArn": task.arn}}))

    account.change = fail
    found = rows_of(account)
    assert differing(found) == {("all", "TaskStoppedDeadLetterQueue")}
    (row,) = [one for one in found if one["state"] == "differs"]
    assert row["seen"].startswith("1 message before this proof, 4 after it")
    assert "setup redrive" in row["remedy"]
    assert len(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]) == 4


@pytest.mark.parametrize("refused", ["GetQueueAttributes", "ReceiveMessage"])
def test_queues_that_may_not_be_read_are_said_as_not_checked(
    account: ProofAccount, refused: str
) -> None:
    """A message that came meanwhile makes the messages themselves of interest."""

    def send(_task: PlayedTask) -> None:
        url = account.aws.client("sqs").list_queues()["QueueUrls"][0]
        account.aws.client("sqs").send_message(QueueUrl=url, MessageBody="{}")

    account.change = send
    account.proxy.refused = {refused}
    (row,) = [one for one in rows_of(account) if one["check"] == "the queues"]
    assert row["state"] == "not checked"
    assert f"sqs:{refused}" in row["detail"]


def test_without_capacity_the_task_is_a_row(account: ProofAccount) -> None:
    account.change = lambda task: task.scenario != "failure"
    found = rows_of(account)
    assert differing(found) == {("failure", "task")}
    states = {row["state"] for row in found if row["task"] == "failure"}
    assert states == {"differs", "not checked"}
    check_nothing_is_left(account)


@pytest.mark.slow
def test_tasks_that_do_not_end_are_stopped_after_six_minutes(account: ProofAccount) -> None:
    def hang(task: PlayedTask) -> None:
        task.described |= {"lastStatus": "PENDING", "desiredStatus": "RUNNING"}
        task.streams = {}
        task.ended = None

    account.change = hang
    found = rows_of(account)
    assert [row["detail"] for row in found if row["check"] == "task"] == [
        "it was PENDING after 6 minutes"
    ] * 3
    assert account.proxy.operations.count("StopTask") == 3
    check_nothing_is_left(account)


def test_a_forged_report_in_the_group_does_not_count(account: ProofAccount) -> None:
    def forge(task: PlayedTask) -> None:
        forged = json.loads(json.dumps(task.streams["batch"][-1]))
        forged["record"]["metrics"]["cpuSeconds"] = 1_000_000
        witness = {**task.streams["batch"][-2], "cpuSeconds": 1_000_000}
        logs = account.aws.client("logs")
        (group,) = logs.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]
        for stream in ("web", f"ecs/sidecar/{task.id}"):
            put_lines(logs, group["logGroupName"], stream, json.dumps(forged), json.dumps(witness))

    account.change = forge
    assert {row["state"] for row in rows_of(account)} == {"ok"}


@pytest.mark.slow
def test_a_line_of_a_task_in_the_functions_group_is_not_the_functions(
    account: ProofAccount,
) -> None:
    """A task definition can name every log group."""

    def forge(task: PlayedTask) -> None:
        assert task.ended is not None
        stream = f"2026/11/25/[$LATEST]0/batch/{task.id}"
        put_lines(account.aws.client("logs"), FUNCTION_GROUP, stream, json.dumps(task.ended))
        task.ended = None

    account.change = forge
    assert {check for _, check in differing(rows_of(account))} == {"ECS's event", "notification"}


def test_a_family_of_somebody_else_is_left_alone(account: ProofAccount) -> None:
    container = {"name": "etl", "image": "etl:1", "memory": 64}
    account.aws.client("ecs").register_task_definition(
        family="task-profiler-proof", containerDefinitions=[container]
    )
    done = account.prove("--yes")
    assert done.returncode == 1
    assert "that setup proof did not register" in " ".join(done.stderr.split())
    assert not {*CHANGING} & {*account.proxy.operations}


@pytest.mark.slow
def test_two_proofs_at_once_do_not_meet(account: ProofAccount) -> None:
    """The second one runs from its start to its end while the first one's tasks run."""
    codes: list[int] = []
    environment = account.environment | {"AWS_ENDPOINT_URL": account.proxy.url}

    def prove_too(_task: PlayedTask) -> None:
        if len(account.tasks) == 1 and not codes:
            codes.append(-1)
            command = [sys.executable, "-m", "profiler", "setup", "proof", "--cluster", "jobs"]
            done = subprocess.run(
                [*command, "--yes"], check=False, env=environment, capture_output=True
            )
            codes.append(done.returncode)

    account.change = prove_too
    assert {row["state"] for row in rows_of(account)} == {"ok"}
    assert codes == [-1, 0]
    assert len(account.tasks) == 6
    check_nothing_is_left(account)


def run_on(task: PlayedTask) -> None:
    """Let the task run until it is stopped."""
    task.described |= {"lastStatus": "RUNNING", "desiredStatus": "RUNNING"}


def press_ctrl_c(account: ProofAccount, step: str, number: int = signal.SIGINT) -> None:
    """Press Ctrl-C, or send another signal, in the first call of an operation, which AWS still
    does.
    """
    interrupted: list[str] = []

    def interrupt(operation: str, body: bytes) -> None:
        is_step = operation == step or f"Action={step}&".encode() in body
        if is_step and not interrupted:
            interrupted.append(step)
            os.kill(os.getpid(), number)

    answer_over_sockets(account.proxy.url)
    account.proxy.before = interrupt


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_proof_leaves_nothing_behind(account: ProofAccount, step: str) -> None:
    account.change = run_on
    press_ctrl_c(account, step)
    done = account.prove("--yes")
    assert done.returncode == 130
    assert done.stdout == ""
    check_nothing_is_left(account)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_proof_whose_terminal_is_closed_leaves_nothing_behind(
    account: ProofAccount, number: int, code: int
) -> None:
    account.change = run_on
    press_ctrl_c(account, "RunTask", number)
    done = account.prove("--yes")
    assert done.returncode == code
    assert "task-profiler: It stops, and removes what it has made.\n" in done.stderr
    check_nothing_is_left(account)


REFUSED = (
    *("CreateLogGroup", "PutSubscriptionFilter", "RegisterTaskDefinition", "RunTask"),
    *("DescribeTasks", "FilterLogEvents"),
)


@pytest.mark.parametrize("operation", REFUSED)
def test_a_partial_right_leaves_nothing_behind(account: ProofAccount, operation: str) -> None:
    account.proxy.refused = {operation}
    done = account.prove("--yes")
    assert done.returncode == 1
    assert operation in done.stdout + done.stderr
    account.proxy.refused = set()
    for task in account.tasks:
        assert task.described["lastStatus"] == "STOPPED"
    check_nothing_is_left(account)


def test_what_cannot_be_removed_is_named_with_its_command(account: ProofAccount) -> None:
    account.proxy.refused = {"DeleteLogGroup"}
    done = account.prove("--yes")
    assert done.returncode == 1
    assert "aws logs delete-log-group --log-group-name /ecs/task-profiler-proof-" in done.stderr
    assert account.proxy.operations.count("DeleteLogGroup") == 2


def test_a_clean_up_that_was_cut_off_is_tried_again(account: ProofAccount) -> None:
    def allow(operation: str, _body: bytes) -> None:
        if account.proxy.operations.count("DeleteLogGroup") == 2:
            account.proxy.refused = set()

    account.proxy.before = allow
    account.proxy.refused = {"DeleteLogGroup"}
    assert account.prove("--yes").returncode == 0
    check_nothing_is_left(account)


def test_a_kept_group_is_named_and_stays_without_its_filter(account: ProofAccount) -> None:
    done = account.prove("--yes", "--keep")
    assert done.returncode == 0
    logs = account.aws.client("logs")
    (group,) = logs.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]
    name = group["logGroupName"]
    assert f"The log group {name} is kept." in " ".join(done.stderr.split())
    assert logs.describe_subscription_filters(logGroupName=name)["subscriptionFilters"] == []


def test_an_instance_monitor_gets_a_fourth_task_without_a_monitor(account: ProofAccount) -> None:
    monitor = {
        "name": "task-monitor",
        "image": "task-profiler:0.1.0",
        "command": ["monitor"],
        "memory": 128,
        "environment": [{"name": "TASK_PROFILER_SCOPE", "value": "instance"}],
    }
    ecs = account.aws.client("ecs")
    ecs.register_task_definition(family="instance-monitor", containerDefinitions=[monitor])
    ecs.create_service(
        cluster="jobs",
        serviceName="monitor",
        taskDefinition="instance-monitor",
        schedulingStrategy="DAEMON",
    )
    container = {"name": "etl", "image": "etl:1", "memory": 64}
    ecs.register_task_definition(
        family="hourly",
        taskRoleArn=f"arn:aws:iam::{ACCOUNT}:role/nightly-task",
        requiresCompatibilities=["EC2"],
        containerDefinitions=[container],
    )
    found = rows_of(account, "--like", "hourly", "--image", "task-profiler:0.1.0")
    assert {row["task"] for row in found} == {"success", "failure", "memory", "instance", "all"}
    definitions = [task.request["taskDefinition"] for task in account.tasks]
    assert definitions[0] == definitions[1] == definitions[2] != definitions[3]
    check_nothing_is_left(account)

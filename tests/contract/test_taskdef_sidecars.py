"""A rollout over families with sidecars while others deploy, with schedules that are pinned on
purpose; ECS by moto.

moto stores what it is sent without checking it, so the requests are compared with what was there
before.
"""

import json
from collections.abc import Iterator
from subprocess import CompletedProcess
from typing import Any

import pytest
import requests

from profiler.task_definitions.definition_json import READ_ONLY
from tests.aws_proxy import AwsProxy, ProxiedAccount
from tests.sidecars import ACCOUNT, IMAGE, REGION, TASK_ROLE, definitions_with_sidecars
from tools.moto_server import FakeAws, fake_aws
from tools.waiting import LIMIT_SECONDS

CLUSTER = f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/jobs"
ADD_ONE = ("add-monitor", "--family", "job-xray", "--image", IMAGE, "--container", "etl")
ADD = (*ADD_ONE, "--family", "job-*")
REMOVE = ("remove-monitor", "--family", "job-*")
NETWORK = {
    "awsvpcConfiguration": {
        "Subnets": ["subnet-1"],
        "SecurityGroups": ["sg-1"],
        "AssignPublicIp": "DISABLED",
    }
}
START = {
    "Arn": CLUSTER,
    "RoleArn": TASK_ROLE,
    "DeadLetterConfig": {"Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:dead"},
    "RetryPolicy": {"MaximumRetryAttempts": 3, "MaximumEventAgeInSeconds": 600},
}
FAMILIES = [f"job-{kind}" for kind in definitions_with_sidecars()]


def signed(service: str) -> dict[str, str]:
    return {
        "Authorization": f"AWS4-HMAC-SHA256 Credential=a/20260101/{REGION}/{service}/aws4_request"
    }


class Account(ProxiedAccount):
    """Families with two revisions; each is started by a rule, by a schedule, and by a schedule
    that stays on the first.

    ``meanwhile`` is called once, when the command sends the operation that is its key: what others
    do at that moment.
    """

    def __init__(self, aws: FakeAws, proxy: AwsProxy) -> None:
        super().__init__(aws, proxy)
        self.proxy.before = lambda operation, _body: self.meanwhile.pop(operation, lambda: None)()
        self.meanwhile: dict[str, Any] = {}
        self.ecs.create_cluster(clusterName="jobs", capacityProviders=["FARGATE", "FARGATE_SPOT"])
        for family in FAMILIES:
            for version in (1, 2):
                self.deploy(family, version)
            self._start_by_rule(family, 2)
            self._start_by_schedule(f"{family}-hourly", family, 2)
            self._start_by_schedule(f"{family}-kept", family, 1)

    def deploy(self, family: str, version: int, group: str = "/ecs/jobs") -> None:
        """Register another version of the job, as a pipeline does that knows no monitor."""
        text = json.dumps(definitions_with_sidecars()[family.removeprefix("job-")]).replace(
            "/ecs/jobs", group
        )
        self.ecs.register_task_definition(
            family=family, **json.loads(text.replace("etl:1", f"etl:{version}"))
        )

    def arn(self, family: str, revision: int) -> str:
        return f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition/{family}:{revision}"

    def _start_by_rule(self, family: str, revision: int) -> None:
        self.events.put_rule(Name=family, ScheduleExpression="cron(0 2 * * ? *)")
        self.put_target(family, revision, text="{}")
        alarm = {
            "Id": "alarm",
            "Arn": f"arn:aws:sns:{REGION}:{ACCOUNT}:night",
            "InputPath": "$.detail",
        }
        self.events.put_targets(Rule=family, Targets=[alarm])

    def put_target(self, family: str, revision: int, *, text: str) -> None:
        parameters = {
            "TaskDefinitionArn": self.arn(family, revision),
            "TaskCount": 2,
            "NetworkConfiguration": NETWORK,
            "EnableExecuteCommand": False,
            "Tags": [{"Key": "team", "Value": "data"}],
        }
        target = {**START, "Id": "task", "Input": text, "EcsParameters": parameters}
        self.events.put_targets(Rule=family, Targets=[target])

    def _start_by_schedule(self, name: str, family: str, revision: int) -> None:
        task = {
            "TaskDefinitionArn": self.arn(family, revision),
            "TaskCount": 1,
            "NetworkConfiguration": NETWORK,
        }
        spot = {"capacityProvider": "FARGATE_SPOT", "base": 0, "weight": 1}
        target = {
            "Input": '{"containerOverrides": []}',
            "EcsParameters": {**task, "CapacityProviderStrategy": [spot]},
        }
        self.scheduler.create_schedule(
            Name=name,
            Description=f"Starts {family}",
            ScheduleExpression="cron(0 * * * ? *)",
            ScheduleExpressionTimezone="Asia/Tokyo",
            StartDate=4000000000,
            EndDate=4100000000,
            State="DISABLED",
            ActionAfterCompletion="DELETE",
            KmsKeyArn=f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1",
            FlexibleTimeWindow={"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 5},
            Target={**START, **target},
        )

    def pin_schedule(self, name: str, family: str, revision: int) -> None:
        schedule = self.scheduler.get_schedule(Name=name)
        kept = {
            field: schedule[field]
            for field in ("FlexibleTimeWindow", "ScheduleExpression", "Target")
        }
        kept["Target"]["EcsParameters"]["TaskDefinitionArn"] = self.arn(family, revision)
        self.scheduler.update_schedule(Name=name, **kept)

    def run(self, *words: str) -> CompletedProcess[str]:
        return self.command("taskdef", *words)

    def doctor(self, family: str) -> tuple[int, list[dict[str, str]]]:
        """The exit code, and the findings about schedules."""
        done = self.command("doctor", family, "--json")
        found = map(json.loads, done.stdout.splitlines())
        return done.returncode, [one for one in found if one["topic"] == "schedules"]

    def definition(self, name: str) -> str:
        described = self.ecs.describe_task_definition(taskDefinition=name, include=["TAGS"])
        kept = {
            field: value
            for field, value in described["taskDefinition"].items()
            if field not in READ_ONLY
        }
        return json.dumps({**kept, "tags": described.get("tags")})

    def schedules(self) -> dict[str, str]:
        """All targets and schedules as the APIs answer, byte by byte, except for the time of the
        last change.
        """
        found = {}
        for family in FAMILIES:
            headers = signed("events") | {"X-Amz-Target": "AWSEvents.ListTargetsByRule"}
            answer = requests.post(
                self.aws.url, json={"Rule": family}, headers=headers, timeout=LIMIT_SECONDS
            )
            found[f"rule {family}"] = answer.text
            for name in (f"{family}-hourly", f"{family}-kept"):
                answer = requests.get(
                    f"{self.aws.url}/schedules/{name}",
                    headers=signed("scheduler"),
                    timeout=LIMIT_SECONDS,
                )
                found[f"schedule {name}"] = json.dumps(
                    {**answer.json(), "LastModificationDate": None}
                )
        return found


@pytest.fixture
def account() -> Iterator[Account]:
    with fake_aws() as aws, AwsProxy(aws.url) as proxy:
        yield Account(aws, proxy)


def moved(text: str, family: str, start: int, end: int) -> str:
    assert text.count(f'{family}:{start}"') == 1
    return text.replace(f'{family}:{start}"', f'{family}:{end}"')


@pytest.mark.slow
def test_deliberate_pins_and_deployments_survive_a_rollout_and_its_removal(
    account: Account,
) -> None:
    before = account.schedules()
    originals = {family: account.definition(family) for family in FAMILIES}

    plan = account.run(*ADD)
    assert plan.returncode == 0, plan.stderr
    assert "The rule FAMILY is pinned to FAMILY:2." in plan.stdout
    for family in FAMILIES:
        assert (
            f"pinned to {family}:1, which differs by more than the monitor: "
            "--update-schedules skips"
        ) in plan.stdout
    assert "--register creates the log group /ecs/job-firelens if it does not exist." in plan.stdout
    assert account.schedules() == before

    # When the first revision is registered (of job-adot), a pipeline deploys job-envoy and
    # job-firelens, and a person changes the rule of job-xray and goes back to the first version
    # with a schedule of job-datadog.
    def deploy() -> None:
        account.deploy("job-envoy", 3)
        account.put_target("job-xray", 2, text='{"changed": true}')
        account.pin_schedule("job-datadog-hourly", "job-datadog", 1)

    account.meanwhile = {
        "RegisterTaskDefinition": deploy,
        "CreateLogGroup": lambda: account.deploy("job-firelens", 3),
    }
    added = account.run(*ADD, "--register", "--update-schedules")
    assert added.returncode == 1, added.stdout + added.stderr
    assert account.meanwhile == {}
    assert "created the log group /ecs/job-firelens\n" in added.stdout
    for family in ("job-envoy", "job-firelens"):
        assert (
            f"{family} changed meanwhile, so it is planned again from {family}:3: add monitor"
            in added.stdout
        )
        assert f"registered {family}:4\n" in added.stdout
        assert f"rule {family} skipped: pinned to {family}:2\n" in added.stdout
        assert "etl:3" in account.definition(family)
    assert "schedule job-datadog-hourly skipped: pinned to job-datadog:1\n" in added.stdout
    assert (
        "job-xray: The rule job-xray was not moved, because somebody has changed it since the plan "
        "(Input): run the command again.\n"
    ) in added.stderr
    assert "4 schedules moved, 10 schedules skipped, 1 failed" in added.stderr

    # The next rollout moves what the first has refused, with what the person wrote.
    again = account.run(*ADD, "--register", "--update-schedules")
    assert again.returncode == 0, again.stderr
    assert "moved rule job-xray to job-xray:3\n" in again.stdout

    expected = dict(before)
    for family in ("job-xray", "job-adot", "job-datadog"):
        expected[f"rule {family}"] = moved(before[f"rule {family}"], family, 2, 3)
    for family in ("job-xray", "job-adot"):
        name = f"schedule {family}-hourly"
        expected[name] = moved(before[name], family, 2, 3)
    changed = expected["rule job-xray"].replace('"Input": "{}"', '"Input": "{\\"changed\\": true}"')
    after = account.schedules()
    assert after["rule job-xray"] == changed != expected["rule job-xray"]
    for name in set(before) - {"rule job-xray", "schedule job-datadog-hourly"}:
        assert after[name] == expected[name]
    assert f"{account.arn('job-datadog', 1)}" in after["schedule job-datadog-hourly"]

    # Another one finds nothing to do, and moves nothing.
    again = account.run(*ADD, "--register", "--update-schedules")
    assert again.returncode == 0, again.stderr
    assert "registered" not in again.stdout
    assert "moved" not in again.stdout
    assert account.schedules() == after

    removed = account.run(*REMOVE, "--register", "--update-schedules")
    assert removed.returncode == 0, removed.stderr
    assert "The log group /ecs/job-firelens is kept." in removed.stdout
    for family in FAMILIES:
        original = originals[family]
        deployed = family in ("job-envoy", "job-firelens")
        assert account.definition(family) == (
            original.replace("etl:2", "etl:3") if deployed else original
        )
    last = account.schedules()
    for name, text in after.items():
        family = next(one for one in FAMILIES if one in name)
        assert last[name] == (moved(text, family, 3, 4) if f"{family}:3" in text else text)


def test_a_write_sends_all_that_was_there_and_nothing_else(account: Account) -> None:
    """moto would accept a schedule with fields left out, and keep some of them."""
    done = account.run(*ADD_ONE, "--register", "--update-schedules")
    assert done.returncode == 0, done.stderr
    (put,) = [
        json.loads(body)
        for name, body in account.proxy.bodies
        if name == "PutTargets" and b"job-xray" in body
    ]
    (target,) = put.pop("Targets")
    assert put == {"Rule": "job-xray", "EventBusName": "default"}
    (task, _) = account.events.list_targets_by_rule(Rule="job-xray")["Targets"]
    assert target == task
    (update,) = [
        json.loads(body)
        for name, body in account.proxy.bodies
        if name == "PUT /schedules/job-xray-hourly"
    ]
    there = json.loads(account.schedules()["schedule job-xray-hourly"])
    own = dict.fromkeys(("Arn", "Name", "CreationDate", "LastModificationDate", "ClientToken"))
    assert {**update, **own} == {**there, **own}


def test_a_field_that_boto3_does_not_know_is_not_lost(account: Account) -> None:
    (task, alarm) = account.events.list_targets_by_rule(Rule="job-xray")["Targets"]
    account.proxy.answers = {
        "ListTargetsByRule": {"Targets": [{**task, "FromTheFuture": 1}, alarm]}
    }
    done = account.run(*ADD_ONE, "--register", "--update-schedules")
    assert done.returncode == 1
    assert (
        "The rule job-xray was not updated: boto3 is too old for some fields, so upgrade boto3"
        in done.stderr
    )
    assert "FromTheFuture" in done.stderr
    assert "PutTargets" not in account.proxy.operations


@pytest.mark.slow
def test_a_schedule_that_is_deleted_or_unpinned_meanwhile_is_skipped(account: Account) -> None:
    def clean_up() -> None:
        account.scheduler.delete_schedule(Name="job-xray-hourly")
        account.events.remove_targets(Rule="job-xray", Ids=["task"])
        account.pin_schedule("job-xray-kept", "other", 7)

    account.meanwhile = {"RegisterTaskDefinition": clean_up}
    done = account.run(*ADD_ONE, "--register", "--update-schedules")
    assert done.returncode == 0, done.stderr
    for title in ("rule job-xray", "schedule job-xray-hourly", "schedule job-xray-kept"):
        assert f"{title} skipped: no longer pinned to a revision of job-xray\n" in done.stdout
    assert "PutTargets" not in account.proxy.operations


@pytest.mark.slow
def test_the_policy_allows_the_log_group_of_a_deployment_in_between(account: Account) -> None:
    account.aws.client("iam").create_role(RoleName="nightly-task", AssumeRolePolicyDocument="{}")
    account.meanwhile = {
        "RegisterTaskDefinition": lambda: account.deploy("job-xray", 1, "/ecs/moved")
    }
    done = account.run(*ADD, "--register", "--attach-policy")
    assert done.returncode == 0, done.stderr
    role = account.aws.client("iam").get_role_policy(
        RoleName="nightly-task", PolicyName="task-profiler"
    )
    (statement,) = role["PolicyDocument"]["Statement"]
    groups = [one.split(":log-group:")[1].split(":")[0] for one in statement["Resource"]]
    assert groups == ["/ecs/jobs", "/ecs/moved"]


def test_globs_that_select_nothing_are_named(account: Account) -> None:
    words = ("--image", IMAGE, "--container", "etl", "--register")
    nobody = account.run("add-monitor", "--family", "nobody", "--family", "no-*", *words)
    assert nobody.returncode == 1, nobody.stderr
    assert nobody.stdout == ""
    assert nobody.stderr.count("\n") == 1
    assert "'nobody' or 'no-*'" in nobody.stderr
    one = account.run("add-monitor", "--family", "job-xray", "--family", "nobody", *words)
    assert one.returncode == 1
    assert "registered job-xray:3" in one.stdout
    assert "is selected by 'nobody': check the names" in one.stderr
    of_revision = account.run("add-monitor", "--family", "job-xray:3", *words)
    assert of_revision.returncode == 1
    assert of_revision.stderr.endswith("Did you mean job-xray?\n")
    plan = account.run(
        "remove-monitor", "--family", "job-xray", "--family", "nobody", "--cluster", "jobs"
    )
    assert plan.returncode == 1, plan.stderr
    assert "remove monitor" in plan.stdout
    assert "is selected by 'nobody' in jobs" in plan.stderr


def test_the_doctor_names_schedules_that_start_a_revision_without_the_monitor(
    account: Account,
) -> None:
    assert account.run(*ADD_ONE, "--register").returncode == 0
    code, found = account.doctor("job-xray")
    levels = {one["text"].split(" is pinned")[0]: (one["level"], one["advice"]) for one in found}
    move = (
        "Move it: task-profiler taskdef add-monitor --family job-xray --register "
        "--update-schedules; by hand if that"
    )
    names = ("rule job-xray", "schedule job-xray-hourly", "schedule job-xray-kept")
    assert code == 1
    assert levels == {f"The {name}": ("problem", f"{move} skips it.") for name in names}
    assert account.run(*ADD_ONE, "--register", "--update-schedules").returncode == 0
    _, after = account.doctor("job-xray")
    assert [one["level"] for one in after] == ["ok", "problem", "ok"]
    # Both go on without the permission to read schedules.
    account.proxy.refused = {"ListEventBuses"}
    _, (note,) = account.doctor("job-xray")
    assert note["level"] == "note"
    assert "could not be read" in note["text"]
    plan = account.run(*ADD_ONE)
    assert plan.returncode == 0, plan.stderr
    assert "pinned" not in plan.stdout
    assert "The plan lacks pinned schedules." in plan.stderr

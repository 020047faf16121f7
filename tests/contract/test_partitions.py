"""Acts in AWS's other partitions: what is registered, attached, planned and deployed has their ARNs
and domains.
"""

import json
import re
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.command_line import run_here
from tests.family_windows import lately
from tests.resize_account import ACCOUNT, BATCH, OLD
from tests.runs import lines, report
from tests.setup_account import Account
from tools.moto_server import FakeAws, fake_aws, push_image

PULL = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": [
                *("ecr:GetAuthorizationToken", "ecr:BatchGetImage"),
                "ecr:GetDownloadUrlForLayer",
            ],
            "Resource": "*",
        }
    ],
}


class Partition:
    """An account with one family, which a rule and two schedules start."""

    def __init__(self, aws: FakeAws, partition: str) -> None:
        self.aws = aws
        iam = aws.client("iam")
        ecs = aws.client("ecs")
        cluster = ecs.create_cluster(clusterName="jobs")["cluster"]["clusterArn"]
        roles = {}
        for name in ("nightly", "execution"):
            made = iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
            roles[name] = f"arn:{partition}:{made.split(':', 2)[2]}"
        pull = json.dumps(PULL)
        iam.put_role_policy(RoleName="execution", PolicyName="pull", PolicyDocument=pull)
        options = {
            "awslogs-group": "/ecs/nightly",
            "awslogs-region": aws.region,
            "awslogs-stream-prefix": "ecs",
        }
        logged = {**BATCH, "logConfiguration": {"logDriver": "awslogs", "options": options}}
        registered = ecs.register_task_definition(
            family="nightly",
            cpu="1024",
            memory="2048",
            networkMode="awsvpc",
            taskRoleArn=roles["nightly"],
            executionRoleArn=roles["execution"],
            requiresCompatibilities=["FARGATE"],
            containerDefinitions=[logged],
        )["taskDefinition"]["taskDefinitionArn"]
        aws.client("logs").create_log_group(logGroupName="/ecs/nightly")
        push_image(aws)
        network = {"awsvpcConfiguration": {"Subnets": ["subnet-1"], "SecurityGroups": ["sg-1"]}}
        asked = json.dumps({"Cluster": "jobs", "TaskDefinition": "nightly"})
        started = {"TaskDefinitionArn": registered, "NetworkConfiguration": network}
        targets: dict[str, dict[str, Any]] = {
            "night": {"Arn": cluster, "EcsParameters": started},
            "by-hand": {"Arn": f"arn:{partition}:scheduler:::aws-sdk:ecs:runTask", "Input": asked},
        }
        for name, target in targets.items():
            aws.client("scheduler").create_schedule(
                Name=name,
                ScheduleExpression="cron(0 3 * * ? *)",
                FlexibleTimeWindow={"Mode": "OFF"},
                Target={**target, "RoleArn": roles["nightly"]},
            )
        events = aws.client("events")
        events.put_rule(Name="often", ScheduleExpression="rate(1 day)")
        target = {"Id": "1", "Arn": cluster, "RoleArn": roles["nightly"], "EcsParameters": started}
        events.put_targets(Rule="often", Targets=[target])

    def started(self) -> list[str]:
        """The revisions that the schedule and the rule start."""
        schedule = self.aws.client("scheduler").get_schedule(Name="night")["Target"]
        rule = self.aws.client("events").list_targets_by_rule(Rule="often")["Targets"][0]
        return [one["EcsParameters"]["TaskDefinitionArn"] for one in (schedule, rule)]


@pytest.mark.diagonal(1)
@pytest.mark.parametrize(
    ("region", "partition", "domain"),
    [
        ("cn-north-1", "aws-cn", "amazonaws.com.cn"),
        ("us-gov-west-1", "aws-us-gov", "amazonaws.com"),
    ],
)
def test_monitor_size_and_proof_have_the_partitions_names(
    region: str, partition: str, domain: str, tmp_path: Path
) -> None:
    with fake_aws() as made:
        account = Partition(replace(made, region=region), partition)
        ecs = account.aws.client("ecs")
        said = ""

        def done(*words: str, **variables: str) -> str:
            nonlocal said
            home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
            ended = run_here(account.aws.environment() | home | variables, *words)
            assert ended.returncode == 0, ended.stdout + ended.stderr
            said += ended.stdout + ended.stderr
            return ended.stdout

        act = ("--register", "--update-schedules")
        done("taskdef", "add-monitor", "nightly", "--attach-policy", *act)
        family = f"arn:{partition}:ecs:{region}:{ACCOUNT}:task-definition/nightly"
        assert account.started() == [f"{family}:2"] * 2
        (_, monitor) = ecs.describe_task_definition(taskDefinition="nightly")["taskDefinition"][
            "containerDefinitions"
        ]
        assert monitor["image"].startswith(f"{ACCOUNT}.dkr.ecr.{region}.{domain}/task-profiler:")
        policy = account.aws.client("iam").get_role_policy(
            RoleName="nightly", PolicyName="task-profiler"
        )["PolicyDocument"]
        streams = f"arn:{partition}:logs:{region}:{ACCOUNT}:log-group:/ecs/nightly:log-stream:ecs"
        assert policy["Statement"][0]["Resource"] == [f"{streams}/batch/*"]

        file = tmp_path / "runs.jsonl"
        place: dict[str, Any] = {
            "account_id": ACCOUNT,
            "region": region,
            "family": "nightly",
            "revision": "2",
        }
        runs = [report(one, size=OLD, task_id=str(one), **place) for one in range(25)]
        file.write_bytes(lines(lately(runs, time.time_ns())))
        resize = ("taskdef", "resize", "nightly", "--from", str(file), *act)
        if partition == "aws-cn":  # whose prices are not in dollars
            assert "its Region has no known price: set TASK_PROFILER_PRICE_VCPU_HOUR" in done(
                *resize
            )
        prices = {"TASK_PROFILER_PRICE_VCPU_HOUR": "0.3", "TASK_PROFILER_PRICE_GB_HOUR": "0.03"}
        done(*resize, **prices)
        assert account.started() == [f"{family}:3"] * 2
        plan = json.loads(done("setup", "proof", "--cluster", "jobs", "--json"))
        assert plan["taskRole"].startswith(f"arn:{partition}:iam::")
        assert plan["image"].startswith(f"{ACCOUNT}.dkr.ecr.{region}.{domain}/")
        schedules = [json.loads(line) for line in done("schedules", "--json").splitlines()]
        assert {one["name"] for one in schedules} == {"by-hand", "night", "often"}
        assert "arn:aws:" not in said


@pytest.mark.diagonal(1)
@pytest.mark.parametrize(
    ("region", "partition", "domain"),
    [
        ("cn-north-1", "aws-cn", "amazonaws.com.cn"),
        ("us-gov-west-1", "aws-us-gov", "amazonaws.com"),
    ],
)
def test_a_stack_is_made_and_deleted_in_its_partition(
    region: str, partition: str, domain: str, tmp_path: Path
) -> None:
    """Principals have the same names in all partitions; services behind kms:ViaService do not.

    https://docs.aws.amazon.com/cdk/api/v2/docs/aws-cdk-lib.aws_iam.ServicePrincipalOpts.html
    """
    webhook = "https://hooks.slack.com/services/T0/B0/hunter2"
    settings = ("WatchSchedules=true", "RetryOutOfMemory=true", "NoticeEmail=a@example.com")
    words = [word for one in settings for word in ("--parameter", one)]
    with warnings.catch_warnings(), fake_aws() as made:
        warnings.simplefilter("ignore")  # moto says what its CloudFormation leaves out
        account = Account(replace(made, region=region), tmp_path)
        account.aws.create_log_group("/ecs/etl")
        done = account.setup(
            "--log-group", "/ecs/etl", "--slack-failure-webhook", webhook, *words, "--yes"
        )
        assert done.returncode == 0, done.stderr
        written = []
        iam = account.aws.client("iam")
        for role in iam.list_roles()["Roles"]:
            name = role["RoleName"]
            written.append(role["AssumeRolePolicyDocument"])
            for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]:
                read = iam.get_role_policy(RoleName=name, PolicyName=policy)
                written.append(read["PolicyDocument"])
        functions = account.aws.client("lambda").list_functions()["Functions"]
        written += [function.get("Environment") for function in functions]
        text = json.dumps(written)
        assert set(re.findall(r"arn:([\w-]+):", text)) == {partition}
        services = re.findall(rf"[\w-]+\.{region}\.(amazonaws[\w.]*)", text)
        assert domain in services
        assert '"lambda.amazonaws.com"' in text
        deleted = account.setup("--delete", "--yes")
        assert deleted.returncode == 0, deleted.stderr
        assert f"--region {region}" in deleted.stdout
        assert "nothing to delete" in account.setup("--delete").stdout

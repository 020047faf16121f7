"""An account on moto with the forwarder's stack, in which ``task-profiler setup proof`` runs played
tasks.

ECS's answers are played: moto starts no container. Their lines are put where the containers and the
functions put them.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import patch

from moto.awslambda.models import LambdaBackend
from moto.utilities.utils import get_partition
from msgspec.structs import replace

from profiler.cli.setup import proof_output
from profiler.cli.setup.proof_output import print_proof
from profiler.core.ecs_terms import arn_region
from tests.aws_proxy import AwsProxy, Reply
from tests.command_line import run_here
from tests.fakes import FakeClock
from tests.log_subscriptions import put_lines
from tests.setup_account import Account, setup_account
from tools.moto_server import FakeAws, push_image

ACCOUNT = "123456789012"
REGION = "us-east-1"
ARN = f"arn:aws:ecs:{REGION}:{ACCOUNT}"
STACK = "task-profiler"
FUNCTION_GROUP = f"/aws/lambda/{STACK}-task-stopped"
FUNCTION_STREAM = "2026/11/25/[$LATEST]7b3f0c2d9e1a4855b6d0aa41c7f2e893"
MIB = 1 << 20
_NEEDED_MB = 160.0
_MEMBERS = {
    "task": ["Cluster", "Containers", "Family", "KnownStatus", "PullStartedAt", "Revision"],
    "container": [
        *("ContainerARN", "CreatedAt", "DockerId", "Image", "KnownStatus", "Labels", "Limits"),
        *("LogDriver", "LogOptions", "Name", "StartedAt", "Type"),
    ],
    "stats": ["blkio_stats", "cpu_stats", "memory_stats", "networks", "read"],
}
_MEMBERS["task"].append("TaskARN")
PARAMETERS = {
    "ElasticsearchUrl": "https://search:9200",
    "SlackSecretId": "slack",
    "LogGroups": "/ecs/nightly",
    "Subscribe": "groups",
    "Notify": "all",
    "NotifyFamilies": "",
    "ForwardLogLines": "false",
    "Ingestion": "direct",
}
EXIT_CODES = {"success": 0, "failure": 3, "memory": 137}


def place_of(arn: str) -> str:
    """The beginning of each ARN of ECS in the partition, Region and account of one of them."""
    return ":".join(arn.split(":")[:5])


def text_of(seconds: float) -> str:
    return (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03}Z"
    )


def played_members() -> dict[str, list[str]]:
    """The names of what the metadata endpoint has."""
    return _MEMBERS


class PlayedTask:
    """A task that has ended, as ECS describes it, and the lines that it left."""

    def __init__(self, request: dict[str, Any], number: int) -> None:
        self.id = uuid.uuid4().hex
        self.request = request
        (override,) = request["overrides"]["containerOverrides"]
        (self.scenario,) = override["command"]
        self.number = number
        now = time.time()
        # Its whole life passes as fast as the clock of the command.
        self.started = now + 1
        self.finished = now + 45
        self.place = place_of(request["taskDefinition"])
        self.arn = f"{self.place}:task/jobs/{self.id}"
        code = EXIT_CODES[self.scenario]
        batch = {"name": "batch", "exitCode": code, "lastStatus": "STOPPED"}
        if self.scenario == "memory":
            batch["reason"] = "OutOfMemoryError: Container killed due to memory usage"
        self.described: dict[str, Any] = {
            "taskArn": self.arn,
            "clusterArn": f"{self.place}:cluster/jobs",
            "taskDefinitionArn": request["taskDefinition"],
            "lastStatus": "STOPPED",
            "desiredStatus": "STOPPED",
            "launchType": request.get("launchType", "FARGATE"),
            "platformVersion": "1.4.0",
            "startedBy": request["startedBy"],
            "pullStartedAt": self.started - 10,
            "startedAt": self.started,
            "executionStoppedAt": self.finished,
            "stoppedAt": self.finished + 1,
            "stopCode": "EssentialContainerExited",
            "stoppedReason": "Essential container in task exited",
            "containers": [batch, {"name": "task-monitor", "exitCode": 0}],
        }
        self.streams = {"batch": [*self.witness(), self.report()]}
        self.ended: dict[str, Any] | None = {
            "type": "task.ended",
            "taskId": self.id,
            "family": "task-profiler-proof",
            "stopCategory": "oom" if self.scenario == "memory" else "exit",
            "indexed": True,
            "notified": "success" if code == 0 else "failure",
        }

    def witness(self) -> list[dict[str, Any]]:
        line = {
            "type": "proof.witness",
            "heldBytes": 0,
            "startedAt": {
                "batch": text_of(self.started),
                "task-monitor": text_of(self.started + 0.5),
            },
            "members": _MEMBERS,
        }
        steps = {"start": (0.5, 0.04), "hold": (20.5, 19.9), "end": (43.0, 20.0)}
        return [
            {
                **line,
                "step": step,
                "time": self.started + seconds,
                "cpuSeconds": cpu,
                "neededBytes": round(_NEEDED_MB * MIB),
                "writtenBytes": 64 * MIB if step == "end" else 0,
            }
            for step, (seconds, cpu) in steps.items()
        ]

    def report(self) -> dict[str, Any]:
        billed_ms = 60_000
        return {
            "time": text_of(self.finished + 0.4),
            "type": "task.report",
            "schemaVersion": "1.4",
            "record": {
                "taskId": self.id,
                "taskArn": self.arn,
                "cluster": "jobs",
                "family": "task-profiler-proof",
                "accountId": ACCOUNT,
                "region": arn_region(self.arn),
                "launchType": "FARGATE",
                "cpuArchitecture": "X86_64",
                "container": {"name": "batch"},
                "status": "success" if self.scenario == "success" else "failure",
                "exitCode": EXIT_CODES[self.scenario],
                "startedAt": text_of(self.started),
                "finishedAt": text_of(self.finished),
                "taskSize": {"vcpu": 1, "memoryMB": 2048},
                "sampling": {"statsPeriodMs": 10_000, "cpuCoveredPercent": 98.0},
                "metrics": {
                    "durationMs": round((self.finished - self.started) * 1000),
                    "billedDurationMs": billed_ms,
                    "initDurationMs": 10_000,
                    "memorySizeMB": 256,
                    "maxMemoryUsedMB": _NEEDED_MB,
                    "memoryPeakSource": "sampled",
                    "cpuSeconds": 20.05,
                    "blockWriteBytes": 64 * MIB + 24_576,
                    "networkRxBytes": 12_345,
                    "networkTxBytes": 12_345,
                },
                "cost": {"usd": round((0.04048 + 2 * 0.004445) / 60, 8)},
            },
        }


class ProofAccount(Account):
    """Plays ECS for the proof. ``change`` sees each task before its lines are put; a task of which
    it returns False is not started.
    """

    def __init__(self, aws: FakeAws, folder: Path) -> None:
        super().__init__(aws, folder)
        self.tasks: list[PlayedTask] = []
        self.change: Callable[[PlayedTask], object] = lambda _task: None
        answers: dict[str, Reply] = {
            "RunTask": self.run_task,
            "DescribeTasks": self.describe_tasks,
            "ListTasks": self.list_tasks,
            "StopTask": self.stop_task,
            "DescribeAccountPolicies": {"accountPolicies": []},
        }
        self.proxy = AwsProxy(self.environment["AWS_ENDPOINT_URL"], answers=answers)

    def deploy(self, **parameters: str) -> None:
        """The stack's parts that the proof reads, its image, and a cluster with a schedule of the
        family "nightly".
        """
        deploy_stack(self.aws, **parameters)
        push_image(self.aws)
        ecs = self.aws.client("ecs")
        cluster = ecs.create_cluster(clusterName="jobs")["cluster"]["clusterArn"]
        ecs.register_task_definition(
            family="nightly",
            requiresCompatibilities=["FARGATE"],
            networkMode="awsvpc",
            cpu="256",
            memory="512",
            taskRoleArn=self.make_role("nightly-task"),
            executionRoleArn=self.make_role("nightly-execution"),
            containerDefinitions=[{"name": "etl", "image": "etl:1"}],
        )
        subnets = {"awsvpcConfiguration": {"Subnets": ["subnet-1"], "SecurityGroups": ["sg-1"]}}
        self.aws.client("scheduler").create_schedule(
            Name="night",
            ScheduleExpression="cron(0 3 * * ? *)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={
                "Arn": cluster,
                "RoleArn": self.make_role("schedules"),
                "EcsParameters": {
                    "TaskDefinitionArn": f"{place_of(cluster)}:task-definition/nightly",
                    "LaunchType": "FARGATE",
                    "NetworkConfiguration": subnets,
                },
            },
        )

    def delete_stack(self) -> None:
        self.aws.client("cloudformation").delete_stack(StackName=STACK)

    def make_role(self, name: str, *actions: str) -> str:
        iam = self.aws.client("iam")
        role = iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]
        pull = ["ecr:GetAuthorizationToken", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
        if name.endswith("execution"):
            statement = {"Effect": "Allow", "Action": pull, "Resource": "*"}
            document = {"Version": "2012-10-17", "Statement": [statement]}
            iam.put_role_policy(
                RoleName=name, PolicyName="pull", PolicyDocument=json.dumps(document)
            )
        partition = get_partition(self.aws.region)
        return str(role["Arn"]).replace("arn:aws:", f"arn:{partition}:")

    def prove(self, *words: str) -> CompletedProcess[str]:
        """Run the command, for which six minutes pass in no time."""
        clock = FakeClock()
        clock.wall_offset_ns = time.time_ns()
        environment = self.environment | {"AWS_ENDPOINT_URL": self.proxy.url}
        with (
            functions_get_no_lines(),
            patch.object(proof_output, "print_proof", partial(print_proof, clock=clock)),
        ):
            return run_here(environment, "setup", "proof", "--cluster", "jobs", *words)

    def run_task(self, request: dict[str, Any]) -> dict[str, Any]:
        task = PlayedTask(request, len(self.tasks))
        if self.change(task) is False:
            return {"tasks": [], "failures": [{"reason": "RESOURCE:CPU"}]}
        self.tasks.append(task)
        logs = self.aws.client("logs")
        definition = self.aws.client("ecs").describe_task_definition(
            taskDefinition=request["taskDefinition"]
        )["taskDefinition"]
        options = definition["containerDefinitions"][0]["logConfiguration"]["options"]
        for container, lines in task.streams.items():
            stream = f"ecs/{container}/{task.id}"
            put_lines(logs, options["awslogs-group"], stream, *map(json.dumps, lines))
        if task.ended is not None:
            put_lines(logs, FUNCTION_GROUP, FUNCTION_STREAM, json.dumps(task.ended))
        return {"tasks": [{**task.described, "lastStatus": "PROVISIONING"}], "failures": []}

    def describe_tasks(self, request: dict[str, Any]) -> dict[str, Any]:
        found = [task.described for task in self.tasks if task.arn in request["tasks"]]
        return {"tasks": found, "failures": []}

    def list_tasks(self, request: dict[str, Any]) -> dict[str, Any]:
        running = [
            task.arn
            for task in self.tasks
            if task.described["startedBy"] == request["startedBy"]
            and task.described["desiredStatus"] == "RUNNING"
        ]
        return {"taskArns": running}

    def stop_task(self, request: dict[str, Any]) -> dict[str, Any]:
        (task,) = [one for one in self.tasks if one.arn == request["task"]]
        task.described |= {"desiredStatus": "STOPPED", "lastStatus": "STOPPED"}
        return {"task": task.described}


def deploy_stack(aws: FakeAws, **parameters: str) -> None:
    """A stack with the outputs of the forwarder's, which moto leaves out where they are
    conditional.
    """
    role = aws.client("iam").create_role(RoleName="lambda", AssumeRolePolicyDocument="{}")["Role"]
    functions = {"ForwardLogs": f"{STACK}-forward-logs", "TaskStopped": f"{STACK}-task-stopped"}
    resources: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for title, name in functions.items():
        resources[f"{title}Function"] = {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "FunctionName": name,
                "Runtime": "python3.13",
                "Handler": "handler.handle",
                "Role": role["Arn"],
                "Code": {"ZipFile": "def handle(event, context): pass"},
            },
        }
        outputs[f"{title}FunctionName"] = {"Value": name}
        resources[f"{title}LogGroup"] = {
            "Type": "AWS::Logs::LogGroup",
            "Properties": {"LogGroupName": f"/aws/lambda/{name}"},
        }
    for title in ("ForwardLogsDeadLetterQueue", "TaskStoppedDeadLetterQueue", "FailedItemsQueue"):
        name = f"{STACK}-{title}"
        resources[title] = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": name}}
        outputs[f"{title}Url"] = {"Value": {"Ref": title}}
    given = {**PARAMETERS, **parameters}
    template = {
        "Parameters": {name: {"Type": "String", "Default": value} for name, value in given.items()},
        "Resources": resources,
        "Outputs": outputs,
    }
    aws.client("cloudformation").create_stack(StackName=STACK, TemplateBody=json.dumps(template))


def functions_get_no_lines() -> Any:
    """A patch of moto, whose subscriptions start functions in Docker."""
    return patch.object(LambdaBackend, "send_log_event", lambda *_, **__: None)


@contextmanager
def proof_account(folder: Path, region: str = REGION) -> Iterator[ProofAccount]:
    with setup_account(folder) as made:
        account = ProofAccount(replace(made.aws, region=region), folder)
        account.deploy()
        try:
            yield account
        finally:
            account.proxy.close()

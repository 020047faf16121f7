"""An account in which ``task-profiler setup proof --queue`` runs played jobs: AWS Batch is
``tests/fake_batch.py``, ECS is played, and moto is the rest.

Batch's double has another account and Region than moto: the tasks of the jobs are moto's, whose
log group their lines are in.
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

from moto.utilities.utils import get_partition
from msgspec.structs import replace

from profiler.cli.setup import proof_output
from profiler.cli.setup.proof_output import print_proof
from profiler.core.ecs_terms import arn_region
from tests.aws_proxy import AwsProxy, Reply
from tests.batch_jobs import CLUSTER, Json
from tests.command_line import run_here
from tests.fake_batch import FakeBatch
from tests.fakes import FakeClock
from tests.log_subscriptions import put_lines
from tests.proof_account import (
    ACCOUNT,
    ARN,
    EXIT_CODES,
    FUNCTION_GROUP,
    FUNCTION_STREAM,
    REGION,
    STACK,
    deploy_stack,
    functions_get_no_lines,
    played_members,
    text_of,
)
from tests.setup_account import Account, setup_account
from tools.moto_server import FakeAws, push_image

MIB = 1 << 20
QUEUE = "nightly"
IMAGE = "task-profiler:0.1.0"
_HELD_BYTES = 150_000_000
_NEEDED_BYTES = 190 * MIB


class PlayedJob:
    """A job of the proof that has ended, its task as ECS describes it, and the lines that it left.

    ``is_ended`` False: it runs until somebody ends it.
    """

    def __init__(self, job: Json, definition: Json, place: str = ARN) -> None:
        self.job = job
        self.container = definition["containerProperties"]
        self.scenario: str = self.container["command"][-1]
        self.id = uuid.uuid4().hex
        self.arn = f"{place}:task/{CLUSTER}/{self.id}"
        self.is_ended = True
        now = time.time()
        self.started = now + 1
        self.finished = now + 45
        self.stream = f"task-profiler-proof/default/{self.id}"
        code = EXIT_CODES[self.scenario]
        ended: Json = {"name": "default", "exitCode": code, "lastStatus": "STOPPED"}
        if self.scenario == "memory":
            ended["reason"] = "OutOfMemoryError: Container killed due to memory usage"
        self.described: Json = {
            "taskArn": self.arn,
            "clusterArn": f"{place}:cluster/{CLUSTER}",
            "taskDefinitionArn": f"{place}:task-definition/task-profiler-proof:7",
            "lastStatus": "STOPPED",
            "desiredStatus": "STOPPED",
            "launchType": "FARGATE",
            "platformVersion": "1.4.0",
            "pullStartedAt": self.started - 10,
            "startedAt": self.started,
            "executionStoppedAt": self.finished,
            "stoppedAt": self.finished + 1,
            "stopCode": "EssentialContainerExited",
            "stoppedReason": "Essential container in task exited",
            "containers": [ended],
        }
        self.lines = [*self.witness(), self.report()]
        self.ended: Json | None = {
            "type": "task.ended",
            "taskId": self.id,
            "family": "task-profiler-proof",
            "outcome": "oom" if self.scenario == "memory" else "failure",
            "indexed": True,
            "notified": "success" if code == 0 else "failure",
        }

    def witness(self) -> list[Json]:
        steps = {"start": (0.5, 0.04, 0), "hold": (20.5, 19.9, 0), "end": (43.0, 20.0, 64 * MIB)}
        return [
            {
                "type": "proof.witness",
                "step": step,
                "time": self.started + seconds,
                "cpuSeconds": cpu,
                "neededBytes": _NEEDED_BYTES,
                "heldBytes": _HELD_BYTES if step == "end" else 0,
                "writtenBytes": written,
                "startedAt": {"default": text_of(self.started)},
                "members": played_members(),
            }
            for step, (seconds, cpu, written) in steps.items()
        ]

    def report(self) -> Json:
        size = {one["type"]: float(one["value"]) for one in self.container["resourceRequirements"]}
        code = EXIT_CODES[self.scenario]
        hour_usd = size["VCPU"] * 0.04048 + size["MEMORY"] / 1024 * 0.004445
        return {
            "time": text_of(self.finished + 0.4),
            "type": "task.report",
            "schemaVersion": "1.4",
            "record": {
                "taskId": self.id,
                "taskArn": self.arn,
                "cluster": CLUSTER,
                "family": "task-profiler-proof",
                "accountId": ACCOUNT,
                "region": arn_region(self.arn),
                "launchType": "FARGATE",
                "cpuArchitecture": "X86_64",
                "container": {"name": "default"},
                "batch": {"jobId": self.job["jobId"], "queue": QUEUE, "attempt": 1},
                "status": "success" if code == 0 else "failure",
                "exitCode": code,
                "startedAt": text_of(self.started),
                "finishedAt": text_of(self.finished),
                "taskSize": {"vcpu": size["VCPU"], "memoryMB": size["MEMORY"]},
                "metrics": {
                    "durationMs": round((self.finished - self.started) * 1000),
                    "billedDurationMs": 60_000,
                    "memorySizeMB": size["MEMORY"],
                    "maxMemoryUsedMB": 161.5,
                    "cpuSeconds": 20.05,
                    "blockWriteBytes": 64 * MIB + 24_576,
                },
                "cost": {"usd": round(hour_usd / 60, 8)},
            },
        }


class JobProofAccount(Account):
    """``change`` sees each job before its lines are put."""

    def __init__(self, aws: FakeAws, folder: Path) -> None:
        super().__init__(aws, folder)
        self.partition = get_partition(aws.region)
        self.place = f"arn:{self.partition}:ecs:{aws.region}:{ACCOUNT}"
        self.played: list[PlayedJob] = []
        self.change: Callable[[PlayedJob], object] = lambda _job: None
        self.batch = FakeBatch()
        self.batch.on_submit = self._play
        self.batch.on_terminate = self._stop
        answers: dict[str, Reply] = {
            "DescribeTasks": self.describe_tasks,
            "DescribeAccountPolicies": {"accountPolicies": []},
        }
        self.proxy = AwsProxy(self.environment["AWS_ENDPOINT_URL"], answers=answers)

    def deploy(self) -> None:
        """The stack, the image, and a queue with a job that succeeded."""
        deploy_stack(self.aws)
        push_image(self.aws)
        role = self._make_role()
        self.batch.add_queue(QUEUE, "fargate")
        network = {"networkConfiguration": {"assignPublicIp": "ENABLED"}}
        properties = {
            "image": "etl:1",
            "executionRoleArn": role,
            "resourceRequirements": [
                {"type": "VCPU", "value": "1"},
                {"type": "MEMORY", "value": "2048"},
            ],
            **network,
        }
        self.definition = self.batch.define(
            "etl", containerProperties=properties, platformCapabilities=["FARGATE"]
        )
        job = self.batch.submit("etl", QUEUE, self.definition)
        self.batch.begin(job)
        self.batch.end(job)
        self.batch.calls.clear()

    def _make_role(self) -> str:
        iam = self.aws.client("iam")
        role = iam.create_role(RoleName="etl-execution", AssumeRolePolicyDocument="{}")["Role"]
        pull = ["ecr:GetAuthorizationToken", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
        statement = {"Effect": "Allow", "Action": [*pull, "logs:*"], "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_role_policy(
            RoleName="etl-execution", PolicyName="execution", PolicyDocument=document
        )
        return str(role["Arn"]).replace("arn:aws:", f"arn:{self.partition}:")

    def close(self) -> None:
        self.batch.close()
        self.proxy.close()

    def prove(self, *words: str) -> CompletedProcess[str]:
        """Run the command, for which six minutes pass in no time."""
        clock = FakeClock()
        clock.wall_offset_ns = time.time_ns()
        environment = self.environment | {"AWS_ENDPOINT_URL": self.proxy.url}
        environment |= self.batch.environment()
        with (
            functions_get_no_lines(),
            patch.object(proof_output, "print_proof", partial(print_proof, clock=clock)),
        ):
            return run_here(environment, "setup", "proof", *words)

    def _play(self, job: Json) -> None:
        """Run the job's program, unless it is not the proof's."""
        if not job["jobName"].startswith("task-profiler-proof-"):
            return
        definition = self.batch.definition(job["jobDefinition"])
        played = PlayedJob(job, definition, self.place)
        if self.change(played) is False:
            return
        self.played.append(played)
        self.batch.begin(job)
        job["container"] |= {"taskArn": played.arn, "logStreamName": played.stream}
        if not played.is_ended:
            played.described |= {"lastStatus": "RUNNING", "desiredStatus": "RUNNING"}
            return
        self.batch.end(job, EXIT_CODES[played.scenario])
        place = {"taskArn": played.arn, "logStreamName": played.stream}
        job["attempts"][-1]["container"] |= place
        logs = self.aws.client("logs")
        group = played.container["logConfiguration"]["options"]["awslogs-group"]
        put_lines(logs, group, played.stream, *map(json.dumps, played.lines))
        if played.ended is not None:
            put_lines(logs, FUNCTION_GROUP, FUNCTION_STREAM, json.dumps(played.ended))

    def _stop(self, job: Json) -> None:
        for played in self.played:
            if played.job["jobId"] == job["jobId"]:
                played.described |= {"lastStatus": "STOPPED", "desiredStatus": "STOPPED"}

    def describe_tasks(self, request: dict[str, Any]) -> dict[str, Any]:
        assert request["cluster"] == CLUSTER
        found = [one.described for one in self.played if one.arn in request["tasks"]]
        return {"tasks": found, "failures": []}

    def delete_stack(self) -> None:
        self.aws.client("cloudformation").delete_stack(StackName=STACK)


@contextmanager
def job_proof_account(folder: Path, region: str = REGION) -> Iterator[JobProofAccount]:
    with setup_account(folder) as made:
        account = JobProofAccount(replace(made.aws, region=region), folder)
        account.deploy()
        try:
            yield account
        finally:
            account.close()

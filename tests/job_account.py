"""An account with job definitions of AWS Batch, on the double of Batch and on moto, whose runs are
in a file, for ``taskdef resize --job-definition``.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from msgspec.structs import replace

from profiler.record.batch_job import NO_JOB, BatchJob
from profiler.record.record_model import UNKNOWN_SIZE, Report, Visible
from tests import batch_jobs
from tests.batch_jobs import arn, job_id
from tests.command_line import run_here
from tests.fake_batch import FakeBatch, requirement
from tests.family_windows import lately
from tests.runs import lines, report
from tests.step_functions import SUBMIT_JOB, machine, make_machine, running
from tools.moto_server import FakeAws, OwnedResource

CLUSTER = batch_jobs.CLUSTER
OLD, NEW = (1.0, 2048), (0.25, 512)
KILLED: dict[str, Any] = {"likely_out_of_memory": True, "status": "failure", "exit_code": 137}
DEFINITION = "AWS::Batch::JobDefinition"
_SUBMIT_JOB = "arn:aws:scheduler:::aws-sdk:batch:submitJob"
Sizes = tuple[float, int]


def ec2(vcpu: int = 4, memory_mb: int = 8192, **container: Any) -> dict[str, Any]:
    """A definition on EC2, with the deprecated members."""
    return {
        "containerProperties": {
            "image": "etl:26",
            "vcpus": vcpu,
            "memory": memory_mb,
            **container,
        },
        "platformCapabilities": ["EC2"],
    }


def two_containers(
    batch: Sizes = (0.75, 1920), beside: Sizes = (0.25, 128), **more: Any
) -> dict[str, Any]:
    """A definition with the batch and its monitor, on Fargate."""
    named = (
        ("etl", "etl:26", batch),
        ("task-monitor", "team/task-profiler:1", beside),
    )
    containers = [
        {
            "name": name,
            "image": image,
            "essential": name == "etl",
            "resourceRequirements": [
                {"type": "VCPU", "value": f"{size[0]:g}"},
                {"type": "MEMORY", "value": str(size[1])},
            ],
        }
        for name, image, size in named
    ]
    return {
        "ecsProperties": {"taskProperties": [{"containers": containers}]},
        "platformCapabilities": ["FARGATE"],
        **more,
    }


class JobAccount:
    """An account whose runs are in a file."""

    def __init__(self, aws: FakeAws, batch: FakeBatch, folder: Path) -> None:
        self.aws = aws
        self.batch = batch
        self.url = aws.url
        self.file = folder / "jobs.jsonl"
        self.reports: list[Report] = []
        self.file.write_bytes(b"")
        batch.add_queue("nightly", "spot")

    def oversized(self, *names: str) -> None:
        """Definitions whose jobs need a quarter of their size."""
        for name in names:
            self.batch.define(name)
            self.runs(name, 25)

    def runs(
        self,
        name: str,
        count: int,
        revision: int = 1,
        size: Sizes = OLD,
        job: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Jobs after those that the definition has; the task's family is of another name."""
        start = sum(one.record.batch != NO_JOB for one in self.reports)
        for number in range(start, start + count):
            of_job: dict[str, Any] = {
                "job_id": job_id(number),
                "job_name": f"{name}-{number}",
                "job_definition": name,
                "job_definition_revision": revision,
                "queue": "nightly",
                "attempt": 1,
            }
            given: dict[str, Any] = {
                "family": f"{name}-of-batch",
                "revision": "77",
                "task_id": f"{name}-{number}",
                "account_id": batch_jobs.ACCOUNT,
                "region": batch_jobs.REGION,
                "cluster": CLUSTER,
                "batch": BatchJob(**of_job | dict(job or {})),
                **more,
            }
            self.reports.append(report(number, size=size, **given))
        self._write()

    def runs_on_instances(
        self, name: str, count: int, size: Sizes, seen_mb: float = 15_900, **more: Any
    ) -> None:
        """Jobs on EC2, whose size is their container's."""
        metrics = {"vcpu_share": size[0], "vcpu_size": 8, **more.pop("metrics", {})}
        before = len(self.reports)
        self.runs(name, count, size=size, launch_type="EC2", metrics=metrics, **more)
        for number in range(before, len(self.reports)):
            one = self.reports[number]
            visible = Visible(memory_mb=seen_mb, cpus=8)
            record = replace(one.record, task_size=UNKNOWN_SIZE, visible=visible)
            self.reports[number] = replace(one, record=record)
        self._write()

    def add(self, *reports: Report) -> None:
        self.reports += reports
        self._write()

    def _write(self) -> None:
        self.file.write_bytes(lines(lately(self.reports, time.time_ns())))

    def resize(self, *words: str, source: str | None = None) -> CompletedProcess[str]:
        """The command for all job definitions, or with other words."""
        environment = (
            self.aws.environment() | self.batch.environment() | {"AWS_ENDPOINT_URL": self.url}
        )
        if not {"--job-definition", "--queue"} & set(words):
            words = ("--job-definition", "*", *words)
        call = ("taskdef", "resize", "--from", source or str(self.file), *words)
        return run_here(environment, *call)

    def rows(
        self, *words: str, source: str | None = None, code: int = 0
    ) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
        """The rows by their definitions, and the total."""
        done = self.resize("--json", *words, source=source)
        assert done.returncode == code, done.stderr
        *found, total = map(json.loads, done.stdout.splitlines())
        return {one["family"]: one for one in found}, total

    def newest(self, name: str) -> dict[str, Any]:
        """The newest active revision."""
        return self.batch.definition(name)

    def sizes(self, name: str) -> list[Sizes]:
        """What each container of the newest active revision asks for."""
        found = self.newest(name)
        tasks = found.get("ecsProperties", {}).get("taskProperties")
        containers = tasks[0]["containers"] if tasks else [found["containerProperties"]]
        return [(requirement(one, "VCPU"), round(requirement(one, "MEMORY"))) for one in containers]

    def own(self, name: str, revision: int = 1) -> None:
        """Let a stack of CloudFormation own a revision."""
        self.aws.own(
            OwnedResource(
                stack_name="jobs",
                physical_resource_id=arn("job-definition", f"{name}:{revision}"),
                resource_type=DEFINITION,
            )
        )

    def rule(self, name: str, definition: str, **content: Any) -> None:
        """A rule that submits a job each day."""
        events = self.aws.client("events")
        events.put_rule(Name=name, ScheduleExpression="rate(1 day)")
        target = {
            "Id": "1",
            "Arn": arn("job-queue", "nightly"),
            "RoleArn": f"arn:aws:iam::{batch_jobs.ACCOUNT}:role/rules",
            "BatchParameters": {"JobDefinition": definition, "JobName": name},
            **content,
        }
        events.put_targets(Rule=name, Targets=[target])

    def schedule(self, name: str, definition: str, **more: Any) -> None:
        """A schedule that submits a job each night, with parameters that nobody may see."""
        request = {
            "JobName": name,
            "JobQueue": "nightly",
            "JobDefinition": definition,
            "Parameters": {"password": batch_jobs.SECRETS[2]},
            **more,
        }
        self.schedule_input(name, json.dumps(request))

    def schedule_input(self, name: str, text: str) -> None:
        """A schedule that submits a job each night by this input."""
        self.aws.client("scheduler").create_schedule(
            Name=name,
            ScheduleExpression="cron(0 3 * * ? *)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={
                "Arn": _SUBMIT_JOB,
                "RoleArn": f"arn:aws:iam::{batch_jobs.ACCOUNT}:role/schedules",
                "Input": text,
            },
        )

    def state_machine(self, name: str, definition: str, **more: Any) -> None:
        """A state machine with one state, ``Run``, which submits a job and waits for it."""
        request = {"JobName": name, "JobQueue": "nightly", "JobDefinition": definition, **more}
        client = self.aws.client("stepfunctions")
        make_machine(client, name, machine(running(request, SUBMIT_JOB)))

    def submitted_by_rule(self, name: str) -> Any:
        (target,) = self.aws.client("events").list_targets_by_rule(Rule=name)["Targets"]
        return target["BatchParameters"]

    def submitted_by_schedule(self, name: str) -> Any:
        return json.loads(self.schedule_text(name))

    def schedule_text(self, name: str) -> str:
        """A schedule's input as it is kept."""
        schedule = self.aws.client("scheduler").get_schedule(Name=name)
        return str(schedule["Target"]["Input"])

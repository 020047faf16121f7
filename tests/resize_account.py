"""An account with families of ECS, on moto, whose runs are in a file, for ``taskdef resize``."""

import json
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError
from moto.core.utils import utcnow
from moto.logs.models import logs_backends
from msgspec.structs import replace

from profiler.aws_account import cloudformation_owners
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms, parse_ns
from profiler.record.record_model import Record, Report, encode
from tests.command_line import run_here
from tests.family_windows import lately
from tests.run_sources import put_in_own_streams
from tests.runs import lines, report
from tests.step_functions import machine, make_machine, running
from tools.moto_server import FakeAws, OwnedResource

ACCOUNT = "123456789012"
CLUSTER = f"arn:aws:ecs:us-east-1:{ACCOUNT}:cluster/jobs"
DEFINITIONS = f"arn:aws:ecs:us-east-1:{ACCOUNT}:task-definition"
LOG_GROUP = "/ecs/jobs"
STOPPED_GROUP = "/aws/lambda/task-profiler-task-stopped"
FUNCTION_STREAM = "2026/11/26/[$LATEST]0123456789abcdef0123456789abcdef"
_GROUP = {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": STOPPED_GROUP}}
_STACK = json.dumps({"Resources": {"Group": _GROUP}})


def logs_to(group: str, prefix: str = "ecs") -> dict[str, Any]:
    """A container's log configuration."""
    options = {
        "awslogs-group": group,
        "awslogs-region": "us-east-1",
        "awslogs-stream-prefix": prefix,
    }
    return {"logConfiguration": {"logDriver": "awslogs", "options": options}}


BATCH: dict[str, Any] = {
    "name": "batch",
    "image": "etl:26",
    "memory": 1900,
    **logs_to(LOG_GROUP),
}
MONITOR = {
    "name": "task-monitor",
    "image": "team/task-profiler:1",
    "memory": 128,
    "memoryReservation": 32,
    **logs_to(LOG_GROUP),
}
OLD, NEW = (1.0, 2048), (0.25, 512)
STACK_TAG = {"key": "aws:cloudformation:stack-name", "value": "jobs"}
KILLED: dict[str, Any] = {"likely_out_of_memory": True, "status": "failure", "exit_code": 137}


def lists_a_stack_early(aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be a stack, whose resources a plan of few families lists as one of many does."""
    monkeypatch.setattr(cloudformation_owners, "_FIRST_LISTING", 2)
    bucket = {"physical_resource_id": "data", "resource_type": "AWS::S3::Bucket"}
    aws.own(OwnedResource(stack_name="data", **bucket))


class Account:
    """An account whose runs are in a file."""

    def __init__(self, aws: FakeAws, folder: Path) -> None:
        self.aws = aws
        self.file = folder / "runs.jsonl"
        self.home = folder / "home"
        self.ecs = aws.client("ecs")
        self.ecs.create_cluster(clusterName="jobs")
        self.reports: list[Report] = []
        self.url = aws.url

    def family(self, name: str, size: tuple[float, int] = OLD, **more: Any) -> None:
        units, memory = str(round(size[0] * 1024)), str(size[1])
        given = {
            "containerDefinitions": [BATCH, MONITOR],
            "requiresCompatibilities": ["FARGATE"],
            **more,
        }
        self.ecs.register_task_definition(family=name, cpu=units, memory=memory, **given)

    def runs(
        self, family: str, count: int, revision: int = 1, size: tuple[float, int] = OLD, **more: Any
    ) -> None:
        """Runs after those that the family has."""
        self.add_runs(family, count, revision, size, **more)
        self.write_runs()

    def write_runs(self) -> None:
        self.file.write_bytes(lines(lately(self.reports, time.time_ns())))

    def add_runs(
        self, family: str, count: int, revision: int = 1, size: tuple[float, int] = OLD, **more: Any
    ) -> None:
        """As ``runs``, before ``write_runs`` writes those of all families."""
        start = sum(one.record.family == family for one in self.reports)
        for number in range(start, start + count):
            known: dict[str, Any] = {
                "family": family,
                "revision": str(revision),
                "task_id": f"{family}-{number}",
            }
            self.reports.append(report(number, size=size, account_id=ACCOUNT, **known, **more))

    def resized(self) -> None:
        """A family that the command has made smaller, by its runs."""
        self.family("nightly")
        self.runs("nightly", 25)
        assert self.resize("--register").returncode == 0

    def reverted(self) -> None:
        """A family whose old size has come back after a kill, by its tag, because its revision
        was deleted.
        """
        self.resized()
        self.runs("nightly", 1, revision=2, size=NEW, **KILLED)
        self.ecs.deregister_task_definition(taskDefinition="nightly:1")
        self.ecs.delete_task_definitions(taskDefinitions=["nightly:1"])
        assert self.resize("--register").returncode == 0
        after, found = self.described("nightly")
        assert after["cpu"] == "1024"
        assert after["memory"] == "2048"
        assert found == {"task-profiler:reverted-from": "2/256/512"}

    def moved_logs(self, name: str, group: str, prefix: str = "ecs") -> None:
        """A family, or a new revision of it, that logs elsewhere."""
        containers = [{**one, **logs_to(group, prefix)} for one in (BATCH, MONITOR)]
        self.family(name, containerDefinitions=containers)

    def put_reports(
        self, group: str, prefix: str = "ecs", logs: Any = None, *, ended_as: str | None = None
    ) -> None:
        """The runs as lines of a log group: each family's last 25, within 13 days, because
        CloudWatch takes no line that is older than 14. The account has no runs afterwards.
        ``logs``: the client of another Region. The stack has seen each of the tasks end, by the
        name of another family if it is one (``ended_as``).
        """
        self.install_stack()
        logs = logs or self.aws.client("logs")
        with suppress(logs.exceptions.ResourceAlreadyExistsException):
            logs.create_log_group(logGroupName=group)
            self.age_group(group, region=logs.meta.region_name)
        now_ns = time.time_ns()
        ages: Counter[str | None] = Counter()
        for made in reversed(self.reports):
            ended_ns = now_ns - ages[made.record.family] * 13 * 3600 * NS_PER_SECOND
            ages[made.record.family] += 1
            record = replace(
                made.record,
                task_id=uuid4().hex,
                started_at=format_ms(ended_ns - 590 * NS_PER_SECOND),
                finished_at=format_ms(ended_ns),
            )
            line = encode(replace(made, time=format_ms(ended_ns), record=record)).decode()
            put_in_own_streams(logs, group, line, prefix=prefix)
            self.put_ended(replace(record, family=ended_as or record.family))
        self.reports = []

    def install_stack(self) -> None:
        """The stack with the log group of task_stopped, a year ago; once."""
        cloudformation = self.aws.client("cloudformation")
        with suppress(ClientError):
            cloudformation.create_stack(StackName="task-profiler", TemplateBody=_STACK)
            self.aws.create_log_stream(STOPPED_GROUP, FUNCTION_STREAM)
            self.age_group(STOPPED_GROUP)

    def age_group(self, group: str, days: float = 365, region: str = "us-east-1") -> None:
        """Let a log group be so many days old."""
        of_region = logs_backends[ACCOUNT][region]
        of_region.groups[group].creation_time = utcnow() - timedelta(days=days)

    def put_ended(self, record: Record, stream: str = FUNCTION_STREAM) -> None:
        """The line of task_stopped about a task, put into moto's own state: a request a line would
        take most of the time of a test.
        """
        line = {
            "type": "task.ended",
            "taskId": record.task_id,
            "family": record.family,
            "revision": record.revision,
            "container": record.container.name,
            "outcome": "oom" if record.likely_out_of_memory else "success",
            "metrics": {"maxMemoryUsedMB": record.metrics.max_memory_used_mb},
        }
        ended_ns = parse_ns(record.finished_at) or 0
        event = {"timestamp": ended_ns // NS_PER_MS, "message": json.dumps(line)}
        logs_backends[ACCOUNT]["us-east-1"].put_log_events(STOPPED_GROUP, stream, [event])

    def resize(self, *words: str) -> CompletedProcess[str]:
        environment = self.aws.environment() | {"AWS_ENDPOINT_URL": self.url}
        return run_here(environment, "taskdef", "resize", "--from", str(self.file), *words)

    def resize_by_logs(self, *words: str) -> dict[str, dict[str, Any]]:
        """The rows by their families, from all log groups."""
        environment = self.aws.environment() | {"AWS_ENDPOINT_URL": self.url}
        call = ("taskdef", "resize", "--from", "logs:*", "--register", "--json")
        done = run_here(environment, *call, *words)
        assert done.returncode == 0, done.stderr
        *families, _ = map(json.loads, done.stdout.splitlines())
        return {one["family"]: one for one in families}

    def logging_to(self, group: str, name: str, count: int = 25) -> None:
        """A family that needs a quarter of its size, and whose runs are in a group of its own."""
        self.moved_logs(name, group)
        self.runs(name, count, cluster="jobs")
        self.put_reports(group)

    def command(self, *words: str, **variables: str) -> CompletedProcess[str]:
        """A command without a source, in a home without a history."""
        home = str(self.home)
        own = {"AWS_ENDPOINT_URL": self.url, "HOME": home, "XDG_DATA_HOME": home}
        return run_here(self.aws.environment() | own | variables, *words)

    def oversized(self, *names: str) -> None:
        """Families that need a quarter of their size."""
        for name in names:
            self.family(name)
            self.runs(name, 25)

    def newest(self, *names: str) -> list[int]:
        """The numbers of the families' newest revisions."""
        return [self.described(name)[0]["revision"] for name in names]

    def schedule(
        self,
        name: str,
        definition: str,
        source: object = None,
        expression: str = "cron(0 3 * * ? *)",
        **more: Any,
    ) -> None:
        """A schedule that starts a definition each night, with an input."""
        target = {
            "Arn": CLUSTER,
            "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/schedules",
            "EcsParameters": {"TaskDefinitionArn": f"{DEFINITIONS}/{definition}"},
        }
        if source is not None:
            target["Input"] = source if isinstance(source, str) else json.dumps(source)
        self.aws.client("scheduler").create_schedule(
            Name=name,
            ScheduleExpression=expression,
            FlexibleTimeWindow={"Mode": "OFF"},
            Target=target,
            **more,
        )

    def universal_schedule(self, name: str, request: str | Mapping[str, object]) -> None:
        """A schedule that calls RunTask itself each night, with this request."""
        self.aws.client("scheduler").create_schedule(
            Name=name,
            ScheduleExpression="cron(0 3 * * ? *)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={
                "Arn": "arn:aws:scheduler:::aws-sdk:ecs:runTask",
                "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/schedules",
                "Input": request if isinstance(request, str) else json.dumps(request),
            },
        )

    def state_machine(
        self, name: str, request: Mapping[str, object], field: str = "Parameters"
    ) -> None:
        """A state machine with one state, ``Run``, which calls RunTask with this request."""
        client = self.aws.client("stepfunctions")
        make_machine(client, name, machine(running(request, field=field)))

    def rule(self, name: str, definition: str, bus: str = "default", **content: Any) -> None:
        """A rule that starts a definition, on an event bus that may be a new one."""
        events = self.aws.client("events")
        when: dict[str, str] = {"ScheduleExpression": "rate(1 day)"}
        if bus != "default":
            events.create_event_bus(Name=bus)
            when = {"EventPattern": '{"source": ["jobs"]}'}
        events.put_rule(Name=name, EventBusName=bus, **when)
        target = {
            "Id": "1",
            "Arn": CLUSTER,
            "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/rules",
            "EcsParameters": {"TaskDefinitionArn": f"{DEFINITIONS}/{definition}"},
            **content,
        }
        events.put_targets(Rule=name, EventBusName=bus, Targets=[target])

    def started_by_schedule(self, name: str, group: str = "default") -> str:
        """The revision that a schedule starts."""
        schedule = self.aws.client("scheduler").get_schedule(Name=name, GroupName=group)
        return str(schedule["Target"]["EcsParameters"]["TaskDefinitionArn"].rpartition("/")[2])

    def started_by_rule(self, name: str, bus: str = "default") -> str:
        targets = self.aws.client("events").list_targets_by_rule(Rule=name, EventBusName=bus)
        arn = targets["Targets"][0]["EcsParameters"]["TaskDefinitionArn"]
        return str(arn.rpartition("/")[2])

    def rows(self, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The rows by their families, and the total."""
        done = self.resize("--json", *words)
        assert done.returncode == 0, done.stderr
        *families, total = map(json.loads, done.stdout.splitlines())
        return {one["family"]: one for one in families}, total

    def described(self, name: str) -> tuple[dict[str, Any], dict[str, str]]:
        answer = self.ecs.describe_task_definition(taskDefinition=name, include=["TAGS"])
        return answer["taskDefinition"], {
            tag["key"]: tag["value"] for tag in answer.get("tags", [])
        }

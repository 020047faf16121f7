"""The tasks of a cluster as ECS lists and describes them."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.running_tasks.watched_tasks import RunningTasks
from tests.fakes import START_NS
from tests.sidecars import awslogs

PREFIX = "arn:aws:ecs:eu-west-1:111122223333:"
IMAGE = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/task-profiler:1"


def container(name: str, group: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "etl:1", "logConfiguration": awslogs(group), **more}


MONITOR = {**container("task-monitor", "/ecs/monitors"), "image": IMAGE}
BATCH = container("batch", "/ecs/jobs")
DEFINITIONS = {
    "nightly": [BATCH, MONITOR],
    "own-group": [BATCH, {**MONITOR, "environment": [{"name": "TASK_PROFILER_LOG_GROUP", "value": "/ecs/reports"}]}],
    "several": [BATCH, container("second", "/ecs/second"), MONITOR],
    "plain": [BATCH],
    "wrapped": [container("batch", "/ecs/wrapped", command=["task-profiler", "run", "--", "etl"])],
    "foreign": [BATCH, {**MONITOR, "image": "other/agent:1"}],
}


class FakeEcs:
    """Plays the operations of ECS that are used."""

    def __init__(self, *families: str) -> None:
        self.tasks = {f"{PREFIX}task/jobs/id-{family}": self.task(family) for family in families}
        self.described: list[str] = []
        self.refused = 0

    def task(self, family: str, **more: Any) -> dict[str, Any]:
        return {
            "taskArn": f"{PREFIX}task/jobs/id-{family}",
            "taskDefinitionArn": f"{PREFIX}task-definition/{family}:7",
            "clusterArn": f"{PREFIX}cluster/jobs",
            "group": f"family:{family}",
            "lastStatus": "RUNNING",
            "startedAt": datetime(2025, 11, 20, 0, 50, tzinfo=UTC),
            "cpu": "512",
            "memory": "1024",
            "containers": [{"name": "batch"}],
            **more,
        }

    def end(self, family: str, exit_code: int | None, **more: Any) -> None:
        arn = f"{PREFIX}task/jobs/id-{family}"
        containers = [{"name": "batch", **({} if exit_code is None else {"exitCode": exit_code})}]
        self.tasks[arn] = self.task(family, **{"lastStatus": "STOPPED", "containers": containers, **more})

    def get_paginator(self, name: str) -> Any:
        assert name == "list_tasks"
        running = [arn for arn, task in self.tasks.items() if task["lastStatus"] != "STOPPED"]
        return SimpleNamespace(paginate=lambda **_: [{"taskArns": [arn]} for arn in running])

    def describe_tasks(self, *, cluster: str, tasks: list[str]) -> Any:
        assert cluster == "jobs"
        assert len(tasks) <= 100
        return {"tasks": [self.tasks[arn] for arn in tasks if arn in self.tasks]}

    def describe_task_definition(self, *, taskDefinition: str) -> Any:
        self.described.append(taskDefinition)
        if self.refused:
            self.refused -= 1
            details = {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}
            raise ClientError(details, "DescribeTaskDefinition")
        family = taskDefinition.rpartition("/")[2].partition(":")[0]
        return {"taskDefinition": {"containerDefinitions": DEFINITIONS.get(family, [BATCH])}}


def tasks_of(ecs: FakeEcs, *, with_services: bool = False) -> RunningTasks:
    return RunningTasks(lambda _service: ecs, "jobs", with_services=with_services)


def test_a_task_has_what_ecs_knows() -> None:
    ecs = FakeEcs("nightly")
    tasks = tasks_of(ecs)
    for _ in range(2):
        (report,) = tasks.read(START_NS)
    record = report.record
    assert (record.task_id, record.family, record.revision) == ("id-nightly", "nightly", "7")
    assert (record.cluster, record.region, record.account_id) == ("jobs", "eu-west-1", "111122223333")
    assert (record.status, record.started_at, record.container.name) == ("running", "2025-11-20T00:50:00.000Z", "batch")
    assert (record.metrics.vcpu_size, record.metrics.memory_size_mb) == (0.5, 1024)
    assert len(ecs.described) == 1, "a revision never changes"


@pytest.mark.parametrize(
    ("family", "groups"),
    [
        ("nightly", ("/ecs/jobs", "/ecs/monitors")),
        ("own-group", ("/ecs/jobs", "/ecs/monitors", "/ecs/reports")),
        ("several", ("/ecs/jobs", "/ecs/monitors", "/ecs/second")),
        ("plain", ()),
        ("wrapped", ("/ecs/wrapped",)),
        ("foreign", ()),
    ],
)
def test_the_log_groups_are_those_into_which_the_profiler_writes(family: str, groups: tuple[str, ...]) -> None:
    tasks = tasks_of(FakeEcs(family))
    assert len(tasks.read(START_NS)) == 1
    assert tasks.groups == groups


@pytest.mark.parametrize(
    ("exit_code", "more", "status"),
    [
        (0, {"stopCode": "EssentialContainerExited"}, "success"),
        (None, {"stopCode": "TaskFailedToStart"}, "failure"),
        (143, {"stopCode": "SpotInterruption"}, "stopped"),
        (None, {}, "unknown"),
    ],
)
def test_a_task_that_has_ended_is_described_once_more(exit_code: int | None, more: dict[str, str], status: str) -> None:
    ecs = FakeEcs("nightly", "plain")
    tasks = tasks_of(ecs)
    tasks.read(START_NS)
    ecs.end("nightly", exit_code, **more)
    found = {one.record.family: one.record for one in tasks.read(START_NS)}
    assert (found["nightly"].status, found["nightly"].exit_code) == (status, exit_code)
    assert [one.record.family for one in tasks.read(START_NS)] == ["plain"]


def test_a_definition_that_was_not_read_is_read_again_and_the_problem_is_named_meanwhile() -> None:
    ecs = FakeEcs("nightly", "nightly-load")
    ecs.refused = 2
    tasks = tasks_of(ecs)
    assert [one.record.container.name for one in tasks.read(START_NS)] == ["", ""]
    (problem,) = tasks.problems
    assert problem.startswith("Task definitions of running tasks cannot be read: AWS returned ThrottlingException")
    assert [one.record.container.name for one in tasks.read(START_NS)] == ["batch", "batch"]
    assert (tasks.problems, tasks.groups) == ((), ("/ecs/jobs", "/ecs/monitors"))


def test_a_task_that_has_not_started_has_no_time_and_those_of_services_are_left_out_unless_asked_for() -> None:
    ecs = FakeEcs("nightly")
    (arn,) = ecs.tasks
    ecs.tasks[arn] = {**ecs.task("nightly", lastStatus="PENDING", cpu="x"), "startedAt": None}
    (report,) = tasks_of(ecs).read(START_NS)
    assert (report.record.status, report.record.started_at, report.record.metrics.vcpu_size) == ("running", None, None)
    ecs.tasks[arn] = ecs.task("nightly", group="service:api")
    assert tasks_of(ecs).read(START_NS) == ()
    assert len(tasks_of(ecs, with_services=True).read(START_NS)) == 1

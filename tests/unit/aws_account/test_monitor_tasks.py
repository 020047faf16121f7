"""Which log streams are an instance monitor's, by what ECS says of tasks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from profiler.aws_account.instance_monitors import EcsMonitorTasks
from profiler.record.line_trust import InstanceMonitorGroup

PLACE = "arn:aws:ecs:us-east-1:111122223333"
MONITOR_TASK, BATCH_TASK, GONE_TASK = "ab" * 16, "cd" * 16, "ef" * 16
MONITOR_ID, BATCH_ID = "a1" * 32, "b2" * 32
MONITOR = InstanceMonitorGroup(
    account_id="111122223333", log_group="/ecs/instance", cluster="gpu", family="instance"
)


def described(task: str, family: str, runtime_id: str, launch_type: str) -> dict[str, Any]:
    return {
        "taskArn": f"{PLACE}:task/gpu/{task}",
        "taskDefinitionArn": f"{PLACE}:task-definition/{family}:3",
        "launchType": launch_type,
        "containers": [{"name": "task-monitor", "runtimeId": runtime_id}],
    }


class PlayedEcs:
    """A cluster with a monitor, and a batch whose container is called like it."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_refused = False
        self.tasks = {
            MONITOR_TASK: described(MONITOR_TASK, "instance", MONITOR_ID, "EC2"),
            BATCH_TASK: described(BATCH_TASK, "thumbs", BATCH_ID, "FARGATE"),
        }

    def describe_tasks(self, *, cluster: str, tasks: Sequence[str]) -> Mapping[str, Any]:
        assert cluster == "gpu"
        self.calls += 1
        if self.is_refused:
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "DescribeTasks")
        return {"tasks": [self.tasks[task] for task in tasks if task in self.tasks]}

    def get_paginator(self, operation: str) -> "PlayedEcs":
        assert operation == "list_tasks"
        return self

    def paginate(
        self, *, cluster: str, family: str, desiredStatus: str
    ) -> Iterable[Mapping[str, Any]]:
        assert (cluster, family) == ("gpu", "instance")
        listed = [self.tasks[MONITOR_TASK]["taskArn"]] if desiredStatus == "RUNNING" else []
        return [{"taskArns": listed}]


def stream(task: str) -> str:
    return f"instance/task-monitor/{task}"


def test_a_stream_is_the_monitors_if_its_task_is_of_the_monitors_family() -> None:
    ecs = PlayedEcs()
    tasks = EcsMonitorTasks(ecs, print)
    for _ in range(3):
        assert tasks.has_stream(MONITOR, stream(MONITOR_TASK)) is True
        assert tasks.has_stream(MONITOR, stream(BATCH_TASK)) is False
    assert ecs.calls == 2, "each stream is asked once"
    assert tasks.has_stream(MONITOR, stream(GONE_TASK)) is None


def test_a_container_id_is_the_monitors_if_one_of_its_tasks_has_it() -> None:
    tasks = EcsMonitorTasks(PlayedEcs(), print)
    assert tasks.has_stream(MONITOR, MONITOR_ID) is True
    assert tasks.has_stream(MONITOR, BATCH_ID) is None
    assert tasks.has_stream(MONITOR, "another stream") is None


def test_what_cannot_be_asked_is_unknown_and_asked_again() -> None:
    ecs, problems = PlayedEcs(), list[str]()
    ecs.is_refused = True
    tasks = EcsMonitorTasks(ecs, problems.append)
    assert tasks.has_stream(MONITOR, stream(MONITOR_TASK)) is None
    assert tasks.is_on_ec2(MONITOR, MONITOR_TASK) is False
    assert "allow ecs:ListTasks and ecs:DescribeTasks" in problems[0]
    ecs.is_refused = False
    assert tasks.has_stream(MONITOR, stream(MONITOR_TASK)) is True


def test_the_launch_type_is_ecs_own() -> None:
    tasks = EcsMonitorTasks(PlayedEcs(), print)
    assert tasks.is_on_ec2(MONITOR, MONITOR_TASK)
    assert not tasks.is_on_ec2(MONITOR, BATCH_TASK)
    assert not tasks.is_on_ec2(MONITOR, GONE_TASK)

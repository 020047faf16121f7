"""ECS's events of stopped tasks, and the task definitions that belong to them."""

from typing import Any

from profiler.record.stopped_task import StoppedTask, parse_stopped_task
from tests.sidecars import awslogs
from tests.values import present

ARN = "arn:aws:ecs:us-west-2:111122223333:task/jobs/4dd5853f44b341ee8281f38229bee377"
EVENT: dict[str, Any] = {
    "version": "0",
    "id": "ee44ff40",
    "detail-type": "ECS Task State Change",
    "source": "aws.ecs",
    "account": "111122223333",
    "time": "2026-03-01T10:12:56Z",
    "region": "us-west-2",
    "detail": {
        "taskArn": ARN,
        "clusterArn": "arn:aws:ecs:us-west-2:111122223333:cluster/jobs",
        "taskDefinitionArn": "arn:aws:ecs:us-west-2:111122223333:task-definition/nightly:5",
        "availabilityZone": "us-west-2b",
        "containers": [
            {
                "name": "log_router",
                "exitCode": 0,
                "lastStatus": "STOPPED",
                "image": "aws-for-fluent-bit:2",
                "cpu": "0",
            },
            {
                "containerArn": "arn:aws:ecs:us-west-2:111122223333:container/jobs/4dd5/0fee",
                "exitCode": 1,
                "lastStatus": "STOPPED",
                "name": "batch",
                "image": "etl:7",
                "imageDigest": "sha256:59",
                "runtimeId": "4dd5-119",
                "cpu": "0",
            },
        ],
        "cpu": "2048",
        "createdAt": "2026-03-01T10:11:07.314Z",
        "desiredStatus": "STOPPED",
        "executionStoppedAt": "2026-03-01T10:12:32.316Z",
        "group": "family:nightly",
        "launchType": "FARGATE",
        "lastStatus": "STOPPED",
        "pullStartedAt": "2026-03-01T10:11:19.058Z",
        "startedAt": "2026-03-01T10:11:29.1Z",
        "stoppedAt": "2026-03-01T10:12:56.341Z",
        "startedBy": "chronos-schedule/nightly",
        "stoppedReason": "Essential container in task exited",
        "stopCode": "EssentialContainerExited",
        "version": 5,
    },
}


def event(**detail: Any) -> dict[str, Any]:
    return {**EVENT, "detail": {**EVENT["detail"], **detail}}


def task(**detail: Any) -> StoppedTask:
    return present(parse_stopped_task(event(**detail)))


def definition(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"family": "nightly", "containerDefinitions": list(containers)}


def container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "x", "logConfiguration": awslogs(region="us-west-2"), **more}

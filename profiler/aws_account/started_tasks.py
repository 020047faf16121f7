"""The tasks of ECS clusters: those that run, and those that stopped within about an hour."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from profiler.aws_account.aws_errors import aws_errors
from profiler.aws_account.registered_definitions import family_of
from profiler.core.aws_clients import AwsClient
from profiler.core.ecs_terms import MONITOR_NAME, cluster_name
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_MS
from profiler.schedules.due_outcomes import KEPT_NS
from profiler.schedules.schedule_model import ClusterTasks, StartedTask

_TASKS_PER_CALL = 100
_STATUSES = ("RUNNING", "STOPPED")  # in this order: a task that stops meanwhile is in one of the lists
_MS_PER_SECOND = 1000


def read_clusters(ecs: AwsClient, cluster_arns: Iterable[str], now_ns: int) -> dict[str, ClusterTasks]:
    """Read the tasks of each cluster. A cluster that cannot be read has a problem instead of tasks."""
    return {arn: _read_cluster(ecs, arn, now_ns) for arn in sorted(set(cluster_arns))}


def _read_cluster(ecs: AwsClient, arn: str, now_ns: int) -> ClusterTasks:
    permission = "ecs:ListTasks and ecs:DescribeTasks"
    try:
        with aws_errors(f"The tasks of the cluster {cluster_name(arn)} could not be read", permission):
            tasks = tuple(_tasks(ecs, arn))
    except TaskProfilerError as error:
        return ClusterTasks(problem=str(error))
    return ClusterTasks(tasks=tasks, read_ns=now_ns, known_since_ns=now_ns - KEPT_NS)


def _tasks(ecs: AwsClient, cluster_arn: str) -> Iterable[StartedTask]:
    arns: dict[str, None] = {}
    for status in _STATUSES:
        for page in ecs.get_paginator("list_tasks").paginate(cluster=cluster_arn, desiredStatus=status):
            arns |= dict.fromkeys(page["taskArns"])
    listed = [*arns]
    for start in range(0, len(listed), _TASKS_PER_CALL):
        described = ecs.describe_tasks(cluster=cluster_arn, tasks=listed[start : start + _TASKS_PER_CALL])
        yield from (started_task(task) for task in described["tasks"] if "createdAt" in task)


def started_task(task: Mapping[str, Any]) -> StartedTask:
    """A task of boto3's DescribeTasks."""
    return StartedTask(
        arn=task["taskArn"],
        family=family_of(task["taskDefinitionArn"]),
        started_by=task.get("startedBy"),
        created_ns=_moment_ns(task["createdAt"]) or 0,
        started_ns=_moment_ns(task.get("startedAt")),
        stopped_ns=_moment_ns(task.get("stoppedAt")),
        exit_code=_exit_code(task.get("containers", ())),
        stop_code=task.get("stopCode"),
        stopped_reason=task.get("stoppedReason"),
    )


def _exit_code(containers: Iterable[Mapping[str, Any]]) -> int | None:
    """The first exit code that is not 0, of all containers but the monitor."""
    codes = [one["exitCode"] for one in containers if "exitCode" in one and one.get("name") != MONITOR_NAME]
    return next(filter(None, codes), codes[0] if codes else None)


def _moment_ns(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * _MS_PER_SECOND) * NS_PER_MS

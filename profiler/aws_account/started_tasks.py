"""The tasks of ECS clusters: those that run, and those that stopped within about an hour; and
who started them.

Some orchestrators judge a task by all of its containers, and the monitor is one of them:
docs/orchestrators.md.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from profiler.aws_account.aws_errors import aws_errors
from profiler.aws_account.registered_definitions import read_items
from profiler.core.aws_clients import AwsClient
from profiler.core.aws_error_codes import cause_code
from profiler.core.bounded_batches import batches
from profiler.core.ecs_terms import MONITOR_NAME, SERVICE_GROUP, cluster_name, family_of
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import known
from profiler.core.redaction import redact_line
from profiler.core.timestamps import MS_PER_SECOND, NS_PER_MS
from profiler.schedules.due_outcomes import KEPT_NS
from profiler.schedules.schedule_model import STARTERS, ReadTasks, StartedTask

_TASKS_PER_CALL = 100
NO_CLUSTER = "ClusterNotFoundException"
# In this order, so that a task that stops meanwhile is in one of the lists.
ALL_STATUSES = ("RUNNING", "STOPPED")
AIRFLOW = "Airflow"
DAGSTER = "Dagster"
PREFECT = "Prefect"
SCHEDULE = "schedule"
SERVICE = "service"
# The beginnings of the tags that orchestrators give to their tasks.
_TAGS = {"airflow": AIRFLOW, "dagster/": DAGSTER, "prefect.io/": PREFECT}
# EcsRunTaskOperator writes the owner of the DAG's task, which is airflow by default.
_STARTED_BY = {"airflow": AIRFLOW, "AWS Step Functions": "Step Functions"}
_INSTEAD = "for batches of a few seconds, use task-profiler run instead of the monitor."
_KILLED = f"A monitor that is killed, or does not start, {{}}: {_INSTEAD}"


def read_clusters(ecs: AwsClient, cluster_arns: Iterable[str], now_ns: int) -> dict[str, ReadTasks]:
    """Read the tasks of each cluster.

    A cluster that cannot be read has a problem instead of tasks.
    """
    tasks_by_cluster = {}
    for arn in sorted(set(cluster_arns)):
        what = f"The tasks of the cluster {cluster_name(arn)} could not be read"
        try:
            with aws_errors(what, "ecs:ListTasks and ecs:DescribeTasks"):
                tasks = tuple(
                    started_task(task) for task in read_tasks(ecs, arn) if "createdAt" in task
                )
        except TaskProfilerError as error:
            is_gone = cause_code(error) == NO_CLUSTER
            tasks_by_cluster[arn] = ReadTasks(problem=str(error), is_gone=is_gone)
        else:
            tasks_by_cluster[arn] = ReadTasks(
                tasks=tasks, read_ns=now_ns, known_since_ns=now_ns - KEPT_NS
            )
    return tasks_by_cluster


def read_tasks(
    ecs: AwsClient,
    cluster: str,
    *,
    statuses: Iterable[str] = ALL_STATUSES,
    also: Iterable[str] = (),
    with_tags: bool = False,
) -> Iterator[Mapping[str, Any]]:
    """The tasks that ECS lists for a cluster, and those of ``also`` (ARNs) that it knows.

    Raises boto3's errors.
    """
    include = {"include": ["TAGS"]} if with_tags else {}
    arns: dict[str, None] = {}
    for status in statuses:
        status_arns = read_items(
            ecs, "list_tasks", "taskArns", cluster=cluster, desiredStatus=status
        )
        arns |= dict.fromkeys(status_arns)
    listed = [*(arns | dict.fromkeys(also))]
    for chunk in batches(listed, _TASKS_PER_CALL):
        yield from ecs.describe_tasks(cluster=cluster, tasks=chunk, **include)["tasks"]


def started_task(task: Mapping[str, Any]) -> StartedTask:
    """A task of boto3's DescribeTasks.

    Its exit code is the first that is not 0, of all containers but the monitor.
    """
    containers = task.get("containers", ())
    codes = [
        container["exitCode"]
        for container in containers
        if "exitCode" in container and container.get("name") != MONITOR_NAME
    ]
    return StartedTask(
        arn=task["taskArn"],
        family=family_of(task["taskDefinitionArn"]),
        started_by=task.get("startedBy"),
        created_ns=moment_ns(task["createdAt"]) or 0,
        started_ns=moment_ns(task.get("startedAt")),
        stopped_ns=moment_ns(task.get("stoppedAt")),
        exit_code=next(filter(None, codes), codes[0] if codes else None),
        stop_code=task.get("stopCode"),
        stopped_reason=known(redact_line, task.get("stoppedReason")),
    )


def moment_ns(moment: datetime | None) -> int | None:
    """The time of an answer of boto3, to the millisecond."""
    if moment is None:
        return None
    return round(moment.timestamp() * MS_PER_SECOND) * NS_PER_MS


def starters_of_families(ecs: AwsClient, cluster: str) -> dict[str, set[str]]:
    """Who started the tasks that ECS lists for the cluster, by family. Raises TaskProfilerError."""
    starters: dict[str, set[str]] = {}
    what = f"The tasks of the cluster {cluster!r} could not be listed"
    with aws_errors(what, "ecs:ListTasks and ecs:DescribeTasks"):
        for task in read_tasks(ecs, cluster, with_tags=True):
            starters.setdefault(family_of(task["taskDefinitionArn"]), set()).add(
                starter_of_task(task)
            )
    return starters


def starter_of_task(task: Mapping[str, Any]) -> str:
    """Who started a task of DescribeTasks; a person if nothing else is known."""
    started_by = str(task.get("startedBy") or "")
    keys = [str(tag.get("key")) for tag in task.get("tags", ())]
    for start, name in _TAGS.items():
        if any(key.startswith(start) for key in keys):
            return name
    if started_by in _STARTED_BY:
        return _STARTED_BY[started_by]
    if started_by.startswith(tuple(STARTERS.values())):
        return SCHEDULE
    if str(task.get("group")).startswith(SERVICE_GROUP):
        return SERVICE
    return f"person ({started_by})" if started_by else "person"


def starter_notes(starters: Iterable[str], *, is_printed: bool) -> Iterator[str]:
    """Notes for the orchestrators among the starters.

    ``is_printed``: the report goes to the monitor's own stream.
    """
    for name in starters:
        if name == AIRFLOW:
            stream = "the report goes to the monitor's own stream (--report-stream monitor)"
            if is_printed:
                remedy = stream
            else:
                remedy = "send the report to the monitor's own stream (--report-stream monitor)"
            yield f"Airflow reads XCom from the last line of the batch's stream: {remedy}."
            yield _KILLED.format("fails the DAG's task")
        elif name == DAGSTER:
            yield "Dagster Pipes needs pipes_container_name, the name of the batch's container."
            yield _KILLED.format("can fail the Dagster run")
        elif name == PREFECT:
            yield "Prefect judges only the container that is called prefect, if there is one."
            yield _KILLED.format("can crash the flow run of another one")

"""Which tasks an instance monitor reports: those on EC2 in a cluster with a DAEMON service that
runs the monitor. And which log streams are a monitor's, in ECS's own word.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from profiler.aws_account.aws_errors import noted_errors
from profiler.aws_account.registered_definitions import read_services
from profiler.core.aws_clients import AwsClient
from profiler.core.bounded_batches import batches
from profiler.core.ecs_terms import EC2, cluster_name, family_of, task_id
from profiler.record.family_identity import matches_any
from profiler.record.line_trust import InstanceMonitorGroup, is_container_id, task_of_stream
from profiler.record.stopped_task import StoppedTask
from profiler.settings import SettingsReader
from profiler.task_definitions.containers import DefinedContainer, monitor_of

_PERMISSIONS = "ecs:ListServices, ecs:DescribeServices and ecs:DescribeTaskDefinition"
_TASK_PERMISSIONS = "ecs:ListTasks and ecs:DescribeTasks"
_MAX_DESCRIBED = 100  # tasks of one call


def instance_monitor_of(definition: Mapping[str, object]) -> DefinedContainer | None:
    """The monitor of a definition, if it reports all tasks of its instance."""
    monitor = monitor_of(definition)
    if monitor is None or SettingsReader(monitor.variables).value("scope") != "instance":
        return None
    return monitor


class InstanceMonitorReader:
    """Reads the instance monitors of clusters of one account and Region, each once.

    An unreadable one is none.
    """

    def __init__(self, ecs: AwsClient, on_problem: Callable[[str], object]) -> None:
        self._ecs = ecs
        self._on_problem = on_problem
        self._families_of = cache(self._read_monitored_globs)  # an error is not kept

    def is_task_reported(self, task: StoppedTask) -> bool:
        """Whether the task is a batch on an instance with a monitor."""
        if task.launch_type != EC2 or task.is_service_task:
            return False
        if not (task.cluster and task.family):
            return False
        return self._is_reported_in_cluster(task.family, task.cluster)

    def is_family_reported(
        self, family: str, definition: Mapping[str, object], clusters: Iterable[str]
    ) -> bool:
        """Whether all of its tasks are reported if they run in these clusters only, and cannot
        be on Fargate.
        """
        required = definition.get("requiresCompatibilities")
        is_for_ec2 = required == [EC2] or (
            not required and definition.get("networkMode") != "awsvpc"
        )
        if not is_for_ec2:
            return False
        are_reported = [self._is_reported_in_cluster(family, cluster) for cluster in clusters]
        return bool(are_reported) and all(are_reported)

    def _is_reported_in_cluster(self, family: str, cluster: str) -> bool:
        name = cluster_name(cluster)
        what = f"It is unknown whether the cluster {name} has an instance monitor"
        with noted_errors(self._on_problem, what, _PERMISSIONS):
            return any(matches_any(family, globs) for globs in self._families_of(name))
        return False

    def _read_monitored_globs(self, cluster: str) -> tuple[tuple[str, ...], ...]:
        """The families that each monitor of the cluster reports, as globs; none for all.

        Raises boto3's errors.
        """
        try:
            services = [*read_services(self._ecs, cluster, schedulingStrategy="DAEMON")]
        except self._ecs.exceptions.ClusterNotFoundException:
            # A schedule can name a deleted cluster.
            return ()
        families = []
        for service in services:
            if service["status"] != "ACTIVE":
                continue
            name = service["taskDefinition"]
            described = self._ecs.describe_task_definition(taskDefinition=name)
            monitor = instance_monitor_of(described["taskDefinition"])
            if monitor is not None:
                families.append(SettingsReader(monitor.variables).value("families"))
        return tuple(families)


class EcsMonitorTasks:
    """Asks ECS about the tasks of instance monitors, and about those that they report.

    ECS knows a task until an hour after its end. What it said is kept; what it does not know, or
    what cannot be read, is asked again.
    """

    def __init__(self, ecs: AwsClient, on_problem: Callable[[str], object]) -> None:
        self._ecs = ecs
        self._on_problem = on_problem
        self._streams: dict[tuple[InstanceMonitorGroup, str], bool] = {}
        self._on_ec2: dict[tuple[str, str], bool] = {}

    def has_stream(self, monitor: InstanceMonitorGroup, log_stream: str) -> bool | None:
        """Whether a stream is that of a task of the monitor's family; None: ECS does not say."""
        if not (monitor.family and monitor.cluster):
            return None
        key = monitor, log_stream
        if key not in self._streams:
            what = f"It is unknown whose log stream {log_stream} is"
            with noted_errors(self._on_problem, what, _TASK_PERMISSIONS):
                is_monitors = self._read_is_stream_of_monitor(
                    monitor.cluster, monitor.family, log_stream
                )
                if is_monitors is not None:
                    self._streams[key] = is_monitors
        return self._streams.get(key)

    def is_on_ec2(self, monitor: InstanceMonitorGroup, id_of_task: str) -> bool:
        """Whether ECS says that a task of the monitor's cluster is on EC2."""
        if not monitor.cluster:
            return False
        key = monitor.cluster, id_of_task
        if key not in self._on_ec2:
            what = f"It is unknown whether task {id_of_task} is on EC2"
            with noted_errors(self._on_problem, what, _TASK_PERMISSIONS):
                for task in self._describe_tasks(monitor.cluster, [id_of_task]):
                    self._on_ec2[key] = task.get("launchType") == EC2
        return self._on_ec2.get(key, False)

    def _read_is_stream_of_monitor(self, cluster: str, family: str, log_stream: str) -> bool | None:
        """Raises boto3's errors."""
        named = task_of_stream(log_stream)
        if named is not None:
            for task in self._describe_tasks(cluster, [named.task_id]):
                return family_of(task["taskDefinitionArn"]) == family
            return None
        if is_container_id(log_stream):
            tasks = list(self._recent_task_ids(cluster, family))
            for task in self._describe_tasks(cluster, tasks):
                if any(each.get("runtimeId") == log_stream for each in task.get("containers", ())):
                    return True
        return None

    def _recent_task_ids(self, cluster: str, family: str) -> Iterator[str]:
        """The ids of the family's tasks that run, or ended within the last hour."""
        for status in ("RUNNING", "STOPPED"):
            pages = self._ecs.get_paginator("list_tasks").paginate(
                cluster=cluster, family=family, desiredStatus=status
            )
            for page in pages:
                yield from map(task_id, page["taskArns"])

    def _describe_tasks(self, cluster: str, tasks: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        for part in batches(tasks, _MAX_DESCRIBED):
            yield from self._ecs.describe_tasks(cluster=cluster, tasks=part)["tasks"]

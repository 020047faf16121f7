"""Which tasks an instance monitor reports: those on EC2 in a cluster with a DAEMON service that
runs the monitor.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from profiler.aws_account.aws_errors import noted_errors
from profiler.aws_account.registered_definitions import read_services
from profiler.core.aws_clients import AwsClient
from profiler.core.ecs_terms import EC2, cluster_name
from profiler.record.family_identity import matches_any
from profiler.record.stopped_task import StoppedTask
from profiler.settings import SettingsReader
from profiler.task_definitions.containers import DefinedContainer, monitor_of

_PERMISSIONS = "ecs:ListServices, ecs:DescribeServices and ecs:DescribeTaskDefinition"


def instance_monitor_of(definition: Mapping[str, object]) -> DefinedContainer | None:
    """The monitor of a definition, if it reports all tasks of its instance."""
    monitor = monitor_of(definition)
    if monitor is None or SettingsReader(monitor.variables).value("scope") != "instance":
        return None
    return monitor


class InstanceMonitors:
    """Reads the instance monitors of clusters of one account and Region, each once.

    An unreadable one is none.
    """

    def __init__(self, ecs: AwsClient, on_problem: Callable[[str], object]) -> None:
        self._ecs = ecs
        self._on_problem = on_problem
        self._families_of = cache(self._read)  # an error is not kept

    def reports_task(self, task: StoppedTask) -> bool:
        """Whether the task is a batch on an instance with a monitor."""
        if (
            task.launch_type != EC2
            or task.is_service_task
            or task.cluster is None
            or task.family is None
        ):
            return False
        return self._reports(task.family, task.cluster)

    def reports_family(
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
        are_reported = [self._reports(family, cluster) for cluster in clusters]
        return bool(are_reported) and all(are_reported)

    def _reports(self, family: str, cluster: str) -> bool:
        name = cluster_name(cluster)
        what = f"It is unknown whether the cluster {name} has an instance monitor"
        with noted_errors(self._on_problem, what, _PERMISSIONS):
            return any(matches_any(family, globs) for globs in self._families_of(name))
        return False

    def _read(self, cluster: str) -> tuple[tuple[str, ...], ...]:
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

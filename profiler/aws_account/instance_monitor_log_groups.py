"""The log groups of instance monitors, for readers of log groups: those that the definitions of the
clusters' DAEMON services name.
"""

from collections.abc import Callable, Iterator, Sequence

from profiler.aws_account.aws_errors import OpenClient, noted_errors
from profiler.aws_account.instance_monitors import instance_monitor_of
from profiler.aws_account.registered_definitions import TaskDefinitions, read_services
from profiler.core.aws_clients import AwsClient
from profiler.core.ecs_terms import family_of
from profiler.record.line_trust import InstanceMonitorGroup
from profiler.runs.past_runs.log_places import log_options_of

MONITOR_PERMISSIONS = "ecs:ListClusters, ListServices, DescribeServices and DescribeTaskDefinition"


def find_monitor_groups(
    open_client: OpenClient, account_id: str | None, on_problem: Callable[[str], object]
) -> Sequence[InstanceMonitorGroup]:
    """The log groups of the instance monitors of one account and Region; what cannot be read is a
    problem.
    """
    found: list[InstanceMonitorGroup] = []
    with noted_errors(on_problem, "Instance monitors cannot be found", MONITOR_PERMISSIONS):
        ecs = open_client("ecs")
        for cluster in TaskDefinitions(ecs).clusters():
            found += monitor_groups_of(ecs, cluster, account_id)
    return found


def monitor_groups_of(
    ecs: AwsClient, cluster: str, account_id: str | None
) -> Iterator[InstanceMonitorGroup]:
    """The log groups of a cluster's instance monitors. Raises boto3's errors."""
    for service in read_services(ecs, cluster, schedulingStrategy="DAEMON"):
        if service["status"] != "ACTIVE":
            continue
        name = service["taskDefinition"]
        definition = ecs.describe_task_definition(taskDefinition=name)["taskDefinition"]
        monitor = instance_monitor_of(definition)
        if monitor is None:
            continue
        options = (log_options_of(definition) or {}).get(monitor.name, {})
        if "awslogs-group" in options:
            yield InstanceMonitorGroup(
                account_id=account_id,
                log_group=options["awslogs-group"],
                cluster=cluster,
                family=family_of(name),
                stream_prefix=options.get("awslogs-stream-prefix"),
            )

"""Clusters and log groups: those that match patterns of names, subscriptions, and clusters with
Container Insights.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.registered_definitions import (
    TaskDefinitions,
    glob_prefix,
    read_items,
)
from profiler.aws_account.started_tasks import NO_CLUSTER
from profiler.core.aws_clients import AwsClient
from profiler.core.aws_error_codes import cause_code
from profiler.core.bounded_batches import batches
from profiler.core.commands_to_copy import command_line, container_insights_command
from profiler.core.ecs_terms import BATCH_LOG_GROUP
from profiler.core.errors import TaskProfilerError
from profiler.core.text import did_you_mean, listed

# The class whose log groups can be subscribed, and read by GetLogEvents and FilterLogEvents.
STANDARD = "STANDARD"
_MAX_CLUSTERS = 100  # per call
_MAX_SIMILAR_GROUPS = 1000  # among which a similar name is looked for: 20 calls


def matching_clusters(open_client: OpenClient, name: str) -> tuple[str, ...]:
    """The clusters that match the name; without a wildcard, the name itself.

    Raises TaskProfilerError for none.
    """
    if glob_prefix(name) == name:
        return (name,)
    existing = TaskDefinitions(open_client("ecs")).clusters()
    matching = tuple(other for other in existing if fnmatchcase(other, name))
    if not matching:
        raise TaskProfilerError(
            f"No ECS cluster matches {name!r}: check the name, --region and --profile."
        )
    return matching


def check_clusters(open_client: OpenClient, names: Sequence[str]) -> None:
    """Raise TaskProfilerError if one of the clusters does not exist, as far as ECS says so."""
    missing: list[str] = []
    existing: tuple[str, ...] = ()
    region = ""
    with suppress(TaskProfilerError), aws_errors("The clusters"):  # each step says what is refused
        ecs = open_client("ecs")
        region = ecs.meta.region_name
        for asked in batches(names, _MAX_CLUSTERS):
            answer = ecs.describe_clusters(clusters=asked)
            known_names: set[str] = set()
            for cluster in answer["clusters"]:
                if cluster.get("status") != "INACTIVE":
                    known_names |= {cluster["clusterName"], cluster.get("clusterArn")}
            missing += [name for name in asked if name not in known_names]
        if missing:
            # ECS lists a deleted cluster for some time.
            clusters = TaskDefinitions(ecs).clusters()
            existing = tuple(name for name in clusters if name not in missing)
    if missing:
        raise TaskProfilerError(
            f"There is no ECS cluster {listed(missing, 'or')} in {region}: check the name, "
            f"--region and --profile.{did_you_mean(missing, existing)}"
        )


@contextmanager
def raise_on_missing_cluster(open_client: OpenClient, cluster: str) -> Iterator[None]:
    """Say that there is no such cluster, with a similar name, where AWS's answer says so."""
    try:
        yield
    except TaskProfilerError as error:
        if cause_code(error) == NO_CLUSTER:
            check_clusters(open_client, (cluster,))
        raise


def matching_log_groups(open_client: OpenClient, names: Iterable[str]) -> tuple[str, ...]:
    """The log groups that match the names, with wildcards ``*?[]``.

    Raises TaskProfilerError if one matches none.
    """
    matched: dict[str, None] = {}
    for name in names:
        prefix = glob_prefix(name)
        if prefix == name:
            matching = [name]
        else:
            existing = [
                str(group["logGroupName"]) for group in list_log_groups(open_client, prefix)
            ]
            matching = [group for group in existing if group == name or fnmatchcase(group, name)]
        if not matching:
            raise TaskProfilerError(
                f"No log group matches {name!r}: check the name, --region and --profile."
            )
        matched |= dict.fromkeys(matching)
    return tuple(matched)


def similar_clusters_sentence(open_client: OpenClient, names: Iterable[str]) -> str:
    """The clusters that may be meant by names that no cluster has, as a sentence after a space; ""
    without any, or without the right to list them.
    """
    existing: tuple[str, ...] = ()
    with suppress(TaskProfilerError), aws_errors("The clusters"):
        existing = TaskDefinitions(open_client("ecs")).clusters()
    return did_you_mean(names, existing)


def similar_log_groups_sentence(open_client: OpenClient, names: Iterable[str]) -> str:
    """The log groups that may be meant by names that no group has, as of clusters."""
    existing: list[str] = []
    with suppress(TaskProfilerError):
        groups = islice(list_log_groups(open_client, ""), _MAX_SIMILAR_GROUPS)
        existing += (str(group["logGroupName"]) for group in groups)
    return did_you_mean(names, existing)


def missing_log_group_error(open_client: OpenClient, name: str) -> TaskProfilerError:
    """The error about a log group that does not exist, with a similar name if one is known."""
    region = open_client("logs").meta.region_name
    if name == BATCH_LOG_GROUP:
        return TaskProfilerError(
            f"There is no log group {name} in {region}, so no job has logged there: check --region "
            f"and --profile, or find a job's log with {command_line('doctor', 'JOB-ID')}."
        )
    return TaskProfilerError(
        f"There is no log group {name} in {region}: check the name, --region and --profile."
        f"{similar_log_groups_sentence(open_client, [name])}"
    )


def list_log_groups(open_client: OpenClient, prefix: str) -> Iterator[Mapping[str, object]]:
    """The log groups whose name begins with the prefix, as DescribeLogGroups returns them.

    Raises TaskProfilerError.
    """
    start = {"logGroupNamePrefix": prefix} if prefix else {}
    with aws_errors("The log groups could not be read", "logs:DescribeLogGroups"):
        yield from read_items(open_client("logs"), "describe_log_groups", "logGroups", **start)


def log_group_class(open_client: OpenClient, name: str) -> str | None:
    """The class of a log group, such as INFREQUENT_ACCESS; None if it does not exist.

    Raises TaskProfilerError.
    """
    first = next(
        list_log_groups(open_client, name), {}
    )  # sorted: the shortest name with the prefix
    if first.get("logGroupName") != name:
        return None
    return str(first.get("logGroupClass", STANDARD))


def subscription_filters(logs: AwsClient, group: str) -> list[Mapping[str, Any]]:
    """The subscription filters of a log group. Raises the errors of boto3."""
    operation = "describe_subscription_filters"
    return [*read_items(logs, operation, "subscriptionFilters", logGroupName=group)]


def account_subscriptions(logs: AwsClient) -> list[Mapping[str, Any]]:
    """The account-wide subscriptions, of which AWS allows one for each Region.

    Raises the errors of boto3.
    """
    return list(
        logs.describe_account_policies(policyType="SUBSCRIPTION_FILTER_POLICY").get(
            "accountPolicies", ()
        )
    )


def passes_reports(pattern: object) -> bool:
    """Whether a filter pattern passes reports on: all lines, or only the monitor's, unless these
    are notices alone.
    """
    return not pattern or "task." in str(pattern).replace("task.notice", "")


def create_log_group(open_client: OpenClient, name: str) -> bool:
    """Create the group: ECS starts no container whose log group is missing.

    Returns False if it exists already.
    """
    logs = open_client("logs")
    what = f"The log group {name!r} was not created, so no revision was registered"
    with aws_errors(what, "logs:CreateLogGroup"):
        try:
            logs.create_log_group(logGroupName=name)
        except logs.exceptions.ResourceAlreadyExistsException:
            return False
    return True


def _has_container_insights(cluster: Mapping[str, Any]) -> bool:
    values = {setting.get("name"): setting.get("value") for setting in cluster.get("settings", ())}
    return values.get("containerInsights") in ("enabled", "enhanced")


def container_insights_sentences(open_client: OpenClient, clusters: Sequence[str]) -> Iterator[str]:
    """The next steps for clusters with Container Insights on or off; none without permission to
    read the setting.
    """
    on: list[str] = []
    off: list[str] = []
    region = None
    with suppress(TaskProfilerError), aws_errors("Container Insights"):
        ecs = open_client("ecs")
        region = str(ecs.meta.region_name)
        described = ecs.describe_clusters(clusters=clusters[:_MAX_CLUSTERS], include=["SETTINGS"])
        for cluster in described["clusters"]:
            of_setting = on if _has_container_insights(cluster) else off
            of_setting.append(cluster["clusterName"])
    if on:
        words = ["recommend"]
        for name in on:
            words += ["--from", f"insights:{name}"]
        yield f"Container Insights is on: {command_line(*words, region=region)} answers now."
    if off:
        # The list prices of us-east-1, 2026: https://aws.amazon.com/cloudwatch/pricing/
        command = container_insights_command(off[0], region)
        yield (
            f"Container Insights is off for {', '.join(off)}. With it, sizes need no monitor, but "
            f"short peaks are not seen. Turning it on ({command}) "
            "costs about 3 USD a month for each task family that runs all day (10 metrics at 0.30 "
            "USD, charged by the hour), and 0.50 USD per GB of events, by the list price of "
            "us-east-1: other Regions have other prices."
        )

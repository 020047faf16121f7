"""The places in which targets start tasks: RunTask refuses a cluster that does not exist, a
capacity provider that the cluster does not have, and a launch type that the definition does not
support.

https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_RunTask.html
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, note_only_first, noted_errors
from profiler.aws_account.scheduled_targets import UNKNOWN_VALUE, ScheduledTarget
from profiler.aws_account.target_overrides import asked_launch_type
from profiler.core.ecs_terms import EC2, EXTERNAL, FARGATE, arn_region, cluster_name
from profiler.core.json_fields import mappings_in_list, text_or_none, with_uncapitalized_names
from profiler.core.optional_math import known_values
from profiler.core.text import listed
from profiler.task_definitions.definition_json import TaskDefinitionDocument

_UNREAD = "It is unknown whether the clusters of schedules exist and have their capacity providers"
_INACTIVE = "INACTIVE"  # a cluster that was deleted
_MISSING = "MISSING"
_LAUNCH_TYPES = {FARGATE: "Fargate", EC2: "EC2", EXTERNAL: "external instances"}


class PlaceRefusal(Struct, frozen=True):
    """Why RunTask refuses a target for its place, and what to do, in words."""

    reason: str
    remedy: str


def unsupported_launch_type(
    target: ScheduledTarget, document: TaskDefinitionDocument
) -> PlaceRefusal | None:
    """Why RunTask refuses a target the definition on the launch type for which it asks; None: it
    accepts it, or this is not known. What a definition supports is ECS's own word, because a
    definition can support more than it requires.
    """
    asked = asked_launch_type(target)
    supported = document.compatibilities
    if asked not in _LAUNCH_TYPES or not supported or asked in supported:
        return None
    reason = f"its tasks do not run on {_LAUNCH_TYPES[asked]}"
    named = listed(sorted(supported))
    return PlaceRefusal(
        f"{reason}, for which it asks (the definition supports {named})",
        "change where it starts them, or the definition's requiresCompatibilities",
    )


def missing_provider(strategy: object, cluster: Mapping[str, Any]) -> str | None:
    """The first capacity provider of a strategy that a cluster of DescribeClusters lacks."""
    named = known_values(
        text_or_none(item.get("capacityProvider")) for item in mappings_in_list(strategy)
    )
    known = {*cluster.get("capacityProviders", ())}
    return next((name for name in named if name not in known | {UNKNOWN_VALUE}), None)


class TargetClusterReader:
    """Reads the clusters of targets, each once. ``on_problem`` gets a sentence about what could not
    be read.
    """

    def __init__(self, open_client: OpenClient, on_problem: Callable[[str], object]) -> None:
        self._open = open_client
        self._on_problem = note_only_first(on_problem)
        self._cluster = cache(self._read_cluster)

    def why_refused(self, target: ScheduledTarget) -> PlaceRefusal | None:
        """Why RunTask refuses a target for its cluster; None: the cluster has all of it, or this
        could not be read.
        """
        if target.is_of_job or UNKNOWN_VALUE in target.cluster_arn:
            return None
        cluster = self._cluster(target.cluster_arn)
        if cluster is None:
            return None
        name = cluster_name(target.cluster_arn)
        if cluster.get("status") == _INACTIVE:
            reason = f"the cluster {name} does not exist"
            return PlaceRefusal(reason, "create the cluster, or change the target")
        strategy = with_uncapitalized_names(target.task_request.get("CapacityProviderStrategy"))
        missing = missing_provider(strategy, cluster)
        if missing is None:
            return None
        reason = f"the cluster {name} does not have its capacity provider {missing}"
        return PlaceRefusal(reason, "give it to the cluster, or change the target")

    def _read_cluster(self, arn: str) -> Mapping[str, Any] | None:
        """A cluster of DescribeClusters, inactive if there is none; None: unknown."""
        with noted_errors(self._on_problem, _UNREAD, "ecs:DescribeClusters"):
            described = self._open("ecs").describe_clusters(clusters=[arn])
            for cluster in described["clusters"]:
                found: Mapping[str, Any] = cluster
                return found
            for failure in described.get("failures", ()):
                is_here = arn_region(arn) in (None, arn_region(str(failure.get("arn"))))
                if failure.get("reason") == _MISSING and is_here:
                    return {"status": _INACTIVE}
        return None

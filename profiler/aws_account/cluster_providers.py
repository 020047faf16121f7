"""The capacity providers that ECS clusters have: RunTask refuses any other one.

https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_RunTask.html
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from profiler.aws_account.aws_errors import OpenClient, first_only, noted_errors
from profiler.aws_account.scheduled_targets import UNKNOWN_VALUE, ScheduledTarget
from profiler.core.ecs_terms import cluster_name
from profiler.core.json_fields import mappings, text, uncapitalized
from profiler.core.optional_math import known_values

_UNREAD = "It is unknown whether clusters have the capacity providers of their schedules"


def missing_provider(strategy: object, cluster: Mapping[str, Any]) -> str | None:
    """The first capacity provider of a strategy that a cluster of DescribeClusters lacks."""
    named = known_values(text(item.get("capacityProvider")) for item in mappings(strategy))
    known = {*cluster.get("capacityProviders", ())}
    return next((name for name in named if name not in known | {UNKNOWN_VALUE}), None)


class ClusterProviders:
    """Reads clusters, each once, if a target names capacity providers. ``on_problem`` gets a
    sentence about what could not be read.
    """

    def __init__(self, open_client: OpenClient, on_problem: Callable[[str], object]) -> None:
        self._open = open_client
        self._on_problem = first_only(on_problem)
        self._cluster = cache(self._read)

    def why_refused(self, target: ScheduledTarget) -> str | None:
        """Why RunTask refuses a target for its capacity providers; None: it has others, or this
        could not be read.
        """
        strategy = uncapitalized(target.place.get("CapacityProviderStrategy"))
        if not strategy or UNKNOWN_VALUE in target.cluster_arn:
            return None
        cluster = self._cluster(target.cluster_arn)
        missing = None if cluster is None else missing_provider(strategy, cluster)
        if missing is None:
            return None
        name = cluster_name(target.cluster_arn)
        return f"the cluster {name} does not have its capacity provider {missing}"

    def _read(self, arn: str) -> Mapping[str, Any] | None:
        with noted_errors(self._on_problem, _UNREAD, "ecs:DescribeClusters"):
            described = self._open("ecs").describe_clusters(clusters=[arn])["clusters"]
            found: Mapping[str, Any] | None = described[0] if described else None
            return found
        return None

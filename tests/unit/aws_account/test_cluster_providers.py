"""Capacity providers of targets that a cluster has, has not, and of which that is not known."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.cluster_providers import ClusterProviders
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.aws_account.state_machines import targets_of_machine
from tests.step_functions import machine, running


class FakeEcs:
    """ECS's client with one cluster, which has the provider ``spot``."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_denied = False

    def describe_clusters(self, *, clusters: list[str]) -> dict[str, Any]:
        self.asked += clusters
        if self.is_denied:
            message = f"not authorized on resource: arn:{clusters[0]}"
            error = {"Error": {"Code": "AccessDeniedException", "Message": message}}
            raise ClientError(error, "DescribeClusters")
        known = [{"capacityProviders": ["spot"]}] if clusters == ["jobs"] else []
        return {"clusters": known}


def state(*, cluster: str = "jobs", **strategy: object) -> ScheduledTarget:
    request = {"TaskDefinition": "nightly", "Cluster": cluster, **strategy}
    (target,) = targets_of_machine("arn:m", json.dumps(machine(running(request))))
    return target


def strategy_of(**provider: object) -> list[dict[str, object]]:
    return [{"CapacityProvider": "spot"}, {**provider, "Weight": 1}]


MISSING = "the cluster jobs does not have its capacity provider gone"


@pytest.mark.parametrize(
    ("target", "why", "asked"),
    [
        (state(CapacityProviderStrategy=strategy_of(CapacityProvider="gone")), MISSING, ["jobs"]),
        (state(CapacityProviderStrategy=strategy_of(CapacityProvider="spot")), None, ["jobs"]),
        (state(LaunchType="FARGATE"), None, []),
        # What an execution computes, and a cluster that ECS does not have.
        (state(CapacityProviderStrategy=strategy_of(**{"CapacityProvider.$": "$.p"})), None, None),
        (state(**{"CapacityProviderStrategy.$": "$.all"}), None, None),
        (state(cluster="{% $c %}", CapacityProviderStrategy=strategy_of()), None, []),
        (state(cluster="deleted", CapacityProviderStrategy=strategy_of()), None, ["deleted"]),
    ],
)
def test_a_provider_that_the_cluster_lacks_is_a_refusal(
    target: ScheduledTarget, why: str | None, asked: list[str] | None
) -> None:
    ecs = FakeEcs()
    providers = ClusterProviders(lambda _service: ecs, lambda _sentence: None)
    assert [providers.why_refused(target) for _ in range(2)] == [why, why]
    assert asked is None or ecs.asked == asked


def test_clusters_that_may_not_be_read_are_said_once() -> None:
    ecs = FakeEcs()
    ecs.is_denied = True
    said: list[str] = []
    providers = ClusterProviders(lambda _service: ecs, said.append)
    for cluster in ("jobs", "other"):
        target = state(cluster=cluster, CapacityProviderStrategy=strategy_of())
        assert providers.why_refused(target) is None
    (sentence,) = said
    assert "allow ecs:DescribeClusters" in sentence

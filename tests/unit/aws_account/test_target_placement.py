"""Clusters of targets, and their capacity providers: those that are there, that are not, and of which
that is not known.
"""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.aws_account.state_machines import targets_of_machine
from profiler.aws_account.target_placement import TargetClusterReader, unsupported_launch_type
from profiler.task_definitions.definition_json import read_document
from tests.step_functions import machine, running


class FakeEcs:
    """ECS's client with the cluster ``jobs``, which has the provider ``spot``, and one that was
    deleted. It says of the cluster ``elsewhere`` that another Region does not have it.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_denied = False

    def describe_clusters(self, *, clusters: list[str]) -> dict[str, Any]:
        self.asked += clusters
        if self.is_denied:
            message = f"not authorized on resource: arn:{clusters[0]}"
            error = {"Error": {"Code": "AccessDeniedException", "Message": message}}
            raise ClientError(error, "DescribeClusters")
        (name,) = clusters
        if name in ("jobs", "deleted"):
            status = "ACTIVE" if name == "jobs" else "INACTIVE"
            return {"clusters": [{"status": status, "capacityProviders": ["spot"]}]}
        region = "us-east-1" if name == "never" or name.startswith("arn:") else ""
        failure = {"arn": f"arn:aws:ecs:{region}:1:cluster/{name}", "reason": "MISSING"}
        return {"clusters": [], "failures": [failure] if region else []}


def state(*, cluster: str = "jobs", **strategy: object) -> ScheduledTarget:
    request = {"TaskDefinition": "nightly", "Cluster": cluster, **strategy}
    (target,) = targets_of_machine("arn:m", json.dumps(machine(running(request))))
    return target


def strategy_of(**provider: object) -> list[dict[str, object]]:
    return [{"CapacityProvider": "spot"}, {**provider, "Weight": 1}]


MISSING = "the cluster jobs does not have its capacity provider gone"
GONE = "the cluster {} does not exist"
ELSEWHERE = "arn:aws:ecs:eu-west-1:1:cluster/jobs"


@pytest.mark.parametrize(
    ("target", "why", "asked"),
    [
        (state(CapacityProviderStrategy=strategy_of(CapacityProvider="gone")), MISSING, ["jobs"]),
        (state(CapacityProviderStrategy=strategy_of(CapacityProvider="spot")), None, ["jobs"]),
        (state(LaunchType="FARGATE"), None, ["jobs"]),
        (state(cluster="deleted"), GONE.format("deleted"), ["deleted"]),
        (state(cluster="never"), GONE.format("never"), ["never"]),
        # A cluster of another Region, an answer without any, and what an execution computes.
        (state(cluster=ELSEWHERE), None, [ELSEWHERE]),
        (state(cluster="unknown"), None, ["unknown"]),
        (state(CapacityProviderStrategy=strategy_of(**{"CapacityProvider.$": "$.p"})), None, None),
        (state(**{"CapacityProviderStrategy.$": "$.all"}), None, None),
        (state(cluster="{% $c %}", CapacityProviderStrategy=strategy_of()), None, []),
    ],
)
def test_a_cluster_or_a_provider_that_is_not_there_is_a_refusal(
    target: ScheduledTarget, why: str | None, asked: list[str] | None
) -> None:
    ecs = FakeEcs()
    clusters = TargetClusterReader(lambda _service: ecs, lambda _sentence: None)
    lacks = [clusters.why_refused(target) for _ in range(2)]
    assert [None if lack is None else lack.reason for lack in lacks] == [why, why]
    assert asked is None or ecs.asked == asked


def test_clusters_that_may_not_be_read_are_said_once() -> None:
    ecs = FakeEcs()
    ecs.is_denied = True
    said: list[str] = []
    clusters = TargetClusterReader(lambda _service: ecs, said.append)
    for cluster in ("jobs", "other"):
        target = state(cluster=cluster, CapacityProviderStrategy=strategy_of())
        assert clusters.why_refused(target) is None
    (sentence,) = said
    assert "allow ecs:DescribeClusters" in sentence


ON_SPOT = {"CapacityProviderStrategy": [{"CapacityProvider": "FARGATE_SPOT"}]}
MIXED = {"CapacityProviderStrategy": [{"CapacityProvider": "FARGATE"}, {"CapacityProvider": "mi"}]}
MANAGED_ALONE = ["EC2", "MANAGED_INSTANCES"]


@pytest.mark.parametrize(
    ("place", "supported", "is_refused"),
    [
        (ON_SPOT, MANAGED_ALONE, True),
        ({"LaunchType": "FARGATE"}, MANAGED_ALONE, True),
        ({"LaunchType": "EXTERNAL"}, MANAGED_ALONE, True),
        ({"LaunchType": "EC2"}, MANAGED_ALONE, False),
        # By the cluster's default, by another provider, and by what an execution computes.
        ({}, MANAGED_ALONE, False),
        (MIXED, MANAGED_ALONE, False),
        ({"LaunchType.$": "$.type"}, MANAGED_ALONE, False),
        ({"LaunchType": "{% $type %}"}, MANAGED_ALONE, False),
        (ON_SPOT, ["EC2", "FARGATE", "MANAGED_INSTANCES"], False),
        (ON_SPOT, None, False),
    ],
)
def test_a_launch_type_that_ecs_says_the_definition_does_not_support_is_a_refusal(
    place: dict[str, Any],
    supported: list[str] | None,
    is_refused: bool,  # noqa: FBT001
) -> None:
    """Only ECS's own list counts: a definition can support more than it requires."""
    described: dict[str, object] = {
        "family": "nightly",
        "containerDefinitions": [{"name": "batch"}],
        "requiresCompatibilities": ["MANAGED_INSTANCES"],
    }
    if supported is not None:
        described["compatibilities"] = supported
    document = read_document(json.dumps({"taskDefinition": described}).encode(), "nightly")
    assert "compatibilities" not in document.definition
    lack = unsupported_launch_type(state(**place), document)
    assert (lack is not None) == is_refused

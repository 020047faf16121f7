"""taskdef/cluster-*.yaml deployed on moto, completed by API calls where moto's CloudFormation leaves something out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from tests.cloudformation import MotoStack, create_stack

FOLDER = Path(__file__).parents[1] / "taskdef"
# Each template, and the task definition that its batch is made of.
CLUSTERS = {
    FOLDER / "cluster-gpu.yaml": FOLDER / "ec2-gpu.json",
    FOLDER / "cluster-neuron.yaml": FOLDER / "neuron.json",
}
# What moto's CloudFormation does not make, and how ClusterStack.complete makes it from the resolved template.
UNSUPPORTED_TYPES = {
    "AWS::ECS::CapacityProvider": "CreateCapacityProvider",
    "AWS::ECS::ClusterCapacityProviderAssociations": "PutClusterCapacityProviders",
    "AWS::Scheduler::Schedule": "CreateSchedule",
}


@dataclass(frozen=True, slots=True)
class ClusterStack(MotoStack):
    """A cluster's stack."""

    def complete(self) -> None:
        """Make what moto's CloudFormation left out, from the same properties."""
        ecs = boto3.client("ecs")
        (provider,) = self.resources("AWS::ECS::CapacityProvider").values()
        ecs.create_capacity_provider(**in_camel_case(provider))
        self.set_physical_id("CapacityProvider", provider["Name"])
        (capacity,) = self.resources("AWS::ECS::ClusterCapacityProviderAssociations").values()
        ecs.put_cluster_capacity_providers(**in_camel_case(capacity))
        (schedule,) = self.resources("AWS::Scheduler::Schedule").values()
        target = schedule["Target"]
        # CloudFormation's spelling differs from the API's in this one member.
        strategy = in_camel_case(target["EcsParameters"]["CapacityProviderStrategy"])
        target["EcsParameters"]["CapacityProviderStrategy"] = strategy
        name = f"{self.name}-Schedule-1"  # CloudFormation makes one up
        boto3.client("scheduler").create_schedule(Name=name, **schedule)
        self.set_physical_id("Schedule", name)

    @property
    def schedule(self) -> dict[str, Any]:
        found: dict[str, Any] = boto3.client("scheduler").get_schedule(Name=self.physical_id("Schedule"))
        return found

    @property
    def definition(self) -> dict[str, Any]:
        """The task definition as RegisterTaskDefinition takes it. moto registers a part of it only."""
        (properties,) = self.resources("AWS::ECS::TaskDefinition").values()
        definition: dict[str, Any] = in_camel_case(properties)
        for container in definition["containerDefinitions"]:
            for one in container.get("resourceRequirements", []):
                one["value"] = str(one["value"])  # CloudFormation makes texts of numbers, moto does not
        return definition


def deploy_cluster(path: Path, name: str = "night", **parameters: str) -> ClusterStack:
    """Deploy and complete a template (inside of ``mock_aws``) in moto's own VPC."""
    ec2 = boto3.client("ec2")
    subnets = [one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]][:2]
    given = {"VpcId": ec2.describe_vpcs()["Vpcs"][0]["VpcId"], "SubnetIds": ",".join(subnets)}
    given |= {"BatchImage": "python:3.13-slim", "MonitorImage": "task-profiler:0.1.0", **parameters}
    stack = ClusterStack(name, path, create_stack(name, path, given))
    stack.complete()
    return stack


def in_camel_case(value: Any) -> Any:
    """CloudFormation's names of members as ECS's API has them; log options begin in lower case already."""
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: in_camel_case(one) for key, one in value.items()}
    return [in_camel_case(one) for one in value] if isinstance(value, list) else value

"""The environments in which AWS Batch places the jobs of a queue: what they may have in all, and
with whose rights it starts their tasks.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from profiler.core.aws_clients import AwsClient
from profiler.core.json_fields import count_or_none, field_at, text_or_none

READ_ENVIRONMENTS = "batch:DescribeJobQueues and batch:DescribeComputeEnvironments"
# AWS keeps the policy of a role that is linked to a service.
# https://docs.aws.amazon.com/batch/latest/userguide/using-service-linked-roles.html
_LINKED = ":role/aws-service-role/"


class BatchStarter(Struct, frozen=True, kw_only=True):
    """A role of an account's own with which AWS Batch starts the tasks of an environment."""

    role: str  # its name
    tasks_arn: str  # of all tasks in the environment's cluster


def max_vcpus_of_environments(batch: AwsClient, queue: str) -> Iterator[int]:
    """The vCPUs that each environment of a queue may have, of those that are not disabled.

    Raises boto3's errors.
    """
    for environment in _enabled_environments(batch, queue):
        most = count_or_none(field_at(environment, "computeResources.maxvCpus"))
        if most is not None:
            yield most


def own_batch_roles(batch: AwsClient, queue: str) -> Iterator[BatchStarter]:
    """The roles of the account's own of the environments of a queue that are not disabled, without
    those that AWS keeps.

    Raises boto3's errors.
    """
    for environment in _enabled_environments(batch, queue):
        role_arn = text_or_none(environment.get("serviceRole")) or ""
        cluster_arn = text_or_none(environment.get("ecsClusterArn"))  # of pods, there is none
        if cluster_arn and role_arn and _LINKED not in role_arn:
            yield BatchStarter(
                role=role_arn.rpartition("/")[2],
                tasks_arn=f"{cluster_arn.replace(':cluster/', ':task/')}/*",
            )


def _enabled_environments(batch: AwsClient, queue: str) -> Iterator[Mapping[str, Any]]:
    """The environments of a queue that are not disabled."""
    queues = batch.describe_job_queues(jobQueues=[queue])["jobQueues"]
    names = [
        place["computeEnvironment"] for one in queues for place in one["computeEnvironmentOrder"]
    ]
    if not names:
        return
    described = batch.describe_compute_environments(computeEnvironments=names)
    for environment in described["computeEnvironments"]:
        if environment.get("state") != "DISABLED":
            yield environment

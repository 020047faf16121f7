"""What the environments may have in all in which AWS Batch places the jobs of a queue."""

from collections.abc import Iterator

from profiler.core.aws_clients import AwsClient
from profiler.core.json_fields import count, field_at


def most_vcpus(batch: AwsClient, queue: str) -> Iterator[int]:
    """The vCPUs that each environment of a queue may have, of those that are not disabled.

    Raises boto3's errors.
    """
    queues = batch.describe_job_queues(jobQueues=[queue])["jobQueues"]
    names = [
        place["computeEnvironment"] for one in queues for place in one["computeEnvironmentOrder"]
    ]
    if not names:
        return
    described = batch.describe_compute_environments(computeEnvironments=names)
    for environment in described["computeEnvironments"]:
        most = count(field_at(environment, "computeResources.maxvCpus"))
        if environment.get("state") != "DISABLED" and most is not None:
            yield most

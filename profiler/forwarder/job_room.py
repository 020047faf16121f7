"""Whether AWS Batch can place a job with more memory: one that it cannot place waits for ever, and
blocks its queue.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from profiler.aws_account.compute_environments import max_vcpus_of_environments
from profiler.core.aws_clients import AwsClient
from profiler.core.json_fields import count_or_none, mappings_in_list, text_or_none
from profiler.core.optional_math import known_values
from profiler.forwarder.memory_retry_rules import RetryRefusedError, call_aws_for_retry
from profiler.record.batch_job_detail import JobDetail
from profiler.record.units import format_memory, format_vcpu
from profiler.sizing.fargate_sizes import Size

_CLUSTER_PARTS = 3  # of container-instance/CLUSTER/ID


class JobRoomChecker(Struct, frozen=True):
    """What the places of a job have. Methods raise RetryRefusedError, or DeliveryError if AWS may
    answer later.
    """

    batch: AwsClient
    ecs: AwsClient

    def refuse_too_many_vcpus(self, job: JobDetail, old: Size, new: Size) -> None:
        """Refuse more vCPUs than an environment of the queue may have in all."""
        if new.vcpu <= old.vcpu:
            return
        what = "the environments of its queue could not be read"
        most = call_aws_for_retry(
            what, lambda: max(max_vcpus_of_environments(self.batch, job.queue_arn or ""), default=0)
        )
        if new.vcpu > most:
            raise RetryRefusedError(
                f"{format_memory(new.memory_mb)} need {format_vcpu(new.vcpu)} on Fargate, and its "
                f"queue's environments allow {most}"
            )

    def refuse_too_much_instance_memory(self, job: JobDetail, new_mb: float) -> None:
        """Refuse more memory than the instance of the last attempt has for jobs: of no other one is
        it known that the job may run there.
        """
        arn = job.attempts[-1].container_instance_arn or ""
        parts = arn.rpartition(":")[2].split("/")
        if len(parts) != _CLUSTER_PARTS:
            raise RetryRefusedError("the instance on which it ran is not known")
        what = "the instance on which it ran could not be read"
        answer = call_aws_for_retry(
            what,
            lambda: self.ecs.describe_container_instances(
                cluster=parts[1], containerInstances=[arn]
            ),
        )
        registered = next(map(_registered_memory_mb, answer.get("containerInstances", ())), None)
        if registered is None:
            raise RetryRefusedError("the instance on which it ran is gone, so its room is unknown")
        if new_mb > registered:
            raise RetryRefusedError(
                f"it needs {format_memory(new_mb)}, and the instance on which it ran has "
                f"{format_memory(registered)} for jobs"
            )


def _registered_memory_mb(instance: Mapping[str, Any]) -> int:
    """The memory that the instance has for tasks."""
    listed = mappings_in_list(instance.get("registeredResources"))
    memory = (
        count_or_none(one.get("integerValue"))
        for one in listed
        if text_or_none(one.get("name")) == "MEMORY"
    )
    return next(iter(known_values(memory)), 0)

"""A local run inside an ECS task: the task's identity, log stream and sizes on its record. Pure.

So a wrapper entrypoint (``task-profiler run`` in the batch's own container) is a full alternative
to the sidecar.
"""

from msgspec import Struct
from msgspec.structs import replace

from profiler.figures import billed_ms, span_ms
from profiler.record import Record
from profiler.sources.host import Host
from profiler.sources.task_metadata import ContainerMetadata, TaskMetadata
from profiler.summary import ResourceLimits, build_batch_record, container_limits
from profiler.verdict import running_outcome

_AWSLOGS = "awslogs"


class Placement(Struct, frozen=True, kw_only=True):
    """The task a command runs in, and its container."""

    task: TaskMetadata
    container: ContainerMetadata


def apply_placement_limits(sizes: ResourceLimits, placement: Placement, host: Host) -> ResourceLimits:
    """What bounds the command: the container's and the task's limits, where ECS knows any."""
    known = container_limits(placement.container, placement.task, None, Host())
    return ResourceLimits(
        vcpu=known.vcpu if known.vcpu is not None else sizes.vcpu or host.vcpu,
        memory_bytes=known.memory_bytes if known.memory_bytes is not None else sizes.memory_bytes,
    )


def apply_placement(
    record: Record, placement: Placement, *, is_named: bool, started_ns: int, finished_ns: int
) -> Record:
    """The record of a command that ran in an ECS task.

    ``named``: the run was given a name, which then stays its family.
    """
    task, own = placement.task, placement.container
    identity = build_batch_record(own, task, None, running_outcome(finished_ns), Host())
    options = own.log_options if own.log_driver == _AWSLOGS else {}
    return replace(
        record,
        task_id=identity.task_id,
        task_arn=identity.task_arn,
        cluster=identity.cluster,
        family=record.family if is_named else identity.family or record.family,
        revision=identity.revision,
        region=identity.region,
        account_id=identity.account_id,
        availability_zone=identity.availability_zone,
        launch_type=identity.launch_type or record.launch_type,
        container=identity.container,
        log_group=options.get("awslogs-group"),
        log_stream=options.get("awslogs-stream"),
        task_size=identity.task_size,
        metrics=replace(
            record.metrics,
            init_duration_ms=span_ms(task.pull_started_ns, started_ns),
            billed_duration_ms=billed_ms(task.pull_started_ns, finished_ns),
            ephemeral_storage_used_mb=task.ephemeral_storage_used_mib,
            ephemeral_storage_size_mb=task.ephemeral_storage_size_mib,
        ),
    )

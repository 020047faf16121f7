"""ECS terms: ARNs, task IDs and cluster names; the names of the monitor; the log stream of a
container.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal

from msgspec import Struct

MONITOR_NAME = "task-monitor"
# The memory that it reserves of a task's, as the command adds it.
MONITOR_RESERVATION_MB = 32
MONITOR_REPOSITORY = "task-profiler"
# The monitor's setting with the batch container's name.
CONTAINER_VARIABLE = "TASK_PROFILER_CONTAINER"
# Whose log stream gets the report.
ReportStream = Literal["batch", "monitor"]
AWSLOGS = "awslogs"
BATCH_LOG_GROUP = "/aws/batch/job"  # of AWS Batch's jobs whose definition names no other one
# The tag of a task or a job that was started again: the whole id of the one that was killed.
RETRY_OF = "task-profiler:retry-of"
# The launch types.
EC2 = "EC2"
FARGATE = "FARGATE"
EXTERNAL = "EXTERNAL"
MANAGED_INSTANCES = "MANAGED_INSTANCES"  # only by a capacity provider
# The stop code, in lower case, of a task that a user has stopped.
STOPPED_BY_USER = "userinitiated"
# How long before its end a run can have started, whatever its line claims.
MAX_RUN_LENGTH = timedelta(days=60)
CPU_UNITS = 1024  # of a vCPU
VCPU_SIZES = (0.25, 0.5, 1, 2, 4, 8, 16, 32)  # of tasks on Fargate
# The subscription filter in the events of `task-profiler replay`. The forwarder sends no
# notifications for them.
REPLAY_FILTER = "task-profiler replay"
SERVICE_GROUP = "service:"  # the beginning of the group of a service's tasks

# Which part of a shared GPU a container may use: ECS sets them for CUDA's MPS.
MPS_VARIABLES = (
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
)
# What AWS Batch tells a job's container of its job.
BATCH_VARIABLES = (
    "AWS_BATCH_JOB_ID",
    "AWS_BATCH_JQ_NAME",
    "AWS_BATCH_CE_NAME",
    "AWS_BATCH_JOB_ATTEMPT",
    "AWS_BATCH_JOB_ARRAY_INDEX",
    "AWS_BATCH_JOB_NODE_INDEX",
)

SHORT_ID_LENGTH = 8  # of a task's or a job's id where a list or a sentence shows it

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_TASK_ID = "[0-9a-f]{32}"
_CONTAINER_ID = "[0-9a-f]{64}"  # Docker's; on Fargate there is none
_BATCH_CLUSTER = "^AWSBatch-|_Batch_[0-9a-f-]+$"
_REVISION = "[0-9]{1,10}"  # a signed 32-bit number in ECS's API
_ARN_PARTS = 6  # arn:partition:service:region:account:resource
_DEFINITION_OF_ADDRESS = rf"[:/]task-definitions?/([A-Za-z0-9_-]+)[:/]({_REVISION})(?![0-9])"
# The page of a job has its kind before the id: #jobs/detail/ID, #jobs/ec2/detail/ID.
_RUN_OF_ADDRESS = r"[:/#](?:tasks?|jobs?)/(?:[^/]+/){0,2}([0-9a-f][0-9a-f-]{31,35}(?:[:#][0-9]+)*)"


class AwslogsTarget(Struct, frozen=True, kw_only=True):
    """The log stream of a container with the awslogs log driver; None: not known from the
    container's options.
    """

    group: str | None = None
    stream: str | None = None
    region: str | None = None


class LogTarget(Struct, frozen=True, kw_only=True):
    """A log stream. With ``region`` None, boto3 determines the region (AWS_REGION)."""

    group: str
    stream: str
    region: str | None = None


def is_billed_by_size(launch_type: str | None) -> bool:
    """Whether AWS bills a task by its own size and time, as on Fargate, and not the instance on
    which it is. A task of an unknown launch type counts as Fargate's.
    """
    return launch_type in (FARGATE, None)


def task_id(arn: str | None) -> str:
    """Return the last part of a task's ARN: ``task/CLUSTER/ID``, in old accounts ``task/ID``."""
    return (arn or "unknown").rsplit("/", 1)[-1]


def run_id_in(text: str) -> str:
    """The id in the ARN of a task or of a job of AWS Batch, or in the address of its page in AWS's
    console; any other text as it is.
    """
    found = re.search(_RUN_OF_ADDRESS, text) if is_arn_or_page(text) else None
    return found[1] if found else text


def definition_in(text: str) -> str:
    """``FAMILY:REVISION`` of a task definition's ARN, or of the address of its page in AWS's
    console; any other text as it is.
    """
    found = re.search(_DEFINITION_OF_ADDRESS, text) if is_arn_or_page(text) else None
    return f"{found[1]}:{found[2]}" if found else text


def is_arn_or_page(text: str) -> bool:
    """Whether the text is an ARN, or the address of a page."""
    return text.startswith(("arn:", "https://"))


def is_task_id(text: str) -> bool:
    """Whether the text has the form of a task's id."""
    return bool(re.fullmatch(_TASK_ID, text))


def cluster_name(cluster: str | None) -> str | None:
    """Return a cluster's name; the metadata endpoint returns either the name or the ARN."""
    return cluster.rsplit("/", 1)[-1] if cluster else None


def is_of_aws_batch(cluster: str | None) -> bool:
    """Whether the cluster has a name that AWS Batch gives: ``AWSBatch-…``, ``…_Batch_UUID``."""
    return bool(re.search(_BATCH_CLUSTER, cluster or ""))


def compute_environment_of(cluster: str) -> str | None:
    """The compute environment of AWS Batch for which a cluster was made: ``AWSBatch-NAME-UUID`` or
    ``NAME_Batch_UUID``; None for other clusters.
    """
    found = re.fullmatch(rf"AWSBatch-(.+)-{_UUID}|(.+)_Batch_{_UUID}", cluster)
    return found[1] or found[2] if found else None


def family_of(definition: str) -> str:
    """The family of a task definition's ARN, of ``family:revision`` or of a family."""
    return definition.rpartition("/")[2].split(":", 1)[0]


def revision_text(definition: str) -> str:
    """The revision of a definition's ARN or of ``family:revision``; "" without one."""
    return definition.rpartition("/")[2].partition(":")[2]


def revision_number(revision: str) -> int | None:
    """The number of a revision; None for another text."""
    return int(revision) if re.fullmatch(_REVISION, revision) else None


def arn_part(arn: str | None, position: int) -> str | None:
    """Return one of the six colon-separated parts of an ARN; None if the part is empty or
    ``arn`` is not an ARN.
    """
    parts = arn_parts(arn)
    return parts[position] or None if parts else None


def arn_parts(arn: str | None) -> Sequence[str]:
    """The six colon-separated parts of an ARN, of which each may be empty; none of another text."""
    parts = (arn or "").split(":", _ARN_PARTS - 1)
    return parts if len(parts) == _ARN_PARTS else ()


def cluster_of_arn(arn: str) -> str | None:
    """The cluster in a task's ARN; None in one of an old account: ``task/ID``."""
    parts = (arn_part(arn, 5) or "").split("/")
    return parts[1] if len(parts) == 3 else None  # noqa: PLR2004  task/CLUSTER/ID


def arn_region(arn: str | None) -> str | None:
    """Return the Region of an ARN."""
    return arn_part(arn, 3)


def arn_account(arn: str | None) -> str | None:
    """Return the account id of an ARN."""
    return arn_part(arn, 4)


def awslogs_target(
    options: Mapping[str, str],
    container_name: str,
    task_arn: str | None,
    container_id: str | None = None,
) -> AwslogsTarget:
    """Derive a container's log stream.

    A definition has only a prefix, of which ECS makes the whole name. Without a prefix, which is
    optional on EC2, Docker names the stream by its ``container_id``.
    """
    group = options.get("awslogs-group") or None
    prefix = options.get("awslogs-stream-prefix")
    stream = options.get("awslogs-stream") or None
    if not stream and prefix:
        stream = f"{prefix}/{container_name}/{task_id(task_arn)}"
    elif not stream and group and re.fullmatch(_CONTAINER_ID, container_id or ""):
        stream = container_id
    return AwslogsTarget(group=group, stream=stream, region=options.get("awslogs-region") or None)

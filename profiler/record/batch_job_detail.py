"""A job of AWS Batch with its attempts: the detail of Batch's event, or an item of DescribeJobs.

Both also have the environment, the command, the parameters and the tags of the job, in which users
put secrets: no member is read that this module does not name, and of the tags only the forwarder's
own. A value of another type counts as absent. Names and reasons are anybody's words: they are on
one line, and of a bounded length.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from profiler.core.ecs_terms import (
    BATCH_LOG_GROUP,
    RETRY_OF,
    arn_account,
    arn_region,
    family_of,
    revision_number,
    revision_text,
)
from profiler.core.json_fields import (
    Json,
    count_or_none,
    integer_or_none,
    mapping_or_empty,
    mappings_in_list,
    text_or_none,
)
from profiler.core.optional_math import (
    known,
    known_members,
    known_values,
    product,
    sum_if_all_known,
)
from profiler.core.redaction import redact_line
from profiler.core.text import on_one_line
from profiler.record.batch_job import (
    MAX_NAME_CHARS,
    BatchJob,
    is_job_id,
    parent_id,
    resource_name,
)

SUBMITTED: Final = "SUBMITTED"
PENDING: Final = "PENDING"
RUNNABLE: Final = "RUNNABLE"
STARTING: Final = "STARTING"
RUNNING: Final = "RUNNING"
SUCCEEDED: Final = "SUCCEEDED"
FAILED: Final = "FAILED"
# In the order of a job's life.
STATUSES: Final = (SUBMITTED, PENDING, RUNNABLE, STARTING, RUNNING, SUCCEEDED, FAILED)
ENDED: Final = frozenset({SUCCEEDED, FAILED})
_SOURCE = "aws.batch"
_STATE_CHANGE = "Batch Job State Change"
_QUEUE_BLOCKED = "Batch Job Queue Blocked"
_MAX_REASON_CHARS = 1_024  # of a TerminateJob or a CancelJob
_MAX_DIGITS = 12
_NODE_RANGE = "([0-9]{0,9})(:?)([0-9]{0,9})"
_MIB_BY_UNIT = {"Ki": 1 / 1024, "Mi": 1, "Gi": 1024}  # of memory in a pod


class JobContainer(Struct, frozen=True, kw_only=True):
    """A container of a job with what it asks for, after the overrides of its submission.

    ``name`` is None in a job with ``containerProperties``, where ECS calls it ``default``.
    """

    name: str | None = None
    is_essential: bool = True
    vcpu: float | None = None
    memory_mb: int | None = None
    gpus: int | None = None


class ContainerEnd(Struct, frozen=True, kw_only=True):
    """How a container of an attempt ended.

    ``exit_code`` is None if it never started, its host was lost, or Docker did not answer.
    """

    name: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    log_stream: str | None = None


class JobAttempt(Struct, frozen=True, kw_only=True):
    """An attempt that has ended; ``number`` counts from 1. On EKS it has no task."""

    number: int
    task_arn: str | None = None
    container_instance_arn: str | None = None
    started_ms: int | None = None
    stopped_ms: int | None = None
    status_reason: str | None = None
    containers: tuple[ContainerEnd, ...] = ()

    @property
    def failed_log_stream(self) -> str | None:
        """The log stream of the first container that failed, else of the first that has one."""
        logged = [one for one in self.containers if one.log_stream is not None]
        failed = [one for one in logged if one.exit_code]
        return next((one.log_stream for one in (*failed, *logged)), None)


class JobArray(Struct, frozen=True, kw_only=True):
    """The array of a job: its size and its children by their status, or the index of a child."""

    size: int | None = None
    index: int | None = None
    children: Mapping[str, int] = {}


NO_ARRAY: Final = JobArray()


class JobNodes(Struct, frozen=True, kw_only=True):
    """The nodes of a multi-node job, or the index of one of them."""

    size: int | None = None
    main: int | None = None
    index: int | None = None
    is_main: bool = False


NO_NODES: Final = JobNodes()


class JobDetail(Struct, frozen=True, kw_only=True):
    """A job.

    ``started_ms`` is the start of its last attempt. ``status_reason`` can be a user's text:
    ``is_terminated`` or ``is_cancelled`` then. ``containers`` are those of the main node of a
    multi-node job. ``consumables`` has the quantities by the names of the resources. ``retry_of``
    is the id of the job that was killed for memory, if the forwarder submitted this one for it.
    """

    id: str
    arn: str | None = None
    name: str | None = None
    queue_arn: str | None = None
    definition_arn: str | None = None
    status: str | None = None
    status_reason: str | None = None
    is_cancelled: bool = False
    is_terminated: bool = False
    created_ms: int | None = None
    started_ms: int | None = None
    stopped_ms: int | None = None
    attempts: tuple[JobAttempt, ...] = ()
    allowed_attempts: int = 1
    containers: tuple[JobContainer, ...] = ()
    array: JobArray = NO_ARRAY
    nodes: JobNodes = NO_NODES
    depends_on: tuple[str, ...] = ()
    is_on_eks: bool = False
    platforms: tuple[str, ...] = ()
    timeout_seconds: int | None = None
    share_identifier: str | None = None
    consumables: Mapping[str, int] = {}
    log_group: str = BATCH_LOG_GROUP
    retry_of: str | None = None

    @property
    def region(self) -> str | None:
        return arn_region(self.arn or self.definition_arn)

    @property
    def account_id(self) -> str | None:
        return arn_account(self.arn or self.definition_arn)

    @property
    def parent_id(self) -> str | None:
        """The id of the array or the multi-node job of which it is a part."""
        parent = parent_id(self.id)
        return None if parent == self.id else parent

    @property
    def is_array_parent(self) -> bool:
        return self.array.size is not None and not self.is_child

    @property
    def has_no_attempt(self) -> bool:
        """Whether it never had an attempt. An array's attempts are its children's."""
        return not self.attempts and not self.is_array_parent

    @property
    def is_child(self) -> bool:
        """Whether it is a part of an array or of a multi-node job."""
        return self.parent_id is not None

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def vcpu(self) -> float | None:
        """What all containers ask for; None if one of them does not say."""
        return sum_if_all_known([container.vcpu for container in self.containers])

    @property
    def memory_mb(self) -> float | None:
        """The memory that all containers ask for; None if one of them does not say."""
        return sum_if_all_known([container.memory_mb for container in self.containers])

    def batch_job_of_attempt(self, attempt: int | None = None) -> BatchJob:
        """The job as a run's record names it."""
        definition = family_of(self.definition_arn or "")
        return BatchJob(
            job_id=self.id,
            job_name=self.name,
            job_definition=definition or None,
            job_definition_revision=revision_number(revision_text(self.definition_arn or "")),
            queue=resource_name(self.queue_arn or "") or None,
            attempt=attempt,
            allowed_attempts=self.allowed_attempts,
            array_index=self.array.index,
            node_index=self.nodes.index,
        )


class JobEvent(Struct, frozen=True, kw_only=True):
    """An event of Batch: a job's new state, or the first job of a queue, which blocks it."""

    job: JobDetail
    is_queue_blocked: bool = False


def parse_job_event(event: object) -> JobEvent | None:
    """Batch's event about a job; None for an event of another kind, and for one from an account or
    a Region that is not the job's.
    """
    root = mapping_or_empty(event)
    kind = root.get("detail-type")
    if root.get("source") != _SOURCE or kind not in (_STATE_CHANGE, _QUEUE_BLOCKED):
        return None
    job = parse_job(root.get("detail"))
    if job is None:
        return None
    places = ((root.get("account"), job.account_id), (root.get("region"), job.region))
    if any(sent is not None and own not in (None, sent) for sent, own in places):
        return None
    return JobEvent(job=job, is_queue_blocked=kind == _QUEUE_BLOCKED)


def parse_job(detail: Json) -> JobDetail | None:
    """A job of DescribeJobs, or the detail of its event; None without an id of a job."""
    values = mapping_or_empty(detail)
    job_id = text_or_none(values.get("jobId"))
    if job_id is None or not is_job_id(job_id):
        return None
    retry = mapping_or_empty(values.get("retryStrategy"))
    listed = values.get("platformCapabilities")
    platforms = map(text_or_none, listed) if isinstance(listed, list) else ()
    depends_on = (
        text_or_none(job.get("jobId")) for job in mappings_in_list(values.get("dependsOn"))
    )
    return JobDetail(
        id=job_id,
        arn=_bounded_name(values.get("jobArn")),
        name=_bounded_name(values.get("jobName")),
        queue_arn=_bounded_name(values.get("jobQueue")),
        definition_arn=_bounded_name(values.get("jobDefinition")),
        status=_bounded_name(values.get("status")),
        status_reason=_redacted_reason(values.get("statusReason")),
        is_cancelled=values.get("isCancelled") is True,
        is_terminated=values.get("isTerminated") is True,
        created_ms=count_or_none(values.get("createdAt")) or None,
        started_ms=count_or_none(values.get("startedAt")) or None,
        stopped_ms=count_or_none(values.get("stoppedAt")) or None,
        attempts=tuple(_parse_attempts(values)),
        allowed_attempts=count_or_none(retry.get("attempts")) or 1,
        containers=tuple(_parse_containers(values)),
        array=parse_array(values),
        nodes=_parse_nodes(values),
        depends_on=tuple(known_values(depends_on)),
        is_on_eks=bool(mapping_or_empty(values.get("eksProperties"))),
        platforms=tuple(known_values(platforms)),
        timeout_seconds=count_or_none(
            mapping_or_empty(values.get("timeout")).get("attemptDurationSeconds")
        ),
        share_identifier=_bounded_name(values.get("shareIdentifier")),
        consumables=dict(_parse_consumables(values)),
        log_group=_log_group_of(values),
        retry_of=_retried_job_id(values),
    )


def _parse_attempts(values: Mapping[str, Json]) -> Iterator[JobAttempt]:
    """The attempts in each of their forms: a container, a task with containers, a pod."""
    listed = (
        *mappings_in_list(values.get("attempts")),
        *mappings_in_list(values.get("eksAttempts")),
    )
    for number, attempt in enumerate(listed, 1):
        container = mapping_or_empty(attempt.get("container"))
        task = next(mappings_in_list(attempt.get("taskProperties")), container)
        ends = [_parse_container_end(container)] if container else []
        for of_task in (
            *mappings_in_list(task.get("containers")),
            *mappings_in_list(attempt.get("containers")),
        ):
            ends.append(_parse_container_end(of_task))
        yield JobAttempt(
            number=number,
            task_arn=_bounded_name(task.get("taskArn")),
            container_instance_arn=_bounded_name(task.get("containerInstanceArn")),
            started_ms=count_or_none(attempt.get("startedAt")) or None,
            stopped_ms=count_or_none(attempt.get("stoppedAt")) or None,
            status_reason=_redacted_reason(attempt.get("statusReason")),
            containers=tuple(ends),
        )


def _parse_container_end(container: Mapping[str, Json]) -> ContainerEnd:
    return ContainerEnd(
        name=_bounded_name(container.get("name")),
        exit_code=integer_or_none(container.get("exitCode")),
        reason=_redacted_reason(container.get("reason")),
        log_stream=_bounded_log_name(container.get("logStreamName")),
    )


def _parse_containers(values: Mapping[str, Json]) -> Iterator[JobContainer]:
    """The containers of the job in the form that its definition has."""
    nodes = mapping_or_empty(values.get("nodeProperties"))
    ranges = list(mappings_in_list(nodes.get("nodeRangeProperties")))
    if ranges:
        main = count_or_none(nodes.get("mainNode")) or 0
        values = next((one for one in ranges if _includes_node(one, main)), ranges[0])
    for task in mappings_in_list(
        mapping_or_empty(values.get("ecsProperties")).get("taskProperties")
    ):
        yield from map(_parse_container, mappings_in_list(task.get("containers")))
    pod = mapping_or_empty(mapping_or_empty(values.get("eksProperties")).get("podProperties"))
    yield from map(_parse_pod_container, mappings_in_list(pod.get("containers")))
    container = mapping_or_empty(values.get("container"))
    if _parse_container(container) != JobContainer():
        yield _parse_container(container)


def _includes_node(node_range: Mapping[str, Json], index: int) -> bool:
    """Whether a range such as ``0:3``, ``2:`` or ``:1`` has the node."""
    written = re.fullmatch(_NODE_RANGE, text_or_none(node_range.get("targetNodes")) or "")
    if not written:
        return False
    first, colon, last = written.groups()
    start = int(first or 0)
    if not colon:
        return first != "" and index == start
    return start <= index and (last == "" or index <= int(last))


def _parse_container(container: Mapping[str, Json]) -> JobContainer:
    """``vcpus`` and ``memory`` are the deprecated members; the requirements precede them."""
    asked = {
        text_or_none(one.get("type")): text_or_none(one.get("value"))
        for one in mappings_in_list(container.get("resourceRequirements"))
    }
    memory_mb = (
        _parse_positive(asked.get("MEMORY")) or count_or_none(container.get("memory")) or None
    )
    gpus = _parse_positive(asked.get("GPU"))
    return JobContainer(
        name=_bounded_name(container.get("name")),
        is_essential=container.get("essential") is not False,
        vcpu=_parse_positive(asked.get("VCPU")) or count_or_none(container.get("vcpus")) or None,
        memory_mb=known(round, memory_mb),
        gpus=known(round, gpus),
    )


def _parse_pod_container(container: Mapping[str, Json]) -> JobContainer:
    """What a container of a pod may use at most, else what it asks for."""
    resources = mapping_or_empty(container.get("resources"))
    asked = {
        **mapping_or_empty(resources.get("requests")),
        **mapping_or_empty(resources.get("limits")),
    }
    written = text_or_none(asked.get("memory")) or ""
    memory = _parse_positive(written[:-2])
    unit = _MIB_BY_UNIT.get(written[-2:])
    gpus = _parse_positive(text_or_none(asked.get("nvidia.com/gpu")))
    return JobContainer(
        name=_bounded_name(container.get("name")),
        vcpu=_parse_positive(text_or_none(asked.get("cpu"))),
        memory_mb=known(round, product(memory, unit)),
        gpus=known(round, gpus),
    )


def _log_group_of(values: Mapping[str, Json]) -> str:
    """The log group of the job's first container."""
    tasks = mappings_in_list(mapping_or_empty(values.get("ecsProperties")).get("taskProperties"))
    containers = mappings_in_list(next(tasks, mapping_or_empty(None)).get("containers"))
    first = next(containers, mapping_or_empty(values.get("container")))
    options = mapping_or_empty(mapping_or_empty(first.get("logConfiguration")).get("options"))
    return _bounded_log_name(options.get("awslogs-group")) or BATCH_LOG_GROUP


def _retried_job_id(values: Mapping[str, Json]) -> str | None:
    job_id = text_or_none(mapping_or_empty(values.get("tags")).get(RETRY_OF)) or ""
    return job_id if is_job_id(job_id) else None


def parse_array(values: Mapping[str, Json]) -> JobArray:
    """The array of a job, also of one in a list."""
    array = mapping_or_empty(values.get("arrayProperties"))
    if not array:
        return NO_ARRAY
    statuses = mapping_or_empty(array.get("statusSummary"))
    children = known_members({status: count_or_none(value) for status, value in statuses.items()})
    return JobArray(
        size=count_or_none(array.get("size")),
        index=count_or_none(array.get("index")),
        children=children,
    )


def children_text(array: JobArray) -> str:
    """The children of an array by their status: ``3 RUNNABLE, 7 RUNNING``; "" if not known."""
    children = array.children
    return ", ".join(f"{children[one]:,} {one}" for one in STATUSES if children.get(one))


def _parse_nodes(values: Mapping[str, Json]) -> JobNodes:
    of_job = mapping_or_empty(values.get("nodeProperties"))
    of_node = mapping_or_empty(values.get("nodeDetails"))
    if not of_job and not of_node:
        return NO_NODES
    return JobNodes(
        size=count_or_none(of_job.get("numNodes")),
        main=count_or_none(of_job.get("mainNode")),
        index=count_or_none(of_node.get("nodeIndex")),
        is_main=of_node.get("isMainNode") is True,
    )


def _parse_consumables(values: Mapping[str, Json]) -> Iterator[tuple[str, int]]:
    properties = mapping_or_empty(values.get("consumableResourceProperties"))
    for resource in mappings_in_list(properties.get("consumableResourceList")):
        name = _bounded_name(resource.get("consumableResource"))
        quantity = count_or_none(resource.get("quantity"))
        if name is not None and quantity is not None:
            yield resource_name(name), quantity


def _parse_positive(written: str | None) -> float | None:
    """A number above 0 such as ``0.25``."""
    digits = (written or "").replace(".", "", 1)
    if not digits.isascii() or not digits.isdecimal() or len(digits) > _MAX_DIGITS:
        return None
    return float(written or "") or None


def _bounded_name(value: Json) -> str | None:
    return _bounded_line(value, MAX_NAME_CHARS)


def _redacted_reason(value: Json) -> str | None:
    """A reason without secrets: that of a command that cannot be started has the command."""
    return known(redact_line, _bounded_line(value, _MAX_REASON_CHARS))


def _bounded_log_name(value: Json) -> str | None:
    return _bounded_line(value, _MAX_REASON_CHARS)


def _bounded_line(value: Json, max_chars: int) -> str | None:
    return on_one_line(text_or_none(value) or "").strip()[:max_chars] or None

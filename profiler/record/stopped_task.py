"""A stopped task, from EventBridge's "ECS Task State Change".

A value of the event that cannot be used counts as absent: a wrong type, a time that is not one of
the years 1970 to 2200, an exit code beyond 32 bits. Half of a surrogate pair, which UTF-8 cannot
encode, is replaced in the event's text.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct

from profiler.core.ecs_terms import (
    FARGATE,
    SERVICE_GROUP,
    STOPPED_BY_USER,
    arn_account,
    arn_region,
    cluster_name,
    family_of,
    is_of_aws_batch,
    revision_text,
    task_id,
)
from profiler.core.json_fields import (
    integer_or_none,
    mapping_or_empty,
    mappings_in_list,
    text_or_none,
)
from profiler.core.optional_math import first_known, known, known_members, quotient
from profiler.core.redaction import redact_line
from profiler.core.text import without_surrogates
from profiler.core.timestamps import parse_datetime
from profiler.record.batch_job import NO_JOB, BatchJob, job_of_overrides
from profiler.record.model_base import json_name
from profiler.record.spot_price import FARGATE_SPOT

_MAX_DIGITS = 9
_EXIT_CODE = "exitCode"
_TIME_SUFFIX = "At"
_AMOUNTS = ("cpu", "memory")
# The fields of a task that have the names of the event's.
_TEXTS = ("availability_zone", "launch_type", "group", "started_by", "stop_code")
_TIMES = (
    "created_at",
    "pull_started_at",
    "pull_stopped_at",
    "started_at",
    "execution_stopped_at",
    "stopped_at",
)

# Of the texts and times in the event.
_NAMES = {name: json_name(name) for name in (*_TEXTS, *_TIMES)}


class EventContainer(Struct, frozen=True, kw_only=True):
    """A container of a stopped task.

    ``memory_mb`` is its own hard limit, with which the task was started.
    """

    name: str
    exit_code: int | None = None
    reason: str | None = None
    arn: str | None = None
    image: str | None = None
    image_digest: str | None = None
    runtime_id: str | None = None
    memory_mb: int | None = None

    @property
    def has_run(self) -> bool:
        return self.exit_code is not None


# What the event says of a batch that is not known.
UNKNOWN_CONTAINER: Final = EventContainer(name="")


class StoppedTask(Struct, frozen=True, kw_only=True):
    """A task that has stopped.

    On EC2, ``vcpu`` and ``memory_mb`` can be the sums of its containers'. ``batch`` is the job of
    AWS Batch, in a cluster of Batch. ``work`` is the digest of what its starter gave to the
    containers, if the event says that. ``unusable`` are the names of the event's values that count
    as absent, or of which a part is replaced.
    """

    arn: str
    stop_code: str | None = None
    stopped_reason: str | None = None
    cluster: str | None = None
    definition_arn: str | None = None
    region: str | None = None
    account_id: str | None = None
    availability_zone: str | None = None
    launch_type: str | None = None
    cpu_architecture: str | None = None
    vcpu: float | None = None
    memory_mb: int | None = None
    capacity_provider: str | None = None
    group: str | None = None
    started_by: str | None = None
    created_at: datetime | None = None
    pull_started_at: datetime | None = None
    pull_stopped_at: datetime | None = None
    started_at: datetime | None = None
    execution_stopped_at: datetime | None = None
    stopped_at: datetime | None = None
    containers: tuple[EventContainer, ...] = ()
    batch: BatchJob = NO_JOB
    work: str | None = None
    unusable: tuple[str, ...] = ()

    def container_or_name_only(self, name: str) -> EventContainer:
        """The container; with its name alone if ECS does not list it, as after a failed start."""
        for container in self.containers:
            if container.name == name:
                return container
        return EventContainer(name=name)

    @property
    def id(self) -> str:
        return task_id(self.arn)

    @property
    def family(self) -> str | None:
        """The task definition's; of a job of AWS Batch, the job definition's name, if known."""
        return first_known(self.batch.job_definition, known(family_of, self.definition_arn))

    @property
    def revision(self) -> str | None:
        """The end of the task definition's ARN, ``…:task-definition/FAMILY:REVISION``; as the
        family, the job definition's.
        """
        job = self.batch
        if job.job_definition is not None:
            return known(str, job.job_definition_revision)
        return revision_text(self.definition_arn or "") or None

    @property
    def is_on_fargate(self) -> bool:
        """Whether the size is the task's own."""
        return self.launch_type == FARGATE or self.capacity_provider in (FARGATE, FARGATE_SPOT)

    @property
    def is_of_aws_batch(self) -> bool:
        """Whether it is an attempt of a job of AWS Batch."""
        return is_of_aws_batch(self.cluster)

    @property
    def reason_of_ecs(self) -> str:
        """The reason in lower case; empty if a user can have written it, in StopTask."""
        if (self.stop_code or "").lower() == STOPPED_BY_USER:
            return ""
        return (self.stopped_reason or "").lower()

    @property
    def is_service_task(self) -> bool:
        return (self.group or "").startswith(SERVICE_GROUP) or (self.started_by or "").startswith(
            "ecs-svc/"
        )

    @property
    def duration_ms(self) -> float | None:
        """The time from the start to the end of execution; ``stoppedAt`` is about 20 s later.

        None if one of them is unknown.

        A task that crashed at once ended before ``startedAt``, when the control plane saw it
        running: None, too.
        """
        end = self.execution_stopped_at
        if self.started_at is None or end is None or end < self.started_at:
            return None
        return round((end - self.started_at).total_seconds() * 1000)


def work_digest(overrides: Iterable[Mapping[str, object]]) -> str:
    """What the overrides of containers let these do: their commands and environments. A digest,
    because they hold secrets. A container without any is as one that is not named.
    """
    work: dict[str, dict[str, object]] = {}
    for override in overrides:
        command = override.get("command")
        variables, files = map(override.get, ("environment", "environmentFiles"))
        parts = {
            "command": list(map(text_or_none, command)) if isinstance(command, list) else None,
            "environment": {
                str(text_or_none(one.get("name"))): text_or_none(one.get("value"))
                for one in mappings_in_list(variables)
            },
            "environmentFiles": [text_or_none(one.get("value")) for one in mappings_in_list(files)],
        }
        work |= known_members(
            {
                str(text_or_none(override.get("name"))): {
                    name: one for name, one in parts.items() if one
                }
                or None
            }
        )
    return sha256(msgspec.json.encode(work, order="sorted")).hexdigest()


def parse_stopped_task(event: object) -> StoppedTask | None:
    """Return the stopped task of an event; None for any other event, and for other states of a
    task.
    """
    root = mapping_or_empty(event)
    detail = mapping_or_empty(root.get("detail"))
    listed = tuple(mappings_in_list(detail.get("containers")))
    listed_overrides = mapping_or_empty(detail.get("overrides")).get("containerOverrides")
    overrides = tuple(mappings_in_list(listed_overrides))
    attributes = mappings_in_list(detail.get("attributes"))
    values, around, *containers = [_usable_values(part) for part in (detail, root, *listed)]
    arn = values.get("taskArn")
    if arn is None or values.get("lastStatus") != "STOPPED":
        return None
    memory_mb = {item.get("name"): item.get("memory") for item in map(_usable_values, overrides)}
    architectures = (  # as a record writes them: X86_64, ARM64
        item["value"].upper()
        for item in map(_usable_values, attributes)
        if item.get("name") == "ecs.cpu-architecture" and "value" in item
    )
    cpu_units = values.get("cpu")
    cluster = cluster_name(values.get("clusterArn"))
    return StoppedTask(
        arn=arn,
        cluster=cluster,
        definition_arn=values.get("taskDefinitionArn"),
        region=around.get("region") or arn_region(arn),
        account_id=around.get("account") or arn_account(arn),
        cpu_architecture=next(architectures, None),
        vcpu=quotient(cpu_units, 1024),
        memory_mb=values.get("memory"),
        capacity_provider=values.get("capacityProviderName"),
        containers=tuple(
            _parse_event_container(container, memory_mb)
            for container in containers
            if "name" in container
        ),
        batch=job_of_overrides(overrides) if is_of_aws_batch(cluster) else NO_JOB,
        work=work_digest(overrides) if isinstance(listed_overrides, list) else None,
        unusable=(
            *_unusable_names(detail, values),
            *(
                name
                for part, usable in zip(listed, containers, strict=True)
                for name in _unusable_names(part, usable)
            ),
        ),
        stopped_reason=_redacted_reason(values, "stoppedReason"),
        **{name: values.get(written) for name, written in _NAMES.items()},
    )


def _redacted_reason(values: Mapping[str, Any], name: str) -> str | None:
    """A reason without secrets: that of a command that cannot be started has the command."""
    return known(redact_line, values.get(name))


def _unusable_names(values: Mapping[str, object], usable: Mapping[str, Any]) -> Iterator[str]:
    """The names of the values that are not usable, or not as they are."""
    for name, value in values.items():
        is_read = name == _EXIT_CODE or name.endswith(_TIME_SUFFIX)
        if is_read and value is not None and name not in usable:
            yield name
        is_text = not is_read and isinstance(value, str) and name not in _AMOUNTS
        if is_text and usable.get(name, "") != value:
            yield name


def _usable_values(values: Mapping[str, object]) -> dict[str, Any]:
    """The values of an object that can be used, each of the type that its name has."""
    usable = {name: _usable_value(name, value) for name, value in values.items()}
    return known_members(usable)


def _usable_value(name: str, value: object) -> str | int | datetime | None:
    """A text that UTF-8 can encode, a time, an exit code, or an amount above 0, which ECS writes
    as a text, in an override as a number.
    """
    if name == _EXIT_CODE:
        return integer_or_none(value)
    if not isinstance(value, str):
        return (integer_or_none(value) or None) if name in _AMOUNTS else None
    usable = without_surrogates(value, "\N{REPLACEMENT CHARACTER}")
    if name.endswith(_TIME_SUFFIX):
        return parse_datetime(usable)
    if name not in _AMOUNTS:
        return usable or None
    is_amount = usable.isascii() and usable.isdigit() and len(usable) < _MAX_DIGITS
    return (int(usable) or None) if is_amount else None


def _parse_event_container(
    values: Mapping[str, Any], override_memory_mb: Mapping[str | None, int | None]
) -> EventContainer:
    name = values["name"]
    return EventContainer(
        name=name,
        arn=values.get("containerArn"),
        memory_mb=override_memory_mb.get(name) or values.get("memory"),
        exit_code=values.get(_EXIT_CODE),
        reason=_redacted_reason(values, "reason"),
        **{
            field: values.get(json_name(field)) for field in ("image", "image_digest", "runtime_id")
        },
    )

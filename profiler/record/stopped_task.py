"""A stopped task, from EventBridge's "ECS Task State Change".

A value of the event that cannot be used counts as absent: a wrong type, a time that is not one of
the years 1970 to 2200, an exit code beyond 32 bits. Half of a surrogate pair, which UTF-8 cannot
encode, is replaced in the event's text.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from profiler.core.ecs_terms import (
    FARGATE,
    SERVICE_GROUP,
    arn_account,
    arn_region,
    cluster_name,
    family_of,
    task_id,
)
from profiler.core.json_fields import integer, mapping, mappings, text
from profiler.core.text import without_surrogates
from profiler.core.timestamps import parse_datetime
from profiler.record.model_base import json_name
from profiler.record.spot_price import FARGATE_SPOT

# The stop code, in lower case, of a task that a user has stopped.
STOPPED_BY_USER = "userinitiated"
_MAX_DIGITS = 9
# The fields of a task that have the names of the event's.
_TEXTS = ("availability_zone", "launch_type", "group", "started_by", "stop_code", "stopped_reason")
_TIMES = (
    "created_at",
    "pull_started_at",
    "pull_stopped_at",
    "started_at",
    "execution_stopped_at",
    "stopped_at",
)


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


class StoppedTask(Struct, frozen=True, kw_only=True):
    """A task that has stopped.

    On EC2, ``vcpu`` and ``memory_mb`` can be the sums of its containers'.
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

    def container(self, name: str) -> EventContainer:
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
        if self.definition_arn is None:
            return None
        return family_of(self.definition_arn)

    @property
    def revision(self) -> str | None:
        """The end of the task definition's ARN: ``…:task-definition/FAMILY:REVISION``."""
        return (self.definition_arn or "").rpartition("/")[2].partition(":")[2] or None

    @property
    def is_on_fargate(self) -> bool:
        """Whether the size is the task's own."""
        return self.launch_type == FARGATE or self.capacity_provider in (FARGATE, FARGATE_SPOT)

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
        """From the start to the end of execution; ``stoppedAt`` is about 20 s later.

        None if one of them is unknown.

        A task that crashed at once ended before ``startedAt``, when the control plane saw it
        running: None, too.
        """
        end = self.execution_stopped_at
        if self.started_at is None or end is None or end < self.started_at:
            return None
        return round((end - self.started_at).total_seconds() * 1000)


def _text(values: Mapping[str, object], name: str) -> str | None:
    """A text that UTF-8 can encode; None if it is empty, absent or no text."""
    value = text(values.get(name))
    if value is None:
        return None
    return without_surrogates(value, "\N{REPLACEMENT CHARACTER}")


def _time(values: Mapping[str, object], name: str) -> datetime | None:
    return parse_datetime(_text(values, name))


def parse_stopped_task(event: object) -> StoppedTask | None:
    """Return the stopped task of an event; None for any other event, and for other states of a
    task.
    """
    root = mapping(event)
    detail = mapping(mapping(event).get("detail"))
    arn = _text(detail, "taskArn")
    if arn is None or detail.get("lastStatus") != "STOPPED":
        return None
    overrides = {
        item.get("name"): item
        for item in mappings(mapping(detail.get("overrides")).get("containerOverrides"))
    }
    containers = (_container(item, overrides) for item in mappings(detail.get("containers")))
    cpu_units = _amount(detail, "cpu")
    named: dict[str, Any] = {name: _text(detail, json_name(name)) for name in _TEXTS}
    named |= {name: _time(detail, json_name(name)) for name in _TIMES}
    architectures = (  # as a record writes them: X86_64, ARM64
        value.upper()
        for item in mappings(detail.get("attributes"))
        if item.get("name") == "ecs.cpu-architecture"
        and (value := text(item.get("value"))) is not None
    )
    return StoppedTask(
        arn=arn,
        cluster=cluster_name(_text(detail, "clusterArn")),
        definition_arn=_text(detail, "taskDefinitionArn"),
        region=_text(root, "region") or arn_region(arn),
        account_id=_text(root, "account") or arn_account(arn),
        cpu_architecture=next(architectures, None),
        vcpu=None if cpu_units is None else cpu_units / 1024,
        memory_mb=_amount(detail, "memory"),
        capacity_provider=_text(detail, "capacityProviderName"),
        containers=tuple(container for container in containers if container is not None),
        **named,
    )


def unusable_values(event: object) -> tuple[str, ...]:
    """The names of the values of a task's event that count as absent, or of which a part is
    replaced.
    """
    detail = mapping(mapping(event).get("detail"))
    names: list[str] = []
    for values in (detail, *mappings(detail.get("containers"))):
        names += [name for name in values if not _is_usable(values, name)]
    return tuple(names)


def _is_usable(values: Mapping[str, object], name: str) -> bool:
    value = values[name]
    if isinstance(value, str) and without_surrogates(value) != value:
        return False
    if value is None:
        return True
    if name == "exitCode":
        return integer(value) is not None
    return not name.endswith("At") or _time(values, name) is not None


def _amount(values: Mapping[str, object], name: str) -> int | None:
    """A whole number above 0, which ECS writes as a text, in an override as a number."""
    value = values.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _MAX_DIGITS:
        return int(value) or None
    return integer(value) or None


def _container(
    values: Mapping[str, object], overrides: Mapping[object, Mapping[str, object]]
) -> EventContainer | None:
    name = _text(values, "name")
    if name is None:
        return None
    return EventContainer(
        name=name,
        arn=_text(values, "containerArn"),
        memory_mb=_amount(mapping(overrides.get(name)), "memory") or _amount(values, "memory"),
        exit_code=integer(values.get("exitCode")),
        **{
            name: _text(values, json_name(name))
            for name in ("image", "image_digest", "runtime_id", "reason")
        },
    )

"""Parses EventBridge's "ECS Task State Change".

A value that cannot be used counts as absent, and the others are used: a wrong type, a time that is not one of the years
1970 to 2200, an exit code beyond 32 bits. Half of a surrogate pair, which UTF-8 cannot encode, is replaced in its text.
"""

from collections.abc import Mapping
from datetime import datetime

from profiler.core.ecs_terms import SERVICE_GROUP, arn_account, arn_region, cluster_name, task_id
from profiler.core.json_fields import integer, mapping, mappings, text
from profiler.core.text import without_surrogates
from profiler.core.timestamps import parse_datetime
from profiler.record.task_end import EndedContainer, TaskEnd

_STOPPED = "STOPPED"
_SERVICE_STARTER = "ecs-svc/"
_ARCHITECTURE = "ecs.cpu-architecture"
_CPU_UNITS = 1024  # of one vCPU
_MAX_DIGITS = 9


class EventContainer(EndedContainer, frozen=True, kw_only=True):
    """A container in the event. ``memory_mb`` is its own hard limit, with which the task was started."""

    arn: str | None = None
    image: str | None = None
    image_digest: str | None = None
    runtime_id: str | None = None
    memory_mb: int | None = None


class StoppedTask(TaskEnd, frozen=True, kw_only=True):
    """A task that has stopped. On EC2, ``vcpu`` and ``memory_mb`` can be the sums of its containers'."""

    arn: str
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

    @property
    def id(self) -> str:
        return task_id(self.arn)

    @property
    def family(self) -> str | None:
        """The family in the task definition's ARN: ``…:task-definition/FAMILY:REVISION``."""
        return None if self.definition_arn is None else self.definition_arn.rsplit("/", 1)[-1].rsplit(":", 1)[0]

    @property
    def revision(self) -> str | None:
        name = (self.definition_arn or "").rsplit("/", 1)[-1]
        return name.rsplit(":", 1)[1] if ":" in name else None

    @property
    def is_service_task(self) -> bool:
        return (self.group or "").startswith(SERVICE_GROUP) or (self.started_by or "").startswith(_SERVICE_STARTER)

    @property
    def duration_ms(self) -> float | None:
        """Milliseconds from the start to the end of execution; None if one of them is unknown.

        None also if the difference is negative, for a task that crashed at once: ``startedAt`` is when the control
        plane saw the task running, seconds after it started. ``stoppedAt`` is not the end of execution: ECS cleans up
        for about 20 s more.
        """
        end = self.execution_stopped_at
        if self.started_at is None or end is None or end < self.started_at:
            return None
        return round((end - self.started_at).total_seconds() * 1000)


def _text(values: Mapping[str, object], name: str) -> str | None:
    """A text that UTF-8 can encode; None if it is empty, absent or no text."""
    value = text(values.get(name))
    return None if value is None else without_surrogates(value, "\N{REPLACEMENT CHARACTER}")


def _time(values: Mapping[str, object], name: str) -> datetime | None:
    return parse_datetime(_text(values, name))


def parse_stopped_task(event: object) -> StoppedTask | None:
    """Return the stopped task of an event; None for any other event, and for other states of a task."""
    root, detail = mapping(event), mapping(mapping(event).get("detail"))
    arn = _text(detail, "taskArn")
    if arn is None or detail.get("lastStatus") != _STOPPED:
        return None
    overrides = {
        item.get("name"): item for item in mappings(mapping(detail.get("overrides")).get("containerOverrides"))
    }
    containers = (_container(item, overrides) for item in mappings(detail.get("containers")))
    cpu_units = _amount(detail, "cpu")
    architectures = (  # as a record writes them: X86_64, ARM64
        value.upper()
        for item in mappings(detail.get("attributes"))
        if item.get("name") == _ARCHITECTURE and (value := text(item.get("value"))) is not None
    )
    return StoppedTask(
        arn=arn,
        cluster=cluster_name(_text(detail, "clusterArn")),
        definition_arn=_text(detail, "taskDefinitionArn"),
        region=_text(root, "region") or arn_region(arn),
        account_id=_text(root, "account") or arn_account(arn),
        availability_zone=_text(detail, "availabilityZone"),
        launch_type=_text(detail, "launchType"),
        cpu_architecture=next(architectures, None),
        vcpu=None if cpu_units is None else cpu_units / _CPU_UNITS,
        memory_mb=_amount(detail, "memory"),
        capacity_provider=_text(detail, "capacityProviderName"),
        group=_text(detail, "group"),
        started_by=_text(detail, "startedBy"),
        stop_code=_text(detail, "stopCode"),
        stopped_reason=_text(detail, "stoppedReason"),
        created_at=_time(detail, "createdAt"),
        pull_started_at=_time(detail, "pullStartedAt"),
        pull_stopped_at=_time(detail, "pullStoppedAt"),
        started_at=_time(detail, "startedAt"),
        execution_stopped_at=_time(detail, "executionStoppedAt"),
        stopped_at=_time(detail, "stoppedAt"),
        containers=tuple(container for container in containers if container is not None),
    )


def _amount(values: Mapping[str, object], name: str) -> int | None:
    """A whole number above 0, which ECS writes as a text, in an override as a number."""
    value = values.get(name)
    amount = (
        int(value)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _MAX_DIGITS
        else integer(value)
    )
    return amount or None


def _container(values: Mapping[str, object], overrides: Mapping[object, Mapping[str, object]]) -> EventContainer | None:
    name = _text(values, "name")
    if name is None:
        return None
    return EventContainer(
        name=name,
        arn=_text(values, "containerArn"),
        image=_text(values, "image"),
        image_digest=_text(values, "imageDigest"),
        runtime_id=_text(values, "runtimeId"),
        memory_mb=_amount(mapping(overrides.get(name)), "memory") or _amount(values, "memory"),
        exit_code=integer(values.get("exitCode")),
        reason=_text(values, "reason"),
    )

"""EventBridge's "ECS Task State Change", parsed once; a field of the wrong type is absent, the rest stays."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from forwarder.times import parse_time

_STOPPED = "STOPPED"
_SERVICE = "service:"


class EventContainer(Struct, frozen=True, kw_only=True):
    """A container of the task, as the event tells of it. Their order means nothing."""

    name: str
    arn: str | None = None
    image: str | None = None
    image_digest: str | None = None
    runtime_id: str | None = None
    exit_code: int | None = None
    reason: str | None = None


class StoppedTask(Struct, frozen=True, kw_only=True):
    """A task that has ended."""

    arn: str
    cluster: str | None = None
    definition_arn: str | None = None
    region: str | None = None
    account_id: str | None = None
    availability_zone: str | None = None
    launch_type: str | None = None
    group: str | None = None
    started_by: str | None = None
    stop_code: str | None = None
    stopped_reason: str | None = None
    created_at: datetime | None = None
    pull_started_at: datetime | None = None
    started_at: datetime | None = None
    execution_stopped_at: datetime | None = None
    stopped_at: datetime | None = None
    containers: tuple[EventContainer, ...] = ()

    @property
    def id(self) -> str:
        """The last part of the ARN."""
        return self.arn.rsplit("/", 1)[-1]

    @property
    def family(self) -> str | None:
        """From the task definition's ARN: ``…:task-definition/FAMILY:REVISION``."""
        return None if self.definition_arn is None else self.definition_arn.rsplit("/", 1)[-1].rsplit(":", 1)[0]

    @property
    def revision(self) -> str | None:
        """See ``family``."""
        name = (self.definition_arn or "").rsplit("/", 1)[-1]
        return name.rsplit(":", 1)[1] if ":" in name else None

    @property
    def is_service_task(self) -> bool:
        """Whether an ECS service keeps this task."""
        return (self.group or "").startswith(_SERVICE) or (self.started_by or "").startswith("ecs-svc/")

    @property
    def duration_ms(self) -> float | None:
        """Start to the end of execution; None if either is unknown or, for a task that crashed at once, negative.

        ``startedAt`` is when the control plane saw the task run, seconds after it did. ``stoppedAt`` is no end of
        execution: ECS takes some 20 s more to put the task away.
        """
        end = self.execution_stopped_at
        if self.started_at is None or end is None or end < self.started_at:
            return None
        return round((end - self.started_at).total_seconds() * 1000)


def parse_stopped_task(event: object) -> StoppedTask | None:
    """The ended task of an event; None for any other event, and for other states of a task."""
    detail = _mapping(_mapping(event).get("detail"))
    arn = _text(detail.get("taskArn"))
    if arn is None or _text(detail.get("lastStatus")) != _STOPPED:
        return None
    listed = detail.get("containers")
    containers = (_container(item) for item in (listed if isinstance(listed, list) else []))
    cluster = _text(detail.get("clusterArn"))
    return StoppedTask(
        arn=arn,
        cluster=None if cluster is None else cluster.rsplit("/", 1)[-1],
        definition_arn=_text(detail.get("taskDefinitionArn")),
        region=_text(_mapping(event).get("region")) or _arn_part(arn, 3),
        account_id=_text(_mapping(event).get("account")) or _arn_part(arn, 4),
        availability_zone=_text(detail.get("availabilityZone")),
        launch_type=_text(detail.get("launchType")),
        group=_text(detail.get("group")),
        started_by=_text(detail.get("startedBy")),
        stop_code=_text(detail.get("stopCode")),
        stopped_reason=_text(detail.get("stoppedReason")),
        created_at=parse_time(_text(detail.get("createdAt"))),
        pull_started_at=parse_time(_text(detail.get("pullStartedAt"))),
        started_at=parse_time(_text(detail.get("startedAt"))),
        execution_stopped_at=parse_time(_text(detail.get("executionStoppedAt"))),
        stopped_at=parse_time(_text(detail.get("stoppedAt"))),
        containers=tuple(container for container in containers if container is not None),
    )


def _container(item: object) -> EventContainer | None:
    fields = _mapping(item)
    name = _text(fields.get("name"))
    if name is None:
        return None
    exit_code = fields.get("exitCode")
    return EventContainer(
        name=name,
        arn=_text(fields.get("containerArn")),
        image=_text(fields.get("image")),
        image_digest=_text(fields.get("imageDigest")),
        runtime_id=_text(fields.get("runtimeId")),
        exit_code=exit_code if isinstance(exit_code, int) and not isinstance(exit_code, bool) else None,
        reason=_text(fields.get("reason")),
    )


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _arn_part(arn: str, position: int) -> str | None:
    parts = arn.split(":")
    return parts[position] or None if len(parts) > position else None

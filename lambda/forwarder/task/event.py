"""Parses EventBridge's "ECS Task State Change". A field of the wrong type counts as absent, and the others are used."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from profiler.core.ecs import arn_part, cluster_name, task_id
from profiler.core.json_fields import mapping, mappings, text
from profiler.core.timestamps import parse_datetime

_STOPPED = "STOPPED"
_SERVICE_GROUP = "service:"
_SERVICE_STARTER = "ecs-svc/"
_REGION_PART, _ACCOUNT_PART = 3, 4


class EventContainer(Struct, frozen=True, kw_only=True):
    """A container in the event. The order of the containers has no meaning."""

    name: str
    arn: str | None = None
    image: str | None = None
    image_digest: str | None = None
    runtime_id: str | None = None
    exit_code: int | None = None
    reason: str | None = None


class StoppedTask(Struct, frozen=True, kw_only=True):
    """A task that has stopped."""

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
        return task_id(self.arn)

    @property
    def family(self) -> str | None:
        """The family in the task definition's ARN: ``…:task-definition/FAMILY:REVISION``."""
        return None if self.definition_arn is None else self.definition_arn.rsplit("/", 1)[-1].rsplit(":", 1)[0]

    @property
    def revision(self) -> str | None:
        """The revision in the task definition's ARN."""
        name = (self.definition_arn or "").rsplit("/", 1)[-1]
        return name.rsplit(":", 1)[1] if ":" in name else None

    @property
    def is_service_task(self) -> bool:
        """Whether the task belongs to an ECS service."""
        return (self.group or "").startswith(_SERVICE_GROUP) or (self.started_by or "").startswith(_SERVICE_STARTER)

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


def parse_stopped_task(event: object) -> StoppedTask | None:
    """Return the stopped task of an event; None for any other event, and for other states of a task."""
    root = mapping(event)
    detail = mapping(root.get("detail"))
    arn = text(detail.get("taskArn"))
    if arn is None or text(detail.get("lastStatus")) != _STOPPED:
        return None
    containers = (_container(item) for item in mappings(detail.get("containers")))
    return StoppedTask(
        arn=arn,
        cluster=cluster_name(text(detail.get("clusterArn"))),
        definition_arn=text(detail.get("taskDefinitionArn")),
        region=text(root.get("region")) or arn_part(arn, _REGION_PART),
        account_id=text(root.get("account")) or arn_part(arn, _ACCOUNT_PART),
        availability_zone=text(detail.get("availabilityZone")),
        launch_type=text(detail.get("launchType")),
        group=text(detail.get("group")),
        started_by=text(detail.get("startedBy")),
        stop_code=text(detail.get("stopCode")),
        stopped_reason=text(detail.get("stoppedReason")),
        created_at=parse_datetime(text(detail.get("createdAt"))),
        pull_started_at=parse_datetime(text(detail.get("pullStartedAt"))),
        started_at=parse_datetime(text(detail.get("startedAt"))),
        execution_stopped_at=parse_datetime(text(detail.get("executionStoppedAt"))),
        stopped_at=parse_datetime(text(detail.get("stoppedAt"))),
        containers=tuple(container for container in containers if container is not None),
    )


def _container(fields: Mapping[str, object]) -> EventContainer | None:
    name = text(fields.get("name"))
    if name is None:
        return None
    exit_code = fields.get("exitCode")
    return EventContainer(
        name=name,
        arn=text(fields.get("containerArn")),
        image=text(fields.get("image")),
        image_digest=text(fields.get("imageDigest")),
        runtime_id=text(fields.get("runtimeId")),
        exit_code=exit_code if isinstance(exit_code, int) and not isinstance(exit_code, bool) else None,
        reason=text(fields.get("reason")),
    )

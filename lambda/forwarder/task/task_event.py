"""Parses EventBridge's "ECS Task State Change".

A value that cannot be used counts as absent, and the others are used: a wrong type, a time that is not one of the years
1970 to 2200, an exit code beyond 32 bits. Half of a surrogate pair, which UTF-8 cannot encode, is replaced in its text.
``StoppedTask.flaws`` names each of these values.
"""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from profiler.core.ecs_terms import arn_account, arn_region, cluster_name, task_id
from profiler.core.json_fields import integer, mapping, mappings
from profiler.core.text import without_surrogates
from profiler.core.timestamps import parse_datetime

_STOPPED = "STOPPED"
_SERVICE_GROUP = "service:"
_SERVICE_STARTER = "ecs-svc/"
# A decoder of JSON joins both halves of a pair.
_MAX_FLAWS = 20
_MAX_SHOWN_NAME = 100


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
    """A task that has stopped. ``flaws`` are phrases about the values of the event that are left out or changed."""

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
    pull_stopped_at: datetime | None = None
    started_at: datetime | None = None
    execution_stopped_at: datetime | None = None
    stopped_at: datetime | None = None
    containers: tuple[EventContainer, ...] = ()
    flaws: tuple[str, ...] = ()

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


class _Fields:
    """Reads the fields of one JSON object and collects their flaws. ``owner`` precedes the field's name in a flaw."""

    def __init__(self, values: Mapping[str, object], flaws: list[str], owner: str = "") -> None:
        self._values = values
        self._flaws = flaws
        self._owner = owner

    def text(self, name: str) -> str | None:
        """Return a text that UTF-8 can encode; None if it is empty or absent."""
        value = self._values.get(name)
        if not isinstance(value, str):
            self._reject(name, "not a text")
            return None
        valid_text = without_surrogates(value, "\N{REPLACEMENT CHARACTER}")
        if valid_text != value:
            self._note(name, "not valid Unicode: half of a surrogate pair is replaced by U+FFFD")
        return valid_text or None

    def time(self, name: str) -> datetime | None:
        """Return a time of the years 1970 to 2200; None if it is another one or absent."""
        value = self.text(name)
        moment = parse_datetime(value)
        if value is not None and moment is None:
            self._note(name, "not a time between 1970 and 2200")
        return moment

    def exit_code(self, name: str) -> int | None:
        """Return an integer of 32 bits; None if it is another value or absent."""
        code = integer(self._values.get(name))
        if code is None:
            self._reject(name, "not a 32-bit integer")
        return code

    def _reject(self, name: str, flaw: str) -> None:
        if self._values.get(name) is not None:
            self._note(name, flaw)

    def _note(self, name: str, flaw: str) -> None:
        if len(self._flaws) < _MAX_FLAWS:
            self._flaws.append(f"{self._owner}{name} is {flaw}")


def parse_stopped_task(event: object) -> StoppedTask | None:
    """Return the stopped task of an event; None for any other event, and for other states of a task."""
    flaws: list[str] = []
    root, values = mapping(event), mapping(mapping(event).get("detail"))
    envelope, detail = _Fields(root, flaws), _Fields(values, flaws)
    arn = detail.text("taskArn")
    if arn is None or values.get("lastStatus") != _STOPPED:
        return None
    containers = tuple(_container(item, flaws) for item in mappings(values.get("containers")))
    return StoppedTask(
        arn=arn,
        cluster=cluster_name(detail.text("clusterArn")),
        definition_arn=detail.text("taskDefinitionArn"),
        region=envelope.text("region") or arn_region(arn),
        account_id=envelope.text("account") or arn_account(arn),
        availability_zone=detail.text("availabilityZone"),
        launch_type=detail.text("launchType"),
        group=detail.text("group"),
        started_by=detail.text("startedBy"),
        stop_code=detail.text("stopCode"),
        stopped_reason=detail.text("stoppedReason"),
        created_at=detail.time("createdAt"),
        pull_started_at=detail.time("pullStartedAt"),
        pull_stopped_at=detail.time("pullStoppedAt"),
        started_at=detail.time("startedAt"),
        execution_stopped_at=detail.time("executionStoppedAt"),
        stopped_at=detail.time("stoppedAt"),
        containers=tuple(container for container in containers if container is not None),
        flaws=tuple(flaws),
    )


def _container(values: Mapping[str, object], flaws: list[str]) -> EventContainer | None:
    name = _Fields(values, flaws, "containers[].").text("name")
    if name is None:
        return None
    fields = _Fields(values, flaws, f"container {name[:_MAX_SHOWN_NAME]}: ")
    return EventContainer(
        name=name,
        arn=fields.text("containerArn"),
        image=fields.text("image"),
        image_digest=fields.text("imageDigest"),
        runtime_id=fields.text("runtimeId"),
        exit_code=fields.exit_code("exitCode"),
        reason=fields.text("reason"),
    )

"""The end of a task: EventBridge's "ECS Task State Change", and how the task ended.

A value of the event that cannot be used counts as absent: a wrong type, a time that is not one of
the years 1970 to 2200, an exit code beyond 32 bits. Half of a surrogate pair, which UTF-8 cannot
encode, is replaced in the event's text.
"""

from collections.abc import Mapping, Sequence
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
from profiler.record.run_outcome import (
    SIGKILL_EXIT_CODE,
    SIGTERM_EXIT_CODE,
    EndStatus,
    StopCategory,
    end_status,
)
from profiler.record.spot_price import FARGATE_SPOT

_NO_REASON = "essential container in task exited"
_VAGUE_REASON = "task failed to start"
_FAILED_TO_START = "taskfailedtostart"
_STOPPED_BY_USER = "userinitiated"
# Substrings of reasons, and stop codes, in lower case, found with and without their spaces: agents
# differ in them.
_OUT_OF_MEMORY = ("out of memory", "killed due to memory usage")
_EXTERNAL_STOPS: Mapping[StopCategory, tuple[str, ...]] = {
    "spot": ("spot task was interrupted", "spot interruption", "termination notice"),
    "user": ("stopped by user", _STOPPED_BY_USER),
    "scheduler": (
        *("serviceschedulerinitiated", "scaling activity initiated"),
        *("failed elb health checks", "failed container health checks"),
    ),
    # A failing or retired host:
    # https://docs.aws.amazon.com/AmazonECS/latest/developerguide/stopped-task-error-codes.html
    "infrastructure": ("infrastructure health", "underlying infrastructure", "host ec2 (instance"),
}
_IMAGE = ("cannotpull", "pull image", "image pull", "manifest unknown")
_RESOURCES = (
    *(
        "resourceinitializationerror",
        "provisioning to complete",
        "capacity is unavailable",
        "unable to place",
    ),
    *(
        "resource:",
        "cannotstartcontainererror",
        "cannotcreatevolumeerror",
        "cannotcreatecontainererror",
    ),
    *("dockertimeouterror", "containerruntimeerror", "containerruntimetimeouterror"),
    *("fetching secret data", "unexpected ec2 error"),
)
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
        if (self.stop_code or "").lower() == _STOPPED_BY_USER:
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


class Outcome(Struct, frozen=True, kw_only=True):
    """How a task ended.

    ``reason``: the batch's own, else the task's, else another container's, after its name.
    """

    status: EndStatus
    category: StopCategory
    out_of_memory: bool
    exit_code: int | None = None
    reason: str | None = None


def judge_candidates(
    task: StoppedTask,
    candidates: Sequence[str],
    *,
    default: str | None = None,
    monitor: str | None = None,
) -> tuple[Outcome, str | None]:
    """The outcome of a task, and which of the candidates is its batch; ``default`` if the end
    does not tell.

    Several are judged together: one that failed is the batch, and the run is a success only if all
    exited with 0. Those that ECS stopped because another one ended do not count.
    """
    listed = [task.container(name) for name in candidates]
    if not listed:
        return determine_outcome(task, None, monitor=monitor), None
    if len(listed) == 1:
        return determine_outcome(task, listed[0], monitor=monitor), listed[0].name
    not_stopped = [container for container in listed if not _may_be_stopped_by_ecs(task, container)]
    if any(container.exit_code is not None for container in not_stopped):
        ended = not_stopped
    else:
        ended = listed
    failed = next((container for container in ended if _has_failed(container)), None)
    is_success = all(container.exit_code == 0 for container in ended)
    judged = failed or (ended[0] if is_success else None)
    is_alone = failed is not None or (is_success and len(ended) == 1)
    return (
        determine_outcome(task, judged, monitor=monitor),
        judged.name if judged is not None and is_alone else default,
    )


def _may_be_stopped_by_ecs(task: StoppedTask, container: EventContainer) -> bool:
    """Whether the exit code is the one of a container that ECS stops after another one of the
    task ended.
    """
    if container.exit_code == SIGKILL_EXIT_CODE:
        return not (
            ran_out_of_memory(container) or _contains_any(task.reason_of_ecs, _OUT_OF_MEMORY)
        )
    return container.exit_code == SIGTERM_EXIT_CODE


def _has_failed(container: EventContainer) -> bool:
    if container.exit_code is None:
        return ran_out_of_memory(container)
    return container.exit_code != 0


def ran_out_of_memory(container: EventContainer) -> bool:
    """Whether ECS's reason for the end of the container is that memory ran out."""
    return _contains_any((container.reason or "").lower(), _OUT_OF_MEMORY)


def determine_outcome(
    task: StoppedTask, batch: EventContainer | None, *, monitor: str | None = None
) -> Outcome:
    """The outcome, by the batch's exit code alone (None: unknown).

    The ``monitor``'s reason does not explain it.
    """
    exit_code = None
    own_reason = f" {task.reason_of_ecs}".lower()
    if batch is not None:
        exit_code = batch.exit_code
        own_reason = f"{batch.reason or ''}{own_reason}".lower()
    reasons = own_reason
    for container in task.containers:
        reasons += f" {container.reason or ''}".lower()
    out_of_memory = _contains_any(own_reason, _OUT_OF_MEMORY)
    stop_code = (task.stop_code or "").lower()
    nothing_ran = exit_code is None
    # The first match counts. A missing image or resource can be the cause only if nothing ran.
    matches: tuple[tuple[StopCategory, bool], ...] = (
        *(
            (kind, _contains_any(f"{reasons} {stop_code}", words))
            for kind, words in _EXTERNAL_STOPS.items()
        ),
        ("oom", out_of_memory),
        ("image", nothing_ran and _contains_any(reasons, _IMAGE)),
        ("resources", nothing_ran and _contains_any(reasons, _RESOURCES)),
        ("exit", not nothing_ran),
    )
    category: StopCategory = next((kind for kind, is_match in matches if is_match), "unknown")
    failed_to_start = stop_code == _FAILED_TO_START or category in {"image", "resources"}
    return Outcome(
        status=end_status(
            exit_code,
            was_stopped=category in _EXTERNAL_STOPS,
            has_failed=out_of_memory or failed_to_start,
        ),
        category=category,
        out_of_memory=out_of_memory,
        exit_code=exit_code,
        reason=_specific_reason(task, batch, monitor),
    )


def _specific_reason(
    task: StoppedTask, batch: EventContainer | None, monitor: str | None
) -> str | None:
    own = None
    not_others = {monitor}
    if batch is not None:
        not_others.add(batch.name)
        if not _is_only(batch.reason, _NO_REASON):
            own = batch.reason
    others = (
        f"{container.name}: {container.reason}"
        for container in task.containers
        if container.reason and container.name not in not_others
    )
    stated = None
    if not _is_only(task.stopped_reason, _NO_REASON):
        stated = task.stopped_reason
    if own or (stated and not _is_only(stated, _VAGUE_REASON)):
        return own or stated
    return next(others, stated)


def _is_only(reason: str | None, sentence: str) -> bool:
    return (reason or "").strip().rstrip(".").lower() == sentence


def _contains_any(text: str, patterns: tuple[str, ...]) -> bool:
    return any(pattern in text or pattern.replace(" ", "") in text for pattern in patterns)


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

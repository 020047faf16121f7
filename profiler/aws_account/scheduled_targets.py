"""Schedules that start tasks, or submit jobs of AWS Batch: targets of EventBridge rules, and
EventBridge Scheduler's schedules.

A target with a revision is pinned: it starts this revision also after a new one is registered.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.registered_definitions import revision_of
from profiler.aws_account.target_contents import (
    JOB_DEFINITION,
    JOB_PARAMETERS,
    TASK_DEFINITION_ARN,
    TASK_PARAMETERS,
    machine_arn_without_version,
    whole_arn,
)
from profiler.core.ecs_terms import family_of
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import (
    count_or_none,
    mapping_or_empty,
    mappings_in_list,
    text_or_none,
)
from profiler.core.json_levels import within_levels
from profiler.core.optional_math import first_known, product
from profiler.core.timestamps import MS_PER_SECOND, json_moment_ns
from profiler.schedules.due_times import is_over, may_start_again
from profiler.schedules.schedule_model import Schedule, ScheduleKind

_CHANGED = "LastModificationDate"
# The fields that GetSchedule returns and UpdateSchedule does not accept.
READ_ONLY_FIELDS = ("Arn", "CreationDate", _CHANGED)
# This character stands for a value that is computed when a task is started. No AWS API accepts it
# in a name or a size.
UNKNOWN_VALUE = "\ue000"
TIME_LIMIT = "TimeoutSeconds"  # of a state in its content
MAX_TASK_TAGS = 50  # also with those that a task gets from its definition
TargetKind = Literal[ScheduleKind, "state"]


class ScheduledTarget(Struct, frozen=True, kw_only=True):
    """A target that starts a task: a rule's, with its event bus as the group, a schedule's, or a
    state of Step Functions, with its state machine as the group.

    With ``job_name`` it submits a job, and ``cluster_arn`` is the queue.
    """

    kind: TargetKind
    name: str
    group: str
    cluster_arn: str
    definition_arn: str
    # The rule's target, or the whole schedule, with fields that boto3 does not know.
    # Of a state, the role of its machine, and the seconds after which Step Functions ends it, if
    # it waits for its task or job.
    content: Mapping[str, Any]
    rule: Mapping[str, Any] = {}  # as ListRules returns it
    # RunTask's of a universal target, and RunTask's or SubmitJob's of a state; its names begin with
    # capitals.
    request: Mapping[str, Any] | None = None
    job_name: str | None = None
    # It starts this state machine, with a version or an alias if it names one; ``cluster_arn`` is
    # the same, and there is no definition.
    machine_arn: str | None = None

    @property
    def family(self) -> str:
        return family_of(self.definition_arn)

    @property
    def pinned_revision(self) -> str | None:
        """``family:revision`` if the target is pinned, else None."""
        return revision_of(self.definition_arn)

    @property
    def title(self) -> str:
        if self.kind == "state":
            return f"state {self.name!r} of the state machine {self.group}"
        if self.group == "default":
            return f"{self.kind} {self.name}"
        return f"{self.kind} {self.group}/{self.name}"

    @property
    def machine_name(self) -> str:
        """The name of a state's machine."""
        return self.group.partition(",")[0]

    @property
    def task_request(self) -> Mapping[str, Any]:
        """Where it starts its task: the parameters for ECS, or RunTask's request."""
        if self.request is not None:
            return self.request
        return mapping_or_empty(self.started_content.get(TASK_PARAMETERS))

    @property
    def started_content(self) -> Mapping[str, Any]:
        """What a rule or a schedule starts, with its role; of a state, its machine's role."""
        is_whole = self.kind in ("rule", "state")
        return self.content if is_whole else mapping_or_empty(self.content.get("Target"))

    @property
    def task_tags(self) -> list[dict[str, Any]]:
        """The tags that it gives to each task, each with a key and a value; Scheduler also accepts
        objects whose names are the keys.
        """
        pairs: list[dict[str, Any]] = []
        for tag in mappings_in_list(self.task_request.get("Tags")):
            if {name.lower() for name in tag} <= {"key", "value"}:
                pairs.append({name.lower(): value for name, value in tag.items()})
            else:
                pairs += [{"key": key, "value": value} for key, value in tag.items()]
        return pairs

    def tags_of_task(self, definition: Mapping[str, object]) -> dict[str, str]:
        """The values of a task's tags by their keys: those that it gives, and if it propagates
        them, those of the definition. AWS's own, which nobody can propagate, are none.
        """
        tags: list[Mapping[str, Any]] = []
        if self.task_request.get("PropagateTags") in ("TASK_DEFINITION", UNKNOWN_VALUE):
            tags += mappings_in_list(definition.get("tags"))
        by_key = {str(tag.get("key")): str(tag.get("value")) for tag in (*tags, *self.task_tags)}
        return {key: value for key, value in by_key.items() if not key.lower().startswith("aws:")}

    @property
    def is_of_job(self) -> bool:
        return self.job_name is not None

    @property
    def state_timeout_ms(self) -> float | None:
        """The time after which a state ends its task or job; None without one."""
        seconds = count_or_none(self.content.get(TIME_LIMIT)) if self.kind == "state" else None
        return product(seconds, MS_PER_SECOND)

    @property
    def changed_ns(self) -> int | None:
        """When somebody last changed a schedule; None of what AWS has no date of."""
        return json_moment_ns(self.content.get(_CHANGED)) if self.kind == "schedule" else None

    @property
    def identity_key(self) -> tuple[str, ...]:
        """What identifies it in the account."""
        return self.kind, self.group, self.name, str(self.content.get("Id"))

    def changed_field_names(self, later: "ScheduledTarget") -> tuple[str, ...]:
        """The names of the fields that differ in a later reading of the same target."""
        now, then = later.settings_by_name, self.settings_by_name
        names = now.keys() | then.keys()
        return tuple(sorted(name for name in names if now.get(name) != then.get(name)))

    @property
    def settings_by_name(self) -> Mapping[str, Any]:
        """What a person sets, by the names of the fields, the target's among them."""
        if self.kind == "state":
            return {**self.task_request, **self.content}
        if self.kind == "rule":
            return {**self.rule, **self.content}
        fields = {
            name: value for name, value in self.content.items() if name not in READ_ONLY_FIELDS
        }
        target = mapping_or_empty(fields.pop("Target"))
        return {**fields, **target}

    def pinned_to(self, definition_arn: str) -> "ScheduledTarget":
        """The target as a move to another revision leaves it: one with RunTask's request is never
        moved. Raises TaskProfilerError.
        """
        if definition_arn == self.definition_arn or self.request is not None:
            return self
        content = self.content
        if self.kind == "rule":
            content = _settings_with_revision(self, content, definition_arn)
        else:
            content = {
                **content,
                "Target": _settings_with_revision(self, content["Target"], definition_arn),
            }
        return replace(self, content=content, definition_arn=definition_arn)

    def is_pin_of(self, revision_arn: str) -> bool:
        """Whether it is pinned to a revision of the family of this ARN, in the same account and
        Region.
        """
        return self.pinned_revision is not None and self.is_of_family_of(revision_arn)

    def is_of_family_of(self, revision_arn: str) -> bool:
        """Whether it starts a revision of the family of this ARN, or its newest one, in the same
        account and Region.
        """
        named = self.definition_arn
        if self.pinned_revision is not None:
            named = named.rpartition(":")[0]
        return named in (revision_arn.rpartition(":")[0], family_of(revision_arn))


def _settings_with_revision(
    target: ScheduledTarget, started: Mapping[str, Any], moved: str
) -> Mapping[str, Any]:
    """A target's settings with another revision: nothing else of an input changes, such as the
    parameters of a job.
    """
    if not target.is_of_job:
        return {
            **started,
            TASK_PARAMETERS: {**started[TASK_PARAMETERS], TASK_DEFINITION_ARN: moved},
        }
    if JOB_PARAMETERS in started:
        job = {**started[JOB_PARAMETERS], JOB_DEFINITION: moved}
        return {**started, JOB_PARAMETERS: job}
    try:
        members = msgspec.json.decode(within_levels(started["Input"]), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError):
        raise TaskProfilerError(
            f"The {target.title} was not updated, because its input is not plain JSON: update it "
            "by hand."
        ) from None
    members[JOB_DEFINITION] = msgspec.Raw(msgspec.json.encode(moved))
    return {**started, "Input": msgspec.json.encode(members).decode()}


def has_due_times(target: ScheduledTarget) -> bool:
    """Whether a schedule starts the target, not an event."""
    return target.kind == "schedule" or bool(target.rule.get("ScheduleExpression"))


def is_started_by_events(target: ScheduledTarget) -> bool:
    """Whether events start the target of a rule, which can have due times beside them."""
    return target.kind == "rule" and (
        bool(target.rule.get("EventPattern")) or not has_due_times(target)
    )


def why_target_is_off(target: ScheduledTarget, now_ns: int) -> str | None:
    """Why somebody wants no further task of the target, in words: it is disabled, or its end date
    has passed, which AWS ignores for an ``at``.
    """
    settings = target.rule if target.kind == "rule" else target.content
    if settings.get("State") == "DISABLED":
        return "is disabled"
    ends_ns = json_moment_ns(target.content.get("EndDate"))
    is_once = str(settings.get("ScheduleExpression")).lstrip().startswith("at")
    return "has ended" if first_known(ends_ns, math.inf) < now_ns and not is_once else None


def may_start_target(target: ScheduledTarget, now_ns: int) -> bool:
    """Whether a schedule or an event may start the target after ``now_ns``."""
    if has_due_times(target) and not is_started_by_events(target):
        return may_start_again(schedule_of(target), now_ns)
    return target.rule.get("State") != "DISABLED"


def is_target_over(target: ScheduledTarget, now_ns: int) -> bool:
    """Whether nothing starts the target after ``now_ns``, even if its schedule is enabled."""
    is_timed = has_due_times(target) and not is_started_by_events(target)
    return is_timed and is_over(schedule_of(target), now_ns)


def may_begin_again(target: ScheduledTarget, now_ns: int) -> bool:
    """Whether an update may start the rate of a schedule again, and with it a task or a job: AWS
    starts a rate without a start date at once, and does not document what an update does.

    https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html
    """
    content = target.content
    is_rate = str(content.get("ScheduleExpression")).lstrip().startswith("rate")
    begins_later = first_known(json_moment_ns(content.get("StartDate")), -math.inf) > now_ns
    is_enabled = content.get("State") != "DISABLED"
    return target.kind == "schedule" and is_rate and is_enabled and not begins_later


def schedule_of(target: ScheduledTarget) -> Schedule:
    """The schedule of a target that AWS returned."""
    is_rule = target.kind == "rule"
    content = target.content
    started = content if is_rule else content["Target"]
    settings = target.rule if is_rule else content
    cluster_arn = target.cluster_arn
    machine_arn = (
        None if target.machine_arn is None else machine_arn_without_version(target.machine_arn)
    )
    task_count = started.get(TASK_PARAMETERS, {}).get("TaskCount", 1)
    starter = None
    if target.request is not None:
        cluster_arn = whole_arn(cluster_arn, "ecs", "cluster", str(content.get("Arn")))
        task_count = count_or_none(target.request.get("Count")) or 1
        starter = text_or_none(target.request.get("StartedBy")) or ""
    return Schedule(
        kind="rule" if is_rule else "schedule",
        name=target.name,
        group=target.group,
        expression=settings["ScheduleExpression"],
        time_zone=content.get("ScheduleExpressionTimezone", "UTC"),
        is_enabled=settings.get("State") != "DISABLED",
        window_minutes=content.get("FlexibleTimeWindow", {}).get("MaximumWindowInMinutes", 0),
        created_ns=json_moment_ns(content.get("CreationDate")),  # AWS returns no dates of a rule
        modified_ns=json_moment_ns(content.get(_CHANGED)),
        starts_ns=json_moment_ns(content.get("StartDate")),
        ends_ns=json_moment_ns(content.get("EndDate")),
        is_deleted_at_end=content.get("ActionAfterCompletion") == "DELETE",
        cluster_arn=first_known(machine_arn, cluster_arn),
        definition_arn=target.definition_arn,
        job_name=target.job_name,
        machine_arn=machine_arn,
        requested_starter=starter,
        task_count=task_count,
        dead_letter_arn=started.get("DeadLetterConfig", {}).get("Arn"),
    )

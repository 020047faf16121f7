"""Schedules that start tasks, or submit jobs of AWS Batch: targets of EventBridge rules, and
EventBridge Scheduler's schedules.

A target with a revision is pinned: it starts this revision also after a new one is registered.
ListSchedules returns no expression, so GetSchedule is called again only for a schedule that was
changed.
"""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient, answer_unless, aws_errors, noted_errors
from profiler.aws_account.registered_definitions import LastBody, revision_of
from profiler.core.aws_clients import error_code
from profiler.core.ecs_terms import family_of
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import count, mapping, mappings, text, with_capitalized_names
from profiler.core.json_levels import within_levels
from profiler.core.optional_math import first_known, known, known_members, known_values, product
from profiler.core.timestamps import MS_PER_SECOND, json_moment_ns
from profiler.schedules.due_times import may_start_again
from profiler.schedules.schedule_model import Schedule, ScheduleKind

_PARAMETERS = "EcsParameters"
_ARN = "TaskDefinitionArn"
LIST_RULES = "events:ListEventBuses, events:ListRules and events:ListTargetsByRule"
LIST_SCHEDULES = "scheduler:ListSchedules and scheduler:GetSchedule"
_READ = {
    "rule": "events:ListRules and events:ListTargetsByRule",
    "schedule": "scheduler:GetSchedule",
}
_WRITE = {
    "rule": "events:PutTargets and iam:PassRole",
    "schedule": "scheduler:UpdateSchedule and iam:PassRole",
}
_CHANGED = "LastModificationDate"
# The fields that GetSchedule returns and UpdateSchedule does not accept.
_READ_ONLY = ("Arn", "CreationDate", _CHANGED)
# Scheduler's universal target for RunTask: the whole request is its input.
# https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-targets-universal.html
_RUN_TASK = "arn:aws:scheduler:::aws-sdk:ecs:runTask"

# … and for a state machine's executions, for which it also has a target of its own.
_START_EXECUTION = (
    "arn:aws:scheduler:::aws-sdk:sfn:startExecution",
    "arn:aws:scheduler:::aws-sdk:sfn:startSyncExecution",
)

# … and for SubmitJob of AWS Batch, which Scheduler has no other target for.
_SUBMIT_JOB = "arn:aws:scheduler:::aws-sdk:batch:submitJob"
_JOB_PARAMETERS = "BatchParameters"
_JOB_DEFINITION = "JobDefinition"
_PAGES_PER_CALL = 4  # of the lists of schedules and rules, for each family of an act
# This character stands for a value that is computed when a task is started. No AWS API accepts it
# in a name or a size.
UNKNOWN_VALUE = "\ue000"
TIME_LIMIT = "TimeoutSeconds"  # of a state in its content
MAX_TASK_TAGS = 50  # also with those that a task gets from its definition
WITHOUT_START = ", without its start date, which has passed"


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
    def machine(self) -> str:
        """The name of a state's machine."""
        return self.group.partition(",")[0]

    @property
    def place(self) -> Mapping[str, Any]:
        """Where it starts its task: the parameters for ECS, or RunTask's request."""
        if self.request is not None:
            return self.request
        return mapping(self.started_content.get(_PARAMETERS))

    @property
    def started_content(self) -> Mapping[str, Any]:
        """What a rule or a schedule starts, with its role; of a state, its machine's role."""
        is_whole = self.kind in ("rule", "state")
        return self.content if is_whole else mapping(self.content.get("Target"))

    @property
    def tags(self) -> list[dict[str, Any]]:
        """The tags that it gives to each task, each with a key and a value; Scheduler also accepts
        objects whose names are the keys.
        """
        pairs: list[dict[str, Any]] = []
        for tag in mappings(self.place.get("Tags")):
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
        if self.place.get("PropagateTags") in ("TASK_DEFINITION", UNKNOWN_VALUE):
            tags += mappings(definition.get("tags"))
        by_key = {str(tag.get("key")): str(tag.get("value")) for tag in (*tags, *self.tags)}
        return {key: value for key, value in by_key.items() if not key.lower().startswith("aws:")}

    @property
    def is_of_job(self) -> bool:
        return self.job_name is not None

    @property
    def state_timeout_ms(self) -> float | None:
        """The time after which a state ends its task or job; None without one."""
        seconds = count(self.content.get(TIME_LIMIT)) if self.kind == "state" else None
        return product(seconds, MS_PER_SECOND)

    @property
    def changed_ns(self) -> int | None:
        """When somebody last changed a schedule; None of what AWS has no date of."""
        return json_moment_ns(self.content.get(_CHANGED)) if self.kind == "schedule" else None

    @property
    def key(self) -> tuple[str, ...]:
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
            return {**self.place, **self.content}
        if self.kind == "rule":
            return {**self.rule, **self.content}
        fields = {name: value for name, value in self.content.items() if name not in _READ_ONLY}
        target = mapping(fields.pop("Target"))
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


class FoundSchedules(Struct, frozen=True, kw_only=True):
    """The schedules, their targets, sentences about unreadable parts, and the number of those for
    which the time did not suffice. Targets with different inputs can make equal schedules.

    ``of_machines``: the targets that start state machines of Step Functions, whatever these start.
    """

    schedules: tuple[Schedule, ...]
    targets: Mapping[Schedule, tuple[ScheduledTarget, ...]] = {}
    problems: tuple[str, ...] = ()
    unread: int = 0
    of_machines: tuple[ScheduledTarget, ...] = ()


class ScheduleReader:
    """EventBridge's rules and EventBridge Scheduler's schedules.

    Methods raise TaskProfilerError with AWS's reason.
    """

    def __init__(self, open_client: OpenClient) -> None:
        self._events = open_client("events")
        self._scheduler = open_client("scheduler")
        self._targets_body = LastBody(self._events, "ListTargetsByRule")
        self._schedule_body = LastBody(self._scheduler, "GetSchedule")
        # By group, name and last change, since the last call of ``read_timed_schedules``.
        self._known: dict[tuple[str, str, datetime], ScheduledTarget | None] = {}
        # What a whole listing has returned: rules by event bus and name, schedules as above.
        self._returned: set[tuple[str, str] | tuple[str, str, datetime]] = set()
        # The pages of lists that were read, those of the last listing, and the calls that
        # ``changed_since_read`` has not made since.
        self._pages_read = 0
        self._listing_calls = 0
        self._calls_saved = 0
        # The state machines' versions that schedules and rules name, as far as they were listed.
        self.machine_versions: set[str] = set()
        # What starts state machines, by the keys of rules' targets, and by group, name and last
        # change of schedules, whose targets are read when they are asked for.
        self._machine_starts: dict[tuple[str, ...], ScheduledTarget | str] = {}

    def read_targets(self, *, of_jobs: bool = False) -> tuple[ScheduledTarget, ...]:
        """All targets that start ECS tasks; ``of_jobs``: those that submit jobs of AWS Batch.

        Again, GetSchedule is called only for schedules that were changed.
        """
        return self._listed_targets(of_jobs=of_jobs, is_newer=False)

    def changed_since_read(self, *, of_jobs: bool = False) -> tuple[ScheduledTarget, ...]:
        """The targets of schedules that were made or changed, and of rules that were made, since
        all were read: one call for each page of their lists, and for each of them.

        Of long lists, only each n-th call reads them, so that a call takes four pages on average.
        """
        self._calls_saved += _PAGES_PER_CALL
        if self._calls_saved < self._listing_calls:
            return ()
        return self._listed_targets(of_jobs=of_jobs, is_newer=True)

    def _listed_targets(self, *, of_jobs: bool, is_newer: bool) -> tuple[ScheduledTarget, ...]:
        targets: list[ScheduledTarget] = []
        read: set[tuple[str, str] | tuple[str, str, datetime]] = set()
        before = self._pages_read
        with aws_errors("The rules of EventBridge could not be read", LIST_RULES):
            for bus in self._event_bus_names():
                for rule in self.read_rules(EventBusName=bus):
                    place = bus, str(rule["Name"])
                    read.add(place)
                    if not (is_newer and place in self._returned):
                        targets += self.targets_of_rule(rule, with_jobs=of_jobs)
        with aws_errors("The schedules of EventBridge Scheduler could not be read", LIST_SCHEDULES):
            for summary in self.summaries(with_jobs=of_jobs):
                key = (summary["GroupName"], summary["Name"], summary["LastModificationDate"])
                read.add(key)
                if is_newer and key in self._returned:
                    continue
                if key not in self._known:
                    self._known[key] = self.target_of_schedule(
                        summary["Name"], summary["GroupName"]
                    )
                targets += known_values((self._known[key],))
        self._returned |= read
        self._listing_calls = self._pages_read - before
        self._calls_saved = 0
        return tuple(target for target in targets if target.is_of_job is of_jobs)

    def read_rules(self, **selection: str) -> Iterator[Mapping[str, Any]]:
        """The rules of the default event bus, or of another one.

        ``selection`` is ListRules' own, such as ``EventBusName``.
        """
        return self._read_pages(self._events.list_rules, "Rules", None, **selection)

    def rules_named(self, prefix: str) -> Iterator[Mapping[str, Any]]:
        """The rules of all event buses whose names begin so."""
        for bus in self._event_bus_names():
            yield from self.read_rules(EventBusName=bus, NamePrefix=prefix)

    def rules_of_queue(self, queue_arn: str) -> Iterator[Mapping[str, Any]]:
        """The rules of all event buses with a target at this job queue."""
        call = self._events.list_rule_names_by_target
        for bus in self._event_bus_names():
            names = set(self._read_pages(call, "RuleNames", EventBusName=bus, TargetArn=queue_arn))
            rules = self.read_rules(EventBusName=bus) if names else ()
            yield from (rule for rule in rules if rule["Name"] in names)

    def _event_bus_names(self) -> Iterator[str]:
        for bus in self._read_pages(self._events.list_event_buses, "EventBuses"):
            yield bus["Name"]

    def targets_of_rule(
        self, rule: Mapping[str, Any], *, with_jobs: bool = False, with_machines: bool = False
    ) -> Iterator[ScheduledTarget]:
        """The targets of a rule that start ECS tasks; ``with_jobs``: or submit jobs;
        ``with_machines``: or start state machines. Nothing if the rule was just deleted.
        """
        name = rule["Name"]
        bus = rule.get("EventBusName", "default")
        for target in self._contents_of_rule(name, bus):
            self._keep_start(rule, target)
            if _PARAMETERS in target:
                started = _started_task(target)
            elif with_jobs and _JOB_PARAMETERS in target:
                started = _submission_of_rule(target)
            elif with_machines and _is_state_machine_arn(target.get("Arn")):
                started = execution_target(target["Arn"])
            else:
                continue
            yield ScheduledTarget(
                kind="rule", name=name, group=bus, content=target, rule=rule, **started
            )

    def _contents_of_rule(self, name: str, bus: str) -> Iterator[Mapping[str, Any]]:
        call = self._events.list_targets_by_rule
        body = self._targets_body
        with suppress(self._events.exceptions.ResourceNotFoundException):
            yield from self._read_pages(call, "Targets", body, Rule=name, EventBusName=bus)

    def summaries(
        self, name_prefix: str = "", *, with_jobs: bool = False, with_machines: bool = False
    ) -> Iterator[Mapping[str, Any]]:
        """The schedules that start ECS tasks, also by a universal target, as ListSchedules returns
        them: without their expressions. ``with_jobs``: also those that submit jobs;
        ``with_machines``: or that start state machines.
        """
        selection = {"NamePrefix": name_prefix} if name_prefix else {}
        for summary in self._read_pages(
            self._scheduler.list_schedules, "Schedules", None, **selection
        ):
            arn = str(summary.get("Target", {}).get("Arn"))
            if _does_start_machine(arn):
                self._keep_version(arn)
                changed = str(summary["LastModificationDate"])
                place = ("schedule", str(summary["GroupName"]), str(summary["Name"]), changed)
                if place not in self._machine_starts:
                    self._forget_start(place)
                    self._machine_starts[place] = arn
            starts_task = ":cluster/" in arn or _is_universal(arn, _RUN_TASK)
            submits = with_jobs and _is_universal(arn, _SUBMIT_JOB)
            if starts_task or submits or (with_machines and _does_start_machine(arn)):
                yield summary

    def _keep_version(self, arn: str) -> None:
        if is_machine_version(arn):
            self.machine_versions.add(arn)

    def _keep_start(self, rule: Mapping[str, Any], content: Mapping[str, Any]) -> None:
        """Keep a rule's target that starts a state machine."""
        if not _is_state_machine_arn(content.get("Arn")):
            return
        started = execution_target(content["Arn"])
        self._keep_version(content["Arn"])
        name, bus = str(rule["Name"]), str(rule.get("EventBusName", "default"))
        target = ScheduledTarget(
            kind="rule", name=name, group=bus, content=content, rule=rule, **started
        )
        self._machine_starts[target.key] = target

    def _forget_start(self, place: tuple[str, ...]) -> None:
        """Forget what a schedule started before it was changed."""
        for key in [key for key in self._machine_starts if key[:3] == place[:3]]:
            del self._machine_starts[key]

    def machine_targets(self, names: Collection[str]) -> Iterator[ScheduledTarget]:
        """The targets with due times, of those that were listed, that start state machines of these
        names. Each schedule is read, once. Raises TaskProfilerError.
        """
        for key in self._machine_starts:
            target = self._machine_start(key, names)
            if target is not None and has_due_times(target):
                yield target

    def started_machines(self, names: Collection[str]) -> set[str]:
        """Those of the state machines of these names that a schedule or a rule starts, of those
        that were listed. Only schedules whose target does not name their machine are read. Raises
        TaskProfilerError.
        """
        started = set[str]()
        for key, start in self._machine_starts.items():
            if isinstance(start, str) and _is_state_machine_arn(start):
                started.add(machine_name_of_arn(start))
            else:
                target = self._machine_start(key, names)
                started |= set(known_values((known(_name_of_machine, target),)))
        return started.intersection(names)

    def _machine_start(
        self, key: tuple[str, ...], names: Collection[str]
    ) -> ScheduledTarget | None:
        """The target that starts a state machine, if it has one of these names. Raises
        TaskProfilerError.
        """
        target = self._machine_starts[key]
        if isinstance(target, str):
            if _is_state_machine_arn(target) and machine_name_of_arn(target) not in names:
                return None
            _, group, name, _ = key
            read = self._started_machine(group, name)
            if read is None:
                return None
            self._machine_starts[key] = target = read
        return target if _name_of_machine(target) in names else None

    def _started_machine(self, group: str, name: str) -> ScheduledTarget | None:
        with aws_errors(f"The schedule {name} could not be read", _READ["schedule"]):
            return self.target_of_schedule(name, group, with_machines=True)

    def target_of_schedule(
        self, name: str, group: str, *, with_machines: bool = False
    ) -> ScheduledTarget | None:
        """The target of a schedule; None if it no longer exists or no longer starts a task or a
        job, or, with ``with_machines``, a state machine.
        """
        try:
            self._scheduler.get_schedule(Name=name, GroupName=group)
        except self._scheduler.exceptions.ResourceNotFoundException:
            return None
        schedule = without_nulls(json.loads(self._schedule_body.content))
        target = schedule["Target"]
        if _PARAMETERS in target:
            started = _started_task(target)
        elif _is_universal(str(target.get("Arn")), _RUN_TASK):
            started = task_of_request(_request_of_target(target))
        elif _is_universal(str(target.get("Arn")), _SUBMIT_JOB):
            started = job_of_request(_request_of_target(target), str(schedule.get("Arn")))
        elif with_machines and _is_state_machine_arn(target.get("Arn")):
            started = execution_target(target["Arn"])
        elif with_machines and _does_start_machine(str(target.get("Arn"))):
            started = execution_target(
                text(_request_of_target(target).get("StateMachineArn")) or ""
            )
        else:
            return None
        return ScheduledTarget(kind="schedule", name=name, group=group, content=schedule, **started)

    def targets_of_job(
        self, job_name: str, definition: str, queue_arn: str
    ) -> tuple[ScheduledTarget, ...]:
        """The targets that submit jobs of this name and definition: of rules, to this queue."""
        targets: list[ScheduledTarget | None] = []
        for rule in self.rules_of_queue(queue_arn):
            targets += self.targets_of_rule(rule, with_jobs=True)
        for summary in self.summaries(with_jobs=True):
            if _is_universal(str(summary["Target"].get("Arn")), _SUBMIT_JOB):
                targets.append(self.target_of_schedule(summary["Name"], summary["GroupName"]))
        return tuple(
            target
            for target in known_values(targets)
            if (target.job_name, target.family) == (job_name, definition)
        )

    def move_to_revision(self, target: ScheduledTarget, revision_arn: str) -> str:
        """Let a target that was just read start another revision. Only its revision changes, and
        what the returned clause says, which begins with a comma.
        """
        moved = f"{target.definition_arn.rpartition(':')[0]}:{revision_arn.rpartition(':')[2]}"
        with aws_errors(f"The {target.title} was not updated", _WRITE[target.kind]):
            if target.kind == "schedule":
                content = {
                    field: value
                    for field, value in target.pinned_to(moved).content.items()
                    if field not in _READ_ONLY
                }
                return self._update_schedule(target, content)
            content = dict(target.pinned_to(moved).content)
            response = self._events.put_targets(
                Rule=target.name, EventBusName=target.group, Targets=[content]
            )
            for failed in response.get("FailedEntries", ()):
                raise TaskProfilerError(
                    f"The {target.title} was not updated ({failed.get('ErrorMessage')}): update "
                    "it by hand."
                )
        return ""

    def _update_schedule(self, target: ScheduledTarget, content: dict[str, Any]) -> str:
        """Update a schedule. AWS refuses a start date that has passed, even an unchanged one;
        without it, a ``cron`` is due at the same times. Returns a clause about that.
        """
        if "StartDate" not in content:
            self._scheduler.update_schedule(**content)
            return ""
        if answer_unless(_is_passed_start, self._scheduler.update_schedule, **content) is not None:
            return ""
        if str(content["ScheduleExpression"]).lstrip().startswith("rate"):
            raise TaskProfilerError(
                f"The {target.title} was not updated, because AWS accepts no start date that has "
                "passed, and without one its rate begins anew: update it by hand."
            )
        del content["StartDate"]
        self._scheduler.update_schedule(**content)
        return WITHOUT_START

    def read_target_now(self, target: ScheduledTarget) -> ScheduledTarget | None:
        """The target as it is now; None if it no longer exists. Raises TaskProfilerError."""
        with aws_errors(f"The {target.title} could not be read", _READ[target.kind]):
            if target.kind == "schedule":
                return self.target_of_schedule(target.name, target.group)
            with suppress(self._events.exceptions.ResourceNotFoundException):  # its event bus
                named = self._targets_of_rule_now(target)
                return next((other for other in named if other.key == target.key), None)
            return None

    def _targets_of_rule_now(self, target: ScheduledTarget) -> Iterator[ScheduledTarget]:
        """The targets that the rule of a target has now."""
        for rule in self.read_rules(EventBusName=target.group, NamePrefix=target.name):
            if rule["Name"] == target.name:
                yield from self.targets_of_rule(rule, with_jobs=target.is_of_job)

    def read_timed_schedules(
        self,
        may_continue: Callable[[], bool] = lambda: True,
        *,
        with_jobs: bool = False,
        with_machines: bool = False,
    ) -> FoundSchedules:
        """The schedules and timed rules.

        ``may_continue``: whether there is time to read another changed schedule. ``with_jobs``:
        also those that submit jobs of AWS Batch. ``with_machines``: also the targets that start
        state machines.
        """
        problems: list[str] = []
        unread: list[str] = []
        summaries = self.summaries(with_jobs=with_jobs, with_machines=with_machines)
        all_targets = (
            *self._targets_of_rules(problems, with_jobs=with_jobs, with_machines=with_machines),
            *self._targets_of_schedules(
                summaries, problems, unread, may_continue, with_machines=with_machines
            ),
        )
        targets = [target for target in all_targets if target.machine_arn is None]
        of_schedule: dict[Schedule, tuple[ScheduledTarget, ...]] = {}
        schedules = []
        for target in targets:
            schedule = schedule_of(target)
            schedules.append(schedule)
            of_schedule[schedule] = (*of_schedule.get(schedule, ()), target)
        return FoundSchedules(
            schedules=tuple(schedules),
            targets=of_schedule,
            problems=tuple(problems),
            unread=len(unread),
            of_machines=tuple(target for target in all_targets if target.machine_arn is not None),
        )

    def _targets_of_rules(
        self, problems: list[str], *, with_jobs: bool, with_machines: bool
    ) -> Iterator[ScheduledTarget]:
        with noted_errors(
            problems.append, "The rules of EventBridge could not be read", LIST_RULES
        ):
            # EventBridge accepts a rule with a schedule on the default bus only.
            for rule in self.read_rules():
                if not rule.get("ScheduleExpression"):
                    continue
                what = f"The targets of the rule {rule['Name']} could not be read"
                with noted_errors(problems.append, what, LIST_RULES):
                    yield from self.targets_of_rule(
                        rule, with_jobs=with_jobs, with_machines=with_machines
                    )

    def _targets_of_schedules(
        self,
        summaries: Iterator[Mapping[str, Any]],
        problems: list[str],
        unread: list[str],
        may_continue: Callable[[], bool],
        *,
        with_machines: bool,
    ) -> Iterator[ScheduledTarget]:
        """The targets of the schedules; one that has not changed is not read again."""
        by_version: dict[tuple[str, str, datetime], ScheduledTarget | None] = {}
        with noted_errors(
            problems.append,
            "The schedules of EventBridge Scheduler could not be read",
            LIST_SCHEDULES,
        ):
            for summary in summaries:
                key = (summary["GroupName"], summary["Name"], summary["LastModificationDate"])
                if key in self._known:
                    by_version[key] = self._known[key]
                elif may_continue():
                    what = f"The schedule {summary['Name']} could not be read"
                    with noted_errors(problems.append, what, LIST_SCHEDULES):
                        by_version[key] = self.target_of_schedule(
                            summary["Name"], summary["GroupName"], with_machines=with_machines
                        )
                else:
                    unread.append(summary["Name"])
        self._known = by_version
        yield from known_values(by_version.values())

    def _read_pages(
        self,
        call: Any,  # noqa: ANN401  a method of boto3
        field: str,
        body: LastBody | None = None,
        **arguments: str,
    ) -> Iterator[Any]:
        """All items of all pages, unparsed if ``body`` is given. boto3 has no paginator for
        event buses.
        """
        token: dict[str, str] = {}
        while True:
            page = call(**arguments, **token)
            self._pages_read += body is None  # else it is of one rule alone
            yield from (
                page[field] if body is None else without_nulls(json.loads(body.content))[field]
            )
            if not page.get("NextToken"):
                return
            token = {"NextToken": page["NextToken"]}


def _is_passed_start(error: Exception) -> bool:
    """Whether AWS refused a start date as passed; another one, dropped, would start tasks early."""
    is_about_start = "StartDate" in str(error) and "earlier than" in str(error)
    return is_about_start and error_code(error) == "ValidationException"


def _started_task(target: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster and the task definition of a target that starts a task."""
    return {"cluster_arn": target["Arn"], "definition_arn": target[_PARAMETERS][_ARN]}


def _settings_with_revision(
    target: ScheduledTarget, started: Mapping[str, Any], moved: str
) -> Mapping[str, Any]:
    """A target's settings with another revision: nothing else of an input changes, such as the
    parameters of a job.
    """
    if not target.is_of_job:
        return {**started, _PARAMETERS: {**started[_PARAMETERS], _ARN: moved}}
    if _JOB_PARAMETERS in started:
        job = {**started[_JOB_PARAMETERS], _JOB_DEFINITION: moved}
        return {**started, _JOB_PARAMETERS: job}
    try:
        members = msgspec.json.decode(within_levels(started["Input"]), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError):
        raise TaskProfilerError(
            f"The {target.title} was not updated, because its input is not plain JSON: update it "
            "by hand."
        ) from None
    members[_JOB_DEFINITION] = msgspec.Raw(msgspec.json.encode(moved))
    return {**started, "Input": msgspec.json.encode(members).decode()}


def _is_universal(arn: str, call: str) -> bool:
    """Whether the target is this universal one, in whatever partition."""
    return arn.partition(":scheduler:")[2] == call.partition(":scheduler:")[2]


def _is_state_machine_arn(arn: object) -> bool:
    """Whether the target of a rule or a schedule is a state machine, in whatever partition."""
    return isinstance(arn, str) and ":states:" in arn and ":stateMachine:" in arn


def machine_arn_without_version(arn: str) -> str:
    """The ARN of a state machine without a version or an alias."""
    return ":".join(arn.split(":")[:7])


def machine_name_of_arn(arn: str) -> str:
    """The name in the ARN of a state machine, of a version or of an alias."""
    return machine_arn_without_version(arn).rpartition(":")[2]


def _name_of_machine(target: ScheduledTarget) -> str:
    return machine_name_of_arn(target.machine_arn or "")


def is_machine_version(machine_arn: str) -> bool:
    """Whether the ARN of a state machine names one of its versions."""
    return machine_arn.removeprefix(f"{machine_arn_without_version(machine_arn)}:").isdecimal()


def _does_start_machine(arn: str) -> bool:
    return _is_state_machine_arn(arn) or any(_is_universal(arn, call) for call in _START_EXECUTION)


def execution_target(machine_arn: str) -> dict[str, Any]:
    """A target that starts a state machine."""
    return {"cluster_arn": machine_arn, "definition_arn": "", "machine_arn": machine_arn}


def _submission_of_rule(target: Mapping[str, Any]) -> dict[str, Any]:
    """The queue and the job of a rule's target."""
    job = mapping(target[_JOB_PARAMETERS])
    return {
        "cluster_arn": target["Arn"],
        "definition_arn": text(job.get(_JOB_DEFINITION)) or "",
        "job_name": text(job.get("JobName")) or "",
    }


def _request_of_target(target: Mapping[str, Any]) -> Mapping[str, Any]:
    """The input of a universal target, whose names begin with capitals, or as in the API of the
    service. One that cannot be read starts nothing.
    """
    try:
        return mapping(
            with_capitalized_names(json.loads(within_levels(target.get("Input") or "{}")))
        )
    except ValueError:
        return {}


def task_of_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster and the task definition of a request of RunTask."""
    return {
        "cluster_arn": text(request.get("Cluster")) or "default",
        "definition_arn": text(request.get("TaskDefinition")) or "",
        "request": request,
    }


def job_of_request(request: Mapping[str, Any], caller_arn: str) -> dict[str, Any]:
    """The queue and the job of a request of SubmitJob, which the schedule or the state machine of
    this ARN makes.
    """
    return {
        "cluster_arn": _whole_arn(
            text(request.get("JobQueue")) or "", "batch", "job-queue", caller_arn
        ),
        "definition_arn": text(request.get(_JOB_DEFINITION)) or "",
        "job_name": text(request.get("JobName")) or "",
    }


def without_nulls(value: Any) -> Any:  # noqa: ANN401  JSON of the API
    """The value without fields that are null, which the API does not accept."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in known_members(value).items()}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def has_due_times(target: ScheduledTarget) -> bool:
    """Whether a schedule starts the target, not an event."""
    return target.kind == "schedule" or bool(target.rule.get("ScheduleExpression"))


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
    if has_due_times(target):
        return may_start_again(schedule_of(target), now_ns)
    return target.rule.get("State") != "DISABLED"


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
    task_count = started.get(_PARAMETERS, {}).get("TaskCount", 1)
    starter = None
    if target.request is not None:
        cluster_arn = _whole_arn(cluster_arn, "ecs", "cluster", str(content.get("Arn")))
        task_count = count(target.request.get("Count")) or 1
        starter = text(target.request.get("StartedBy")) or ""
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
        cluster_arn=first_known(machine_arn, cluster_arn),
        definition_arn=target.definition_arn,
        job_name=target.job_name,
        machine_arn=machine_arn,
        requested_starter=starter,
        task_count=task_count,
        dead_letter_arn=started.get("DeadLetterConfig", {}).get("Arn"),
    )


def _whole_arn(name: str, service: str, kind: str, caller_arn: str) -> str:
    """The ARN of a cluster or a queue of a request: in the account and the Region of its caller."""
    if name.startswith("arn:"):
        return name
    partition, _, place = caller_arn.removeprefix("arn:").partition(":")
    _, region, account = f"{place}:::".split(":")[:3]
    return f"arn:{partition}:{service}:{region}:{account}:{kind}/{name}"

"""Reads and moves what starts tasks and jobs: rules of EventBridge, and schedules of EventBridge
Scheduler.

ListSchedules returns no expression, so GetSchedule is called again only for a schedule that was
changed.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, answer_unless, aws_errors, noted_errors
from profiler.aws_account.registered_definitions import LastBody
from profiler.aws_account.scheduled_targets import (
    READ_ONLY_FIELDS,
    ScheduledTarget,
    has_due_times,
    schedule_of,
)
from profiler.aws_account.target_contents import (
    RUN_TASK_ARN,
    SUBMIT_JOB_ARN,
    execution_target,
    is_machine_starting_arn,
    is_machine_version,
    is_state_machine_arn,
    is_universal_target,
    machine_name_of_arn,
    start_of_rule_target,
    start_of_schedule,
)
from profiler.core.aws_error_codes import error_code
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import known, known_members, known_values
from profiler.schedules.schedule_model import Schedule

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
_PAGES_PER_CALL = 4  # of the lists of schedules and rules, for each family of an act
WITHOUT_START = ", without its start date, which has passed"


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
            started = start_of_rule_target(target, with_jobs=with_jobs, with_machines=with_machines)
            if started is not None:
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
            if is_machine_starting_arn(arn):
                self._keep_version(arn)
                changed = str(summary["LastModificationDate"])
                place = ("schedule", str(summary["GroupName"]), str(summary["Name"]), changed)
                if place not in self._machine_starts:
                    self._forget_start(place)
                    self._machine_starts[place] = arn
            starts_task = ":cluster/" in arn or is_universal_target(arn, RUN_TASK_ARN)
            submits = with_jobs and is_universal_target(arn, SUBMIT_JOB_ARN)
            if starts_task or submits or (with_machines and is_machine_starting_arn(arn)):
                yield summary

    def _keep_version(self, arn: str) -> None:
        if is_machine_version(arn):
            self.machine_versions.add(arn)

    def _keep_start(self, rule: Mapping[str, Any], content: Mapping[str, Any]) -> None:
        """Keep a rule's target that starts a state machine."""
        if not is_state_machine_arn(content.get("Arn")):
            return
        started = execution_target(content["Arn"])
        self._keep_version(content["Arn"])
        name, bus = str(rule["Name"]), str(rule.get("EventBusName", "default"))
        target = ScheduledTarget(
            kind="rule", name=name, group=bus, content=content, rule=rule, **started
        )
        self._machine_starts[target.identity_key] = target

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
            if isinstance(start, str) and is_state_machine_arn(start):
                started.add(machine_name_of_arn(start))
            else:
                target = self._machine_start(key, names)
                started |= set(known_values((known(_started_machine_name, target),)))
        return started.intersection(names)

    def _machine_start(
        self, key: tuple[str, ...], names: Collection[str]
    ) -> ScheduledTarget | None:
        """The target that starts a state machine, if it has one of these names. Raises
        TaskProfilerError.
        """
        target = self._machine_starts[key]
        if isinstance(target, str):
            if is_state_machine_arn(target) and machine_name_of_arn(target) not in names:
                return None
            _, group, name, _ = key
            read = self._started_machine(group, name)
            if read is None:
                return None
            self._machine_starts[key] = target = read
        return target if _started_machine_name(target) in names else None

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
        started = start_of_schedule(schedule, with_machines=with_machines)
        if started is None:
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
            if is_universal_target(str(summary["Target"].get("Arn")), SUBMIT_JOB_ARN):
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
                    if field not in READ_ONLY_FIELDS
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
                return next(
                    (other for other in named if other.identity_key == target.identity_key), None
                )
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


def _started_machine_name(target: ScheduledTarget) -> str:
    return machine_name_of_arn(target.machine_arn or "")


def without_nulls(value: Any) -> Any:  # noqa: ANN401  JSON of the API
    """The value without fields that are null, which the API does not accept."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in known_members(value).items()}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value

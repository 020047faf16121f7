"""The schedules and rules of an account that start ECS tasks, with their expressions.

The watching function calls this every five minutes. ListSchedules returns no expression, so GetSchedule is called again
only for a schedule that was changed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from msgspec import Struct

from profiler.aws_account.aws_errors import aws_errors
from profiler.aws_account.scheduled_targets import ScheduledTarget, Schedules
from profiler.core.aws_clients import AwsClient
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import json_moment_ns
from profiler.schedules.schedule_model import Schedule

_DISABLED = "DISABLED"


class FoundSchedules(Struct, frozen=True, kw_only=True):
    """The schedules and rules, and sentences about what could not be read."""

    schedules: tuple[Schedule, ...]
    problems: tuple[str, ...] = ()


class AccountSchedules:
    """Reads the schedules and rules again and again.

    Args:
        events: boto3's client of EventBridge.
        scheduler: boto3's client of EventBridge Scheduler.
    """

    def __init__(self, events: AwsClient, scheduler: AwsClient) -> None:
        self._targets = Schedules(events, scheduler)
        # By group, name and last change.
        self._known: dict[tuple[str, str, datetime], ScheduledTarget | None] = {}

    def read(self) -> FoundSchedules:
        """Read all. What cannot be read is a problem, and does not hide the others."""
        problems: list[str] = []
        targets = (*self._of_rules(problems), *self._of_schedules(problems))
        return FoundSchedules(schedules=tuple(map(schedule_of, targets)), problems=tuple(problems))

    def _of_rules(self, problems: list[str]) -> Iterator[ScheduledTarget]:
        with _noted(problems, "The rules of EventBridge could not be read"):
            for rule in self._targets.timed_rules():
                with _noted(problems, f"The targets of the rule {rule['Name']} could not be read"):
                    yield from self._targets.targets_of_rule(rule)

    def _of_schedules(self, problems: list[str]) -> Iterator[ScheduledTarget]:
        known: dict[tuple[str, str, datetime], ScheduledTarget | None] = {}
        with _noted(problems, "The schedules of EventBridge Scheduler could not be read"):
            for summary in self._targets.summaries():
                key = (summary["GroupName"], summary["Name"], summary["LastModificationDate"])
                if key in self._known:
                    known[key] = self._known[key]
                else:
                    with _noted(problems, f"The schedule {summary['Name']} could not be read"):
                        known[key] = self._targets.target_of_schedule(summary)
        self._known = known
        yield from (target for target in known.values() if target is not None)


@contextmanager
def _noted(problems: list[str], what: str) -> Iterator[None]:
    """Add an error of AWS to the problems."""
    try:
        with aws_errors(what):
            yield
    except TaskProfilerError as error:
        problems.append(str(error))


def is_timed(target: ScheduledTarget) -> bool:
    """Whether the target is started at times, and not by an event."""
    return target.kind == "schedule" or bool(target.rule.get("ScheduleExpression"))


def schedule_of(target: ScheduledTarget) -> Schedule:
    """The schedule of a target that AWS returned."""
    parameters = (target.content if target.kind == "rule" else target.content["Target"])["EcsParameters"]
    if target.kind == "rule":
        return Schedule(
            kind="rule",
            name=target.name,
            group=target.group,
            expression=target.rule["ScheduleExpression"],
            is_enabled=target.rule.get("State") != _DISABLED,
            cluster_arn=target.cluster_arn,
            definition_arn=target.definition_arn,
            task_count=parameters.get("TaskCount", 1),
            dead_letter_arn=target.content.get("DeadLetterConfig", {}).get("Arn"),
        )
    content = target.content
    return Schedule(
        kind="schedule",
        name=target.name,
        group=target.group,
        expression=content["ScheduleExpression"],
        time_zone=content.get("ScheduleExpressionTimezone", "UTC"),
        is_enabled=content.get("State") != _DISABLED,
        window_minutes=content.get("FlexibleTimeWindow", {}).get("MaximumWindowInMinutes", 0),
        created_ns=json_moment_ns(content.get("CreationDate")),
        modified_ns=json_moment_ns(content.get("LastModificationDate")),
        starts_ns=json_moment_ns(content.get("StartDate")),
        ends_ns=json_moment_ns(content.get("EndDate")),
        cluster_arn=target.cluster_arn,
        definition_arn=target.definition_arn,
        task_count=parameters.get("TaskCount", 1),
        dead_letter_arn=content["Target"].get("DeadLetterConfig", {}).get("Arn"),
    )

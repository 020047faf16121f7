"""Schedules that start tasks: targets of EventBridge rules, and EventBridge Scheduler's schedules.

A target that names a revision is pinned: it starts that revision also after a new one is registered.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from profiler.cli.taskdef.ecs import family_of, revision_of, translate_errors
from profiler.core.ecs import cluster_name
from profiler.core.errors import TaskProfilerError

_PARAMETERS = "EcsParameters"
_ARN = "TaskDefinitionArn"
_CLUSTER = ":cluster/"
# What GetSchedule returns and UpdateSchedule does not accept.
_READ_ONLY = ("Arn", "CreationDate", "LastModificationDate", "ResponseMetadata")


class ScheduledTarget(Struct, frozen=True, kw_only=True):
    """A target that starts a task: a rule's, with its event bus, or a schedule's, with its group.

    ``content`` is the target of the rule, or the whole schedule, as the API returns it.
    """

    kind: str
    name: str
    group: str
    cluster_arn: str
    definition_arn: str
    content: Mapping[str, Any]

    @property
    def family(self) -> str:
        """The family of its tasks."""
        return family_of(self.definition_arn)

    @property
    def pinned_revision(self) -> str | None:
        """``family:revision`` if the target is pinned, else None."""
        return revision_of(self.definition_arn)

    @property
    def title(self) -> str:
        """Its kind and name, for the plan."""
        return f"{self.kind} {self.name}" if self.group == "default" else f"{self.kind} {self.group}/{self.name}"

    def is_in(self, cluster: str) -> bool:
        """Whether its tasks start in this cluster, which is a name or an ARN."""
        return cluster_name(self.cluster_arn) == cluster_name(cluster)


class Schedules:
    """EventBridge's rules and EventBridge Scheduler's schedules. Methods raise TaskProfilerError with AWS's reason."""

    def __init__(self, events: Any, scheduler: Any) -> None:  # noqa: ANN401  boto3 makes its clients at run time
        self._events = events
        self._scheduler = scheduler

    def targets(self) -> tuple[ScheduledTarget, ...]:
        """All targets that start ECS tasks."""
        with translate_errors("the rules of EventBridge could not be read"):
            of_rules = tuple(self._targets_of_rules())
        with translate_errors("the schedules of EventBridge Scheduler could not be read"):
            return (*of_rules, *self._targets_of_schedules())

    def move(self, target: ScheduledTarget, definition_arn: str) -> None:
        """Let the target start another revision. Everything else of the target is kept."""
        with translate_errors(f"the {target.title} was not updated"):
            if target.kind == "rule":
                self._move_rule(target, definition_arn)
            else:
                self._move_schedule(target, definition_arn)

    def _targets_of_rules(self) -> Iterator[ScheduledTarget]:
        for bus in self._pages(self._events.list_event_buses, "EventBuses"):
            for rule in self._pages(self._events.list_rules, "Rules", EventBusName=bus["Name"]):
                arguments = {"Rule": rule["Name"], "EventBusName": bus["Name"]}
                for target in self._pages(self._events.list_targets_by_rule, "Targets", **arguments):
                    if _PARAMETERS in target:
                        yield ScheduledTarget(
                            kind="rule",
                            name=rule["Name"],
                            group=bus["Name"],
                            cluster_arn=target["Arn"],
                            definition_arn=target[_PARAMETERS][_ARN],
                            content=target,
                        )

    def _targets_of_schedules(self) -> Iterator[ScheduledTarget]:
        for summary in self._pages(self._scheduler.list_schedules, "Schedules"):
            if _CLUSTER not in str(summary.get("Target", {}).get("Arn")):
                continue
            schedule = self._scheduler.get_schedule(Name=summary["Name"], GroupName=summary["GroupName"])
            target = schedule["Target"]
            if _PARAMETERS in target:
                yield ScheduledTarget(
                    kind="schedule",
                    name=schedule["Name"],
                    group=schedule["GroupName"],
                    cluster_arn=target["Arn"],
                    definition_arn=target[_PARAMETERS][_ARN],
                    content={name: value for name, value in schedule.items() if name not in _READ_ONLY},
                )

    @staticmethod
    def _pages(call: Any, field: str, **arguments: str) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401  a method of boto3
        """All items of all pages: boto3 has no paginator for event buses."""
        token: dict[str, str] = {}
        while True:
            page = call(**arguments, **token)
            yield from page[field]
            if not page.get("NextToken"):
                return
            token = {"NextToken": page["NextToken"]}

    def _move_rule(self, target: ScheduledTarget, definition_arn: str) -> None:
        parameters = {**target.content[_PARAMETERS], _ARN: definition_arn}
        response = self._events.put_targets(
            Rule=target.name, EventBusName=target.group, Targets=[{**target.content, _PARAMETERS: parameters}]
        )
        for failed in response.get("FailedEntries", ()):
            raise TaskProfilerError(
                f"The {target.title} was not updated ({failed.get('ErrorMessage')}): update it by hand."
            )

    def _move_schedule(self, target: ScheduledTarget, definition_arn: str) -> None:
        content = dict(target.content)
        parameters = {**content["Target"][_PARAMETERS], _ARN: definition_arn}
        content["Target"] = {**content["Target"], _PARAMETERS: parameters}
        self._scheduler.update_schedule(**content)

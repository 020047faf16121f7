"""Reads a deployed forwarder from AWS, for ``task-profiler doctor --deployed``."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.stack_state import StackState, read_state
from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_SECOND

_DAY = timedelta(days=1)
_ERROR_PATTERN = '?"[ERROR]" ?"Task timed out" ?"Runtime.ImportModuleError"'
_MAX_ERROR_CHARACTERS = 300
_MAX_PAGES = 10
_MS_PER_SECOND = 1000
# The names of the template's alarms begin with the stack's name, a hyphen, and one of these.
_ALARMS = ("forward-logs-", "task-stopped-", "watch-schedules-", "failed-items")


class FunctionState(Struct, frozen=True, kw_only=True):
    """A function's configuration, with Lambda's names of the states."""

    arn: str
    state: str
    last_update: str
    reason: str | None = None


class Activity(Struct, frozen=True, kw_only=True):
    """A function's activity in the last 24 hours. ``last_error`` is a line of its log."""

    invocations: int
    errors: int
    last_error: str | None = None


class DeployedStack:
    """The parts of one stack in AWS. Each method raises TaskProfilerError with AWS's reason.

    Args:
        name: The stack's name.
        open_client: Makes boto3's client of a service.
        clock: The end of the last 24 hours.
    """

    def __init__(self, name: str, open_client: OpenClient, clock: Clock) -> None:
        self._name = name
        self._open = open_client
        self._clock = clock

    def stack(self) -> StackState:
        """The stack, which exists."""
        state = read_state(self._open, self._name)
        if state.phase == "absent":
            raise TaskProfilerError(
                f"There is no stack {self._name!r} in this account and Region: give the name of another one, or "
                "deploy it with task-profiler setup stack."
            )
        return state

    def function(self, name: str) -> FunctionState:
        """A function."""
        with aws_errors(f"The function {name} cannot be read", "lambda:GetFunctionConfiguration"):
            response = self._open("lambda").get_function_configuration(FunctionName=name)
        return FunctionState(
            arn=response["FunctionArn"],
            state=response.get("State", "Active"),
            last_update=response.get("LastUpdateStatus", "Successful"),
            reason=response.get("StateReason") or response.get("LastUpdateStatusReason"),
        )

    def activity(self, name: str) -> Activity:
        """A function's activity in the last 24 hours."""
        invocations, errors = (self._sum(name, metric) for metric in ("Invocations", "Errors"))
        return Activity(invocations=invocations, errors=errors, last_error=self._last_error(name) if errors else None)

    def destinations_of_group(self, group: str) -> frozenset[str]:
        """The ARNs to which the subscription filters of a log group deliver."""
        with aws_errors(f"The subscriptions of {group} cannot be read", "logs:DescribeSubscriptionFilters"):
            pages = self._open("logs").get_paginator("describe_subscription_filters").paginate(logGroupName=group)
            return frozenset(item["destinationArn"] for page in pages for item in page["subscriptionFilters"])

    def destinations_of_account(self) -> frozenset[str]:
        """The ARNs to which the account-wide subscription policies deliver."""
        with aws_errors("The account-wide subscriptions cannot be read", "logs:DescribeAccountPolicies"):
            response = self._open("logs").describe_account_policies(policyType="SUBSCRIPTION_FILTER_POLICY")
        documents = (json.loads(policy["policyDocument"]) for policy in response.get("accountPolicies", ()))
        return frozenset(str(document.get("DestinationArn")) for document in documents)

    def mapping_states(self, function: str) -> tuple[str, ...]:
        """The states of the event source mappings of a function."""
        with aws_errors(f"The event sources of {function} cannot be read", "lambda:ListEventSourceMappings"):
            response = self._open("lambda").list_event_source_mappings(FunctionName=function)
        return tuple(source["State"] for source in response["EventSourceMappings"])

    def rule_states(self, function_arn: str) -> Mapping[str, str]:
        """The states of the EventBridge rules that invoke a function, by the rule's name."""
        events = self._open("events")
        with aws_errors("The rules of EventBridge cannot be read", "events:ListRuleNamesByTarget and DescribeRule"):
            names = events.list_rule_names_by_target(TargetArn=function_arn)["RuleNames"]
            return {name: events.describe_rule(Name=name)["State"] for name in names}

    def messages(self, queue_url: str) -> int:
        """The approximate number of messages in a queue."""
        attribute = "ApproximateNumberOfMessages"
        with aws_errors(f"The queue {queue_url} cannot be read", "sqs:GetQueueAttributes"):
            response = self._open("sqs").get_queue_attributes(QueueUrl=queue_url, AttributeNames=[attribute])
        return int(response["Attributes"][attribute])

    def active_alarms(self) -> tuple[str, ...]:
        """The stack's alarms in state ALARM. Other stacks' names may begin with this stack's name."""
        prefix = f"{self._name}-"
        with aws_errors("The alarms cannot be read", "cloudwatch:DescribeAlarms"):
            paginator = self._open("cloudwatch").get_paginator("describe_alarms")
            pages = paginator.paginate(AlarmNamePrefix=prefix, StateValue="ALARM")
            alarms = [alarm for page in pages for alarm in page["MetricAlarms"]]
        names = [alarm["AlarmName"] for alarm in alarms if alarm["StateValue"] == "ALARM"]
        return tuple(name for name in names if name.removeprefix(prefix).startswith(_ALARMS))

    def _sum(self, function: str, metric: str) -> int:
        end = datetime.fromtimestamp(self._clock.wall_ns() / NS_PER_SECOND, UTC)
        with aws_errors(f"The metrics of {function} cannot be read", "cloudwatch:GetMetricStatistics"):
            response = self._open("cloudwatch").get_metric_statistics(
                Namespace="AWS/Lambda",
                MetricName=metric,
                Dimensions=[{"Name": "FunctionName", "Value": function}],
                StartTime=end - _DAY,
                EndTime=end,
                Period=round(_DAY.total_seconds()),
                Statistics=["Sum"],
            )
        return round(sum(float(point["Sum"]) for point in response["Datapoints"]))

    def _last_error(self, function: str) -> str | None:
        """The newest line of an error in the function's log, from at most ten pages of the last 24 hours."""
        since = self._clock.wall_ns() / NS_PER_SECOND - _DAY.total_seconds()
        newest: tuple[int, str] | None = None
        with aws_errors(f"The log of {function} cannot be read", "logs:FilterLogEvents"):
            pages = (
                self._open("logs")
                .get_paginator("filter_log_events")
                .paginate(
                    logGroupName=f"/aws/lambda/{function}",
                    filterPattern=_ERROR_PATTERN,
                    startTime=round(since * _MS_PER_SECOND),
                )
            )
            for _, page in zip(range(_MAX_PAGES), pages, strict=False):
                for event in page["events"]:
                    newest = max(newest or (0, ""), (event["timestamp"], event["message"]))
        return None if newest is None else " ".join(newest[1].split())[:_MAX_ERROR_CHARACTERS]

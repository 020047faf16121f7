"""Diagnoses a deployment: the stack, its functions, their input, what failed, and the index
templates.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.clusters_and_log_groups import (
    account_subscriptions,
    passes_reports,
    subscription_filters,
)
from profiler.aws_account.doctor.findings import Finding, note, ok, problem
from profiler.aws_account.forwarder_stack import (
    ForwarderStack,
    change_obstacle,
    export_lines,
    read_existing_stack,
)
from profiler.aws_account.registered_definitions import glob_prefix, read_items
from profiler.aws_account.replay import count_messages
from profiler.aws_account.setup.group_filters import GroupFilters
from profiler.core.clock import Clock
from profiler.core.commands_to_copy import aws_command_line, command_line, template_command
from profiler.core.errors import TaskProfilerError
from profiler.core.index_names import DEFAULT_PREFIX
from profiler.core.text import split_names
from profiler.core.timestamps import MS_PER_SECOND, NS_PER_SECOND
from profiler.record.units import format_count
from profiler.search_setup.cluster_requests import SearchServer, detect_product

_STACK = "stack"
_REPORTS = "forward_logs"
_SUBSCRIPTION = "subscription"
_TASKS = "task_stopped"
_OF_BATCH = "aws.batch"  # in the pattern of the rule for jobs
_QUEUES = "queues"
_SCHEDULES = "watch_schedules"
_STREAM = "data stream"
_DAY = timedelta(days=1)
_ERROR_PATTERN = '?"[ERROR]" ?"Task timed out" ?"Runtime.ImportModuleError"'
_MAX_ERROR_CHARACTERS = 300
_MAX_PAGES = 10
_LINES_QUEUE = "ForwardLogsDeadLetterQueueUrl"
_REJECTED_QUEUE = "FailedItemsQueueUrl"
QUEUE_OUTPUTS = (_LINES_QUEUE, "TaskStoppedDeadLetterQueueUrl", _REJECTED_QUEUE)
_TEMPLATES = "templates"
_SOURCE = "past runs"


def _update_advice(stack: ForwarderStack) -> str:
    """What puts right whatever of a stack is not as its template."""
    parameters = "docs/commands.md describes its parameters."
    if stack.is_owned:
        return f"Update the stack {stack.owner.where}; {parameters}"
    command = command_line("setup", "stack", *stack.name_options)
    return f"Update the stack with {command}; {parameters}"


def _show_subscriptions_command() -> str:
    """The command that shows the account-wide subscription."""
    kind = ("--policy-type", "SUBSCRIPTION_FILTER_POLICY")
    return aws_command_line("logs", "describe-account-policies", *kind)


def deployment_findings(name: str, open_client: OpenClient, clock: Clock) -> Iterator[Finding]:
    """All findings about a stack, each as soon as it is known.

    A part that cannot be read is a problem.
    """
    try:
        stack = read_existing_stack(open_client, name)
    except TaskProfilerError as error:
        yield problem(_STACK, str(error))
        return
    yield forwarder_finding(stack)
    checks = _DeploymentChecks(
        stack, open_client, datetime.fromtimestamp(clock.wall_ns() / NS_PER_SECOND, UTC)
    )
    yield from _findings_or_problem(_REPORTS, checks.report_function_findings())
    yield from _findings_or_problem(
        _TASKS, checks.findings_of_invoked_function(_TASKS, "TaskStoppedFunctionName")
    )
    yield from _findings_or_problem(
        _SCHEDULES, checks.findings_of_invoked_function(_SCHEDULES, "WatchSchedulesFunctionName")
    )
    yield from checks.queue_findings()
    yield from (ok(_SOURCE, line) for line in export_lines(stack.parameters))


def forwarder_finding(stack: ForwarderStack) -> Finding:
    """Whether the last deployment succeeded."""
    reason = f": {stack.reason.rstrip('.')}" if stack.reason else ""
    text = f"The stack {stack.name} is in state {stack.status}{reason}."
    advice = change_obstacle(stack)
    if advice:
        if stack.possible_action == "in progress":
            return note(_STACK, text, advice)
        return problem(_STACK, text, advice)
    if "ROLLBACK" in (stack.status or ""):
        return note(
            _STACK, text, "The previous version is active. The stack's events contain the cause."
        )
    return ok(_STACK, text)


def _findings_or_problem(topic: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except TaskProfilerError as error:
        yield problem(topic, str(error))


class _DeploymentChecks(Struct):
    """The checks of one stack. Each raises TaskProfilerError with AWS's reason."""

    stack: ForwarderStack
    open_client: OpenClient
    now: datetime

    def report_function_findings(self) -> Iterator[Finding]:
        """The function that indexes reports, and its input."""
        name = self.stack.outputs.get("ForwardLogsFunctionName")
        if not name:
            yield note(
                _REPORTS,
                "The stack indexes no reports, because ElasticsearchUrl is empty.",
                _update_advice(self.stack),
            )
            return
        if self.stack.parameters.get("ElasticsearchUrl") == "":
            text = (
                "The stack forwards only notifications of running tasks: ElasticsearchUrl is empty."
            )
            yield note(_REPORTS, text, _update_advice(self.stack))
        function = self._read_function(name)
        yield _function_finding(_REPORTS, name, function, self.stack)
        stream = self.stack.outputs.get("ReportStreamArn")
        yield from _findings_or_problem(
            _SUBSCRIPTION, self._subscription_findings(stream or function["FunctionArn"])
        )
        if stream:
            yield from _findings_or_problem(_STREAM, self._event_source_findings(name))
        yield from _findings_or_problem(_REPORTS, self._activity_findings(_REPORTS, name))

    def _read_function(self, name: str) -> Mapping[str, Any]:
        with aws_errors(f"The function {name} cannot be read", "lambda:GetFunctionConfiguration"):
            configuration: Mapping[str, Any] = self.open_client(
                "lambda"
            ).get_function_configuration(FunctionName=name)
        return configuration

    def findings_of_invoked_function(self, topic: str, output: str) -> Iterator[Finding]:
        """The function that an output of the stack names, and the rules that invoke it."""
        name = self.stack.outputs.get(output)
        if not name:
            if topic == _TASKS:  # the other one is off by default
                text = (
                    "The stack sends no notifications of stopped tasks, because TaskStopped is "
                    "false."
                )
                yield note(_TASKS, text, _update_advice(self.stack))
            return
        function = self._read_function(name)
        events = self.open_client("events")
        yield _function_finding(topic, name, function, self.stack)
        with aws_errors(
            "The rules of EventBridge cannot be read",
            "events:ListRuleNamesByTarget and DescribeRule",
        ):
            target = {"TargetArn": function["FunctionArn"]}
            rules = read_items(events, "list_rule_names_by_target", "RuleNames", **target)
            described = {rule: events.describe_rule(Name=rule) for rule in rules}
        states = {rule: one["State"] for rule, one in described.items()}
        if not states:
            yield problem(topic, f"No EventBridge rule invokes {name}.", _update_advice(self.stack))
        for rule, state in states.items():
            if state != "ENABLED":
                yield problem(
                    topic,
                    f"The rule {rule} is {state.lower()}.",
                    aws_command_line("events", "enable-rule", "--name", rule),
                )
            else:
                yield ok(topic, f"The rule {rule} is enabled.")
        if topic == _TASKS and self.stack.parameters.get("BatchJobs") == "true" and states:
            patterns = [one.get("EventPattern") or "" for one in described.values()]
            if not any(_OF_BATCH in pattern for pattern in patterns):
                text = f"BatchJobs is true, but no rule sends the events of jobs to {name}"
                yield problem(
                    topic,
                    f"{text}: jobs and their tasks have no notification.",
                    _update_advice(self.stack),
                )
        yield from _findings_or_problem(topic, self._activity_findings(topic, name))

    def _activity_findings(self, topic: str, name: str) -> Iterator[Finding]:
        """The invocations and errors of a function in 24 hours."""
        invocations = self._metric_sum(name, "Invocations")
        errors = self._metric_sum(name, "Errors")
        if errors:
            try:
                line = self._last_error_line(name)
            except TaskProfilerError as error:
                line = f"unknown. {error}"
            last = f" Last error: {line}" if line else ""
            text = f"{errors} of {invocations} invocations of {name} failed in 24 hours.{last}"
            yield problem(topic, text, f"Read the log group /aws/lambda/{name}.")
        elif not invocations:
            advice = "Run a task with the monitor, and look for its REPORT line in the log group."
            if topic == _SCHEDULES:
                advice = (
                    "Look at its metric Throttles and at FailedInvocations of its rule in "
                    "CloudWatch."
                )
            yield note(topic, f"{name} was not invoked in the last 24 hours.", advice)
        else:
            yield ok(
                topic,
                f"{name} was invoked {format_count(invocations, 'time')} in the last 24 hours "
                "without an error.",
            )

    def _metric_sum(self, function: str, metric: str) -> int:
        with aws_errors(
            f"The metrics of {function} cannot be read", "cloudwatch:GetMetricStatistics"
        ):
            response = self.open_client("cloudwatch").get_metric_statistics(
                Namespace="AWS/Lambda",
                MetricName=metric,
                Dimensions=[{"Name": "FunctionName", "Value": function}],
                StartTime=self.now - _DAY,
                EndTime=self.now,
                Period=round(_DAY.total_seconds()),
                Statistics=["Sum"],
            )
        return round(sum(float(point["Sum"]) for point in response["Datapoints"]))

    def _last_error_line(self, function: str) -> str:
        """The newest line of an error in the function's log, from at most ten pages of the last
        24 hours.
        """
        with aws_errors(f"The log of {function} cannot be read", "logs:FilterLogEvents"):
            paginator = self.open_client("logs").get_paginator("filter_log_events")
            pages = paginator.paginate(
                logGroupName=f"/aws/lambda/{function}",
                filterPattern=_ERROR_PATTERN,
                startTime=round((self.now - _DAY).timestamp() * MS_PER_SECOND),
            )
            newest = (0, "")
            for page in islice(pages, _MAX_PAGES):
                for event in page["events"]:
                    newest = max(newest, (event["timestamp"], event["message"]))
        _, message = newest
        return " ".join(message.split())[:_MAX_ERROR_CHARACTERS]

    def _subscription_findings(self, destination: str) -> Iterator[Finding]:
        if self.stack.parameters.get("Subscribe") == "account":
            with aws_errors(
                "The account-wide subscriptions cannot be read", "logs:DescribeAccountPolicies"
            ):
                policies = account_subscriptions(self.open_client("logs"))
            filters = []
            for policy in policies:
                document = json.loads(policy["policyDocument"])
                filters.append((document.get("DestinationArn"), document.get("FilterPattern")))
            if self._has_delivering_filter(filters, destination):
                yield ok(
                    _SUBSCRIPTION,
                    "All log groups of the Region are subscribed that have the class Standard.",
                )
                return
            yield problem(
                _SUBSCRIPTION,
                (
                    "The account-wide subscription does not deliver Task Profiler's lines to "
                    "this stack."
                ),
                "AWS allows one account-wide subscription for each account and Region: "
                f"{_show_subscriptions_command()} shows it. Remove the other one, or set "
                "Subscribe=groups.",
            )
            return
        groups = split_names(self.stack.parameters.get("LogGroups", ""))
        if not groups:
            yield problem(
                _SUBSCRIPTION,
                "No log group is subscribed, because LogGroups is empty.",
                _update_advice(self.stack),
            )
        for group in groups:
            if glob_prefix(group) == group:
                yield from _findings_or_problem(
                    _SUBSCRIPTION, self._group_subscription_findings(group, destination)
                )
            else:
                yield from _findings_or_problem(
                    _SUBSCRIPTION, self._pattern_findings(group, destination)
                )

    def _pattern_findings(self, pattern: str, destination: str) -> Iterator[Finding]:
        """Whether all log groups are subscribed that ``setup stack`` subscribes by a pattern."""
        findings: list[Finding] = []
        filters = GroupFilters(self.stack.name, self.open_client, lambda _sentence: None)
        groups = filters.select_groups([pattern], are_given=False).groups
        for group in groups:
            findings += self._group_subscription_findings(group, destination)
        problems = [finding for finding in findings if finding.level == "problem"]
        yield from problems
        if not groups:
            yield note(
                _SUBSCRIPTION, f"No log group matches {pattern}.", _update_advice(self.stack)
            )
        elif not problems:
            yield ok(
                _SUBSCRIPTION,
                f"All log groups of {pattern} are subscribed ({len(groups)}).",
            )

    def _group_subscription_findings(self, group: str, destination: str) -> Iterator[Finding]:
        with aws_errors(
            f"The subscriptions of {group} cannot be read", "logs:DescribeSubscriptionFilters"
        ):
            listed = subscription_filters(self.open_client("logs"), group)
        filters = []
        for subscription in listed:
            filters.append((subscription["destinationArn"], subscription.get("filterPattern")))
        if self._has_delivering_filter(filters, destination):
            yield ok(_SUBSCRIPTION, f"{group} is subscribed.")
        else:
            what = (
                f"{group} has no subscription filter that delivers Task Profiler's lines to this "
                "stack."
            )
            yield problem(_SUBSCRIPTION, what, _update_advice(self.stack))

    def _has_delivering_filter(
        self, filters: Iterable[tuple[object, object]], destination: str
    ) -> bool:
        """Whether one of the filters, each a destination and a pattern, delivers what the stack
        forwards.
        """
        wants_reports = self.stack.parameters.get("ElasticsearchUrl") != ""
        own = (pattern for place, pattern in filters if place == destination)
        return any(passes_reports(pattern) or not wants_reports for pattern in own)

    def _event_source_findings(self, function: str) -> Iterator[Finding]:
        """Whether the data stream, which keeps reports for 24 hours, invokes the function."""
        with aws_errors(
            f"The event sources of {function} cannot be read", "lambda:ListEventSourceMappings"
        ):
            sources = read_items(
                self.open_client("lambda"),
                "list_event_source_mappings",
                "EventSourceMappings",
                FunctionName=function,
            )
            states = [source["State"] for source in sources]
        if {*states} == {"Enabled"}:
            yield ok(_STREAM, f"The data stream invokes {function}.")
            return
        text = (
            f"The data stream does not invoke {function} (event source mapping: "
            f"{', '.join(states) or 'none'})."
        )
        yield problem(
            _STREAM,
            text,
            "Enable the event source mapping in the console of Lambda, or update the stack.",
        )

    def queue_findings(self) -> Iterator[Finding]:
        for output in QUEUE_OUTPUTS:
            url = self.stack.outputs.get(output)
            if url:
                yield from _findings_or_problem(_QUEUES, self._queue_message_findings(output, url))

    def _queue_message_findings(self, output: str, url: str) -> Iterator[Finding]:
        """Whether a queue of failed events is empty, and how to send them again."""
        with aws_errors(f"The queue {url} cannot be read", "sqs:GetQueueAttributes"):
            count = count_messages(self.open_client("sqs"), url)
        name = url.rpartition("/")[2]
        messages = format_count(count, "message")
        if not count:
            yield ok(_QUEUES, f"The queue {name} is empty.")
        elif output == _REJECTED_QUEUE:
            text = (
                "The search cluster rejected documents, or runs were not exported: about "
                f"{messages} in {name}."
            )
            values = self.stack.parameters
            address = values.get("ElasticsearchUrl") or "URL"
            command = template_command(address, values.get("IndexPrefix") or DEFAULT_PREFIX)
            advice = f"Read `reason` in a message. Often, index templates are missing: {command}."
            yield problem(_QUEUES, text, advice)
        else:
            # The messages of a data stream have only the positions of the lines in it.
            is_of_stream = output == _LINES_QUEUE and "ReportStreamArn" in self.stack.outputs
            if is_of_stream:
                command = f"{command_line('replay')}, for each log group, and empty the queue"
            else:
                command = command_line("setup", "redrive", *self.stack.name_options)
            advice = f"Fix the cause, then send them again: {command}."
            yield problem(_QUEUES, f"Events failed: about {messages} in {name}.", advice)


def _function_finding(
    topic: str, name: str, function: Mapping[str, Any], stack: ForwarderStack
) -> Finding:
    why = function.get("StateReason") or function.get("LastUpdateStatusReason")
    reason = f": {why.rstrip('.')}" if why else ""
    state = function.get("State", "Active")
    if state not in ("Active", "Inactive"):
        return problem(
            topic, f"The function {name} is in state {state}{reason}.", _update_advice(stack)
        )
    if function.get("LastUpdateStatus") == "Failed":
        return problem(
            topic, f"The last update of the function {name} failed{reason}.", _update_advice(stack)
        )
    return ok(topic, f"The function {name} is ready.")


def template_findings(
    server: SearchServer, names: Iterable[str], command: str
) -> Iterator[Finding]:
    """Whether the cluster answers and has these index templates, which ``command`` installs."""
    try:
        engine = detect_product(server).engine
        missing = []
        for name in names:
            if not server.request("GET", f"/_index_template/{name}").is_success:
                missing.append(name)
    except TaskProfilerError as error:
        yield problem(_TEMPLATES, str(error))
        return
    if missing:
        text = f"The {engine} cluster lacks the index templates {', '.join(missing)}."
        yield problem(_TEMPLATES, text, f"Install them: {command}.")
    else:
        yield ok(_TEMPLATES, f"The {engine} cluster has the index templates.")

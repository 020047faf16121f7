"""Diagnoses a deployment: the CloudFormation stack, its functions, their input, what failed, and the search cluster."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from profiler.aws_account.deployed_forwarder import DeployedStack, FunctionState
from profiler.aws_account.doctor.findings import Finding, note, ok, problem
from profiler.aws_account.stack_state import StackState
from profiler.core.errors import TaskProfilerError
from profiler.search_setup.dashboard_import import existing_objects
from profiler.search_setup.search_servers import DashboardsServer
from profiler.search_setup.template_install import SearchServer, detect_product

_STACK, _REPORTS, _SUBSCRIPTION = "stack", "forward_logs", "subscription"
_TASKS, _QUEUES, _ALARMS, _STREAM = "task_stopped", "queues", "alarms", "data stream"
_SCHEDULES = "watch_schedules"
_HOURS = 24
_UPDATE = "Update the stack with task-profiler setup stack; docs/commands.md describes its parameters."
_FAILED_QUEUES = ("ForwardLogsDeadLetterQueueUrl", "TaskStoppedDeadLetterQueueUrl")
_REJECTED_QUEUE = "FailedItemsQueueUrl"
_TEMPLATES, _DASHBOARDS = "templates", "dashboards"
_IMPORT = "Install them: task-profiler kibana import."


def deployment_findings(source: DeployedStack) -> Iterator[Finding]:
    """All findings about a deployment, each as soon as it is known. A part that cannot be read is a problem."""
    try:
        stack = source.stack()
    except TaskProfilerError as error:
        yield problem(_STACK, str(error))
        return
    yield stack_finding(stack)
    yield from _guarded(_REPORTS, _report_findings(stack, source))
    yield from _guarded(_TASKS, _task_findings(stack, source))
    yield from _guarded(_SCHEDULES, _schedule_findings(stack, source))
    yield from _guarded(_QUEUES, _queue_findings(stack, source))
    yield from _guarded(_ALARMS, _alarm_findings(source))


def stack_finding(stack: StackState) -> Finding:
    """Whether the last deployment succeeded."""
    reason = f": {stack.reason.rstrip('.')}" if stack.reason else ""
    text = f"The stack {stack.name} is in state {stack.status}{reason}."
    if stack.phase == "in progress":
        return note(_STACK, text, "Run the command again when the deployment is complete.")
    if stack.phase == "failed":
        return problem(_STACK, text, "Read the stack's events in CloudFormation, then deploy it again.")
    if "ROLLBACK" in (stack.status or ""):
        return note(_STACK, text, "The previous version is active. The stack's events contain the cause.")
    return ok(_STACK, text)


def _guarded(topic: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except TaskProfilerError as error:
        yield problem(topic, str(error))


def _report_findings(stack: StackState, source: DeployedStack) -> Iterator[Finding]:
    name = stack.outputs.get("ForwardLogsFunctionName")
    if name is None:
        yield note(_REPORTS, "The stack indexes no reports, because ElasticsearchUrl is empty.", _UPDATE)
        return
    if stack.parameters.get("ElasticsearchUrl") == "":
        yield note(
            _REPORTS, "The stack forwards only notifications of running tasks: ElasticsearchUrl is empty.", _UPDATE
        )
    function = source.function(name)
    yield _function_finding(_REPORTS, name, function)
    stream = stack.outputs.get("ReportStreamArn")
    yield from _guarded(_SUBSCRIPTION, _subscription_findings(stack, source, stream or function.arn))
    if stream is not None:
        yield from _guarded(_STREAM, _mapping_findings(name, source))
    yield from _guarded(_REPORTS, _activity_findings(_REPORTS, name, source))


def _task_findings(stack: StackState, source: DeployedStack) -> Iterator[Finding]:
    name = stack.outputs.get("TaskStoppedFunctionName")
    if name is None:
        yield note(_TASKS, "The stack sends no notifications of stopped tasks, because TaskStopped is false.", _UPDATE)
        return
    yield from _invoked_by_rule(_TASKS, name, source)


def _schedule_findings(stack: StackState, source: DeployedStack) -> Iterator[Finding]:
    name = stack.outputs.get("WatchSchedulesFunctionName")
    if name is not None:  # off by default
        yield from _invoked_by_rule(_SCHEDULES, name, source)


def _invoked_by_rule(topic: str, name: str, source: DeployedStack) -> Iterator[Finding]:
    function = source.function(name)
    yield _function_finding(topic, name, function)
    rules = source.rule_states(function.arn)
    if not rules:
        yield problem(topic, f"No EventBridge rule invokes {name}.", _UPDATE)
    for rule, state in rules.items():
        if state != "ENABLED":
            yield problem(topic, f"The rule {rule} is {state.lower()}.", f"aws events enable-rule --name {rule}")
        else:
            yield ok(topic, f"The rule {rule} is enabled.")
    yield from _guarded(topic, _activity_findings(topic, name, source))


def _function_finding(topic: str, name: str, function: FunctionState) -> Finding:
    reason = f": {function.reason.rstrip('.')}" if function.reason else ""
    if function.state not in ("Active", "Inactive"):
        return problem(topic, f"The function {name} is in state {function.state}{reason}.", _UPDATE)
    if function.last_update == "Failed":
        return problem(topic, f"The last update of the function {name} failed{reason}.", _UPDATE)
    return ok(topic, f"The function {name} is ready.")


def _activity_findings(topic: str, name: str, source: DeployedStack) -> Iterator[Finding]:
    activity = source.activity(name)
    if activity.errors:
        line = f" Last error: {activity.last_error}" if activity.last_error else ""
        yield problem(
            topic,
            f"{activity.errors} of {activity.invocations} invocations of {name} failed in {_HOURS} hours.{line}",
            f"Read the log group /aws/lambda/{name}.",
        )
    elif not activity.invocations:
        yield note(
            topic,
            f"{name} was not invoked in the last {_HOURS} hours.",
            "Look at its metric Throttles and at FailedInvocations of its rule in CloudWatch."
            if topic == _SCHEDULES
            else "Run a task with the monitor, and look for its REPORT line in the log group.",
        )
    else:
        yield ok(topic, f"{name} was invoked {activity.invocations} times in the last {_HOURS} hours without an error.")


def _subscription_findings(stack: StackState, source: DeployedStack, destination: str) -> Iterator[Finding]:
    if stack.parameters.get("Subscribe") == "account":
        if destination in source.destinations_of_account():
            yield ok(_SUBSCRIPTION, "All log groups of the account and Region are subscribed.")
        else:
            yield problem(
                _SUBSCRIPTION,
                "The account-wide subscription does not deliver to this stack.",
                "AWS allows one account-wide subscription for each account and Region: aws logs "
                "describe-account-policies --policy-type SUBSCRIPTION_FILTER_POLICY shows it. Remove the other one, or "
                "set Subscribe=groups.",
            )
        return
    groups = [group for group in stack.parameters.get("LogGroups", "").split(",") if group]
    if not groups:
        yield problem(_SUBSCRIPTION, "No log group is subscribed, because LogGroups is empty.", _UPDATE)
    for group in groups:
        yield from _guarded(_SUBSCRIPTION, _group_findings(group, source, destination))


def _group_findings(group: str, source: DeployedStack, destination: str) -> Iterator[Finding]:
    if destination in source.destinations_of_group(group):
        yield ok(_SUBSCRIPTION, f"{group} is subscribed.")
    else:
        yield problem(_SUBSCRIPTION, f"{group} has no subscription filter that delivers to this stack.", _UPDATE)


def _mapping_findings(function: str, source: DeployedStack) -> Iterator[Finding]:
    states = source.mapping_states(function)
    if states and all(state == "Enabled" for state in states):
        yield ok(_STREAM, f"The data stream invokes {function}.")
        return
    yield problem(
        _STREAM,
        f"The data stream does not invoke {function} (event source mapping: {', '.join(states) or 'none'}).",
        "Enable the event source mapping in the console of Lambda, or update the stack.",
    )


def _queue_findings(stack: StackState, source: DeployedStack) -> Iterator[Finding]:
    for output in (*_FAILED_QUEUES, _REJECTED_QUEUE):
        url = stack.outputs.get(output)
        if url is not None:
            yield from _guarded(_QUEUES, _messages_findings(output, url, source))


def _messages_findings(output: str, url: str, source: DeployedStack) -> Iterator[Finding]:
    name, count = url.rpartition("/")[2], source.messages(url)
    if not count:
        yield ok(_QUEUES, f"The queue {name} is empty.")
    elif output == _REJECTED_QUEUE:
        yield problem(
            _QUEUES,
            f"The search cluster rejected documents, or runs were not exported: about {count} messages in {name}.",
            "Read `reason` in a message. Often, index templates are missing: task-profiler kibana import.",
        )
    else:
        yield problem(
            _QUEUES,
            f"Events failed: about {count} messages in {name}.",
            "Fix the cause, then send them again: task-profiler setup redrive.",
        )


def _alarm_findings(source: DeployedStack) -> Iterator[Finding]:
    alarms = source.active_alarms()
    if not alarms:
        yield ok(_ALARMS, "No alarm of the stack is active.")
    for name in alarms:
        yield problem(_ALARMS, f"The alarm {name} is active.", "docs/forwarder.md#alarms describes each alarm.")


def template_findings(server: SearchServer, names: Iterable[str]) -> Iterator[Finding]:
    """Whether the cluster answers and has these index templates."""
    try:
        engine = detect_product(server).engine
        missing = [name for name in names if not server.request("GET", f"/_index_template/{name}").ok]
    except TaskProfilerError as error:
        yield problem(_TEMPLATES, str(error))
        return
    if missing:
        yield problem(_TEMPLATES, f"The {engine} cluster lacks the index templates {', '.join(missing)}.", _IMPORT)
    else:
        yield ok(_TEMPLATES, f"The {engine} cluster has the index templates.")


def dashboard_findings(ui: DashboardsServer, objects: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Whether the server has these saved objects."""
    try:
        existing = existing_objects(ui, objects)
    except TaskProfilerError as error:
        yield problem(_DASHBOARDS, str(error))
        return
    if existing is None:
        yield note(_DASHBOARDS, "The server does not list its dashboards.", "Look for them in its user interface.")
    elif len(existing) < len(objects):
        text = f"{len(objects) - len(existing)} of {len(objects)} dashboards and charts are missing."
        yield problem(_DASHBOARDS, text, _IMPORT)
    else:
        yield ok(_DASHBOARDS, f"All {len(objects)} dashboards and charts are installed.")

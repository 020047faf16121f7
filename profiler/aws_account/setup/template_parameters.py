"""The forwarder's template, as far as a deployment needs it: its parameters, and the checks of
what they name.

The command line has no parser of YAML. Values that pass CloudFormation's checks, and fail after
minutes, are refused.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from profiler.aws_account.aws_errors import OpenClient, noted_errors
from profiler.aws_account.clusters_and_log_groups import (
    account_subscriptions,
    similar_clusters_sentence,
)
from profiler.aws_account.setup.monitor_image import check_default_image
from profiler.core.commands_to_copy import aws_command_line, command_line
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.notice_channels import CHANNEL_PARAMETERS, has_channel
from profiler.core.text import similar_name, words_if_known

# The parameters that `setup stack` sets itself.
_CODE = {"CodeBucket": "use --bucket", "CodeKey": "the command sets it"}
# The parameter with the cluster whose instances get a monitor.
MONITORED_CLUSTER = "InstanceMonitorCluster"
# The parameter that is true if the log group of this monitor stayed from an earlier one.
MONITOR_GROUP_EXISTS = "InstanceMonitorLogGroupExists"
# What is read of a template is kept: a deployment asks a dozen times, of the template as it is and
# without the subscription.
_SECTION = re.compile(r"^Parameters:\n(.*?)^\S", re.MULTILINE | re.DOTALL)
_PARAMETER = re.compile(r"^  (\w+):\n((?:    .+\n|\n)+)", re.MULTILINE)
_FIELD = re.compile(r"^    (\w+): (.+)$", re.MULTILINE)
# With the comment above it.
_SUBSCRIPTION = re.compile(
    r"^  # setup stack leaves .+\n  Subscription:\n(?:    .+\n)+\n", re.MULTILINE
)
_ONE_GROUP = re.compile(r"^  SubscribesOneGroup: .+\n", re.MULTILINE)
_ONE_FILTER = "${AWS::StackName}-group"  # the name of the template's filter


@lru_cache(maxsize=2)
def parameter_fields(template: str) -> Mapping[str, Mapping[str, str]]:
    """The template's parameters, each with its fields as they are written."""
    section = _SECTION.search(template)
    if not section:
        return {}
    return {name: dict(_FIELD.findall(text)) for name, text in _PARAMETER.findall(section[1])}


@lru_cache(maxsize=2)
def parameter_defaults(template: str) -> Mapping[str, str]:
    """The template's parameters with their defaults, empty where there is none."""
    parameters = parameter_fields(template)
    return {name: fields.get("Default", "").strip('"') for name, fields in parameters.items()}


def parameter_values(
    template: str, given: Mapping[str, str], current: Mapping[str, str]
) -> dict[str, str]:
    """The value of each parameter after a deployment: given now, kept, or the default."""
    defaults = parameter_defaults(template)
    return {name: given.get(name, current.get(name, default)) for name, default in defaults.items()}


@lru_cache(maxsize=1)
def without_subscription(template: str) -> str:
    """The template without the subscription of a single group: the command puts the filters.

    The alarms then select the name of the command's filters. Two filters of a group must not have
    the same name.
    """
    rest = _SUBSCRIPTION.sub("", _ONE_GROUP.sub("", template))
    return rest.replace(_ONE_FILTER, f"{_ONE_FILTER}s")


def parse_parameters(texts: Iterable[str], names: Sequence[str]) -> dict[str, str]:
    """Parse ``Name=Value``. Raises UsageError for another form or an unknown name."""
    parsed = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(
                "A --parameter is not NAME=VALUE: write the parameter's name, =, and its value."
            )
        if name in _CODE:
            raise UsageError(f"--parameter {name} cannot be given: {_CODE[name]}.")
        if name not in names:
            hint = words_if_known("did you mean {}?", similar_name(name, names))
            hint = hint or "docs/commands.md lists the parameters."
            raise UsageError(f"The template has no parameter {name!r}: {hint}")
        parsed[name] = value
    return parsed


def changed_parameters(
    names: Iterable[str], given: Mapping[str, str], current: Mapping[str, str]
) -> list[dict[str, object]]:
    """The parameters as CloudFormation takes them.

    It rejects those that the template no longer has.
    """
    parameters: list[dict[str, object]] = []
    for name in names:
        if name in given:
            parameters.append({"ParameterKey": name, "ParameterValue": given[name]})
        elif name in current:
            parameters.append({"ParameterKey": name, "UsePreviousValue": True})
    return parameters


def why_stack_does_nothing(values: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Why a stack with these parameters does nothing, as the end of a sentence, and the options
    it needs; or empty.
    """
    is_sent = values.get("ElasticsearchUrl") or values.get("OtlpEndpoint") or has_channel(values)
    if not is_sent:
        options = "--slack-failure-webhook", "@webhook.txt"
        return "has neither a search cluster nor a channel for notifications", options
    is_fed = (
        values.get("LogGroups")
        or values.get("Subscribe") == "account"
        or values.get("Ingestion") == "stream"
    )
    if values.get("ElasticsearchUrl") and not is_fed:
        return "indexes nothing, because it subscribes no log group", ("--all-log-groups",)
    return "", ()


def subscribes_groups(values: Mapping[str, str]) -> bool:
    """Whether the stack subscribes its log groups.

    Raises UsageError if ``Notify`` needs them and there are none.
    """
    if values["Subscribe"] == "account":
        return False
    if values["ElasticsearchUrl"] or "running" not in values["Notify"].split(","):
        return bool(values["ElasticsearchUrl"])
    if not values["LogGroups"] or not has_channel(values):
        raise UsageError(
            "Notify=running without ElasticsearchUrl needs log groups and a channel: add "
            f"--log-group and one of {', '.join(CHANNEL_PARAMETERS)}, or leave running out."
        )
    return True


def check_account(open_client: OpenClient, note: Callable[[str], object]) -> None:
    """Refuse a second account-wide subscription.

    ``note`` gets a sentence if this cannot be read.
    """
    names: list[str] = []
    with noted_errors(
        note, "Whether all log groups can be subscribed is unknown", "logs:DescribeAccountPolicies"
    ):
        names += [policy["policyName"] for policy in account_subscriptions(open_client("logs"))]
    if names:
        words = ("--policy-type", "SUBSCRIPTION_FILTER_POLICY", "--policy-name", names[0])
        delete = aws_command_line("logs", "delete-account-policy", *words)
        raise TaskProfilerError(
            f"The account-wide subscription {names[0]} exists already, and AWS allows one for "
            "each account and Region: use --log-group instead of --all-log-groups, or delete it "
            f"({delete})."
        )


def check_instance_monitor(
    open_client: OpenClient, cluster: str, note: Callable[[str], object]
) -> None:
    """Refuse a missing cluster, or a monitor without an image, for which CloudFormation would
    wait hours.
    """
    statuses = ["ACTIVE"]
    with noted_errors(
        note, f"It is unknown whether the cluster {cluster} exists", "ecs:DescribeClusters"
    ):
        statuses = [
            description["status"]
            for description in open_client("ecs").describe_clusters(clusters=[cluster])["clusters"]
        ]
    if "ACTIVE" not in statuses:
        raise TaskProfilerError(
            f"There is no ECS cluster {cluster!r}: check --instance-monitor and --region, or "
            "remove its monitor with --no-instance-monitor."
            f"{similar_clusters_sentence(open_client, [cluster])}"
        )
    check_default_image(open_client, f"run {command_line('setup', 'image')}", note, must_exist=True)

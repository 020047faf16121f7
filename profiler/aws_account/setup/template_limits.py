"""What AWS would refuse in the parameters of a stack, after the bucket and the code were made.

CloudFormation checks a value by the template's own bounds when it creates the change set. The
limits of other services appear minutes later, and the stack is rolled back.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from zoneinfo import available_timezones

from msgspec import Struct

from profiler.aws_account.setup.template_parameters import parameter_fields
from profiler.core.errors import UsageError
from profiler.core.text import did_you_mean
from profiler.schedules.due_times import ScheduleExpressionError, check_expression

# A variable of a function with the value of a parameter.
_VARIABLE = re.compile(r"^ {10}([A-Z_]+): (?:!Ref (\w+))?", re.MULTILINE)
_FUNCTION = re.compile(r"^  (\w+Function):\n(?:    .*\n|\n)+", re.MULTILINE)
_FUNCTION_CONDITION = re.compile(r"^    Condition: (\w+)$", re.MULTILINE)
_FUNCTION_SUFFIX = re.compile(
    r"^      FunctionName: !Sub \$\{AWS::StackName\}([a-z-]+)$", re.MULTILINE
)
# https://docs.aws.amazon.com/lambda/latest/api/API_CreateFunction.html
_MAX_FUNCTION_NAME = 64
# The longest value of a variable that is not a parameter: the address of a queue.
_OTHER_VALUE_BYTES = 160
# The inline policies of task_stopped's role without what its parameters add, with every option.
_OTHER_RIGHTS_CHARACTERS = 5_600
_GROUP_RIGHT = '"arn:*:logs:*:*:log-group::log-stream:*",'
_RETRY_RIGHT = '"arn:*:ecs:*:*:task-definition/:*",'
_RETRY_JOB_RIGHT = '"arn:*:batch:*:*:job-definition/:*",'

Values = Mapping[str, str]


class TemplateLimit(Struct, frozen=True, kw_only=True):
    """A limit of AWS on what the parameters make together, and what to do when it is exceeded."""

    what: str
    size: Callable[[str, Values], int]  # of the template and the values
    maximum: int
    unit: str
    way_out: str
    source: str


def _pattern_characters(_template: str, values: Values) -> int:
    """The length of the event pattern of the template's rule."""
    detail: dict[str, list[str]] = {"lastStatus": ["STOPPED"]}
    if values["ClusterArns"]:
        detail["clusterArn"] = values["ClusterArns"].split(",")
    pattern = {
        "source": ["aws.ecs"],
        "detail-type": ["ECS Task State Change"],
        "detail": detail,
    }
    return len(json.dumps(pattern, separators=(",", ":")))


def _longest_value_bytes(_template: str, values: Values) -> int:
    return max(len(value.encode()) for value in values.values())


@lru_cache(maxsize=1)
def _functions(template: str) -> tuple[str, ...]:
    """The parts of the template that are functions."""
    return tuple(function[0] for function in _FUNCTION.finditer(template))


def _variables_bytes(template: str, values: Values) -> int:
    """The size of the variables of the function that has the most."""
    sizes = [0]
    for function in _functions(template):
        size = 0
        for name, parameter in _VARIABLE.findall(function):
            value_bytes = _OTHER_VALUE_BYTES
            if parameter in values:
                value_bytes = len(values[parameter].encode())
            size += len(name) + value_bytes
        sizes.append(size)
    return max(sizes)


def _rights_characters(_template: str, values: Values) -> int:
    """The length of the inline policies of task_stopped's role."""
    size = _OTHER_RIGHTS_CHARACTERS
    for group in values["LogGroups"].split(","):
        size += len(_GROUP_RIGHT) + len(group)
    for family in values["RetryOutOfMemory"].split(","):
        size += len(_RETRY_RIGHT) + len(family)
        if values["BatchJobs"] == "true":
            size += len(_RETRY_JOB_RIGHT) + len(family)
    return size


LIMITS = (
    TemplateLimit(
        what="ClusterArns: the event pattern",
        size=_pattern_characters,
        maximum=2048,
        unit="characters",
        way_out="leave ClusterArns empty for all clusters, or name fewer",
        source="https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-quota.html",
    ),
    TemplateLimit(
        what="The longest parameter",
        size=_longest_value_bytes,
        maximum=4096,
        unit="bytes",
        way_out="shorten it, by patterns instead of names",
        source="https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/"
        "cloudformation-limits.html",
    ),
    TemplateLimit(
        what="LogGroups and RetryOutOfMemory: the policies of task_stopped's role",
        size=_rights_characters,
        maximum=10_240,
        unit="characters",
        way_out="select log groups by a pattern NAME* or --all-log-groups, and families by globs",
        source="https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html",
    ),
    TemplateLimit(
        what="The environment variables of a function",
        size=_variables_bytes,
        maximum=4096,
        unit="bytes",
        way_out="shorten NotifyFamilies and RetryOutOfMemory by globs",
        source="https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html",
    ),
)


def check_limits(template: str, values: Values) -> None:
    """Raise UsageError for the first limit that is exceeded."""
    for limit in LIMITS:
        size = limit.size(template, values)
        if size > limit.maximum:
            raise UsageError(
                f"{limit.what} would have {size:,} {limit.unit}, and AWS allows "
                f"{limit.maximum:,}: {limit.way_out}."
            )


def check_function_names(template: str, stack: str, values: Values) -> None:
    """Raise UsageError for a stack's name with which the name of a function is too long."""
    absent = set()
    if values["WatchSchedules"] != "true":
        absent.add("WatchesSchedules")
    if not values["DigestSchedule"]:
        absent.add("SendsDigest")
    for function in _functions(template):
        condition = _FUNCTION_CONDITION.search(function)
        suffix = _FUNCTION_SUFFIX.search(function)
        if not suffix or (condition and condition[1] in absent):
            continue
        name = f"{stack}{suffix[1]}"
        if len(name) > _MAX_FUNCTION_NAME:
            raise UsageError(
                f"The function {name} would have a name of {len(name)} characters, and AWS Lambda "
                f"allows {_MAX_FUNCTION_NAME}: use a --name of at most "
                f"{_MAX_FUNCTION_NAME - len(suffix[1])}."
            )


def check_digest_time(values: Values) -> None:
    """Raise UsageError for the time of the morning message that EventBridge Scheduler would refuse
    after all the rest was made.
    """
    expression, zone = values["DigestSchedule"], values["DigestTimeZone"]
    if not expression:
        return
    try:
        check_expression(expression)
    except ScheduleExpressionError:
        raise UsageError(
            "The parameter DigestSchedule has a wrong value: a cron has six fields, as in "
            "cron(0 8 * * ? *), and a rate a number and a unit, as in rate(1 day)."
        ) from None
    zones = available_timezones()
    if zones and zone not in zones:
        raise UsageError(
            "The parameter DigestTimeZone has a wrong value: use the name of a time zone, such as "
            f"Europe/Berlin.{did_you_mean([zone], sorted(zones))}"
        )


def check_values(template: str, given: Values) -> None:
    """Check values by the template's own bounds, as CloudFormation does after the upload.

    Raises UsageError, without the value.
    """
    for name, bounds in parameter_fields(template).items():
        if name in given:
            wanted = _valid_values_text(bounds, given[name])
            if wanted:
                raise UsageError(f"The parameter {name} has a wrong value: use {wanted}.")


def _valid_values_text(bounds: Mapping[str, str], value: str) -> str | None:
    """A description of the valid values; None if this value is valid."""
    if "AllowedValues" in bounds:
        allowed = [word.strip(' "') for word in bounds["AllowedValues"].strip("[]").split(",")]
        return None if value in allowed else f"one of {', '.join(allowed)}"
    if "MinValue" in bounds:
        least = int(bounds["MinValue"])
        most = int(bounds["MaxValue"])
        is_number = bool(re.fullmatch(r"\d{1,9}", value, re.ASCII))
        if is_number and least <= int(value) <= most:
            return None
        return f"a whole number from {least} to {most}"
    pattern = bounds.get("AllowedPattern")
    if pattern is None or re.search(pattern, value, re.ASCII):
        return None
    described = bounds.get("ConstraintDescription", "a value that the template allows")
    return described.rstrip(".")

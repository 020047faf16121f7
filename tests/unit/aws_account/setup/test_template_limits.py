"""What AWS refuses in the parameters of a stack, before anything is made."""

import json
import re
from typing import Any

import boto3
import pytest

from profiler.aws_account.setup import template_limits
from profiler.aws_account.setup.template_limits import (
    LIMITS,
    check_digest_time,
    check_function_names,
    check_limits,
    check_values,
)
from profiler.aws_account.setup.template_parameters import parameter_values
from profiler.core.errors import UsageError
from profiler.task_definitions.permissions import iam_policy_length
from tests.cases import each_case
from tests.cloudformation import ACCOUNT, PARAMETERS, REGION, TEMPLATE, deploy, template
from tests.lambda_environment import moto_account

WHOLE = TEMPLATE.read_text()
GROUPS = [f"/ecs/{'g' * 150}-{number}" for number in range(20)]
ARNS = [
    f"arn:aws:ecs:eu-west-1:123456789012:cluster/production-batches-{number:04}"
    for number in range(29)
]
TOO_LARGE = {
    "ClusterArns: the event pattern": {"ClusterArns": ",".join(ARNS)},
    "The longest parameter": {"NotifyFamilies": "a" * 4097},
    "LogGroups and RetryOutOfMemory: the policies of task_stopped's role": {
        "LogGroups": ",".join(GROUPS),
        "RetryOutOfMemory": ",".join(["nightly-*"] * 20),
    },
    "The environment variables of a function": {"NotifyFamilies": "a" * 3900},
}


def values(**given: str) -> dict[str, str]:
    return parameter_values(WHOLE, given, {})


def test_a_stack_without_settings_is_within_all_limits() -> None:
    check_limits(WHOLE, values())


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.what)
def test_each_limit_is_refused_with_the_way_out(limit: Any) -> None:
    with pytest.raises(UsageError) as refused:
        check_limits(WHOLE, values(**TOO_LARGE[limit.what]))
    sentence = str(refused.value)
    assert sentence.startswith(f"{limit.what} would have ")
    assert sentence.endswith(f"AWS allows {limit.maximum:,}: {limit.way_out}.")
    assert limit.source.startswith("https://docs.aws.amazon.com/")


@pytest.mark.parametrize(
    ("most", "given"),
    [
        (51, {}),
        (49, {"DigestSchedule": "cron(0 7 * * ? *)"}),
        (48, {"WatchSchedules": "true", "DigestSchedule": "cron(0 7 * * ? *)"}),
    ],
)
def test_a_stacks_name_leaves_room_for_those_of_its_functions(
    most: int, given: dict[str, str]
) -> None:
    check_function_names(WHOLE, "s" * most, values(**given))
    words = f"AWS Lambda allows 64: use a --name of at most {most}."
    with pytest.raises(UsageError, match=words):
        check_function_names(WHOLE, "s" * (most + 1), values(**given))


def test_the_names_of_all_functions_are_known() -> None:
    resources = template()["Resources"].values()
    functions = [one for one in resources if one["Type"] == "AWS::Lambda::Function"]
    assert len(functions) == len(re.findall(r"FunctionName: !Sub \$\{AWS::StackName\}-", WHOLE))
    conditions = {one["Condition"] for one in functions}
    assert conditions >= {"WatchesSchedules", "SendsDigest"}


def test_the_event_pattern_has_room_for_28_clusters() -> None:
    """The length is that of the template's rule."""
    pattern = template()["Resources"]["TaskStoppedRule"]["Properties"]["EventPattern"]
    pattern = pattern | {"detail": pattern["detail"] | {"clusterArn": ARNS[:28]}}
    assert 2048 - len(ARNS[0]) < len(json.dumps(pattern, separators=(",", ":"))) <= 2048
    check_limits(WHOLE, values(ClusterArns=",".join(ARNS[:28])))


@pytest.mark.parametrize(
    ("jobs", "families"),
    [("false", "nightly-*,etl"), ("true", ",".join(["nightly-loads-of-orders"] * 30))],
)
def test_the_role_with_every_option_has_the_length_that_the_limit_assumes(
    monkeypatch: pytest.MonkeyPatch, jobs: str, families: str
) -> None:
    """Longer rights than assumed would fail at IAM; much shorter ones would be refused."""
    secret = f"arn:aws-us-gov:secretsmanager:{REGION}:{ACCOUNT}:secret:team/{'s' * 60}"
    given = {
        "ElasticsearchSecretId": secret,
        "SlackSecretId": secret,
        "OtlpSecretId": secret,
        "OtlpEndpoint": "https://otlp.example.com",
        "OtlpAwsAuth": "true",
        "EventBusName": "b" * 100,
        "SubnetIds": "subnet-0a",
        "SecurityGroupIds": "sg-0a",
        "SecretsKeyArn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{'0' * 36}",
        "BatchJobs": jobs,
        "RetryOutOfMemory": families,
        "LogGroups": "/ecs/a,/ecs/b*",
        "Subscribe": "account",
    }
    limit = next(limit for limit in LIMITS if "policies" in limit.what)
    with moto_account(monkeypatch, REGION):
        boto3.client("events").create_event_bus(Name="b" * 100)
        statements = deploy(**given).statements("TaskStoppedRole")
    length = sum(iam_policy_length({"Statement": [statement]}) for statement in statements)
    assumed = limit.size(WHOLE, values(**given))
    assert length <= assumed
    assert length > assumed - 1500


# The template's own bounds, which CloudFormation checks after the upload


@each_case(
    ("name", "value", "said"),
    [
        ("LogGroups", "a,/aws/lambda/x", "at most twenty log groups"),
        ("LogGroups", ",".join("abcdefghijklmnopqrstu"), "at most twenty log groups"),
        ("StreamShards", "0", "a whole number from 1 to 1000"),
        ("StreamShards", "many", "a whole number from 1 to 1000"),
        ("Subscribe", "all", "one of groups, account"),
        ("LogRetentionDays", "31", "one of 1, 3, 5"),
        ("ElasticsearchUrl", "search:9200", "a URL that begins with https://"),
        ("InstanceMonitorLogGroupExists", "yes", "one of true, false"),
    ],
)
def test_a_value_beyond_the_templates_bounds_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_values(WHOLE, {name: value})
    assert f"The parameter {name} has a wrong value: use {said}" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_every_default_is_within_the_bounds() -> None:
    defaults = {name: str(one["Default"]) for name, one in PARAMETERS.items() if "Default" in one}
    check_values(WHOLE, defaults)


@each_case(
    ("given", "said"),
    [
        ({"DigestSchedule": "cron(0 8 * * *)"}, "DigestSchedule has a wrong value: a cron has six"),
        ({"DigestSchedule": "cron(0 8 ? * WED-MOO *)"}, "DigestSchedule has a wrong value"),
        ({"DigestSchedule": "rate(1 fortnight)"}, "DigestSchedule has a wrong value"),
        ({"DigestTimeZone": "CET+1"}, "DigestTimeZone has a wrong value: use the name of a time"),
        ({"DigestTimeZone": "Europe/Berln"}, "such as Europe/Berlin. Did you mean Europe/Berlin?"),
    ],
)
def test_a_time_of_the_morning_message_that_aws_would_refuse_is_refused_before(
    given: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        check_digest_time(values(**{"DigestSchedule": "cron(0 8 * * ? *)"} | given))
    assert said in str(refused.value)


@each_case(
    "given",
    [
        {"DigestSchedule": "cron(0 8 * * ? *)", "DigestTimeZone": "Europe/Berlin"},
        {"DigestSchedule": "cron(0 8 ? * MON-FRI *)"},
        {"DigestSchedule": "rate(1 day)"},
        {"DigestSchedule": "", "DigestTimeZone": "no message, so no zone"},
    ],
)
def test_other_times_of_the_morning_message_are_accepted(given: dict[str, str]) -> None:
    check_digest_time(values(**given))


def test_where_no_time_zone_is_known_any_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without the package tzdata in a small container: EventBridge Scheduler judges it."""
    monkeypatch.setattr(template_limits, "available_timezones", frozenset)
    check_digest_time(values(DigestSchedule="rate(1 day)", DigestTimeZone="Mars/Phobos"))


def test_a_refused_value_is_never_printed() -> None:
    with pytest.raises(UsageError) as refused:
        check_values(WHOLE, {"SlackSecretId": "hunter2 hunter2"})
    assert "hunter2" not in str(refused.value)

"""The template as a deployment reads it, without a parser of YAML: parameters, rules, subscriptions."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # moto depends on it
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from profiler.aws_account.setup.stack_template import (
    StackTemplate,
    changed_parameters,
    check_groups,
    check_pattern,
    parse_parameters,
    subscribes_groups,
)
from profiler.core.errors import TaskProfilerError, UsageError
from tests.cloudformation import FastLoader
from tests.stack import TEMPLATE, template

WHOLE = StackTemplate(TEMPLATE.read_text())
NAMES = st.sampled_from(["Notify", "LogGroups", "New", "Runtime"])


def test_the_names_are_those_that_a_parser_of_yaml_finds() -> None:
    assert set(WHOLE.names) == set(template()["Parameters"])


def test_a_value_may_have_everything() -> None:
    assert parse_parameters(["Notify=a=b c", "New="], ["Notify", "New"]) == {"Notify": "a=b c", "New": ""}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Notfy=x", "did you mean Notify"),
        ("Zzzzz=x", "docs/commands.md lists the parameters"),
        ("hunter2", "not NAME=VALUE"),
        ("=hunter2", "not NAME=VALUE"),
        ("CodeBucket=x", "use --bucket"),
    ],
)
def test_what_is_wrong_is_said_without_the_value(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        parse_parameters([text], ["Notify", "CodeBucket"])
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("OtlpEndpoint", "hunter2", "use a URL that begins with https:// or http://. Put credentials in OtlpSecretId."),
        ("LogGroups", "/ecs/a,/aws/lambda/hunter2", "at most twenty log group names"),
        ("LogGroups", "/ecs/hunter2\n", "at most twenty log group names"),
        ("Runtime", "hunter2", "use one of python3.11, python3.12, python3.13, python3.14."),
        ("TaskStopped", "True", "use one of true, false."),
        ("LogRetentionDays", "2", "use one of 1, 3, 5"),
        ("ScheduleGraceMinutes", "46", "use a whole number from 1 to 45."),
        ("MemorySizeMB", "128", "use a whole number from 256 to 10240."),
        ("StreamShards", "1.5", "use a whole number from 1 to 1000."),
        ("ReportWaitSeconds", "-1", "use a whole number from 0 to 600."),
        ("TimeoutSeconds", "", "use a whole number from 30 to 900."),
    ],
)
def test_a_value_that_cloudformation_would_reject_is_rejected_without_being_shown(
    name: str, value: str, said: str
) -> None:
    with pytest.raises(UsageError, match=rf"^The parameter {name} of the template has a wrong value: ") as error:
        WHOLE.check_values({name: value})
    assert said in str(error.value)
    assert "hunter2" not in str(error.value)


def test_the_rules_are_those_that_a_parser_of_yaml_finds() -> None:
    """Each default is accepted, and where the template has a rule, something else is not."""
    for name, parameter in template()["Parameters"].items():
        if "Default" in parameter:
            WHOLE.check_values({name: str(parameter["Default"])})
        if {"AllowedPattern", "AllowedValues", "MinValue"} & parameter.keys():
            with pytest.raises(UsageError):
                WHOLE.check_values({name: "\0"})


def test_values_are_given_kept_or_the_templates() -> None:
    values = WHOLE.values({"Notify": "failure"}, {"Notify": "all", "Subscribe": "account", "Gone": "x"})
    defaults = {name: str(one.get("Default", "")) for name, one in template()["Parameters"].items()}
    assert values == defaults | {"Notify": "failure", "Subscribe": "account"}


def holds(function: Any, values: Mapping[str, str]) -> bool:
    """The few functions that the rules are made of, as a parser of YAML reads them."""
    ((name, arguments),) = function.items()
    if name == "Fn::Equals":
        left, right = (values[one["Ref"]] if isinstance(one, dict) else one for one in arguments)
        return bool(left == right)
    results = [holds(one, values) for one in arguments]
    return {"Fn::And": all(results), "Fn::Or": any(results), "Fn::Not": not results[0]}[name]


CHOICES = {
    name: st.sampled_from([str(one.get("Default", "")), *map(str, one.get("AllowedValues", ["x"]))])
    for name, one in template()["Parameters"].items()
}


def broken_rules(values: Mapping[str, str]) -> str:
    try:
        WHOLE.check_rules(values)
    except UsageError as error:
        return str(error)
    return ""


@given(st.fixed_dictionaries(CHOICES))
def test_the_rules_say_what_they_say_to_a_parser_of_yaml(values: dict[str, str]) -> None:
    """CloudFormation evaluates them with the change set; ``setup stack`` before it."""
    expected = [
        assertion["AssertDescription"]
        for rule in template()["Rules"].values()
        if "RuleCondition" not in rule or holds(rule["RuleCondition"], values)
        for assertion in rule["Assertions"]
        if not holds(assertion["Assert"], values)
    ]
    assert broken_rules(values) == " ".join(expected)


def subscriptions(*groups: str) -> dict[str, dict[str, Any]]:
    """The subscriptions by their logical id, as CloudFormation reads them."""
    resources = yaml.load(WHOLE.with_subscriptions(groups).text, FastLoader)["Resources"]
    return {
        name: one["Properties"] for name, one in resources.items() if one["Type"] == "AWS::Logs::SubscriptionFilter"
    }


def test_a_group_that_is_removed_or_moved_leaves_the_other_subscriptions_alone() -> None:
    """A replaced filter delivers twice for a while, or exceeds the quota of filters, and the update is rolled back."""
    before = subscriptions("/ecs/a", "/ecs/a-b", "/ecs/ab", "123")
    assert [one["LogGroupName"] for one in before.values()] == ["/ecs/a", "/ecs/a-b", "/ecs/ab", "123"]
    assert len({json.dumps(one["FilterName"]) for one in before.values()}) == 4
    after = subscriptions("123", "/ecs/new", "/ecs/ab", "/ecs/a")
    kept = before.keys() & after.keys()
    assert {before[name]["LogGroupName"] for name in kept} == {"123", "/ecs/ab", "/ecs/a"}
    assert all(before[name] == after[name] for name in kept)


def test_without_named_groups_the_template_is_deployed_as_it_is() -> None:
    assert WHOLE.with_subscriptions(()).text == WHOLE.text


@given(st.lists(NAMES, unique=True), st.dictionaries(NAMES, st.text()), st.dictionaries(NAMES, st.text()))
def test_what_is_given_counts_what_was_set_stays_and_the_rest_is_the_templates(
    names: list[str], given_now: dict[str, str], current: dict[str, str]
) -> None:
    listed = {one["ParameterKey"]: one for one in changed_parameters(names, given_now, current)}
    for name in names:
        if name in given_now:
            assert listed[name]["ParameterValue"] == given_now[name]
        elif name in current:
            assert listed[name]["UsePreviousValue"] is True
        else:
            assert name not in listed
    assert set(listed) <= set(names)  # a parameter that a newer template has not any more is refused by CloudFormation


URL = {"ElasticsearchUrl": "https://search"}
RUNNING = {"Notify": "failure,running", "SlackSecretId": "slack", "LogGroups": "/ecs/a"}


def values(**given: str) -> dict[str, str]:
    return StackTemplate(TEMPLATE.read_text()).values(given, {})


class Logs:
    """CloudWatch Logs with groups and their classes; a group of AWS before 2023 has none."""

    def __init__(self, **classes: str | None) -> None:
        self._classes = classes
        self.refuses = False

    def __call__(self, service: str) -> Any:
        assert service == "logs"
        return self

    def get_paginator(self, operation: str) -> Any:
        assert operation == "describe_log_groups"
        return self

    def paginate(self, logGroupNamePrefix: str) -> Iterator[dict[str, Any]]:
        if self.refuses:
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "DescribeLogGroups")
        for name, kind in self._classes.items():
            group = {"logGroupName": name} | ({"logGroupClass": kind} if kind else {})
            yield {"logGroups": [group] if name.startswith(logGroupNamePrefix) else []}


def test_only_groups_of_the_class_standard_have_subscription_filters() -> None:
    logs = Logs(old=None, usual="STANDARD", rare="INFREQUENT_ACCESS", rarest="ESSENTIALS")
    check_groups(["old", "usual"], logs)
    with pytest.raises(TaskProfilerError, match="can be subscribed, unlike rare, rarest: leave them out"):
        check_groups(["old", "rare", "usual", "rarest"], logs)
    with pytest.raises(TaskProfilerError, match=r"do not exist \(usua, none\): create them"):
        check_groups(["usua", "none", "rare"], logs)
    logs.refuses = True
    check_groups(["none"], logs)


@pytest.mark.parametrize(
    ("given", "subscribes"),
    [
        ({}, False),
        (URL, True),
        ({**URL, "Subscribe": "account"}, False),
        ({"LogGroups": "/ecs/a", "SlackSecretId": "slack"}, False),  # all: without a cluster, not running
        (RUNNING, True),
    ],
)
def test_groups_are_subscribed_for_a_cluster_or_for_notices_of_running_tasks(
    given: dict[str, str], subscribes: object
) -> None:
    assert subscribes_groups(values(**given)) is subscribes


@pytest.mark.parametrize("given", [{**RUNNING, "LogGroups": ""}, {**RUNNING, "SlackSecretId": ""}])
def test_notices_of_running_tasks_need_log_groups_and_a_channel(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"^Notify=running without Elast.* needs log groups and a channel"):
        subscribes_groups(values(**given))


def test_the_event_pattern_has_room_for_the_clusters() -> None:
    """EventBridge's quota is 2,048 characters. The length is that of the template's rule."""
    arns = [f"arn:aws:ecs:eu-west-1:123456789012:cluster/production-batches-{number:04}" for number in range(60)]
    pattern = template()["Resources"]["TaskStoppedRule"]["Properties"]["EventPattern"]
    pattern = pattern | {"detail": pattern["detail"] | {"clusterArn": arns[:28]}}
    assert len(json.dumps(pattern, separators=(",", ":"))) <= 2048
    check_pattern(values(ClusterArns=",".join(arns[:28])))
    check_pattern(values())
    with pytest.raises(UsageError, match="ClusterArns has 29 clusters, which exceed the 2,048 characters"):
        check_pattern(values(ClusterArns=",".join(arns[:29])))

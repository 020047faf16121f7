"""The template as a deployment reads it, without a parser of YAML: parameters and subscriptions."""

import json

import pytest
import yaml  # type: ignore[import-untyped]  # moto depends on it

from profiler.aws_account.setup.template_parameters import (
    changed_parameters,
    parameter_values,
    parse_parameters,
    subscribes_groups,
    without_subscription,
)
from profiler.core.errors import UsageError
from tests.cloudformation import TEMPLATE, template
from tools.moto_server import FastLoader

WHOLE = TEMPLATE.read_text()


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
def test_a_value_may_have_everything_and_what_is_wrong_is_said_without_it(
    text: str, said: str
) -> None:
    assert parse_parameters(["Notify=a=b c", "New="], ["Notify", "New"]) == {
        "Notify": "a=b c",
        "New": "",
    }
    with pytest.raises(UsageError, match=said) as error:
        parse_parameters([text], ["Notify", "CodeBucket"])
    assert "hunter2" not in str(error.value)


def test_values_are_given_kept_or_the_templates() -> None:
    values = parameter_values(
        WHOLE, {"Notify": "failure"}, {"Notify": "all", "Subscribe": "account", "Gone": "x"}
    )
    defaults = {name: str(one.get("Default", "")) for name, one in template()["Parameters"].items()}
    assert values == defaults | {"Notify": "failure", "Subscribe": "account"}


def test_only_the_filter_of_a_single_group_is_left_out_of_the_template() -> None:
    whole = yaml.load(WHOLE, FastLoader)
    rest = yaml.load(without_subscription(WHOLE), FastLoader)
    assert whole["Resources"].keys() - rest["Resources"].keys() == {"Subscription"}
    assert whole["Conditions"].keys() - rest["Conditions"].keys() == {"SubscribesOneGroup"}
    assert whole["Parameters"] == rest["Parameters"]
    (monitors,) = (
        one["Properties"]
        for one in rest["Resources"].values()
        if one["Type"] == "AWS::Logs::SubscriptionFilter"
    )
    assert monitors["FilterName"] == {"Fn::Sub": "${AWS::StackName}-groups"}
    assert "FilterName = '${AWS::StackName}-groups'" in json.dumps(rest), "which alarms select"


def test_what_is_given_counts_what_was_set_stays_and_the_rest_is_the_templates() -> None:
    """CloudFormation refuses a parameter that a newer template has not any more."""
    names, current = ["Notify", "LogGroups", "New"], {"LogGroups": "/ecs/a", "Gone": "x"}
    assert changed_parameters(names, {"Notify": "failure"}, current) == [
        {"ParameterKey": "Notify", "ParameterValue": "failure"},
        {"ParameterKey": "LogGroups", "UsePreviousValue": True},
    ]


URL = {"ElasticsearchUrl": "https://search"}
RUNNING = {"Notify": "failure,running", "SlackSecretId": "slack", "LogGroups": "/ecs/a"}


def values(**given: str) -> dict[str, str]:
    return parameter_values(WHOLE, given, {})


@pytest.mark.parametrize(
    ("given", "subscribes"),
    [
        ({}, False),
        (URL, True),
        ({**URL, "Subscribe": "account"}, False),
        (
            {"LogGroups": "/ecs/a", "SlackSecretId": "slack"},
            False,
        ),  # all: without a cluster, not running
        (RUNNING, True),
    ],
)
def test_groups_are_subscribed_for_a_cluster_or_for_notices(
    given: dict[str, str], subscribes: object
) -> None:
    """Groups are subscribed for a cluster or for notices which need groups and a channel."""
    assert subscribes_groups(values(**given)) is subscribes
    for lacking in ("LogGroups", "SlackSecretId"):
        with pytest.raises(
            UsageError, match=r"^Notify=running without Elast.* needs log groups and a channel"
        ):
            subscribes_groups(values(**RUNNING | {lacking: ""}))

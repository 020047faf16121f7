"""Parameters: those of the template, those that are given, those that keep their values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.account_setup.stack_parameters import changed_parameters, check_values, parameter_names, parse_parameters
from profiler.core.errors import UsageError
from tests.stack import TEMPLATE, template

NAMES = st.sampled_from(["Notify", "LogGroups", "New", "Runtime"])


def test_the_names_are_those_that_a_parser_of_yaml_finds() -> None:
    assert set(parameter_names(TEMPLATE.read_text())) == set(template()["Parameters"])


def test_a_value_may_have_everything() -> None:
    assert parse_parameters(["Notify=a=b c", "New="], ["Notify", "New"]) == {"Notify": "a=b c", "New": ""}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Notfy=x", "did you mean Notify"),
        ("Zzzzz=x", "docs/deployment.md lists the parameters"),
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
    ],
)
def test_a_value_that_cloudformation_would_reject_is_rejected_without_being_shown(
    name: str, value: str, said: str
) -> None:
    with pytest.raises(UsageError, match=rf"^The parameter {name} of the template has a wrong value: ") as error:
        check_values(TEMPLATE.read_text(), {name: value})
    assert said in str(error.value)
    assert "hunter2" not in str(error.value)


def test_the_rules_are_those_that_a_parser_of_yaml_finds() -> None:
    """Each default is accepted, and where the template has a rule, something else is not."""
    for name, parameter in template()["Parameters"].items():
        if "Default" in parameter:
            check_values(TEMPLATE.read_text(), {name: str(parameter["Default"])})
        if {"AllowedPattern", "AllowedValues"} & parameter.keys():
            with pytest.raises(UsageError):
                check_values(TEMPLATE.read_text(), {name: "\0"})


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

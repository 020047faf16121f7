"""The steps of a setup where AWS refuses, or where the stack is neither there nor absent."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from botocore.exceptions import ClientError

import profiler
from profiler.aws_account.setup.setup_steps import SetupStep, SetupStepReader
from tests.fake_cloudformation import STACK_ID, FakeCloudFormation

KEY = "task-profiler/forwarder-{}-0123456789abcdef.zip"


def refuse(**_: object) -> None:
    raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "AnyOperation")


class Refusing:
    """A client of an account where nothing is allowed."""

    meta = MagicMock(region_name="eu-west-1")

    def __getattr__(self, _name: str) -> Any:
        return refuse

    def get_paginator(self, _name: str) -> Any:
        return SimpleNamespace(paginate=refuse)


def steps(stack: dict[str, Any] | None = None) -> list[SetupStep]:
    cloudformation: Any = Refusing()
    if stack is not None:
        described = {"StackName": "task-profiler", "StackId": STACK_ID, **stack}
        cloudformation.describe_stacks = lambda **_: {"Stacks": [described]}
    clients = {"cloudformation": cloudformation}
    options = {"region": "eu-west-1", "profile": None}
    return list(
        SetupStepReader(
            lambda name: clients.get(name, Refusing()), (), options, lambda *_: None, 0
        ).read_steps()
    )


def test_what_aws_refuses_is_unknown_and_says_what_to_allow() -> None:
    found = steps()
    assert [step.is_done for step in found] == [None] * 4
    assert [("allow" in step.text) for step in found] == [True, True, True, False]
    assert found[1].commands == (("task-profiler", "setup", "stack", "--region", "eu-west-1"),)
    assert "NAME" in found[2].commands[0]


def test_beside_another_programs_stack_the_command_has_another_name() -> None:
    """Without it, setup stack refuses what setup has proposed."""
    _, stack, *_ = steps({"StackStatus": "CREATE_COMPLETE", "Parameters": []})
    assert stack.text.startswith("The stack task-profiler is not the forwarder's")
    (command,) = stack.commands
    assert command[:5] == ("task-profiler", "setup", "stack", "--name", "task-profiler-forwarder")


SLACK = {"SlackSecretId": "slack"}
MONITORED = {**SLACK, "InstanceMonitorCluster": "jobs"}
SEARCH = {"ElasticsearchUrl": "https://search", "Subscribe": "groups", "LogGroups": ""}


@pytest.mark.parametrize(
    ("status", "version", "values", "is_done", "options"),
    [
        ("CREATE_COMPLETE", profiler.__version__, SLACK, True, ()),
        ("UPDATE_COMPLETE", "0.0.1", SLACK, False, ()),
        ("UPDATE_COMPLETE", "0.0.1", MONITORED, False, ()),
        ("UPDATE_IN_PROGRESS", profiler.__version__, SLACK, None, ()),
        ("ROLLBACK_COMPLETE", profiler.__version__, SLACK, False, ()),
        (
            "REVIEW_IN_PROGRESS",
            profiler.__version__,
            {},
            False,
            ("--slack-failure-webhook", "@webhook.txt"),
        ),
        ("CREATE_COMPLETE", profiler.__version__, SEARCH, False, ("--all-log-groups",)),
    ],
)
def test_a_stack_counts_when_it_is_deployed_with_this_version_and_does_something(
    status: str,
    version: str,
    values: dict[str, str],
    *,
    is_done: bool | None,
    options: tuple[str, ...],
) -> None:
    given = dict.fromkeys(("CodeBucket", "ElasticsearchUrl", "TaskStopped"), "")
    given |= {"CodeKey": KEY.format(version), **values}
    parameters = [{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()]
    step = steps({"StackStatus": status, "Parameters": parameters})[1]
    assert step.is_done is is_done
    assert step.commands == (
        ("task-profiler", "setup", "stack", *options, "--region", "eu-west-1"),
    )


def test_a_forwarder_of_another_name_is_the_accounts_forwarder() -> None:
    """Another program's stack is the control."""
    name = "prod"
    other = {"StackName": name, "StackId": name, "StackStatus": "UPDATE_COMPLETE"}
    own = ("CodeBucket", "CodeKey", "ElasticsearchUrl", "TaskStopped")
    parameters = [{"ParameterKey": name, "ParameterValue": ""} for name in own]
    for given, said, options in (
        (parameters, f"The stack {name} has neither", ("--name", name)),
        ([], "There is no stack task-profiler.", ()),
    ):
        stacks = FakeCloudFormation(other_stacks=[other | {"Parameters": given}])
        found = SetupStepReader(stacks, (), {}, lambda *_: None, 0)._find_stack()
        assert found.is_done is False
        assert found.text.startswith(said)
        assert found.options[: len(options)] == options
        assert ("--name" in found.options) is bool(options)
        assert not found.is_left


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        (
            {"StackName": "prod-Forwarder-1CL6", "RootId": "arn:aws:cf:x:1:stack/prod/1"},
            "It is a part of the stack prod: change it in the template of the stack prod.",
        ),
        (
            {"StackName": "StackSet-tp-0f7c7a5e-3d4b-4c58-9f4e-6a1c5d2b8e90"},
            "change it with the StackSet tp, in the account that administers it.",
        ),
    ],
)
def test_a_forwarder_that_setup_stack_does_not_change_has_no_command(
    stack: dict[str, str], said: str
) -> None:
    """Beside one of another name, this one is the account's."""
    own = ("CodeBucket", "CodeKey", "ElasticsearchUrl", "TaskStopped")
    listed: dict[str, Any] = {"StackStatus": "UPDATE_COMPLETE", "StackId": "1"}
    listed |= {"Parameters": [{"ParameterKey": name, "ParameterValue": ""} for name in own]}
    for others, name, options in (
        ((), stack["StackName"], ()),
        (({"StackName": "tp"},), "tp", ("--name", "tp")),
    ):
        stacks = FakeCloudFormation(other_stacks=[listed | one for one in (stack, *others)])
        reader = SetupStepReader(stacks, (), {}, lambda *_: None, 0)
        found = reader._find_stack()
        assert found.is_done is False
        assert found.text.startswith(f"The stack {name} has neither")
        assert found.text.endswith(said) is (options == ())
        assert found.options[:2] == options
        assert found.is_left is (options == ())
    alone = FakeCloudFormation(other_stacks=[listed | stack])
    reader = SetupStepReader(alone, (), {}, lambda *_: None, 0)
    assert reader._read_step("stack", reader._find_stack, ("setup", "stack")).commands == ()

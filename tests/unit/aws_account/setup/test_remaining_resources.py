from collections.abc import Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.forwarder_stack import ForwarderStack, read_forwarder
from profiler.aws_account.setup.change_sets import CloudFormationEvent
from profiler.aws_account.setup.forwarder_secrets import SecretOwner
from profiler.aws_account.setup.remaining_resources import (
    OtherUsers,
    read_other_users,
    remaining_resource_lines,
)
from profiler.core.commands_to_copy import repeated_option
from tests.fake_cloudformation import STACK_ID, FakeCloudFormation

CODE = {"CodeBucket": "code", "CodeKey": "task-profiler/forwarder-0.1.0-0123456789abcdef.zip"}
SECRET = {"SlackSecretId": "tp/slack"}
SEARCH = {"ElasticsearchUrl": "https://search.example.com"}
ARN = "arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:tp/slack"


def described(**parameters: str) -> dict[str, Any]:
    listed = [{"ParameterKey": name, "ParameterValue": parameters[name]} for name in parameters]
    return {"StackStatus": "UPDATE_COMPLETE", "Parameters": listed}


def lines(stack: dict[str, str], *others: dict[str, str]) -> str:
    """What stays of a stack beside others, as CloudFormation lists them."""
    every = {"ElasticsearchUrl": "", "TaskStopped": "true", **CODE}
    aws = FakeCloudFormation(
        stack=described(**{**every, **stack}),
        other_stacks=[
            {"StackName": f"other-{number}", "StackId": STACK_ID, **described(**every | other)}
            for number, other in enumerate(others)
        ],
    )
    users = read_other_users(aws, "tp", pytest.fail)
    return "\n".join(remaining_resource_lines(read_forwarder(aws, "tp"), (), users, is_ours))


def is_ours(_name: str) -> SecretOwner:
    """The tags of each secret."""
    return "ours"


def test_each_command_for_what_remains_acts_in_the_account_of_this_one() -> None:
    """Without --profile, ``aws s3 rm`` and ``delete-queue`` meant another account."""
    parameters = {**CODE, **SECRET, "InstanceMonitorCluster": "gpu"}
    state = ForwarderStack(name="tp", stack_id=STACK_ID, version="0.1.0", parameters=parameters)
    queue = CloudFormationEvent(
        status="DELETE_SKIPPED", resource="Queue", type="AWS::SQS::Queue", physical_id="https://q"
    )
    with repeated_option("--profile", "prod"):
        stays = remaining_resource_lines(state, [queue], OtherUsers(stacks=()), is_ours)
        commands = [line for line in stays if "aws " in line]
    assert len(commands) == 4
    assert all(
        {"--region", "eu-west-1", "--profile", "prod"} <= {*line.split()} for line in commands
    )


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ([{}], "which the stack other-0 uses, too"),
        ([{}, {}], "which the stacks other-0, other-1 use, too"),
        ([{"CodeBucket": "another"}, {}], "which the stack other-1 uses, too"),
        ([{"CodeBucket": "another"}], "aws s3 rm"),
        ([], "aws s3 rm"),
    ],
)
def test_the_code_of_another_forwarder_stays(others: Sequence[dict[str, str]], words: str) -> None:
    printed = lines({}, *others)
    assert words in printed
    assert ("aws s3 rm" in printed) == (words == "aws s3 rm")


@pytest.mark.parametrize(
    ("other", "is_deleted"),
    [
        (SECRET, False),
        ({"OtlpSecretId": "tp/slack"}, False),
        ({"SlackSecretId": ARN}, False),
        ({"SlackSecretId": f"{ARN}-Ab12Cd"}, False),
        ({"SlackSecretId": f"{ARN}-2-Ab12Cd"}, True),
        ({"SlackSecretId": "ssm:tp/slack"}, True),
        ({"SlackSecretId": "tp/slack-2"}, True),
        ({"SlackSecretId": ""}, True),
    ],
)
def test_a_secret_that_another_forwarder_reads_stays(
    other: dict[str, str],
    is_deleted: bool,  # noqa: FBT001
) -> None:
    printed = lines(SECRET, other)
    assert ("delete-secret --secret-id tp/slack" in printed) == is_deleted
    assert ("the secret tp/slack, which the stack other-0 uses, too" in printed) != is_deleted


@pytest.mark.parametrize(
    "value", ["db/elasticsearch", "ssm:/mine", "tp/slack-2", ARN, "tp/search", "other/slack"]
)
def test_a_secret_that_setup_stack_did_not_make_may_be_another_programs(value: str) -> None:
    printed = lines({"SlackSecretId": value})
    assert f"the secret {value}, which setup stack did not make" in printed
    assert "delete-" not in printed


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        ("ours", "the secret tp/slack: aws secretsmanager delete-secret"),
        ("foreign", "the secret tp/slack, which has no tag application=task-profiler, and may be"),
        ("unknown", "the secret tp/slack, which may be another program's"),
        ("gone", ""),
    ],
)
def test_whose_a_secret_of_the_stacks_name_is(owner: SecretOwner, said: str) -> None:
    state = ForwarderStack(name="tp", stack_id=STACK_ID, version="0.1.0", parameters=SECRET)
    remaining = remaining_resource_lines(state, (), OtherUsers(stacks=()), lambda _name: owner)
    printed = "\n".join(remaining)
    assert said in printed
    assert ("the secret" in printed) == bool(said)
    assert ("delete-secret" in printed) == (owner == "ours")


def test_code_that_setup_stack_did_not_upload_stays() -> None:
    printed = lines({"CodeBucket": "builds", "CodeKey": "lambda/profiler.zip"})
    assert "the code, which setup stack did not upload: s3://builds/lambda/profiler.zip" in printed
    assert "aws s3" not in printed


def test_indices_of_another_forwarder_are_said() -> None:
    what = "indices, index templates and dashboards of task in https://search.example.com"
    whole = f"{what}: see Uninstall in docs/operate.md"
    assert whole in lines(SEARCH, {**SEARCH, "IndexPrefix": "jobs"})
    assert whole in lines(SEARCH, {})
    same = {"ElasticsearchUrl": "https://search.example.com/", "IndexPrefix": "task"}
    assert f"{what}, which the stack other-0 uses, too: see Uninstall" in lines(SEARCH, same)


def test_nothing_is_proposed_where_the_other_forwarders_are_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    aws = FakeCloudFormation(stack=described(**{**CODE, **SECRET, **SEARCH}))

    def refuse(**_: Any) -> None:
        denied: Any = {"Error": {"Code": "AccessDenied", "Message": "no"}}
        raise ClientError(denied, "DescribeStacks")

    monkeypatch.setattr(aws, "_all_stacks", refuse)
    warned: list[str] = []
    users = read_other_users(aws, "tp", warned.append)
    remaining = remaining_resource_lines(read_forwarder(aws, "tp"), (), users, is_ours)
    printed = "\n".join(remaining)
    assert printed.count(", which another forwarder may use") == 3
    assert "aws " not in printed
    (sentence,) = warned
    assert sentence.startswith("Who else uses what stays is unknown. The stacks cannot be listed: ")
    assert "cloudformation:DescribeStacks" in sentence

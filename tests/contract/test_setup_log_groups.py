"""``task-profiler setup stack`` subscribes any number of log groups, on moto's server."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.stub import Stubber

from profiler.aws_account.setup.forwarder_deployment import DeploymentRequest
from profiler.aws_account.setup.group_filters import (
    FilterDelivery,
    FilterPlan,
    GroupFilters,
    GroupSelection,
)
from profiler.cli.setup.deployment_output import (
    DeploymentOutput,
    delete_forwarder,
    deploy_forwarder,
)
from profiler.core.errors import TaskProfilerError
from tests.aws_proxy import AwsProxy
from tests.fake_cloudformation import STACK_ID as PLAYED_ID
from tests.fake_cloudformation import FakeCloudFormation, of_stack
from tests.fakes import FakeClock
from tests.setup_account import Account, setup_account

STACK = "task-profiler"
FILTER = "task-profiler-groups"
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:task-profiler-forward-logs"
STACK_ID = f"arn:aws:cloudformation:us-east-1:123456789012:stack/{STACK}/1"
OTHER = "arn:aws:kinesis:us-east-1:123456789012:stream/other"
CLUSTER = ("--elasticsearch", "http://127.0.0.1:9")
APPLY = DeploymentOutput(is_applied=True, as_json=False)
NO_CHANGES = {"Status": "FAILED", "StatusReason": "No updates are to be performed."}
MANY = tuple(f"/ecs/etl-{number:02}" for number in range(25))


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with setup_account(tmp_path) as made:
        yield made


@pytest.fixture
def deployed(account: Account) -> Account:
    """An account whose 25 log groups are subscribed."""
    make_groups(account, *MANY)
    done = account.setup(*CLUSTER, "--log-group", "/ecs/*", "--yes")
    assert done.returncode == 0, done.stderr
    return account


@pytest.fixture
def proxy(account: Account) -> Iterator[AwsProxy]:
    """Between the command and CloudWatch Logs."""
    made = AwsProxy(account.aws.url)
    account.environment["AWS_ENDPOINT_URL_CLOUDWATCH_LOGS"] = made.url
    yield made
    made.close()


def make_groups(account: Account, *names: str) -> None:
    for name in names:
        account.aws.create_log_group(name)


def filters_of(account: Account, group: str) -> list[dict[str, Any]]:
    found = account.aws.client("logs").describe_subscription_filters(logGroupName=group)
    return list(found["subscriptionFilters"])


def subscribed(account: Account) -> list[str]:
    """The groups with the stack's filter."""
    groups = account.aws.client("logs").describe_log_groups()["logGroups"]
    return [
        group["logGroupName"]
        for group in groups
        for one in filters_of(account, group["logGroupName"])
        if one["filterName"] == FILTER and one["destinationArn"] == FUNCTION
    ]


def make_other(account: Account) -> str:
    account.aws.client("kinesis").create_stream(StreamName="other", ShardCount=1)
    return OTHER


def put_filter(account: Account, group: str, name: str, destination: str = FUNCTION) -> None:
    account.aws.client("logs").put_subscription_filter(
        logGroupName=group,
        filterName=name,
        filterPattern="",
        destinationArn=destination,
        roleArn="arn:aws:iam::123456789012:role/logs",
    )


def played(parameters: dict[str, str], **stack: Any) -> FakeCloudFormation:
    """CloudFormation with a stack that an update leaves as it is: moto does not update it."""
    given = [{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()]
    described = {"StackName": STACK, "StackId": STACK_ID, "StackStatus": "UPDATE_COMPLETE"}
    return FakeCloudFormation(
        stack={**described, "Parameters": given, **stack}, change_set_pages=[NO_CHANGES]
    )


def update(account: Account, before: dict[str, str], **settings: str) -> int:
    """Update a stack with these parameters. Returns the exit code."""
    cloudformation = played({"ElasticsearchUrl": "http://127.0.0.1:9", **before})

    def client(service: str) -> Any:
        return cloudformation if service == "cloudformation" else account.client(service)

    request = DeploymentRequest(zip_file=str(account.zip), settings=settings)
    return deploy_forwarder(request, client, None, APPLY)


def test_a_pattern_of_many_log_groups_is_planned_with_each_group(account: Account) -> None:
    make_groups(account, *MANY)
    planned = account.setup(*CLUSTER, "--log-group", "/ecs/*")
    assert planned.returncode == 0, planned.stderr
    assert "  LogGroups=/ecs/*\n" in planned.stdout
    listed = "\n  ".join(MANY)
    assert (
        f"would put the subscription filter {FILTER} of 25 log groups:\n  {listed}\n"
        in planned.stdout
    )
    account.check_nothing_was_made()
    assert subscribed(account) == []


def test_all_groups_of_a_pattern_deliver_to_the_function(deployed: Account) -> None:
    assert subscribed(deployed) == [*MANY]
    (made,) = filters_of(deployed, MANY[0])
    assert made["filterPattern"] == '{ $.type = "task.*" }'
    assert deployed.parameters()["LogGroups"] == "/ecs/*"


def test_a_second_run_changes_nothing_but_new_groups(
    deployed: Account, capfd: pytest.CaptureFixture[str]
) -> None:
    make_groups(deployed, "/ecs/new")
    planned = deployed.setup()
    assert f"would put the subscription filter {FILTER} of 1 log group:\n" in planned.stdout
    assert "  subscribed already: 25 log groups\n" in planned.stdout
    assert update(deployed, {"LogGroups": "/ecs/*"}) == 0
    assert "subscribed /ecs/new\n" in capfd.readouterr().out
    assert subscribed(deployed) == [*MANY, "/ecs/new"]
    assert update(deployed, {"LogGroups": "/ecs/*"}) == 0
    assert "subscribed /" not in capfd.readouterr().out


def test_groups_that_are_named_no_longer_lose_only_the_stacks_filter(deployed: Account) -> None:
    put_filter(deployed, MANY[3], "other", make_other(deployed))
    assert update(deployed, {"LogGroups": "/ecs/*"}, LogGroups=MANY[0]) == 0
    assert subscribed(deployed) == [MANY[0]]
    assert [one["filterName"] for one in filters_of(deployed, MANY[3])] == ["other"]


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("after", [{"Subscribe": "account"}, {"ElasticsearchUrl": ""}])
def test_a_stack_that_subscribes_no_groups_any_more_deletes_its_filters(
    deployed: Account, after: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "profiler.aws_account.setup.forwarder_deployment.check_account", lambda *_: None
    )
    assert update(deployed, {"LogGroups": "/ecs/*"}, **after) == 0
    assert subscribed(deployed) == []


@pytest.mark.slow
def test_another_pattern_of_lines_corrects_the_filters(deployed: Account) -> None:
    assert update(deployed, {"LogGroups": "/ecs/*"}, ForwardLogLines="true") == 0
    assert {filters_of(deployed, group)[0]["filterPattern"] for group in MANY} == {""}


@pytest.mark.slow
def test_a_filter_that_cloudformation_removes_is_put_again(
    deployed: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The template alone has such a filter, maybe under the same name."""
    client = deployed.client
    cloudformation = played({"ElasticsearchUrl": "http://127.0.0.1:9", "LogGroups": "/ecs/*"})
    removed = {
        "Action": "Remove",
        "LogicalResourceId": "Subscription",
        "ResourceType": "AWS::Logs::SubscriptionFilter",
    }
    cloudformation.change_set_pages = [
        {"Status": "CREATE_COMPLETE", "Changes": [{"Type": "Resource", "ResourceChange": removed}]}
    ]
    end = ("UPDATE_COMPLETE", STACK, "AWS::CloudFormation::Stack")
    cloudformation.happens = [[end]]
    logs = client("logs")

    def execute(**arguments: Any) -> None:
        type(cloudformation).execute_change_set(cloudformation, **arguments)
        logs.delete_subscription_filter(logGroupName=MANY[0], filterName=FILTER)

    monkeypatch.setattr(cloudformation, "execute_change_set", execute)
    assert (
        deploy_forwarder(
            DeploymentRequest(zip_file=str(deployed.zip)),
            lambda service: cloudformation if service == "cloudformation" else client(service),
            None,
            APPLY,
        )
        == 0
    )
    assert subscribed(deployed) == [*MANY]


# What a pattern does not mean


def test_a_pattern_never_subscribes_functions_or_the_groups_of_another_class(
    account: Account, proxy: AwsProxy
) -> None:
    """A function that gets its own lines would invoke itself endlessly."""
    names = ["/aws/lambda/task-profiler-forward-logs", "/aws/batch", "/aws/rare"]
    groups = [{"logGroupName": name, "logGroupClass": "STANDARD"} for name in names]
    groups[2]["logGroupClass"] = "INFREQUENT_ACCESS"
    proxy.answers["DescribeLogGroups"] = {"logGroups": groups}
    make_groups(account, "/aws/batch")
    planned = account.setup(*CLUSTER, "--log-group", "/aws/*")
    assert planned.returncode == 0, planned.stderr
    assert "  LogGroups=/aws/batch\n" in planned.stdout
    assert "/aws/rare (INFREQUENT_ACCESS) cannot be subscribed and is left out" in planned.stdout


def test_a_pattern_leaves_the_monitors_group_to_the_template(account: Account) -> None:
    make_groups(account, "/ecs/jobs", f"/ecs/{STACK}-instance-monitor")
    planned = account.setup(*CLUSTER, "--log-group", "/ecs/*")
    assert "  LogGroups=/ecs/jobs\n" in planned.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("arn:aws:logs:eu-west-1:999999999999:log-group:/ecs/a",), "docs/forwarder.md describes"),
        (("/ecs/a b",), "is not the name of a log group of this account"),
        (("*",), "use a pattern NAME*, or --all-log-groups."),
        (("/ecs/*-0?",), "unlike '/ecs/*-0?': use a pattern NAME*, or --all-log-groups."),
        (MANY, "names 25 log groups, and a stack has room for 20 names: use a pattern"),
        (("/aws/lambda/x",), "none of a Lambda function."),
    ],
)
def test_what_no_stack_can_subscribe_is_refused_before_anything_is_made(
    account: Account, words: tuple[str, ...], said: str
) -> None:
    make_groups(
        account, *MANY, "/aws/lambda/x", *(f"/ecs/etl-0{letter}" for letter in "abcdefghijk")
    )
    options = [option for word in words for option in ("--log-group", word)]
    done = account.setup(*CLUSTER, *options, "--yes")
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    account.check_nothing_was_made()


def test_a_group_that_vanished_stops_no_update(
    deployed: Account, capfd: pytest.CaptureFixture[str]
) -> None:
    deployed.aws.client("logs").delete_log_group(logGroupName=MANY[0])
    assert update(deployed, {"LogGroups": f"{MANY[0]},{MANY[1]},/gone/*"}) == 0
    assert "not subscribed" not in capfd.readouterr().err
    with pytest.raises(TaskProfilerError, match=rf"unlike {MANY[0]} \(missing\)"):
        update(deployed, {}, LogGroups=MANY[0])


# Filters of others


def test_a_filter_of_another_owner_is_neither_replaced_nor_deleted(account: Account) -> None:
    destination = make_other(account)
    make_groups(account, *MANY)
    put_filter(account, MANY[0], FILTER, destination)
    done = account.setup(*CLUSTER, "--log-group", "/ecs/*", "--yes")
    assert done.returncode == 1
    assert f"The subscription filter {FILTER} cannot be added to {MANY[0]}" in done.stderr
    assert subscribed(account) == [*MANY[1:]]
    assert account.setup("--delete", "--yes").returncode == 0
    (other,) = filters_of(account, MANY[0])
    assert other["destinationArn"] == destination


def test_what_somebody_puts_after_the_plan_is_neither_replaced_nor_deleted(
    account: Account,
) -> None:
    """PutSubscriptionFilter replaces a filter of the name, and DeleteSubscriptionFilter removes it,
    whosever it is.
    """
    destination = make_other(account)
    names = ("/ecs/changed", "/ecs/free", "/ecs/gone", "/ecs/left", "/ecs/taken")
    changed, free, gone, left, taken = names
    account.aws.client("lambda").create_function(
        FunctionName="task-profiler-forward-logs",
        Role=account.aws.client("iam").create_role(RoleName="l", AssumeRolePolicyDocument="{}")[
            "Role"
        ]["Arn"],
        Runtime="python3.13",
        Handler="handler.handle",
        Code={"ZipFile": b"def handle(event, context): pass"},
    )
    make_groups(account, *names)
    for name in (gone, left):
        put_filter(account, name, FILTER)
    filters = GroupFilters(STACK, account.client, pytest.fail)
    delivery = FilterDelivery(pattern="", destination_arn=FUNCTION)
    plan = filters.plan_filters(
        GroupSelection(groups=(changed, free, taken)), (gone, left), delivery
    )
    assert (plan.put, plan.delete) == ((changed, free, taken), (gone, left))
    logs = account.aws.client("logs")
    for name in (gone, left):
        logs.delete_subscription_filter(logGroupName=name, filterName=FILTER)
    for name in (left, taken):
        put_filter(account, name, FILTER, destination)
    logs.put_subscription_filter(
        logGroupName=changed, filterName=FILTER, filterPattern="x", destinationArn=FUNCTION
    )
    steps: list[str] = []
    of_changed, of_taken = filters.carry_out(plan, delivery, FakeClock(), steps.append)
    assert of_changed == (
        f"{changed} is not subscribed, because somebody has changed its subscription filter "
        f"{FILTER} since the plan: run the command again."
    )
    assert of_taken == (
        f"The subscription filter {FILTER} cannot be added to {taken}, because AWS allows 5 "
        "filters for each log group, with different names: delete one, or leave the group out."
    )
    assert steps == [
        f"subscribed {free}",
        f"{gone} has no subscription filter {FILTER} any more",
        f"left the subscription filter {FILTER} of {left}, which delivers to somebody else now",
    ]
    now = {name: one["filterPattern"] for name in names for one in filters_of(account, name)}
    assert now == {changed: "x", free: "", left: "", taken: ""}
    assert {filters_of(account, name)[0]["destinationArn"] for name in (left, taken)} == {OTHER}


def test_a_group_without_a_free_filter_is_named_and_the_others_are_subscribed(
    account: Account,
) -> None:
    """Two filters are AWS's old limit, and moto's."""
    destination = make_other(account)
    make_groups(account, *MANY)
    for name in ("a", "b"):
        put_filter(account, MANY[0], name, destination)
    words = (*CLUSTER, "--log-group", "/ecs/*")
    planned = account.setup(*words)
    assert f"{MANY[0]} has 2 subscription filters already: AWS refuses another" in planned.stdout
    done = account.setup(*words, "--yes")
    assert done.returncode == 1
    assert (done.stdout + done.stderr).count(f"{MANY[0]} has 2 subscription filters already") == 1
    assert f"{MANY[0]} is not subscribed, because AWS allows it no further" in done.stderr
    assert "1 log group must be looked at: run the command again" in done.stderr
    assert subscribed(account) == [*MANY[1:]]


# Partial rights, throttling, and what is new


def test_what_is_refused_for_one_group_is_done_by_the_next_run(
    account: Account, proxy: AwsProxy
) -> None:
    make_groups(account, *MANY)

    def refuse_one(operation: str, body: bytes) -> None:
        is_refused = operation == "PutSubscriptionFilter" and MANY[7].encode() in body
        proxy.refused = {operation} if is_refused else set()

    proxy.before = refuse_one
    done = account.setup(*CLUSTER, "--log-group", "/ecs/*", "--yes", "--json")
    assert done.returncode == 1
    (document,) = map(json.loads, done.stdout.splitlines())
    assert document["logGroups"] == [*MANY]
    (failure,) = document["failures"]
    assert failure.startswith(f"{MANY[7]} is not subscribed: AWS refused (AccessDenied")
    assert "allow logs:PutSubscriptionFilter" in failure
    assert subscribed(account) == [group for group in MANY if group != MANY[7]]
    assert update(account, {"LogGroups": "/ecs/*"}) == 0
    assert subscribed(account) == [*MANY]


@pytest.mark.slow
def test_a_signal_among_the_filters_says_what_is_left(account: Account, proxy: AwsProxy) -> None:
    make_groups(account, *MANY)

    def stop_at(operation: str, nth: int) -> None:
        proxy.operations.clear()

        def stop(name: str, _body: bytes) -> None:
            if name == operation and proxy.operations.count(name) == nth:
                os.kill(os.getpid(), signal.SIGTERM)

        proxy.before = stop

    stop_at("PutSubscriptionFilter", 3)
    done = account.setup(*CLUSTER, "--log-group", "/ecs/*", "--yes")
    assert done.returncode == 143, done.stderr
    assert "The stack is deployed, but not all subscription filters are: repeat" in done.stderr
    stop_at("DeleteSubscriptionFilter", 2)
    done = account.setup("--delete", "--yes")
    assert done.returncode == 143, done.stderr
    said = "The stack task-profiler is not deleted, but some of its subscription filters may be:"
    assert said in done.stderr
    proxy.before = lambda _operation, _body: None
    assert account.setup("--delete", "--yes").returncode == 0
    assert subscribed(account) == []


@pytest.mark.slow
def test_throttled_calls_are_repeated(account: Account, proxy: AwsProxy) -> None:
    make_groups(account, *MANY)
    proxy._throttled_share = 3
    done = account.setup(*CLUSTER, "--log-group", "/ecs/*", "--yes")
    assert done.returncode == 0, done.stderr
    assert proxy.throttled > 10
    assert subscribed(account) == [*MANY]


def test_without_the_right_to_read_filters_all_are_put(account: Account, proxy: AwsProxy) -> None:
    make_groups(account, *MANY)
    proxy.refused = {"DescribeSubscriptionFilters"}
    done = account.setup(*CLUSTER, "--log-group", "/ecs/*", "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("The subscription filters of the log groups are unknown") == 1
    assert subscribed(account) == [*MANY]


@pytest.mark.parametrize("failures", [2, 99])
def test_a_filter_waits_until_the_rights_of_a_new_stack_count(
    account: Account, failures: int
) -> None:
    logs = account.aws.client("logs")
    message = "Could not deliver test message to specified Kinesis stream."
    clock = FakeClock()
    with Stubber(logs) as stub:
        stub.add_response("describe_subscription_filters", {"subscriptionFilters": []})
        for _ in range(min(failures, 7)):
            stub.add_client_error("put_subscription_filter", "InvalidParameterException", message)
        if failures == 2:
            stub.add_response("put_subscription_filter", {})
        found = GroupFilters(STACK, lambda _service: logs, pytest.fail).carry_out(
            FilterPlan(name=FILTER, put=("/ecs/a",)),
            FilterDelivery(pattern="", destination_arn=OTHER, role_arn="arn:aws:iam::1:role/logs"),
            clock,
            str,
        )
        stub.assert_no_pending_responses()
    assert [message.rstrip(".") in sentence for sentence in found] == [True] * (failures == 99)


# The end of a stack


def test_a_deleted_stack_leaves_no_filter(deployed: Account) -> None:
    planned = deployed.setup("--delete")
    assert (
        f"would delete the subscription filter {FILTER} of 25 log groups:\n  {MANY[0]}\n"
        in planned.stdout
    )
    assert subscribed(deployed) == [*MANY]
    done = deployed.setup("--delete", "--yes")
    assert done.returncode == 0, done.stderr
    assert subscribed(deployed) == []
    assert deployed.stacks() == []


@pytest.mark.diagonal(1)
@pytest.mark.parametrize(
    ("operation", "left"), [("DescribeStackEvents", MANY), ("DeleteStack", ())]
)
def test_a_stack_that_may_not_be_deleted_is_not_cut_off_in_silence(
    deployed: Account, operation: str, left: tuple[str, ...]
) -> None:
    """Its filters are deleted first. What can be known before is asked before."""
    with AwsProxy(deployed.aws.url) as proxy:
        deployed.environment["AWS_ENDPOINT_URL_CLOUDFORMATION"] = proxy.url
        proxy.refused = {operation}
        done = deployed.setup("--delete", "--yes")
        assert done.returncode == 1
        assert f"cloudformation:{operation}" in done.stderr
        assert len(deployed.stacks()) == 1
        assert tuple(subscribed(deployed)) == left
        is_said = "The subscription filters of 25 log groups are deleted" in done.stderr
        assert is_said is not bool(left)
        proxy.refused = set()
        assert deployed.setup("--delete", "--yes").returncode == 0
        assert subscribed(deployed) == []


def test_the_stack_stays_until_all_its_filters_are_deleted(
    deployed: Account, proxy: AwsProxy
) -> None:
    def refuse_one(operation: str, body: bytes) -> None:
        is_refused = operation == "DeleteSubscriptionFilter" and MANY[7].encode() in body
        proxy.refused = {operation} if is_refused else set()

    proxy.before = refuse_one
    done = deployed.setup("--delete", "--yes")
    assert done.returncode == 1
    assert f"--log-group-name {MANY[7]} --filter-name {FILTER} deletes it" in done.stderr
    assert "The stack task-profiler is not deleted, because filters of it are left." in done.stderr
    assert subscribed(deployed) == [MANY[7]]
    assert len(deployed.stacks()) == 1
    proxy.before = lambda _operation, _body: None
    proxy.refused = {"DescribeSubscriptionFilters"}
    unread = deployed.setup("--delete", "--yes")
    assert unread.returncode == 1
    assert "allow logs:DescribeSubscriptionFilters" in unread.stderr
    assert len(deployed.stacks()) == 1
    proxy.refused = set()
    assert deployed.setup("--delete", "--yes").returncode == 0
    assert deployed.stacks() == []


def test_a_stack_that_could_not_be_made_is_deleted(
    account: Account, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("profiler.core.clock.SystemClock.sleep", lambda *_: None)
    make_groups(account, *MANY)
    cloudformation = played(
        {"LogGroups": "/ecs/*"}, StackStatus="ROLLBACK_COMPLETE", StackId=PLAYED_ID
    )
    cloudformation.happens = [[of_stack("DELETE_COMPLETE")]]
    delete_forwarder(
        STACK,
        lambda service: cloudformation if service == "cloudformation" else account.client(service),
        APPLY,
    )
    assert "is deleted. These stay:" in capfd.readouterr().out


def test_two_runs_at_once_do_no_harm(deployed: Account) -> None:
    filters = GroupFilters(STACK, deployed.client, pytest.fail)
    plan = filters.plan_filters(GroupSelection(), ["/ecs/*"], None)
    assert plan.delete == MANY
    for _ in range(2):
        assert filters.carry_out(plan, None, FakeClock(), str) == ()
    assert subscribed(deployed) == []

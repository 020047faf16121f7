"""``taskdef resize`` with one of its calls to AWS refused, each in turn: what is left behind is a
part of the whole act, and the refusal is said.

A right can go in the middle of an act, such as that of a session that ends, or of a policy that
allows one revision and not another.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import botocore.endpoint
import pytest

from profiler.cli.wiring import aws_options
from tests.refused_acts import (
    Act,
    Built,
    Calls,
    Outcome,
    RefusingProxy,
    behind,
    each_refused,
    judged,
    oversized,
    put_back,
    removed,
    rolled_out,
    unmonitored,
)
from tests.resize_account import BATCH, Account, logs_to
from tools.moto_server import begin_schedule_long_ago, fake_aws


@pytest.fixture(scope="module")
def proxy() -> Iterator[RefusingProxy]:
    """Of one server, because each takes half a second to stop."""
    with fake_aws() as aws, RefusingProxy(aws) as made:
        yield made


@pytest.mark.diagonal(1)
@each_refused
@pytest.mark.parametrize("build", [oversized, put_back, judged])
def test_a_refused_call_leaves_a_part_of_the_act_and_is_said(
    proxy: RefusingProxy,
    build: Callable[[Account], Act],
    calls: Callable[[Sequence[str]], Calls],
    tmp_path: Path,
) -> None:
    """Before the definition is read, only a plan can be made."""
    built = Built(proxy, build, tmp_path / "account")
    whole = Outcome(built)
    assert whole.code == 0, whole.said
    first = whole.operations.index("DescribeTaskDefinition") + 1
    for nth, refused in calls(whole.operations[first - 1 :]):
        found = Outcome(built, first - 1 + nth)
        if refused == "DescribeStackResources" and found.code == 0:
            # The plan asks who owns a schedule, and the act asks again.
            assert found.changed == whole.changed
            continue
        if refused == "ListStateMachines":
            assert "unknown what state machines of Step Functions start" in found.said
            assert found.changed == whole.changed
            continue
        assert found.code == 1, refused
        assert "is not authorized" in found.said, refused
        assert found.changed.items() <= whole.changed.items(), refused


# What the plan reads, and what a later reading of the same act makes up for, in silence.
READ_AGAIN = {"DescribeStackResources", "ListClusters", "ListTasks"}


@pytest.mark.slow
@each_refused
@pytest.mark.parametrize("build", [rolled_out, removed])
def test_a_refused_call_of_a_rollout_is_said_and_leaves_a_part_of_it(
    proxy: RefusingProxy,
    build: Callable[[Account], Act],
    calls: Callable[[Sequence[str]], Calls],
    tmp_path: Path,
) -> None:
    """The exit code is 0 only if all was done; the same command does the rest."""
    built = Built(proxy, build, tmp_path / "account")
    whole = Outcome(built)
    assert whole.code == 0, whole.said
    for nth, operation in calls(whole.operations):
        found = Outcome(built, nth)
        is_said = "is not authorized" in f"{found.said} {found.printed}"
        assert is_said or operation in READ_AGAIN, (nth, operation)
        assert found.changed.items() <= whole.changed.items(), (nth, operation)
        assert found.code == 1 or (found.code, found.changed) == (0, whole.changed), operation


WRITES = ("RegisterTaskDefinition", "PutTargets", "PUT /schedules/night")


@pytest.mark.parametrize("retries", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("build", [oversized, pytest.param(put_back, marks=pytest.mark.slow)])
def test_a_write_whose_answer_is_lost_is_looked_for(
    proxy: RefusingProxy,
    build: Callable[[Account], Act],
    retries: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """boto3 repeats the call, or does not: the act goes on, and all is done once."""
    monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(aws_options, "_MAX_RETRIES", retries)
    built = Built(proxy, build, tmp_path / "account")
    whole = Outcome(built)
    assert whole.code == 0, whole.said
    for nth, operation in enumerate(whole.operations, 1):
        if operation in WRITES:
            found = Outcome(built, nth, is_lost=True)
            assert found.code == 0, (operation, found.said)
            number = "2" if build is oversized else "3"
            repeated = retries if operation == "RegisterTaskDefinition" else 0
            newest = f"nightly:{int(number) + repeated}"
            assert found.changed["schedule"] == found.changed["rule"] == newest


def begun(account: Account) -> Act:
    words = oversized(account)
    begin_schedule_long_ago("night")
    return (*words, "--json")


@pytest.mark.slow
def test_a_lost_answer_hides_no_start_date_that_was_dropped(
    proxy: RefusingProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS refuses the date that has passed, and the answer to the call without it is lost."""
    monkeypatch.setattr(aws_options, "_MAX_RETRIES", 0)
    said = "moved schedule night to nightly:2, without its start date, which has passed\n"
    built = Built(proxy, begun, tmp_path / "account")
    whole = Outcome(built)
    assert said in whole.said
    calls = enumerate(whole.operations, 1)
    _, second = (nth for nth, operation in calls if operation == "PUT /schedules/night")
    found = Outcome(built, second, is_lost=True)
    assert found.code == 0, found.said
    assert found.changed == whole.changed
    assert said in found.said


def attached(account: Account) -> Act:
    role = account.aws.client("iam").create_role(RoleName="nightly", AssumeRolePolicyDocument="{}")[
        "Role"
    ]["Arn"]
    logged = {**BATCH, **logs_to("/ecs/nightly")}
    account.family("nightly", containerDefinitions=[logged], taskRoleArn=role)
    account.schedule("night", "nightly")
    account.rule("often", "nightly")
    words = ("--image", "team/task-profiler:1", "--attach-policy", "--yes")
    return ("add-monitor", "nightly", *words)


def test_a_policy_whose_answer_is_lost_is_looked_for(
    proxy: RefusingProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aws_options, "_MAX_RETRIES", 0)
    built = Built(proxy, attached, tmp_path / "account")
    whole = Outcome(built)
    assert whole.code == 0, whole.said
    bodies = [body for _, body in proxy.bodies[-len(whole.operations) :]]
    (nth,) = (nth for nth, body in enumerate(bodies, 1) if b"Action=PutRolePolicy" in body)
    found = Outcome(built, nth, is_lost=True)
    assert found.code == 0, found.said
    assert found.changed == whole.changed


def test_a_family_that_cannot_be_read_again_has_failed_once(
    proxy: RefusingProxy, tmp_path: Path
) -> None:
    built = Built(proxy, unmonitored, tmp_path / "account")
    whole = Outcome(built)
    assert whole.code == 0, whole.said
    calls = enumerate(whole.operations, 1)
    *_, last = (nth for nth, operation in calls if operation == "DescribeTaskDefinition")
    found = Outcome(built, last)
    assert (found.code, found.changed) == (1, {})
    assert found.said.count("is not authorized") == 1
    assert found.said.endswith("task-profiler: 1 family: 1 failed.\n")


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("operation", ["GetResources", "ListTaskDefinitions"])
def test_a_family_that_cannot_be_planned_is_left_alone(
    proxy: RefusingProxy, tmp_path: Path, operation: str
) -> None:
    """With its schedules: what the plan did not say is not done."""
    built = Built(proxy, behind, tmp_path / "account")
    whole = Outcome(built)
    assert {"schedule": "nightly:3", "rule": "nightly:3"}.items() <= whole.changed.items()
    calls = [nth for nth, name in enumerate(whole.operations, 1) if name == operation]
    for nth in {calls[0], calls[-1]}:
        found = Outcome(built, nth)
        assert (found.code, found.changed) == (1, {})
        assert found.said.endswith("task-profiler: 1 failed.\n")

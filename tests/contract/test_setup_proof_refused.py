"""``task-profiler setup proof`` with one of its calls to AWS refused, throttled, or carried out
without an answer, each in turn: what happened is said, and what is left has its command.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from profiler.cli.setup import proof_output
from profiler.cli.wiring import aws_options
from tests.nth_calls import SAID, Failure, NthCallFails
from tests.proof_account import ProofAccount, proof_account

GROUP = "/ecs/task-profiler-proof-"


@pytest.fixture
def account(tmp_path: Path) -> Iterator[ProofAccount]:
    with proof_account(tmp_path) as made:
        made.change = lambda task: task.described.update(desiredStatus="RUNNING")
        yield made


class Proved:
    """A proof whose call with the number ``nth`` fails."""

    def __init__(self, account: ProofAccount, nth: int, failure: Failure) -> None:
        account.tasks.clear()
        calls = NthCallFails(lambda _service: None, nth, failure)

        def open_clients(region: str | None, profile: str | None) -> object:
            calls.opens = aws_options.open_clients(region, profile)
            return calls.open

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(proof_output, "open_clients", open_clients)
            done = account.prove("--yes", "--json")
        self.calls = calls.calls
        self.name = [*calls.calls, ""][nth - 1]
        self.code = done.returncode
        self.said = " ".join((done.stderr + done.stdout).split())
        self.left = [*left_in(account)]


def left_in(account: ProofAccount) -> Iterator[str]:
    """What a proof has left, by the words that tell of it."""
    logs, ecs, iam = map(account.aws.client, ("logs", "ecs", "iam"))
    for group in logs.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]:
        yield f"--log-group-name {group['logGroupName']}"
        logs.delete_log_group(logGroupName=group["logGroupName"])
    for name in iam.list_role_policies(RoleName="nightly-task")["PolicyNames"]:
        yield f"--policy-name {name}"
        iam.delete_role_policy(RoleName="nightly-task", PolicyName=name)
    for status in ("ACTIVE", "INACTIVE"):
        listed = ecs.list_task_definitions(familyPrefix="task-profiler-proof", status=status)
        for arn in listed["taskDefinitionArns"]:
            yield "--family-prefix task-profiler-proof"
            ecs.deregister_task_definition(taskDefinition=arn)
            ecs.delete_task_definitions(taskDefinitions=[arn])
    for task in account.tasks:
        if task.described["lastStatus"] != "STOPPED":
            yield "--started-by task-profiler-proof-"


def check(proved: Proved, failure: Failure) -> None:
    where = f"{proved.name}: {proved.code} {proved.said}"
    assert "Traceback" not in proved.said, where
    for thing in proved.left:
        assert thing in proved.said, (thing, where)
    if proved.code == 0:
        assert not proved.left, where
        return
    assert proved.code == 1, where
    assert SAID[failure] in proved.said, where


@pytest.mark.slow
@pytest.mark.parametrize("failure", get_args(Failure))
def test_one_failed_call_is_said_and_leaves_nothing_unsaid(
    account: ProofAccount, failure: Failure
) -> None:
    whole = Proved(account, 0, failure)
    assert (whole.code, whole.left) == (0, [])
    for nth in range(1, len(whole.calls) + 1):
        check(Proved(account, nth, failure), failure)


@pytest.mark.parametrize("name", ["register_task_definition", "run_task", "delete_log_group"])
def test_a_lost_answer_leaves_nothing_unsaid(account: ProofAccount, name: str) -> None:
    nth = Proved(account, 0, "lost").calls.index(name) + 1
    check(Proved(account, nth, "lost"), "lost")

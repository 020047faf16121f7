"""``taskdef resize --job-definition`` with one of its calls to AWS refused, each in turn: what is
left behind is a part of the whole act, and the refusal is said.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from moto.moto_api._internal.models import moto_api_backend

from tests.aws_proxy import AwsProxy
from tests.fake_batch import FakeBatch
from tests.job_account import KILLED, NEW, JobAccount
from tests.moto_state import KeptState
from tools.moto_server import FakeAws, fake_aws

Act = tuple[str, ...]
MOVES = ("--register", "--update-schedules")


def oversized(account: JobAccount) -> Act:
    account.oversized("orders")
    account.schedule("night", "orders:1")
    account.rule("often", "orders:1")
    return MOVES


def resized(account: JobAccount) -> None:
    oversized(account)
    done = account.resize(*MOVES)
    assert done.returncode == 0, done.stderr


def killed(account: JobAccount) -> Act:
    """The old size comes back in a new revision, because two callers start ours."""
    resized(account)
    account.runs("orders", 1, revision=2, size=NEW, **KILLED)
    return MOVES


def uncovered(account: JobAccount) -> Act:
    """The old size comes back by deregistration."""
    account.oversized("orders")
    assert account.resize("--register").returncode == 0
    account.schedule("night", "orders")
    account.rule("often", "orders")
    account.runs("orders", 1, revision=2, size=NEW, **KILLED)
    return MOVES


def asked_for(account: JobAccount) -> Act:
    resized(account)
    return ("--job-definition", "orders", "--revert", *MOVES)


class Refusals:
    """Counts the calls to Batch and to the other services, and refuses the one with the number
    ``nth``.
    """

    def __init__(self, proxy: AwsProxy, batch: FakeBatch) -> None:
        self.proxy = proxy
        self.batch = batch
        self.operations: list[str] = []
        self.nth = 0
        proxy.before = lambda operation, _body: self._made(operation, proxy.refused)
        batch.before = lambda operation, _asked: self._made(operation, batch.refused)

    def _made(self, operation: str, refused: set[str]) -> None:
        self.operations.append(operation)
        refused.clear()
        if len(self.operations) == self.nth and operation != "GetCallerIdentity":
            refused.add(operation)

    def begin(self, nth: int) -> None:
        self.operations.clear()
        self.nth = nth


class Built:
    """A new account as an act finds it, each time again."""

    def __init__(
        self, aws: FakeAws, proxy: AwsProxy, build: Callable[[JobAccount], Act], folder: Path
    ) -> None:
        moto_api_backend.reset()
        proxy.before = lambda _operation, _body: None
        self.batch = FakeBatch()
        self.account = JobAccount(aws, self.batch, folder)
        self.words = build(self.account)
        self.before = self.state()
        self._moto = KeptState()
        self._definitions = deepcopy(self.batch.definitions)
        self.account.url = proxy.url
        self.refusals = Refusals(proxy, self.batch)

    def state(self) -> dict[str, Any]:
        """The active revisions, and what the callers start."""
        found: dict[str, Any] = {
            f"{one['jobDefinitionName']}:{one['revision']}": (one["status"], one.get("tags"), one)
            for one in self.batch.definitions
        }
        found["schedule"] = self.account.submitted_by_schedule("night")["JobDefinition"]
        found["rule"] = self.account.submitted_by_rule("often")["JobDefinition"]
        return deepcopy(found)

    def act(self, nth: int = 0) -> "Outcome":
        self._moto.restore()
        self.batch.definitions = deepcopy(self._definitions)
        self.refusals.begin(nth)
        done = self.account.resize(*self.words)
        self.refusals.nth = 0
        operations = tuple(self.refusals.operations)
        after = self.state()
        changed = {name: value for name, value in after.items() if self.before.get(name) != value}
        return Outcome(done, operations, changed)


class Outcome:
    """What an act has done."""

    def __init__(self, done: Any, operations: tuple[str, ...], changed: dict[str, Any]) -> None:
        self.code = done.returncode
        self.said = done.stderr
        self.printed = " ".join(done.stdout.split())
        self.operations = operations
        self.changed = changed


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with fake_aws() as made:
        yield made


@pytest.fixture(scope="module")
def proxy(aws: FakeAws) -> Iterator[AwsProxy]:
    with AwsProxy(aws.url) as made:
        yield made


@pytest.mark.parametrize("build", [oversized, killed, uncovered, asked_for])
def test_a_refused_call_leaves_a_part_of_the_act_and_is_said(
    aws: FakeAws, proxy: AwsProxy, build: Callable[[JobAccount], Act], tmp_path: Path
) -> None:
    """The exit code is 0 only if all was done, or if states are unknown, which is said."""
    built = Built(aws, proxy, build, tmp_path)
    whole = built.act()
    assert whole.code == 0, whole.said
    assert whole.changed
    for nth, operation in enumerate(whole.operations, 1):
        found = built.act(nth)
        case = nth, operation, found.said
        is_said = "is not authorized" in f"{found.said} {found.printed}"
        assert is_said or operation == "DescribeStackResources", case  # the act asks again
        if operation == "ListStateMachines":
            assert found.code == 0, case
            assert "unknown what state machines of Step Functions start" in found.said, case
            continue
        if found.code == 0:
            assert found.changed == whole.changed, case
            continue
        assert found.code == 1, case
        tagged = found.said.count("got only the tag task-profiler:reverted-from")
        assert tagged == (operation == "DeregisterJobDefinition"), case
        left = dict(found.changed)
        if tagged:
            assert list(left) == ["orders:1"], case
            continue
        assert left.items() <= whole.changed.items(), case
        steps = f"1 registered, {len(left) - 1} schedule" if len(left) > 1 else "1 registered"
        assert not left or steps in found.said, case


def test_without_state_machines_no_revision_is_deregistered(
    aws: FakeAws, proxy: AwsProxy, tmp_path: Path
) -> None:
    """One of them may start it: the old size is a new revision."""
    built = Built(aws, proxy, uncovered, tmp_path)
    whole = built.act()
    assert [name for name, one in whole.changed.items() if one[0] == "INACTIVE"] == ["orders:2"]
    last = max(nth for nth, name in enumerate(whole.operations, 1) if name == "ListStateMachines")
    found = built.act(last)
    assert list(found.changed) == ["orders:3"]
    assert "registered orders:3" in found.printed

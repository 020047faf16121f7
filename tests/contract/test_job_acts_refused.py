"""``taskdef resize --job-definition`` with one of its calls to AWS refused, each in turn: what is
left behind is a part of the whole act, and the refusal is said.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.aws_proxy import AwsProxy
from tests.fake_batch import FakeBatch
from tests.job_account import JobAccount
from tests.refused_acts import Calls, each_refused
from tests.refused_job_acts import Act, Built, Outcome, asked_for, killed, oversized, uncovered
from tools.moto_server import FakeAws, fake_aws


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


def acted(built: Built, refusals: Refusals, nth: int = 0) -> tuple[Outcome, tuple[str, ...]]:
    """What the act does with this call refused, and its calls."""
    refusals.begin(nth)
    found = built.act()
    refusals.nth = 0
    return found, tuple(refusals.operations)


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with fake_aws() as made:
        yield made


@pytest.fixture(scope="module")
def proxy(aws: FakeAws) -> Iterator[AwsProxy]:
    with AwsProxy(aws.url) as made:
        yield made


@pytest.mark.diagonal(1)
@each_refused
@pytest.mark.parametrize("build", [oversized, killed, uncovered, asked_for])
def test_a_refused_call_leaves_a_part_of_the_act_and_is_said(
    aws: FakeAws,
    proxy: AwsProxy,
    build: Callable[[JobAccount], Act],
    calls: Callable[[Sequence[str]], Calls],
    tmp_path: Path,
) -> None:
    """The exit code is 0 only if all was done, or if states are unknown, which is said."""
    built = Built(aws, proxy, build, tmp_path)
    refusals = Refusals(proxy, built.batch)
    whole, operations = acted(built, refusals)
    assert whole.code == 0, whole.said
    assert whole.changed
    for nth, operation in calls(operations):
        found, _ = acted(built, refusals, nth)
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
    refusals = Refusals(proxy, built.batch)
    whole, operations = acted(built, refusals)
    assert [name for name, one in whole.changed.items() if one[0] == "INACTIVE"] == ["orders:2"]
    last = max(nth for nth, name in enumerate(operations, 1) if name == "ListStateMachines")
    found, _ = acted(built, refusals, last)
    assert list(found.changed) == ["orders:3"]
    assert "registered orders:3" in found.printed

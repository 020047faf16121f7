"""Acts that are killed, throttled or met by a second person at each of their writes: what starts
the family always finds a revision that ECS can start, and the same command does the rest or says
what is left.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import botocore.endpoint
import pytest

from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from tests.hostile_calls import HostileProxy
from tests.nth_calls import KilledError
from tests.refused_acts import (
    Act,
    Built,
    Outcome,
    behind,
    judged,
    oversized,
    put_back,
    removed,
    rolled_out,
    state,
    unmonitored,
)
from tests.resize_account import Account
from tools.moto_server import fake_aws

OTHERS = (judged, behind, unmonitored, rolled_out, removed)
BUILDS = [oversized, put_back, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS)]
WRITES = (
    "RegisterTaskDefinition",
    "PutTargets",
    "PUT /schedules/night",
    "CreateLogGroup",
    "PutRolePolicy",
)


@pytest.fixture(scope="module")
def proxy() -> Iterator[HostileProxy]:
    with fake_aws() as aws, HostileProxy(aws) as made:
        yield made


def operation_of(name: str, body: bytes) -> str:
    """IAM's operations, too, which are forms."""
    return "PutRolePolicy" if b"Action=PutRolePolicy" in body else name


def writes_of(proxy: HostileProxy, count: int) -> list[int]:
    """The numbers of the last calls that change something."""
    bodies = proxy.bodies[-count:]
    return [nth for nth, one in enumerate(bodies, 1) if operation_of(*one) in WRITES]


def check_startable(account: Account) -> None:
    """Each target starts an active revision whose size ECS accepts."""
    definitions = [
        account.started_by_schedule("night"),
        account.started_by_rule("often"),
        "nightly",
    ]
    for name in definitions:
        found, _ = account.described(name)
        assert found["status"] == "ACTIVE"
        size = Size(int(found["cpu"]) / 1024, int(found["memory"]))
        assert size in LEGAL_SIZES
        limits = [one.get("memory", 0) for one in found["containerDefinitions"]]
        assert max(limits) <= size.memory_mb


def shape(account: Account) -> dict[str, Any]:
    """What the family's targets and its newest revision are, whatever their numbers."""
    found: dict[str, Any] = {}
    schedule, rule = account.started_by_schedule("night"), account.started_by_rule("often")
    for what, name in (("newest", "nightly"), ("schedule", schedule), ("rule", rule)):
        definition, _ = account.described(name)
        containers = definition["containerDefinitions"]
        found[what] = definition["cpu"], definition["memory"], len(containers)
    all_of = state(account)
    return found | {"policies": all_of["policies"], "groups": all_of["groups"]}


def done_at_once(
    proxy: HostileProxy, build: Callable[[Account], Act], folder: Path
) -> tuple[Built, Outcome, dict[str, Any], list[int]]:
    """What the act does in an account of its own when nothing happens, what it leaves, and the
    numbers of its calls that change something.
    """
    proxy.reset()
    built = Built(proxy, build, folder / "account")
    whole = Outcome(built)
    assert whole.code == 0, whole.said
    writes = writes_of(proxy, len(whole.operations))
    assert writes
    return built, whole, shape(built.account), writes


def act(built: Built) -> Any:
    """Run the command as it is called the next time."""
    built.proxy.reset()  # type: ignore[attr-defined]
    return built.account.command("taskdef", *built.words)


@pytest.mark.diagonal
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("is_after", [False, True])
def test_an_act_that_is_killed_at_a_write_is_done_or_said_by_the_next_call(
    proxy: HostileProxy, build: Callable[[Account], Act], *, is_after: bool, tmp_path: Path
) -> None:
    """SIGKILL before AWS has carried a write out, and after it."""
    built, _, wanted, writes = done_at_once(proxy, build, tmp_path)
    for nth in writes:
        proxy.reset()
        proxy.at_call, proxy.is_after = proxy.die, is_after
        with pytest.raises(KilledError):
            Outcome(built, nth)
        proxy.reset()
        built.account.url = built.proxy.aws.url
        check_startable(built.account)
        built.account.url = proxy.url
        done = act(built)
        assert done.returncode == 0, (nth, done.stderr)
        check_startable(built.account)
        now = shape(built.account)
        assert now["newest"] == wanted["newest"], (nth, done.stdout)
        left = [what for what in ("schedule", "rule") if now[what] != wanted[what]]
        said = " ".join((done.stdout + done.stderr).split())
        for what in left:
            name = {"schedule": "schedule night", "rule": "rule often"}[what]
            assert name in said, (nth, said)
            assert "nightly --register --update-schedules" in said, (nth, said)
        if "add-monitor" in built.words:
            assert now == wanted, nth


@pytest.mark.parametrize("build", BUILDS)
def test_a_throttled_call_is_waited_out_and_an_endless_one_is_said(
    proxy: HostileProxy,
    build: Callable[[Account], Act],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each call once, and all from each write on: the same command does the rest."""
    monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda _seconds: None)
    built, whole, wanted, writes = done_at_once(proxy, build, tmp_path)
    count = len(whole.operations)
    proxy.reset()
    proxy.throttled_from = range(1, 2 * count, 2)
    found = Outcome(built)
    assert found.operations.count("throttled") == count
    assert (found.code, found.changed) == (0, whole.changed), found.said
    for nth in writes:
        proxy.reset()
        proxy.throttled_from = range(nth, 10_000)
        found = Outcome(built)
        assert found.code == 1, nth
        assert "wait a minute" in found.said, (nth, found.said)
        assert found.changed.items() <= whole.changed.items(), nth
        proxy.reset()
        check_startable_unproxied(built)
        done = act(built)
        assert done.returncode == 0, (nth, done.stderr)
        assert shape(built.account)["newest"] == wanted["newest"], nth


def check_startable_unproxied(built: Built) -> None:
    built.account.url = built.proxy.aws.url
    check_startable(built.account)
    built.account.url = built.proxy.url


@pytest.mark.diagonal
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("is_after", [False, True])
def test_two_people_at_once_leave_what_one_would(
    proxy: HostileProxy, build: Callable[[Account], Act], *, is_after: bool, tmp_path: Path
) -> None:
    """The second one gives the same command while the first one's write is on its way, or has
    arrived, and between its plan and its act.
    """
    built, whole, wanted, writes = done_at_once(proxy, build, tmp_path)
    first = whole.operations.index("DescribeTaskDefinition") + 1
    for nth in (first, writes[0] - 1, *writes):
        proxy.reset()
        second: list[Any] = []

        def meanwhile(second: list[Any] = second) -> None:
            proxy.nth = 0
            built.account.url = proxy.aws.url
            second.append(built.account.command("taskdef", *built.words))
            built.account.url = proxy.url

        proxy.at_call, proxy.is_after = meanwhile, is_after
        found = Outcome(built, nth)
        (other,) = second
        check_startable_unproxied(built)
        said = (nth, found.said, other.stderr)
        now = shape(built.account)
        assert now["newest"] == wanted["newest"], said
        if now != wanted:
            proxy.reset()
            again = act(built)
            assert again.returncode == 0, (said, again.stderr)
            check_startable_unproxied(built)
            now = shape(built.account)
        assert now["newest"] == wanted["newest"], said
        names = {"schedule": "schedule night", "rule": "rule often"}
        left = [names[what] for what in ("schedule", "rule") if now[what] != wanted[what]]
        told = f"{found.said} {found.printed} {other.stderr} {other.stdout}"
        assert all(name in told for name in left), said


def test_a_schedule_that_a_person_has_put_back_on_the_failed_size_stays_there(
    tmp_path: Path,
) -> None:
    """The person may have repaired the job, and the kill is still in the window."""
    with fake_aws() as aws:
        account = Account(aws, tmp_path)
        judged(account)
        assert account.resize("--register", "--update-schedules").returncode == 0
        assert account.started_by_schedule("night") == "nightly:3"
        scheduler = aws.client("scheduler")
        schedule = scheduler.get_schedule(Name="night")
        parameters = schedule["Target"]["EcsParameters"]
        parameters["TaskDefinitionArn"] = parameters["TaskDefinitionArn"].replace(":3", ":2")
        kept = ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")
        scheduler.update_schedule(**{name: schedule[name] for name in kept})
        done = account.resize("--register", "--update-schedules")
        assert done.returncode == 0, done.stderr
        assert account.started_by_schedule("night") == "nightly:2"
        assert "resize nightly --register --update-schedules" in " ".join(done.stdout.split())

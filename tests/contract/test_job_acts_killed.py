"""``taskdef resize --job-definition`` that is killed, throttled or met by a second person at each
of its writes: what submits the jobs always finds an active revision, and the same command does the
rest or says what is left.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import botocore.endpoint
import pytest

from tests.fake_batch import requirement
from tests.hostile_calls import HostileProxy
from tests.job_account import JobAccount
from tests.nth_calls import KilledError
from tests.refused_job_acts import Act, Built, Outcome, asked_for, killed, oversized, uncovered
from tools.moto_server import fake_aws

BUILDS = [
    oversized,
    uncovered,
    *(pytest.param(one, marks=pytest.mark.slow) for one in (killed, asked_for)),
]
WRITES = (
    "RegisterJobDefinition",
    "DeregisterJobDefinition",
    "TagResource",
    "PutTargets",
    "PUT /schedules/night",
)
THE_REST = ("--job-definition", "orders", "--register", "--update-schedules")
CALLERS = {"schedule": "schedule night", "rule": "rule often"}


@pytest.fixture(scope="module")
def proxy() -> Iterator[HostileProxy]:
    with fake_aws() as aws, HostileProxy(aws) as made:
        yield made


def built_for(proxy: HostileProxy, build: Callable[[JobAccount], Act], folder: Path) -> Built:
    proxy.reset()
    built = Built(proxy.aws, proxy, build, folder)
    proxy.count_batch(built.batch)
    return built


def done_at_once(built: Built, proxy: HostileProxy) -> tuple[Outcome, list[int]]:
    """What the act does when nothing happens, and the numbers of its calls that change something."""
    proxy.reset()
    whole = built.act()
    assert whole.code == 0, whole.said
    writes = [nth for nth, name in enumerate(proxy.operations, 1) if name in WRITES]
    assert writes
    return whole, writes


def started(built: Built) -> dict[str, Any]:
    """The status and the size of what each caller and a submission by name start."""
    account = built.account
    names = {
        "schedule": account.submitted_by_schedule("night")["JobDefinition"],
        "rule": account.submitted_by_rule("often")["JobDefinition"],
        "newest": "orders",
    }
    found = {}
    for what, name in names.items():
        definition = built.batch.definition(name)
        container = definition["containerProperties"]
        sizes = requirement(container, "VCPU"), requirement(container, "MEMORY")
        found[what] = definition["status"], *sizes
    return found


def check_startable(built: Built) -> None:
    """Batch refuses another size at the registration; a revision that is not active starts none."""
    assert {status for status, *_ in started(built).values()} == {"ACTIVE"}


def check_said(built: Built, wanted: dict[str, Any], told: str, case: object) -> None:
    """The newest revision is as it should be; the callers that are not are named, with the command
    that moves them.
    """
    now = started(built)
    assert now["newest"] == wanted["newest"], case
    said = " ".join(told.split())
    left = [what for what in CALLERS if now[what] != wanted[what]]
    assert all(CALLERS[what] in said for what in left), case
    if left:
        assert f"taskdef resize {' '.join(THE_REST)}" in said, case
        assert built.account.resize(*THE_REST).returncode == 0, case
        assert started(built) == wanted, case


def check_next_call(built: Built, wanted: dict[str, Any], nth: int) -> None:
    """After an act that stopped at its nth write, the same command does the rest, or says it."""
    check_startable(built)
    done = built.account.resize(*built.words)
    case = nth, done.stdout, done.stderr
    assert done.returncode == 0, case
    check_startable(built)
    check_said(built, wanted, done.stdout + done.stderr, case)


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("is_after", [False, True])
def test_an_act_that_is_killed_at_a_write_is_done_or_said_by_the_next_call(
    proxy: HostileProxy, build: Callable[[JobAccount], Act], *, is_after: bool, tmp_path: Path
) -> None:
    """SIGKILL before AWS has carried a write out, and after it."""
    built = built_for(proxy, build, tmp_path)
    _, writes = done_at_once(built, proxy)
    wanted = started(built)
    for nth in writes:
        proxy.reset()
        proxy.nth, proxy.at_call, proxy.is_after = nth, proxy.die, is_after
        with pytest.raises(KilledError):
            built.act()
        proxy.reset()
        check_next_call(built, wanted, nth)


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
def test_a_throttled_call_is_waited_out_and_an_endless_one_is_said(
    proxy: HostileProxy,
    build: Callable[[JobAccount], Act],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each call once, and all from each write on: the same command does the rest."""
    monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda _seconds: None)
    built = built_for(proxy, build, tmp_path)
    whole, writes = done_at_once(built, proxy)
    wanted = started(built)
    count = len(proxy.operations)
    proxy.reset()
    proxy.throttled_from = range(1, 2 * count, 2)
    found = built.act()
    assert proxy.operations.count("throttled") == count
    assert (found.code, found.changed) == (0, whole.changed), found.said
    for nth in writes:
        proxy.reset()
        proxy.throttled_from = range(nth, 10_000)
        found = built.act()
        assert found.code == 1, nth
        assert "wait a minute" in found.said, (nth, found.said)
        proxy.reset()
        check_next_call(built, wanted, nth)


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("is_after", [False, True])
def test_two_people_at_once_leave_what_one_would(
    proxy: HostileProxy, build: Callable[[JobAccount], Act], *, is_after: bool, tmp_path: Path
) -> None:
    """The second one gives the same command while the first one's write is on its way, or has
    arrived, and between its plan and its act.
    """
    built = built_for(proxy, build, tmp_path)
    _, writes = done_at_once(built, proxy)
    first = proxy.operations.index("DescribeJobDefinitions") + 1
    wanted = started(built)
    for nth in (first, writes[0] - 1, *writes):
        proxy.reset()
        second: list[Any] = []

        def meanwhile(second: list[Any] = second) -> None:
            proxy.nth = 0
            second.append(built.account.resize(*built.words))

        proxy.nth, proxy.at_call, proxy.is_after = nth, meanwhile, is_after
        found = built.act()
        (other,) = second
        proxy.reset()
        check_startable(built)
        told = f"{found.said} {found.printed} {other.stderr} {other.stdout}"
        if started(built) != wanted:
            again = built.account.resize(*built.words)
            assert again.returncode == 0, (nth, told, again.stderr)
            check_startable(built)
            told += again.stdout + again.stderr
        check_said(built, wanted, told, (nth, told))

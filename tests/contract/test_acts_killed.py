"""Acts that are killed, throttled or met by a second person at each of their writes: what starts
the family always finds a revision that ECS can start, and the same command does the rest or says
what is left.
"""

from collections.abc import Callable, Iterator
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Any

import botocore.endpoint
import pytest
from moto.ecs.models import ecs_backends
from moto.moto_api._internal.models import moto_api_backend
from moto.scheduler.models import scheduler_backends

from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from profiler.sizing.sized_revision import REVERTED_FROM
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
from tests.resize_account import ACCOUNT, DEFINITIONS, Account
from tools.moto_server import fake_aws

OTHERS = (put_back, judged, behind, unmonitored, rolled_out, removed)
BUILDS = [
    oversized,
    *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS),
]
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


Done = tuple[Built, Outcome, dict[str, Any], list[int]]
DoneAtOnce = Callable[[Callable[[Account], Act]], Done]


@pytest.fixture(scope="module", name="done_at_once")
def _done_at_once(proxy: HostileProxy, tmp_path_factory: pytest.TempPathFactory) -> DoneAtOnce:
    """What an act does in an account of its own when nothing happens, what it leaves, and the
    numbers of its calls that change something; once for all tests of the act.
    """

    @cache
    def done(build: Callable[[Account], Act]) -> Done:
        proxy.reset()
        built = Built(proxy, build, tmp_path_factory.mktemp("act") / "account")
        whole = Outcome(built)
        assert whole.code == 0, whole.said
        writes = writes_of(proxy, len(whole.operations))
        assert writes
        return built, whole, shape(built.account), writes

    return done


def act(built: Built) -> Any:
    """Run the command as it is called the next time."""
    built.proxy.reset()  # type: ignore[attr-defined]
    return built.account.command("taskdef", *built.words)


@pytest.mark.diagonal
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("is_after", [False, True])
def test_an_act_that_is_killed_at_a_write_is_done_or_said_by_the_next_call(
    proxy: HostileProxy,
    build: Callable[[Account], Act],
    done_at_once: DoneAtOnce,
    *,
    is_after: bool,
) -> None:
    """SIGKILL before AWS has carried a write out, and after it."""
    built, _, wanted, writes = done_at_once(build)
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
        if build is judged:  # the size that has failed
            assert "schedule" not in left, nth
        if "add-monitor" in built.words:
            assert now == wanted, nth


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
def test_a_throttled_call_is_waited_out_and_an_endless_one_is_said(
    proxy: HostileProxy,
    build: Callable[[Account], Act],
    done_at_once: DoneAtOnce,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each call once, and all from each write on: the same command does the rest."""
    monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda _seconds: None)
    built, whole, wanted, writes = done_at_once(build)
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


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("is_after", [False, True])
def test_two_people_at_once_leave_what_one_would(
    proxy: HostileProxy,
    build: Callable[[Account], Act],
    done_at_once: DoneAtOnce,
    *,
    is_after: bool,
) -> None:
    """The second one gives the same command while the first one's write is on its way, or has
    arrived, and between its plan and its act.
    """
    built, whole, wanted, writes = done_at_once(build)
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


NAMED = "resize nightly --register --update-schedules"


def changed_schedule(account: Account, revision: str = "2", **fields: Any) -> None:
    """A person changes the schedule: its revision, or another field."""
    scheduler = account.aws.client("scheduler")
    schedule = scheduler.get_schedule(Name="night")
    parameters = schedule["Target"]["EcsParameters"]
    parameters["TaskDefinitionArn"] = f"{DEFINITIONS}/nightly:{revision}"
    kept = ("Name", "ScheduleExpression", "FlexibleTimeWindow", "State", "Target")
    scheduler.update_schedule(**{name: schedule[name] for name in kept} | fields)


def dated(account: Account, seconds: float, revision: int = 3) -> None:
    """The schedule was changed so long before a revision was registered."""
    definition: Any = ecs_backends[ACCOUNT]["us-east-1"].task_definitions["nightly"][revision]
    registered = definition.registered_at.replace(tzinfo=UTC).timestamp()
    schedule = scheduler_backends[ACCOUNT]["us-east-1"].get_schedule("default", "night")
    schedule.last_modified_date = registered - seconds


def ended(account: Account) -> Account:
    """A revert that was ended after its registration: schedule and rule start the failed size."""
    judged(account)
    assert account.resize("--register").returncode == 0
    assert account.started_by_schedule("night") == "nightly:2"
    return account


def after_the_next_call(account: Account) -> tuple[str, str, bool]:
    """What schedule and rule start, and whether the command that moves them was printed."""
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 0, done.stderr
    started = account.started_by_schedule("night"), account.started_by_rule("often")
    return *started, NAMED in " ".join(done.stdout.split())


def test_a_schedule_that_a_person_has_put_back_on_the_failed_size_stays_there(
    tmp_path: Path,
) -> None:
    """The person may have repaired the job, and the kill is still in the window."""
    with fake_aws() as aws:
        account = Account(aws, tmp_path)
        judged(account)
        assert account.resize("--register", "--update-schedules").returncode == 0
        assert account.started_by_schedule("night") == "nightly:3"
        changed_schedule(account)
        assert after_the_next_call(account) == ("nightly:2", "nightly:3", True)


@pytest.mark.diagonal(1)
@pytest.mark.parametrize(
    ("seconds", "is_moved"),
    [
        (7 * 86_400, True),
        (3_601, True),
        (3_599, False),  # the clocks of two services may differ
        (0, False),
        (-1, False),  # after the registration
        (-7 * 86_400, False),
    ],
)
def test_a_schedule_that_nobody_has_changed_since_an_ended_revert_is_moved_by_the_next_call(
    seconds: float, *, is_moved: bool, tmp_path: Path
) -> None:
    """A rule has no date, so that it is named."""
    with fake_aws() as aws:
        account = ended(Account(aws, tmp_path))
        dated(account, seconds)
        schedule = "nightly:3" if is_moved else "nightly:2"
        assert after_the_next_call(account) == (schedule, "nightly:2", True)
        assert after_the_next_call(account) == (schedule, "nightly:2", True)


def without_a_date_of_the_revision(account: Account) -> None:
    definition: Any = ecs_backends[ACCOUNT]["us-east-1"].task_definitions["nightly"][3]
    del definition.registered_at


def with_another_field(account: Account) -> None:
    changed_schedule(account, ScheduleExpression="cron(0 5 * * ? *)")


def below_another_revision(account: Account) -> None:
    """Its date is not that at which the family was put back, although it keeps the tag."""
    _, tags = account.described("nightly")
    account.family("nightly", tags=[{"key": key, "value": tags[key]} for key in tags])
    dated(account, 7_200, revision=4)


def tagged(value: str) -> Callable[[Account], None]:
    def tag(account: Account) -> None:
        newest, _ = account.described("nightly")
        tags = [{"key": REVERTED_FROM, "value": value}]
        account.ecs.tag_resource(resourceArn=newest["taskDefinitionArn"], tags=tags)

    return tag


@pytest.mark.diagonal(1)
@pytest.mark.parametrize(
    "happens",
    [
        without_a_date_of_the_revision,
        with_another_field,
        below_another_revision,
        tagged("2/512/1024"),  # not the size of the revision that it names
        tagged("1/1024/2048"),
        tagged("two"),
        tagged("02/256/512"),
    ],
)
def test_a_schedule_on_a_failed_size_stays_and_is_named_where_it_is_not_known_to_be_left_behind(
    happens: Callable[[Account], None], tmp_path: Path
) -> None:
    with fake_aws() as aws:
        account = ended(Account(aws, tmp_path))
        dated(account, 86_400)
        happens(account)
        assert after_the_next_call(account) == ("nightly:2", "nightly:2", True)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, {"Description": "repaired"}])
def test_a_schedule_that_a_person_changes_during_the_next_call_stays(
    fields: dict[str, str], proxy: HostileProxy, tmp_path: Path
) -> None:
    """After the last listing of the schedules, and before the move."""
    proxy.reset()
    moto_api_backend.reset()
    account = ended(Account(proxy.aws, tmp_path))
    dated(account, 86_400)
    account.url = proxy.url
    words = ("resize", "--from", str(account.file), "--register", "--update-schedules")
    reads = 0

    def person(operation: str, _body: bytes) -> None:
        nonlocal reads
        reads += operation == "GET /schedules/night"
        if reads == 2 and operation == "GET /schedules/night":  # the first one was the plan's
            proxy.before = lambda *_: None
            changed_schedule(account, **fields)

    proxy.before = person
    done = account.command("taskdef", *words)
    assert reads == 2
    assert account.started_by_schedule("night") == "nightly:2", done.stdout + done.stderr

"""Acts of ``taskdef`` on accounts in moto, behind a proxy that refuses one of their calls, or loses
its answer.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from shutil import copytree

import pytest
from moto.moto_api._internal.models import moto_api_backend

from tests.aws_proxy import Answer, AwsProxy, Request
from tests.moto_state import KeptState
from tests.resize_account import BATCH, KILLED, NEW, Account
from tools.moto_server import FakeAws, create_schedule_long_ago

Act = tuple[str, ...]
Calls = Iterable[tuple[int, str]]


class RefusingProxy(AwsProxy):
    """Refuses the call with the number ``nth``, or loses its answer."""

    def __init__(self, aws: FakeAws) -> None:
        super().__init__(aws.url)
        self.aws = aws
        self.before = self._refuse
        self.nth = 0
        self.is_lost = False

    def answer(self, request: Request, body: bytes) -> Answer:
        answered = super().answer(request, body)
        if self.is_lost and len(self.operations) == self.nth:
            return 500, {"Content-Type": "application/x-amz-json-1.1"}, b"{}"
        return answered

    def _refuse(self, operation: str, _body: bytes) -> None:
        is_nth = len(self.operations) == self.nth and not self.is_lost
        is_refused = is_nth and operation != "GetCallerIdentity"
        self.refused = {operation} if is_refused else set()


def oversized(account: Account) -> Act:
    account.oversized("nightly")
    account.schedule("night", "nightly:1")
    account.rule("often", "nightly:1")
    return ("resize", "--from", str(account.file), "--register", "--update-schedules")


def resized(account: Account) -> Account:
    oversized(account)
    assert account.resize("--register", "--update-schedules").returncode == 0
    return account


def put_back(account: Account) -> Act:
    resized(account)
    return ("resize", "nightly", "--revert", "--register", "--update-schedules")


def judged(account: Account) -> Act:
    resized(account).runs("nightly", 1, revision=2, size=NEW, **KILLED)
    create_schedule_long_ago("night", "us-east-1")
    return ("resize", "--from", str(account.file), "--register", "--update-schedules")


def behind(account: Account) -> Act:
    """The schedule and the rule start an older revision than the newest, of another size."""
    account.family("nightly", size=(2.0, 4096))
    account.family("nightly")
    account.runs("nightly", 25, revision=2)
    account.schedule("night", "nightly:1")
    account.rule("often", "nightly:1")
    words = ("--from", str(account.file), "--register", "--update-schedules")
    return ("resize", "nightly", *words)


def unmonitored(account: Account) -> Act:
    account.family("nightly", containerDefinitions=[BATCH])
    account.schedule("night", "nightly")
    account.rule("often", "nightly")
    return ("add-monitor", "nightly", "--image", "team/task-profiler:1", "--register")


def rolled_out(account: Account) -> Act:
    """A batch that logs elsewhere, whose role may not write the report yet."""
    iam = account.aws.client("iam")
    role = iam.create_role(RoleName="nightly", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    elsewhere = {"logConfiguration": {"logDriver": "splunk", "options": {}}}
    account.family("nightly", containerDefinitions=[{**BATCH, **elsewhere}], taskRoleArn=role)
    account.schedule("night", "nightly:1")
    account.rule("often", "nightly:1")
    words = ("--image", "team/task-profiler:1", "--log-group", "/team/reports")
    acts = ("--register", "--update-schedules", "--attach-policy", "--yes")
    return ("add-monitor", "nightly", *words, *acts)


def removed(account: Account) -> Act:
    done = account.command("taskdef", *rolled_out(account))
    assert done.returncode == 0, done.stderr
    return ("remove-monitor", "nightly", "--register", "--update-schedules")


def state(account: Account) -> dict[str, object]:
    """The revisions with their sizes, tags and containers, what the schedule and the rule start,
    the policies of the role, and the log groups.
    """
    iam = account.aws.client("iam")
    roles = [role["RoleName"] for role in iam.list_roles()["Roles"]]
    groups = account.aws.client("logs").describe_log_groups()["logGroups"]
    found: dict[str, object] = {
        "schedule": account.started_by_schedule("night"),
        "rule": account.started_by_rule("often"),
        "policies": [iam.list_role_policies(RoleName=role)["PolicyNames"] for role in roles],
        "groups": [group["logGroupName"] for group in groups],
    }
    for arn in account.ecs.list_task_definitions()["taskDefinitionArns"]:
        definition, tags = account.described(arn)
        names = [container["name"] for container in definition["containerDefinitions"]]
        found[arn.rpartition("/")[2]] = definition["cpu"], definition["memory"], tags, names
    return found


class Built:
    """A new account as an act finds it, each time again."""

    def __init__(self, proxy: RefusingProxy, build: Callable[[Account], Act], folder: Path) -> None:
        folder.mkdir()
        moto_api_backend.reset()
        self.proxy = proxy
        self.account = Account(proxy.aws, folder)
        self.words = build(self.account)
        self.before = state(self.account)
        self.account.url = proxy.url
        self._folder = folder
        self._files = copytree(folder, folder.with_suffix(".kept"))
        self._state = KeptState()

    def restore(self) -> None:
        self._state.restore()
        copytree(self._files, self._folder, dirs_exist_ok=True)


class Outcome:
    """What an act has done to an account. ``nth``: the number of the call that is refused, or whose
    answer is lost.
    """

    def __init__(self, built: Built, nth: int = 0, *, is_lost: bool = False) -> None:
        built.restore()
        proxy, account, before = built.proxy, built.account, built.before
        proxy.operations.clear()
        proxy.nth, proxy.is_lost = nth, is_lost
        done = account.command("taskdef", *built.words)
        self.operations = tuple(proxy.operations)
        after = state(account)
        self.code = done.returncode
        self.said = done.stderr
        self.printed = " ".join(done.stdout.split())
        self.changed = {name: value for name, value in after.items() if before.get(name) != value}


def each_call(operations: Sequence[str]) -> Calls:
    """The calls with their numbers."""
    return enumerate(operations, 1)


def first_calls(operations: Sequence[str]) -> Calls:
    """The first call of each operation: those of the plan."""
    return [(operations.index(name) + 1, name) for name in dict.fromkeys(operations)]


def last_calls(operations: Sequence[str]) -> Calls:
    """The last call of each operation: those of the act."""
    last = {name: nth for nth, name in enumerate(operations, 1)}
    return [(nth, name) for name, nth in last.items()]


each_refused = pytest.mark.parametrize(
    "calls", [first_calls, last_calls, pytest.param(each_call, marks=pytest.mark.slow)]
)

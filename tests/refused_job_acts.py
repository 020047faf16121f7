"""Acts of ``taskdef resize --job-definition`` on accounts that each act finds anew."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from moto.moto_api._internal.models import moto_api_backend

from tests.aws_proxy import AwsProxy
from tests.fake_batch import FakeBatch
from tests.job_account import KILLED, NEW, JobAccount
from tests.moto_state import KeptState
from tools.moto_server import FakeAws

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

    def state(self) -> dict[str, Any]:
        """The revisions, and what the callers start."""
        found: dict[str, Any] = {
            f"{one['jobDefinitionName']}:{one['revision']}": (one["status"], one.get("tags"), one)
            for one in self.batch.definitions
        }
        found["schedule"] = self.account.submitted_by_schedule("night")["JobDefinition"]
        found["rule"] = self.account.submitted_by_rule("often")["JobDefinition"]
        return deepcopy(found)

    def restore(self) -> None:
        self._moto.restore()
        self.batch.definitions = deepcopy(self._definitions)

    def act(self) -> "Outcome":
        self.restore()
        return Outcome(self, self.account.resize(*self.words))


class Outcome:
    """What an act has done."""

    def __init__(self, built: Built, done: Any) -> None:
        after = built.state()
        self.code = done.returncode
        self.said = done.stderr
        self.printed = " ".join(done.stdout.split())
        self.changed = {name: one for name, one in after.items() if built.before.get(name) != one}

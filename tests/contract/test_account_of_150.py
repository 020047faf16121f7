"""An account of 150 families of many kinds, from ``setup`` through add-monitor and their first
nights to ``recommend``, ``resize`` and the page: the commands count alike, what families have in
common is said once, and what is too small comes first.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NamedTuple

import pytest

from profiler.record.record_model import Metrics
from tests.report_page import unpacked
from tests.resize_account import ACCOUNT, BATCH, Account
from tests.sidecars import IMAGE
from tools.moto_server import FakeAws, fake_aws, push_image

# Its commands take 40 seconds of a CPU. What many families have in common (test_taskdef_plan.py), one
# size everywhere (test_one_size.py) and each command with a small account stay in `make test`.
pytestmark = pytest.mark.slow
_ROLE = f"arn:aws:iam::{ACCOUNT}:role/jobs"
_ROUTER = {
    "name": "log_router",
    "image": "fluent-bit:3",
    "memory": 64,
    "firelensConfiguration": {"type": "fluentbit"},
}
_ROUTED = {**BATCH, "memory": 1600, "logConfiguration": {"logDriver": "awsfirelens", "options": {}}}
_HALF = {**BATCH, "memory": 900}
# How many families there are of a kind, and what their definitions have besides the usual.
_KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "large": (96, {}),
    "near": (2, {}),
    "small": (10, {}),
    "right": (8, {}),
    "quiet": (5, {}),
    "silent": (5, {"containerDefinitions": [{"name": "batch", "image": "x", "memory": 256}]}),
    "firelens": (2, {"containerDefinitions": [_ROUTED, _ROUTER]}),
    "routed": (2, {"containerDefinitions": [_ROUTED, _ROUTER]}),
    "arm": (4, {"runtimePlatform": {"cpuArchitecture": "ARM64"}}),
    "named": (4, {}),
    "two": (4, {"containerDefinitions": [_HALF, {**_HALF, "name": "second"}]}),
    "windows": (4, {"runtimePlatform": {"operatingSystemFamily": "WINDOWS_SERVER_2022_CORE"}}),
    "service": (4, {}),
}
_MISSING_IMAGE = IMAGE.replace("0.1.0", "0.1.O")
_REFUSED = ("two", "windows")
_COUNT = sum(count for count, _ in _KINDS.values())
_REFUSED_COUNT = sum(_KINDS[kind][0] for kind in _REFUSED)
_SERVICES = _KINDS["service"][0]
_MONITORED = _COUNT - _REFUSED_COUNT - _SERVICES
# The other containers, as the monitor reports them: measured, and with the router's limit alone.
_MONITOR_USED = Metrics(max_memory_used_mb=15, memory_size_mb=128)
_ROUTER_USED = Metrics(max_memory_used_mb=20, memory_size_mb=64)
_ROUTER_UNREAD = Metrics(memory_size_mb=64)
# What the families' runs need; the others of _KINDS have none.
_RUNS: dict[str, dict[str, Any]] = {
    "large": {},
    # With what their monitor uses, they would fit into 512 MB; with what it reserves, not.
    "near": {"peak_mb": 440, "others": {"task-monitor": _MONITOR_USED}},
    "silent": {},
    "arm": {"cpu_architecture": "ARM64"},
    "firelens": {"others": {"log_router": _ROUTER_USED, "task-monitor": _MONITOR_USED}},
    "routed": {"others": {"log_router": _ROUTER_UNREAD, "task-monitor": _MONITOR_USED}},
    "right": {"peak_mb": 1500, "p95": 0.9},
    "small": {"peak_mb": 1990, "p95": 0.9},
}


def _names(*kinds: str) -> list[str]:
    return [f"{kind}-{number:03}" for kind in kinds for number in range(_KINDS[kind][0])]


class LargeAccount(Account):
    """A schedule pins each family that no service runs; those of ``named`` have names of their
    own.
    """

    def __init__(self, aws: FakeAws, folder: Path) -> None:
        super().__init__(aws, folder)
        aws.client("iam").create_role(RoleName="jobs", AssumeRolePolicyDocument="{}")
        push_image(aws)
        for kind, (_, definition) in _KINDS.items():
            for number, name in enumerate(_names(kind)):
                containers = {"containerDefinitions": [BATCH], "taskRoleArn": _ROLE}
                self.family(name, **(containers | definition))
                if kind == "service":
                    self.ecs.create_service(
                        cluster="jobs", serviceName=name, taskDefinition=name, desiredCount=0
                    )
                else:
                    own = "abcd"[number] if kind == "named" else name
                    self.schedule(own, f"{name}:1")

    def told(self, *words: str, returns: int = 0) -> CompletedProcess[str]:
        done = self.command(*words, COLUMNS="1000")
        assert done.returncode == returns, done.stderr
        return done

    def add_monitor(self, *words: str, image: str = IMAGE, returns: int = 0) -> tuple[str, str]:
        """What it prints, on standard output and on standard error."""
        call = ("taskdef", "add-monitor", "--cluster", "jobs", "--scheduled", "--image", image)
        done = self.told(*call, *words, returns=returns)
        return done.stdout, done.stderr

    def setup(self) -> str:
        return self.told("setup", "--cluster", "jobs").stdout

    def run_nights(self) -> None:
        """25 nights of the families that have runs, with their monitors."""
        for kind, needed in _RUNS.items():
            for name in _names(kind):
                self.add_runs(name, 25, revision=2, cluster="jobs", **needed)
        self.write_runs()


class FirstDay(NamedTuple):
    """What the commands print in a new account, in their order; of add-monitor, what it prints on
    standard output and on standard error.
    """

    before: str
    diagnosed: str
    planned: tuple[str, str]
    planned_as_json: tuple[str, str]
    refused: tuple[str, str]
    registered: tuple[str, str]
    after: str


@pytest.fixture(name="account", scope="module")
def _account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LargeAccount]:
    with fake_aws() as aws:
        yield LargeAccount(aws, tmp_path_factory.mktemp("account"))


@pytest.fixture(name="first_day", scope="module")
def _first_day(account: LargeAccount) -> FirstDay:
    return FirstDay(
        before=account.setup(),
        diagnosed=account.told("doctor", "--cluster", "jobs", returns=1).stdout,
        planned=account.add_monitor(),
        planned_as_json=account.add_monitor("--json"),
        refused=account.add_monitor("--register", image=_MISSING_IMAGE, returns=1),
        registered=account.add_monitor("--register", "--update-schedules", "--attach-policy"),
        after=account.setup(),
    )


def test_setup_and_add_monitor_count_alike_before_and_after(first_day: FirstDay) -> None:
    assert _COUNT == 150
    before, after = first_day.before, first_day.after
    assert f"0 of {_MONITORED} schedules and rules start a task with a current monitor." in before
    assert f"{_MONITORED} are pinned to another revision" in before
    assert f"add-monitor refuses {_REFUSED_COUNT} families." in before
    _, pinned = first_day.planned
    assert f"{_MONITORED} of {_MONITORED} schedules and rules are pinned" in pinned

    _, total = first_day.registered
    assert (
        f"{_COUNT - _SERVICES} families: {_MONITORED} registered, {_MONITORED} schedules moved, "
        f"1 policy attached, {_REFUSED_COUNT} refused."
    ) in total
    assert f"{_MONITORED} of {_MONITORED} schedules and rules start a task with a" in after


def test_what_all_families_lack_is_mended_for_the_cluster(first_day: FirstDay) -> None:
    """add-monitor changes neither what it refuses nor a role that needs no policy."""
    sentences = [row for row in first_day.diagnosed.splitlines() if row.startswith("- ")]
    of_all, *_ = (row for row in sentences if "There is no monitor" in row)
    assert of_all.endswith("task-profiler taskdef add-monitor --cluster jobs --register.")
    assert f" and {_MONITORED - 3} more: " in of_all
    of_roles, *_ = (row for row in sentences if "The task role" in row)
    assert of_roles.endswith("add-monitor --cluster jobs --attach-policy --yes.")
    assert max(map(len, sentences)) < 300


def test_the_plan_says_once_what_families_have_in_common(first_day: FirstDay) -> None:
    """Also what differs by their names alone; what is of few families stays with them."""
    plan, _ = first_day.planned
    rows = plan.splitlines()
    of_families = [row for row in rows if re.match(r"[a-z]+-\d{3} ", row)]
    assert [row.split()[0] for row in of_families] == sorted(set(_names(*_KINDS)) - _services())
    assert len(rows) < _COUNT + 15
    assert max(map(len, of_families)) < 120

    apart = [*_names("windows", "two", "named")]
    pinned = sorted(set(_names(*_KINDS)) - _services() - set(apart))
    said = f"{', '.join(pinned[:3])} and {len(pinned) - 3} more"
    assert f"- {said}: The schedule FAMILY is pinned to FAMILY:1." in rows
    own_logs = f"{', '.join(_names('firelens', 'routed')[:3])} and 6 more"
    creates = "--register creates the log group /ecs/FAMILY if it does not exist."
    assert f"- {own_logs}: {creates}" in rows
    for number, name in zip("abcd", _names("named"), strict=True):
        (row,) = (row for row in of_families if row.startswith(name))
        assert row.endswith(f"The schedule {number} is pinned to {name}:1.")


def _services() -> set[str]:
    return {*_names("service")}


def test_the_plan_as_json_has_each_familys_own_sentences(first_day: FirstDay) -> None:
    plan, _ = first_day.planned_as_json
    documents = {one["family"]: one for one in map(json.loads, plan.splitlines())}
    assert "FAMILY" not in plan
    pin = "The schedule large-000 is pinned to large-000:1."
    assert pin in documents["large-000"]["notes"]


def test_what_keeps_all_families_back_is_said_once(first_day: FirstDay) -> None:
    _, problems = first_day.refused
    left = [line for line in problems.splitlines() if "It is left alone." in line]
    assert len(left) == 1
    assert (
        f"arm-000, arm-001, arm-002 and {_MONITORED - 3} more: It is left alone. ECR has"
        in (left[0])
    )
    assert f"{_REFUSED_COUNT} refused, {_MONITORED} failed." in problems


@pytest.mark.usefixtures("first_day")
def test_one_saving_and_what_is_too_small_first(account: LargeAccount, tmp_path: Path) -> None:
    account.run_nights()
    source = ("--from", str(account.file))
    recommended = account.told("recommend", *source).stdout
    resized = account.told("taskdef", "resize", "--cluster", "jobs", *source).stdout
    page = tmp_path / "page.html"
    account.told("report", *source, "-o", str(page))

    small = _names("small")
    changed = _names("large", "near", "silent", "arm", "firelens", "routed", "small")
    with_runs = len(_names(*_RUNS))
    (saving,) = re.findall(
        rf"{len(changed)} of {with_runs} families, (\$[\d.]+ a month of \$[\d.]+)\.", recommended
    )
    assert re.findall(r"families, (\$[\d.]+ a month of \$[\d.]+)\.", resized) == [saving]
    assert _saving_of(page) == saving.partition(" ")[0]

    # A router that was not measured may need its limit, for which 512 MB are too little.
    sizes = {"firelens": "512 MB", "routed": "1 GB", "near": "1 GB", "large": "512 MB"}
    for kind, memory in sizes.items():
        size = f"0.25 vCPU, {memory}"
        for told in (recommended, resized):
            rows = [line for line in told.splitlines() if re.match(rf"\s*{kind}-\d+ .*vCPU", line)]
            assert [size in row for row in rows] == [True] * len(_names(kind))

    named = [word for line in recommended.splitlines() for word in line.split()[:1]]
    assert named[named.index("Too") + 1 :][: len(small)] == small
    assert [line.split()[0] for line in resized.splitlines()[1 : len(small) + 1]] == small
    # A sampled peak may have been higher.
    assert re.findall(r"^large-000 +(\S+ MB)", resized, re.MULTILINE) == ["≥400 MB"]
    folded = [line for line in resized.splitlines() if "is pinned to FAMILY:2." in line]
    assert [line.partition(": ")[0] for line in folded] == [
        f"- {', '.join(small[:3])} and {len(changed) - 3} more"
    ]


def _saving_of(page: Path) -> str:
    """The sum of the page's right-sizing, as its first screen has it."""
    (data,) = re.findall(r'<script[^>]* id="task-data">([^<]+)<', page.read_text())
    savings = [
        one["savingUsdPerMonth"]
        for one in unpacked(data.strip())["sizing"]
        if one.get("changes") and one["verdict"] in ("saves", "too small")
    ]
    return f"${sum(savings):.2f}"

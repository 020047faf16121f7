"""Acts that a signal or a closed pipe interrupts: what they have done is said, with the exit code
of a shell, and the same command goes on afterwards.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from profiler.cli import printing, standard_streams
from profiler.cli.app import run_command_line
from profiler.cli.setup import setup_commands
from profiler.core.errors import TaskProfilerError
from tests.aws_proxy import AwsProxy
from tests.dead_letter_queues import EVENTS, Queues
from tests.fake_dashboards import PlayedDashboards
from tests.fake_slack import Answer, FakeSlack
from tests.resize_account import ACCOUNT, BATCH, Account, logs_to
from tests.task_events import EVENT
from tools.local_answers import answer_here
from tools.moto_server import fake_aws

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
FAMILIES = ("hourly", "nightly", "weekly")
IMAGE = ("--image", "team/task-profiler:1")


class Interrupted:
    """An account behind a proxy, through which an operation's n-th call raises a signal."""

    def __init__(self, account: Account, proxy: AwsProxy) -> None:
        self.account = account
        self.proxy = proxy
        account.url = proxy.url

    def at(self, operation: str, nth: int, number: int) -> None:
        """Raise the signal while AWS answers, which it still does."""
        seen: list[str] = []

        def before(name: str, body: bytes) -> None:
            if name == operation or f"Action={operation}&".encode() in body:
                seen.append(name)
                if len(seen) == nth:
                    os.kill(os.getpid(), number)

        self.proxy.before = before


@pytest.fixture
def interrupted(tmp_path: Path) -> Iterator[Interrupted]:
    with fake_aws() as aws, AwsProxy(aws.url) as proxy:
        yield Interrupted(Account(aws, tmp_path), proxy)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last sentence: after Ctrl-C, an empty line follows."""
    return done.stderr.rstrip().splitlines()[-1]


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_resize_ends_after_the_family_in_work_and_goes_on_later(
    interrupted: Interrupted, number: int, code: int, words: tuple[str, ...]
) -> None:
    account = interrupted.account
    account.oversized(*FAMILIES)
    for name in FAMILIES:
        account.schedule(name, f"{name}:1")
    act = ("--register", "--update-schedules", *words)
    interrupted.at("RegisterTaskDefinition", 2, number)
    done = account.resize(*act)
    assert done.returncode == code, done.stderr
    steps = done.stderr if words else done.stdout
    for name in FAMILIES[:2]:
        assert f"registered {name}:2\n" in steps
        assert f"moved schedule {name} to {name}:2\n" in steps
    assert "task-profiler: It stops after the family that is in work.\n" in done.stderr
    assert "\ntask-profiler: 2 registered, 2 schedules moved.\n" in done.stderr
    if words:
        assert json.loads(last_line(done))["exitCode"] == code
        total = json.loads(done.stdout.splitlines()[-1])
        assert (total["type"], total["changes"]) == ("total", 2)
    assert account.newest(*FAMILIES) == [2, 2, 1]
    assert account.started_by_schedule("weekly") == "weekly:1"

    interrupted.proxy.before = lambda _operation, _body: None
    again = account.resize(*act)
    assert again.returncode == 0, again.stderr
    assert account.newest(*FAMILIES) == [2, 2, 2]
    assert [account.started_by_schedule(name) for name in FAMILIES] == [
        f"{name}:2" for name in FAMILIES
    ]


@pytest.mark.parametrize("nth", [1, 3])
def test_a_size_that_no_longer_fits_is_put_back_after_the_signal(
    interrupted: Interrupted, nth: int
) -> None:
    """The signal comes while the size is registered, or while it is put back."""
    account = interrupted.account
    account.oversized(*FAMILIES[:2])
    account.schedule("night", "hourly:1")
    interrupted.at("RegisterTaskDefinition", nth, signal.SIGINT)
    raise_signal = interrupted.proxy.before
    override = '{"containerOverrides": [{"name": "batch", "memory": 1800}]}'

    def before(operation: str, body: bytes) -> None:
        if operation == "PUT /schedules/night" and account.newest("hourly") == [2]:
            interrupted.proxy.before = raise_signal
            account.schedule("newer", "hourly", override)
        raise_signal(operation, body)

    interrupted.proxy.before = before
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 130, done.stderr
    assert "hourly: hourly:2 does not fit any more what starts it, so hourly:1 was" in done.stderr
    assert account.newest("hourly") == [3]
    assert account.started_by_schedule("night") == "hourly:3"


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_monitors_are_added_until_the_signal_and_the_sum_is_said(
    interrupted: Interrupted, number: int, code: int
) -> None:
    account = interrupted.account
    for name in FAMILIES:
        account.family(name, containerDefinitions=[BATCH])
    act = ("taskdef", "add-monitor", *FAMILIES, *IMAGE, "--register")
    interrupted.at("RegisterTaskDefinition", 2, number)
    done = account.command(*act)
    assert done.returncode == code, done.stderr
    assert done.stdout.endswith("registered hourly:2\nregistered nightly:2\n")
    assert last_line(done) == "task-profiler: 3 families: 2 registered."
    interrupted.proxy.before = lambda _operation, _body: None
    again = account.command(*act)
    assert again.returncode == 0, again.stderr
    assert again.stderr.endswith("task-profiler: 3 families: 1 registered, 2 unchanged.\n")
    assert account.newest(*FAMILIES) == [2, 2, 2]


@pytest.mark.parametrize("operation", ["RegisterTaskDefinition", "PUT /schedules/nightly"])
def test_credentials_that_expire_in_the_middle_are_said_with_what_was_done(
    interrupted: Interrupted, operation: str
) -> None:
    """Such as those of an assumed role, after an hour."""
    account = interrupted.account
    account.oversized(*FAMILIES)
    for name in FAMILIES:
        account.schedule(name, f"{name}:1")
    act = ("--register", "--update-schedules")
    answer = interrupted.proxy.answer
    calls: list[str] = []

    def expire(request: Any, body: bytes) -> Any:
        target = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        calls.append(target or f"{request.command} {request.path}")
        nth = 2 if operation == "RegisterTaskDefinition" else 1
        if calls.count(operation) < nth:
            return answer(request, body)
        said = {"__type": "ExpiredTokenException", "message": "The security token is expired"}
        return 400, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(said).encode()

    answer_here(interrupted.proxy.url, expire)
    done = account.resize(*act)
    assert done.returncode == 1
    assert "moved schedule hourly to hourly:2\n" in done.stdout
    assert "nightly: " in done.stderr
    assert "the credentials have expired, so sign in again (aws sso login)." in done.stderr
    assert "It is unknown whether somebody has changed meanwhile what starts the" in done.stderr
    registered = 1 if operation == "RegisterTaskDefinition" else 2
    assert account.newest("nightly", "weekly") == [registered, 1]

    answer_here(interrupted.proxy.url, answer)
    again = account.resize(*FAMILIES, *act)
    assert again.returncode == 0, again.stderr
    assert [account.started_by_schedule(name) for name in FAMILIES] == [
        f"{name}:{number}" for name, number in zip(FAMILIES, account.newest(*FAMILIES), strict=True)
    ]
    assert account.newest(*FAMILIES) == [2, 2, 2]


def test_policies_are_attached_until_the_signal(interrupted: Interrupted) -> None:
    account = interrupted.account
    iam = account.aws.client("iam")
    for name in FAMILIES:
        iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")
        container = {**BATCH, **logs_to(f"/ecs/{name}")}
        role = f"arn:aws:iam::{ACCOUNT}:role/{name}"
        account.family(name, containerDefinitions=[container], taskRoleArn=role)
    act = ("taskdef", "add-monitor", *FAMILIES, *IMAGE, "--attach-policy", "--register")
    interrupted.at("PutRolePolicy", 2, signal.SIGTERM)
    done = account.command(*act)
    assert done.returncode == 143, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("attached ")]
    assert [line.split()[-1] for line in said] == ["hourly", "nightly"]
    assert last_line(done) == "task-profiler: 3 families: 2 policies attached."
    assert account.newest(*FAMILIES) == [1, 1, 1]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_redrive_says_what_it_has_sent(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    queues = Queues()
    accept: Callable[..., None] = queues.clients["lambda"].invoke

    def interrupt(**given: Any) -> None:
        accept(**given)
        if queues.accepted.total() == EVENTS + 3:
            os.kill(os.getpid(), signal.SIGTERM)

    queues.clients["lambda"].invoke = interrupt
    monkeypatch.setattr(setup_commands, "open_clients", lambda *_: queues.open)
    words = ["task-profiler", "setup", "redrive", "--yes"]
    monkeypatch.setattr(sys, "argv", [*words, "--json"] if as_json else words)
    assert ended_with() == 143
    out = capfd.readouterr().out
    if as_json:
        rows = [*map(json.loads, out.splitlines())]
        assert [(row["function"], row["events"]) for row in rows] == [
            ("forward-logs", EVENTS),
            ("task-stopped", 3),
        ]
    else:
        assert out.endswith("Sent 3 events to task-stopped again.\n")
    assert queues.accepted.total() == EVENTS + 3
    assert all(queues.messages["task-stopped"].values())  # nothing stays hidden

    queues.clients["lambda"].invoke = accept
    assert ended_with() == 0
    assert set(queues.accepted.values()) == {1}
    assert len(queues.accepted) == 2 * EVENTS


def test_a_redrive_that_fails_says_what_it_has_sent(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    queues = Queues()
    accept: Callable[..., None] = queues.clients["lambda"].invoke

    def fail(**given: Any) -> None:
        if queues.accepted.total() == 3:
            raise TaskProfilerError("AWS refuses.")
        accept(**given)

    queues.clients["lambda"].invoke = fail
    monkeypatch.setattr(setup_commands, "open_clients", lambda *_: queues.open)
    monkeypatch.setattr(sys, "argv", ["task-profiler", "setup", "redrive", "--yes", "--json"])
    assert ended_with() == 1
    (row,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert (row["function"], row["events"]) == ("forward-logs", 3)


def ended_with() -> object:
    """The exit code of the command line."""
    with pytest.raises(SystemExit) as ended:
        run_command_line()
    return ended.value.code


class StoppingSlack(FakeSlack):
    """Raises a signal while a message is sent."""

    def _taken(self, request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        os.kill(os.getpid(), signal.SIGINT)
        return super()._taken(request, body)


def test_a_notification_reaches_all_channels_before_the_signal_ends(
    tmp_path: Path, interrupted: Interrupted
) -> None:
    event = tmp_path / "event.json"
    event.write_text(json.dumps(EVENT))
    with StoppingSlack() as slack:
        variables = {
            "SLACK_FAILURE_WEBHOOK_URL": slack.webhook_url,
            "EVENT_BUS_NAME": "default",
        }
        done = interrupted.account.command("notify", str(event), "--yes", **variables)
        assert done.returncode == 130, done.stderr
        assert len(slack.messages) == 1
    assert interrupted.proxy.operations == ["PutEvents"]
    assert last_line(done) == "task-profiler: It stops when the notification is sent."


class StoppingDashboards(PlayedDashboards):
    """Raises a signal while a path of the console is asked for."""

    def __init__(self, path: str) -> None:
        super().__init__("8.12.0")
        self._path = path

    def _console(self, path: str, body: bytes) -> tuple[int, Any]:
        if self._path in path:
            os.kill(os.getpid(), signal.SIGTERM)
        return super()._console(path, body)


def test_an_import_ends_after_the_step_in_work(interrupted: Interrupted) -> None:
    with StoppingDashboards("task-notices") as ui:
        done = interrupted.account.command("kibana", "import", "--url", ui.url, "--json")
    assert done.returncode == 143, done.stdout + done.stderr
    done_steps = [json.loads(line)["what"] for line in done.stdout.splitlines()]
    assert done_steps[-1] == "index template task-notices"
    assert len(done_steps) == len(ui.put)
    assert ui.imports == []


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_an_act_goes_on_when_nobody_reads_it_any_more(
    interrupted: Interrupted, closed: str
) -> None:
    """Such as with ``| head -1``, which closes the pipe."""
    account = interrupted.account
    for name in FAMILIES:
        account.family(name, containerDefinitions=[BATCH])
        account.schedule(name, f"{name}:1")
    act = ("taskdef", "add-monitor", *FAMILIES, *IMAGE, "--register", "--update-schedules")
    words = (sys.executable, "-m", "profiler", *act, *(["--json"] if closed == "stderr" else []))
    reader, writer = os.pipe()
    os.close(reader)
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, **account.aws.environment()}
    try:
        done = subprocess.run(
            words, **streams | {closed: writer}, env=environment, text=True, check=False
        )
    finally:
        os.close(writer)
    assert done.returncode == 0, done.stderr
    assert account.newest(*FAMILIES) == [2, 2, 2]
    assert [account.started_by_schedule(name) for name in FAMILIES] == [
        f"{name}:2" for name in FAMILIES
    ]
    if closed == "stdout":
        assert last_line(done) == "task-profiler: 3 families: 3 registered, 3 schedules moved."


def test_a_full_disk_below_standard_output_is_no_failure_of_aws(
    interrupted: Interrupted, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = interrupted.account
    account.oversized("nightly")
    account.schedule("nightly", "nightly:1")
    write = standard_streams.write_out

    def fill(data: bytes, descriptor: int = standard_streams.STDOUT) -> None:
        if b"registered nightly" in data:
            raise TaskProfilerError("Cannot write to standard output (No space left on device).")
        write(data, descriptor)

    monkeypatch.setattr(printing, "write_out", fill)
    done = account.resize("--register", "--update-schedules")
    assert "\nregistered nightly:2\n" in done.stderr
    assert last_line(done) == "task-profiler: 1 registered, 1 schedule moved."
    assert account.started_by_schedule("nightly") == "nightly:2"

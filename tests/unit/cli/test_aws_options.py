"""Region and profile of the commands that use AWS."""

import os
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import click
import pytest
from botocore.exceptions import EndpointConnectionError

from profiler.aws_account.aws_errors import UNKNOWN_REGION
from profiler.cli.app import group
from profiler.cli.wiring.aws_options import aws_environment, check_region, open_clients
from profiler.core.commands_to_copy import command_line
from profiler.core.errors import TaskProfilerError
from tests.command_line import run_here


def test_a_client_has_the_region_of_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 alone reads AWS_DEFAULT_REGION."""
    environment = aws_environment(None, None, {"AWS_REGION": "eu-west-1"})
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert open_clients(None, None)("logs").meta.region_name == "eu-west-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", environment["AWS_DEFAULT_REGION"])
    assert boto3.Session().region_name == "eu-west-1"


@pytest.mark.parametrize(
    ("variables", "profile", "attempts"),
    [
        ({}, None, 11),
        ({"AWS_MAX_ATTEMPTS": "2"}, None, 2),
        ({}, "patient", 30),
        ({"AWS_MAX_ATTEMPTS": "2"}, "patient", 2),
    ],
)
def test_the_users_number_of_attempts_is_kept(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variables: dict[str, str],
    profile: str | None,
    attempts: int,
) -> None:
    file = tmp_path / "config"
    file.write_text("[profile patient]\nmax_attempts = 30\n")
    for name, value in ({"AWS_CONFIG_FILE": str(file)} | variables).items():
        monkeypatch.setenv(name, value)
    assert (
        open_clients("eu-west-1", profile)("ecs").meta.config.retries["total_max_attempts"]
        == attempts
    )


def test_a_wrong_command_leaves_no_option_to_the_next_one_of_its_process() -> None:
    words = ["taskdef", "resize", "--profile", "other", "--min-runs", "none"]
    with pytest.raises(click.UsageError) as wrong:  # whose traceback keeps the command's context
        group.main(words, standalone_mode=False)
    assert command_line("schedules") == "task-profiler schedules"
    assert "--min-runs" in wrong.value.format_message()


def test_the_parts_of_a_command_share_its_clients() -> None:
    """A new session costs a tenth of a second. Another Region, profile or command has its own."""
    with click.Context(click.Command("resize")):
        clients = open_clients("eu-west-1", None)
        with click.Context(click.Command("part"), parent=click.get_current_context()):
            assert open_clients("eu-west-1", None)("logs") is clients("logs")
        assert open_clients("us-east-1", None)("logs") is not clients("logs")
    with click.Context(click.Command("resize")):
        assert open_clients("eu-west-1", None)("logs") is not clients("logs")


def test_a_throttled_call_waits_for_half_a_minute_at_most_and_says_so(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Once, however many clients and calls wait. Other errors have botocore's own waits."""
    open_client = open_clients("eu-west-1", None)

    def waits(service: str, operation: str, code: str) -> list[float]:
        meta = open_client(service).meta
        model = meta.service_model
        response = SimpleNamespace(status_code=400, headers={}), {"Error": {"Code": code}}
        call: Any = {
            "response": response,
            "caught_exception": None,
            "request_dict": {"context": {}},
        }
        event = f"needs-retry.{model.service_id.hyphenize()}.{operation}"
        call["operation"] = model.operation_model(operation)
        emitted = (
            meta.events.emit(event, attempts=attempt, **call)[0][1] for attempt in range(1, 12)
        )
        return list(takewhile(bool, emitted))

    for service, operation in (("logs", "FilterLogEvents"), ("ecs", "ListTasks")):
        assert sum(waits(service, operation, "ThrottlingException")) == 23
        assert waits(service, operation, "Other") == []
    sentence = (
        "AWS returned ThrottlingException, because there are too many calls: trying again for up "
        "to half"
    )
    assert capfd.readouterr().err == f"task-profiler: {sentence} a minute.\n"


def test_a_connection_that_cannot_be_made_is_announced_once_by_its_third_attempt(
    capfd: pytest.CaptureFixture[str],
) -> None:
    meta = open_clients("eu-west-1", None)("ecs").meta
    call: Any = {"response": None, "request_dict": {"context": {}}}
    call["operation"] = meta.service_model.operation_model("ListTasks")
    call["caught_exception"] = EndpointConnectionError(endpoint_url="https://ecs.example.com")
    said = []
    for attempt in (1, 2, 3, 4, 1, 2, 3):
        meta.events.emit("needs-retry.ecs.ListTasks", attempts=attempt, **call)
        said.append(capfd.readouterr().err)
    sentence = "task-profiler: AWS cannot be reached yet: trying again for up to a minute.\n"
    assert said == ["", "", sentence, "", "", "", ""]


def test_a_function_is_awaited_until_its_longest_time_and_other_services_are_not() -> None:
    open_client = open_clients("eu-west-1", None)
    assert open_client("lambda").meta.config.read_timeout > 900
    assert open_client("sqs").meta.config.read_timeout == 60


@pytest.mark.parametrize("optional", ["sts", "stepfunctions"])
def test_no_route_to_an_optional_service_costs_seconds_and_none_to_aws_less_than_minutes(
    optional: str,
) -> None:
    """Each attempt lasts a timeout, for the connection or for the answer."""
    open_client = open_clients("eu-west-1", None)
    lookup = open_client(optional).meta.config
    assert lookup.retries["total_max_attempts"] * lookup.connect_timeout <= 5
    assert lookup.retries["total_max_attempts"] * lookup.read_timeout <= 10
    other = open_client("logs").meta.config
    assert other.retries["total_max_attempts"] * other.connect_timeout <= 60


@pytest.mark.parametrize(
    ("config", "profile", "is_known"),
    [
        ("", None, False),
        ("[default]\nregion = eu-west-1\n", None, True),
        ("[default]\noutput = json\n[profile ops]\nregion=eu-west-1\n", None, False),
        ("[profile ops]\nregion=eu-west-1\n", "ops", True),
        ("[profile ops]\nsso_region=eu-west-1\n", "ops", False),
        ("[profile ops]\ns3 =\n  addressing_style = path\nregion = eu-west-1\n", "ops", True),
    ],
)
def test_the_region_is_known_before_boto3_is_imported_if_boto3_knows_it(
    config: str,
    profile: str | None,
    *,
    is_known: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config").write_text(config)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    assert (boto3.Session(profile_name=profile).region_name is not None) == is_known
    if is_known:
        check_region(None, profile)
    else:
        with pytest.raises(TaskProfilerError, match="the Region is unknown: use --region"):
            check_region(None, profile)


def test_setup_that_can_read_nothing_fails_and_a_missing_region_is_said_once() -> None:
    done = run_here({"HOME": os.devnull}, "setup")
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr == f"task-profiler: AWS cannot be used: {UNKNOWN_REGION}\n"
    done = run_here(
        {"HOME": os.devnull, "AWS_REGION": "eu-west-1", "AWS_EC2_METADATA_DISABLED": "true"},
        "setup",
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("there are no AWS credentials") == 3


_PROGRAM = """
import contextlib, sys
from profiler.cli.app import run_command_line
with contextlib.suppress(SystemExit):
    run_command_line()
print(*sys.modules)
"""


@pytest.mark.parametrize(
    "words", [("history", "--from", "https://search"), ("watch", "--cluster", "jobs")]
)
def test_a_missing_region_is_an_error_before_the_slow_imports(words: tuple[str, ...]) -> None:
    """So a terminal of watch gets a sentence, and no screen with an error that stays."""
    environment = {"HOME": os.devnull, "ELASTICSEARCH_AWS_AUTH": "es"}
    command = (sys.executable, "-c", _PROGRAM, *words)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == f"task-profiler: AWS cannot be used: {UNKNOWN_REGION}\n"
    assert {"requests", "boto3", "botocore"}.intersection(done.stdout.split()) == set()

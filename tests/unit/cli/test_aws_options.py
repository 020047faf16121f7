"""Region and profile of the commands that use AWS."""

from pathlib import Path

import boto3
import click
import pytest

from profiler.cli.app import group
from profiler.cli.wiring.aws_options import AwsOptions, aws_client, aws_environment, open_clients


@pytest.mark.parametrize(
    "words",
    [
        ("doctor",),
        ("history",),
        ("notify",),
        ("recommend",),
        ("replay",),
        ("report",),
        ("show",),
        ("taskdef", "add-monitor"),
        ("taskdef", "remove-monitor"),
    ],
    ids=" ".join,
)
def test_every_command_that_uses_aws_takes_a_region_and_a_profile(words: tuple[str, ...]) -> None:
    command: click.Command | None = group
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    assert {"region", "profile"} <= {parameter.name for parameter in command.params}


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        (AwsOptions(), {}, {}),
        (AwsOptions(), {"AWS_REGION": ""}, {}),
        (AwsOptions(), {"AWS_REGION": "eu-west-1"}, {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1"}),
        (
            AwsOptions(region="us-east-2", profile="ops"),
            {"AWS_REGION": "eu-west-1"},
            {"AWS_REGION": "us-east-2", "AWS_DEFAULT_REGION": "us-east-2", "AWS_PROFILE": "ops"},
        ),
    ],
)
def test_another_process_gets_the_region_and_the_profile(
    options: AwsOptions, environment: dict[str, str], expected: dict[str, str]
) -> None:
    assert aws_environment(options, environment) == expected


def test_a_client_has_the_region_that_another_process_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 alone reads AWS_DEFAULT_REGION."""
    environment = aws_environment(AwsOptions(), {"AWS_REGION": "eu-west-1"})
    assert aws_client("logs", AwsOptions(), {"AWS_REGION": "eu-west-1"}).meta.region_name == "eu-west-1"
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
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], profile: str | None, attempts: int
) -> None:
    file = tmp_path / "config"
    file.write_text("[profile patient]\nmax_attempts = 30\n")
    for name, value in ({"AWS_CONFIG_FILE": str(file)} | variables).items():
        monkeypatch.setenv(name, value)
    client = open_clients("eu-west-1", profile)("ecs")
    assert client.meta.config.retries["total_max_attempts"] == attempts


def test_the_users_way_of_repeating_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_RETRY_MODE", "adaptive")
    assert open_clients("eu-west-1", None)("ecs").meta.config.retries["mode"] == "adaptive"


def test_a_function_is_awaited_until_its_longest_time_and_other_services_are_not() -> None:
    open_client = open_clients("eu-west-1", None)
    assert open_client("lambda").meta.config.read_timeout > 900
    assert open_client("sqs").meta.config.read_timeout == 60

"""Region and profile of the commands that use AWS."""

import boto3
import click
import pytest

from profiler.cli.app import group
from profiler.cli.wiring.aws import AwsOptions, aws_client, aws_environment


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

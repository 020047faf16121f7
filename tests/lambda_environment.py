"""A new Lambda environment for the handler, which caches settings and clients between
invocations, and its table.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import boto3
import pytest
from aws_lambda_powertools.utilities import parameters
from moto import mock_aws
from packaging.requirements import Requirement

import handler
from profiler.core import queue_messages
from tools.moto_server import patched_moto

_RUNNER = (
    "import sys; sys.path[:0] = {paths!r}; from awslambdaric.__main__ import main; main(['', "
    "{handler!r}])"
)


class InvocationContext:
    """Lambda's context of an invocation, whose remaining time falls with each reading."""

    function_name = "function"

    def __init__(self, left_ms: int = 60_000, *, falls_by_ms: int = 0) -> None:
        self.left_ms = left_ms
        self._falls_by_ms = falls_by_ms

    def get_remaining_time_in_millis(self) -> int:
        self.left_ms -= self._falls_by_ms
        return self.left_ms

    def sleep(self, seconds: float) -> None:
        self.left_ms -= round(1000 * seconds)


class DigestContext(InvocationContext):
    function_name = "profiler-morning-digest"
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:profiler-morning-digest"


@contextmanager
def moto_account(monkeypatch: pytest.MonkeyPatch, region: str, **settings: str) -> Iterator[None]:
    """An empty account of moto's AWS in this Region, and these variables."""
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    for name, value in {
        **keys,
        "AWS_DEFAULT_REGION": region,
        "AWS_REGION": region,
        **settings,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(queue_messages, "LONG_POLL_SECONDS", 0)  # moto waits in real time
    with patched_moto(), mock_aws():
        yield


@contextmanager
def function_environment(monkeypatch: pytest.MonkeyPatch, **settings: str) -> Iterator[None]:
    """A new Lambda environment with these settings, in moto's AWS."""
    with moto_account(monkeypatch, "us-west-2", AWS_LAMBDA_FUNCTION_NAME="function", **settings):
        forget_environment()
        yield
    forget_environment()


def forget_environment() -> None:
    """Clear all caches, as in a new Lambda environment."""
    for value in vars(handler).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
    parameters.clear_caches()  # type: ignore[no-untyped-call]


def create_idempotency_table(name: str, dynamodb: Any = None) -> None:
    """Create the table that ``IDEMPOTENCY_TABLE`` names, as the template does."""
    (dynamodb or boto3.client("dynamodb")).create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def register_revisions(family: str, containers: Sequence[Any]) -> None:
    """Register the five revisions up to that of the tests' events."""
    for _ in range(5):
        boto3.client("ecs").register_task_definition(family=family, containerDefinitions=containers)


def runtime_folder(folder: Path) -> Path:
    """What Lambda's runtime contains: the runtime client and boto3, without the rest of this
    project's environment.
    """
    names, needed = ["awslambdaric", "boto3"], set[str]()
    while names:
        installed = distribution(names.pop())
        for path in {file.parts[0] for file in installed.files or ()} - {
            "..",
            "__pycache__",
            *needed,
        }:
            (folder / path).symlink_to(str(installed.locate_file(path)))
            needed.add(path)
        required = [Requirement(line) for line in installed.requires or ()]
        names += [
            one.name for one in required if one.marker is None or one.marker.evaluate({"extra": ""})
        ]
    return folder


def runtime_command(task_root: Path, runtime: Path, function: str) -> list[str]:
    """Start the runtime client as Lambda does: with its own folder and the zip's, and nothing
    else.
    """
    code = _RUNNER.format(paths=[str(task_root), str(runtime)], handler=f"handler.{function}")
    return [sys.executable, "-I", "-S", "-c", code]

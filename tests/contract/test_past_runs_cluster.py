"""``--elasticsearch`` at something else than a cluster."""

from contextlib import closing

import pytest
from click.testing import CliRunner

from profiler.cli.app import group
from profiler.core.errors import TaskProfilerError
from tests.http_server import OneAnswer


def error_of(server: OneAnswer, command: str = "show") -> str:
    with closing(server):
        address = server.url.replace("http://", "http://me:secret@")
        result = CliRunner().invoke(group, [command, "--elasticsearch", address])
    assert isinstance(result.exception, TaskProfilerError)
    return str(result.exception)


@pytest.mark.parametrize("command", ["show", "history", "recommend"])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b'{"status": "ok"}'),
        (200, b"[]"),
        (200, b'{"hits": []}'),
        (200, b"<html>Sign in</html>"),
        (404, b"<html>nothing here</html>"),
        (404, b'{"message": "no such route"}'),
    ],
)
def test_something_else_is_named_with_its_address(command: str, status: int, body: bytes) -> None:
    server = OneAnswer(status, body)
    assert error_of(server, command) == (
        f"{server.url} did not answer as Elasticsearch or OpenSearch does (HTTP {status}): check the address, and that "
        "no proxy or sign-in page answers instead."
    )


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, b"", "no reason given"),
        (400, b'{"error": {"root_cause": [{"reason": "no mapping"}]}}', "no mapping"),
    ],
)
def test_a_refusal_of_a_cluster_has_its_address(status: int, body: bytes, reason: str) -> None:
    server = OneAnswer(status, body)
    assert error_of(server).startswith(f"{server.url} rejected the search (HTTP {status}: {reason}): ")

"""Requests to the Docker daemon over its socket."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.core.clock import SystemClock
from profiler.readers import Unavailable
from profiler.readers.docker.docker_api import DockerApi
from profiler.readers.docker.ecs_container import EcsContainer
from tests.fake_docker_daemon import RECORDED, FakeDockerDaemon

ENDED = RECORDED["ended"]
ANSWERS = {
    "/containers/json?all=true&filters=": json.dumps(RECORDED["list"]).encode(),
    f"/containers/{ENDED['Id']}/json": json.dumps(ENDED).encode(),
}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDockerDaemon]:
    daemon = FakeDockerDaemon(tmp_path / "docker.sock", ANSWERS)
    yield daemon
    daemon.close()


@pytest.fixture
def api(daemon: FakeDockerDaemon) -> Iterator[DockerApi]:
    api = DockerApi(daemon.path, SystemClock())
    yield api
    api.close()


def test_the_containers_of_tasks_are_listed_and_described(api: DockerApi) -> None:
    listed = api.containers()
    assert not isinstance(listed, Unavailable)
    assert [*listed] == [one["Id"] for one in RECORDED["list"]]
    found = api.inspect(ENDED["Id"])
    assert isinstance(found, EcsContainer)
    assert found.exit_code == 137


def test_a_container_that_was_removed_is_gone(api: DockerApi) -> None:
    assert api.inspect("0" * 64) == Unavailable(f"/containers/{'0' * 64}/json answered HTTP 404", is_gone=True)


def test_no_document_is_kept(api: DockerApi) -> None:
    """A connection that keeps responses, to decode none twice, would keep the environment of each container."""
    api.inspect(ENDED["Id"])
    connection = api._endpoint._connection
    assert connection is not None
    assert connection.is_open
    assert not connection._known
    assert not connection._requests


def test_without_a_daemon_the_reason_says_so(daemon: FakeDockerDaemon, tmp_path: Path) -> None:
    assert DockerApi(str(tmp_path / "other"), SystemClock()).inspect("a") == Unavailable(
        "/containers/a/json cannot be read: FileNotFoundError"
    )

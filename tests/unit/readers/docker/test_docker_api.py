"""Requests to the Docker daemon; the stream of its events, its lines, a daemon that comes back,
and its end.
"""

import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.clock import SystemClock
from profiler.core.log import Log
from profiler.readers import Unavailable
from profiler.readers.docker.docker_api import (
    ContainerEvent,
    DockerApi,
    DockerEvents,
    connect_docker,
    parse_event,
)
from profiler.readers.docker.ecs_container import EcsContainer
from tests.fake_docker_daemon import RECORDED, FakeDockerDaemon
from tests.values import mutated
from tools.waiting import LIMIT_SECONDS

LINES = [json.dumps(event).encode() for event in RECORDED["events"]]
EVENTS = [event for line in LINES if (event := parse_event(line)) is not None]
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
    listed = api.list_containers()
    assert not isinstance(listed, Unavailable)
    assert [one.docker_id for one in listed] == [one["Id"] for one in RECORDED["list"]]
    found = api.inspect_container(ENDED["Id"])
    assert isinstance(found, EcsContainer)
    assert found.exit_code == 137
    assert api.inspect_container("0" * 64) == Unavailable(
        f"/containers/{'0' * 64}/json answered HTTP 404", is_gone=True
    )


def test_no_document_is_kept(api: DockerApi) -> None:
    """A connection that keeps responses, to decode none twice, would keep the environment of
    each container.
    """
    api.inspect_container(ENDED["Id"])
    connection = api._endpoint._connection
    assert connection is not None
    assert connection.is_open
    assert not connection._known
    assert not connection._requests


def test_without_a_daemon_the_reason_says_so(tmp_path: Path) -> None:
    assert DockerApi(str(tmp_path / "other"), SystemClock()).inspect_container("a") == Unavailable(
        "/containers/a/json cannot be read: FileNotFoundError"
    )


class Stream:
    """The stream of a daemon, and a wait for its news."""

    def __init__(self, path: str, since_ns: int | None = None) -> None:
        self._news = threading.Semaphore(0)
        self.events = DockerEvents(
            partial(connect_docker, path), self._news.release, Log(), SystemClock(), since_ns
        )
        self.events.start()

    def next_batch(self, count: int = 1) -> list[ContainerEvent | None]:
        """What is new after ``count`` news."""
        for _ in range(count):
            assert self._news.acquire(timeout=LIMIT_SECONDS)
        return self.events.take_new_events()


@pytest.fixture
def stream(daemon: FakeDockerDaemon) -> Iterator[Stream]:
    stream = Stream(daemon.path)
    assert stream.next_batch() == [None]
    yield stream
    stream.events.stop(LIMIT_SECONDS)


def test_two_recorded_runs_of_which_one_was_killed_and_one_ran_out_of_memory() -> None:
    """The stop sends SIGTERM, then SIGKILL."""
    first = [event for event in EVENTS if event.docker_id == EVENTS[0].docker_id]
    assert [(event.action, event.signal, event.exit_code) for event in first] == [
        ("start", None, None),
        ("kill", 15, None),
        ("kill", 15, None),
        ("kill", 9, None),
        ("die", None, 137),
        ("destroy", None, None),
    ]
    second = [event for event in EVENTS if event.docker_id != EVENTS[0].docker_id]
    assert [event.action for event in second] == ["start", "oom", "die", "destroy"]
    assert all(event.task_arn.startswith("arn:aws:ecs:") for event in EVENTS)
    # API 1.48 has neither ``status`` nor ``id`` nor ``from``.
    line = b'{"Type":"container","Action":"die","Actor":{"ID":"a","Attributes":{"exitCode":"3"}},"timeNano":7}'
    assert parse_event(line) == ContainerEvent(action="die", docker_id="a", time_ns=7, exit_code=3)


@given(mutated(*RECORDED["events"]) | st.binary(max_size=9))
def test_no_line_raises(event: Any) -> None:
    parse_event(event if isinstance(event, bytes) else json.dumps(event).encode())


@pytest.mark.parametrize("cut", [0, 1, 300, len(LINES[0]), len(LINES[0]) + 1])
def test_lines_may_be_divided_and_joined(
    daemon: FakeDockerDaemon, stream: Stream, cut: int
) -> None:
    text = b"\n".join([*LINES[:2], b"no JSON", b""])
    daemon.send(*(part for part in (text[:cut], text[cut:]) if part))
    assert stream.next_batch(2) == EVENTS[:2]


def test_a_stream_that_is_lost_continues_after_the_last_event(
    daemon: FakeDockerDaemon, stream: Stream
) -> None:
    daemon.send(LINES[0] + b"\n")
    assert stream.next_batch() == [EVENTS[0]]
    daemon.hang_up()
    assert stream.next_batch() == [None]
    daemon.send(LINES[1] + b"\n")
    assert stream.next_batch() == [EVENTS[1]]
    following_ns = EVENTS[0].time_ns + 1
    assert f"since={following_ns // 10**9}.{following_ns % 10**9:09}&" in daemon.paths[1]


def test_a_daemon_that_starts_later_is_found(tmp_path: Path) -> None:
    stream = Stream(str(tmp_path / "docker.sock"), since_ns=5)
    daemon = FakeDockerDaemon(tmp_path / "docker.sock", {})
    assert stream.next_batch() == [None]
    assert "since=0.000000005&" in daemon.paths[0]
    stream.events.stop(LIMIT_SECONDS)
    daemon.close()


def test_too_many_events_that_nobody_takes_make_the_list_stale(
    daemon: FakeDockerDaemon, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profiler.readers.docker.docker_api._MAX_WAITING", 2)
    daemon.send(*(line + b"\n" for line in LINES[:4]))
    assert stream.next_batch(4) == [None, EVENTS[3]]

"""The containers of ECS tasks and their events by Docker's API. Only GET requests: nothing is
changed.
"""

import json
import re
import select
import socket
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import quote

import msgspec
from msgspec import Struct

from profiler.core.clock import Clock
from profiler.core.json_fields import (
    Json,
    count_or_none,
    decoded_or_none,
    mapping_or_empty,
    text_or_none,
)
from profiler.core.log import Log
from profiler.core.signal_handler import SignalHandler
from profiler.core.threads import StoppableThread, ThreadFailure, WakeEvent
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import SourceHealth, Unavailable
from profiler.readers.docker.ecs_container import (
    TASK_ARN_LABEL,
    EcsContainer,
    ListedContainer,
    decode_container,
    decode_list,
)
from profiler.readers.ecs.endpoint_client import HttpEndpoint
from profiler.readers.keep_alive_http import HttpConnection, HttpError

SOCKET = "/var/run/docker.sock"
_HOST = "docker"  # the name in the requests; a socket has none
# The list has some 3 kB for each container, and the agent keeps ended ones for three hours.
_MAX_RESPONSE_BYTES = 16 * 1024 * 1024
_ACTIONS = ("start", "kill", "oom", "die", "destroy")
_FILTERS = quote(json.dumps({"type": ["container"], "event": _ACTIONS, "label": [TASK_ARN_LABEL]}))
_CONNECT_SECONDS = 5.0
_FIRST_DELAY_SECONDS = 0.25
_MAX_DELAY_SECONDS = 5.0
_MAX_CHUNK_BYTES = 1024 * 1024
_MAX_LINE_BYTES = _MAX_CHUNK_BYTES
_MAX_WAITING = 10_000
_NUMBER = re.compile("[0-9]{1,9}")


class DockerApi:
    """Requests without a version in the path get the daemon's own version."""

    def __init__(self, path: str, clock: Clock, stop_signal: SignalHandler | None = None) -> None:
        self._endpoint = HttpEndpoint(
            f"http://{_HOST}",
            1.0,
            clock,
            stop_signal,
            connect=partial(connect_docker, path),
            max_response_bytes=_MAX_RESPONSE_BYTES,
        )

    def list_containers(self) -> tuple[ListedContainer, ...] | Unavailable:
        """The containers of ECS tasks, ended ones included."""
        filters = quote(json.dumps({"label": [TASK_ARN_LABEL]}))
        body = self._endpoint.get_body(f"/containers/json?all=true&filters={filters}")
        return body if isinstance(body, Unavailable) else decode_list(body)

    def inspect_container(self, docker_id: str) -> EcsContainer | Unavailable:
        """One container; unavailable and ``is_gone`` after its removal."""
        body = self._endpoint.get_body(f"/containers/{quote(docker_id)}/json")
        return body if isinstance(body, Unavailable) else decode_container(body)

    def close(self) -> None:
        self._endpoint.close()


def connect_docker(path: str, timeout_seconds: float) -> socket.socket:
    """Connect to the daemon's socket. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_seconds)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


class ContainerEvent(Struct, frozen=True, kw_only=True):
    """One event of a container. ``signal`` is that of ``kill``, ``exit_code`` that of ``die``."""

    action: str
    docker_id: str
    time_ns: int
    task_arn: str = ""
    signal: int | None = None
    exit_code: int | None = None


class DockerEvents:
    """The stream until ``stop``.

    ``on_news`` is called in the stream's thread when :meth:`take_new_events` has something new.

    A stream that is lost is opened again with a growing delay, from the last event on: Docker
    repeats its last 256 events, unless the daemon itself was restarted. ``since_ns`` is where the
    first stream begins; None: now.
    """

    def __init__(
        self,
        connect: Callable[[float], socket.socket],
        on_news: Callable[[], None],
        log: Log,
        clock: Clock,
        since_ns: int | None = None,
    ) -> None:
        self._connection = HttpConnection(
            connect, _HOST, self._wait_readable, _MAX_CHUNK_BYTES, keeps_responses=False
        )
        self._on_news = on_news
        self._health = SourceHealth("Docker's stream of events", log)
        self._clock = clock
        self._since_ns = since_ns
        self._news: deque[ContainerEvent | None] = deque()
        self._wake = WakeEvent()
        self._thread = StoppableThread("docker-events", self._read_streams, self._wake.set, clock)

    @property
    def failure(self) -> ThreadFailure | None:
        """The error that has ended the thread: there will be no more events."""
        return self._thread.failure

    def start(self) -> None:
        self._thread.start()

    def stop(self, max_seconds: float) -> None:
        if self._thread.stop(max_seconds):
            self._wake.close()

    def take_new_events(self) -> list[ContainerEvent | None]:
        """What is new, without a wait; None: the stream has begun or dropped events, so that the
        list is to be read.
        """
        return [self._news.popleft() for _ in range(len(self._news))]

    def _read_streams(self) -> None:
        delay_seconds = _FIRST_DELAY_SECONDS
        while not self._thread.is_stopping:
            try:
                for line in self._stream_lines():
                    delay_seconds = _FIRST_DELAY_SECONDS
                    self._keep_event(line)
                reason = "the stream has ended"
            except HttpError as error:
                reason = str(error)
            except OSError as error:
                reason = type(error).__name__
            if not self._thread.is_stopping:
                self._health.on_failure(Unavailable(reason))
                self._wake.wait(delay_seconds)
                delay_seconds = min(2 * delay_seconds, _MAX_DELAY_SECONDS)

    def _stream_lines(self) -> Iterator[bytes]:
        """The lines of a new stream; an empty one when it has begun."""
        if self._since_ns is None:
            self._since_ns = self._clock.wall_ns()
        since = f"{self._since_ns // NS_PER_SECOND}.{self._since_ns % NS_PER_SECOND:09}"
        begun = b""
        for chunk in self._connection.stream_chunks(
            f"/events?since={since}&filters={_FILTERS}", _CONNECT_SECONDS
        ):
            *lines, begun = (begun + chunk).split(b"\n")
            yield from lines or ([] if chunk else [b""])
            if len(begun) > _MAX_LINE_BYTES:
                raise HttpError(f"a line of the stream is longer than {_MAX_LINE_BYTES} bytes")

    def _keep_event(self, line: bytes) -> None:
        event = parse_event(line)
        if not line:
            self._health.on_success()
        elif event is None:
            return
        else:
            self._since_ns = event.time_ns + 1
        if len(self._news) >= _MAX_WAITING:
            self._news.clear()
            event = None
        self._news.append(event)
        self._on_news()

    def _wait_readable(self, source: socket.socket) -> None:
        """Wait for data without a limit: nothing may happen for days.

        Raises TimeoutError after ``stop``.
        """
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(self._wake.descriptor, select.POLLIN)
        poll.poll()
        if self._thread.is_stopping:
            raise TimeoutError


def parse_event(line: bytes) -> ContainerEvent | None:
    """One line of the stream; None if it is not one of :data:`_ACTIONS`."""
    event = mapping_or_empty(decoded_or_none(msgspec.json.decode, line))
    actor = mapping_or_empty(event.get("Actor"))
    attributes = mapping_or_empty(actor.get("Attributes"))
    action = text_or_none(event.get("Action"))
    docker_id = text_or_none(actor.get("ID"))
    time_ns = count_or_none(event.get("timeNano"))
    if action not in _ACTIONS or docker_id is None or time_ns is None:
        return None
    return ContainerEvent(
        action=action,
        docker_id=docker_id,
        time_ns=time_ns,
        task_arn=text_or_none(attributes.get(TASK_ARN_LABEL)) or "",
        signal=_parse_number_text(attributes.get("signal")),
        exit_code=_parse_number_text(attributes.get("exitCode")),
    )


def _parse_number_text(value: Json) -> int | None:
    """A number that Docker writes as text."""
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None

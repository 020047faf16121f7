"""What happens to the containers of ECS tasks: one stream of Docker's events, read in its own thread."""

import json
import select
import socket
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from urllib.parse import quote

import msgspec
from msgspec import Struct

from profiler.core.clock import Clock
from profiler.core.json_fields import Json, count, integer, text
from profiler.core.threads import StoppableThread, WakeEvent
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import SourceHealth, Unavailable
from profiler.readers.docker.docker_api import DOCKER_HOST
from profiler.readers.docker.ecs_container import TASK_ARN_LABEL
from profiler.readers.keep_alive_http import HttpConnection, HttpError

ACTIONS = ("start", "kill", "oom", "die", "destroy")
_CONNECT_SECONDS = 5.0
_MAX_BACK_OFF_SECONDS = 5.0
_MAX_CHUNK_BYTES = 1024 * 1024
_MAX_WAITING = 10_000


class ContainerEvent(Struct, frozen=True, kw_only=True):
    """One event of a container. ``signal`` is that of ``kill``, ``exit_code`` that of ``die``."""

    action: str
    docker_id: str
    time_ns: int
    signal: int | None = None
    exit_code: int | None = None


class EventBatch(Struct, frozen=True, kw_only=True):
    """The events since the last call, in their order.

    ``is_list_stale``: the stream has begun, or begun again: read the list of containers, then nothing is missed.
    """

    events: tuple[ContainerEvent, ...]
    is_list_stale: bool


class DockerEvents:
    """The stream until ``stop``. ``on_news`` is called in the stream's thread when :meth:`take` has something new."""

    def __init__(
        self,
        connect: Callable[[float], socket.socket],
        on_news: Callable[[], None],
        health: SourceHealth,
        clock: Clock,
        since_ns: int | None = None,
    ) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def take(self) -> EventBatch:
        raise NotImplementedError

    def stop(self, max_seconds: float) -> None:
        raise NotImplementedError


def parse_event(line: bytes) -> ContainerEvent | None:
    """One line of the stream; None if it is not an event of :data:`ACTIONS`."""
    raise NotImplementedError

"""Docker's API over its Unix socket. Only GET requests: this program changes nothing on the machine."""

import json
import socket
from functools import partial
from urllib.parse import quote

from profiler.core.clock import Clock
from profiler.core.stop_request import SignalHandler
from profiler.readers import Unavailable
from profiler.readers.docker.ecs_container import (
    TASK_ARN_LABEL,
    EcsContainer,
    ListedContainer,
    decode_container,
    decode_list,
)
from profiler.readers.ecs.endpoint_client import HttpEndpoint

SOCKET = "/var/run/docker.sock"
DOCKER_HOST = "docker"  # the name in the requests; a socket has none
_ADDRESS = f"http://{DOCKER_HOST}"
# The list has some 3 kB for each container, and the agent keeps ended ones for three hours.
_MAX_RESPONSE_BYTES = 16 * 1024 * 1024


class DockerApi:
    """Requests without a version in the path get the daemon's own version."""

    def __init__(self, path: str, clock: Clock, stop_signal: SignalHandler | None = None) -> None:
        self._endpoint = HttpEndpoint(
            _ADDRESS,
            1.0,
            clock,
            stop_signal,
            connect=partial(connect_docker, path),
            max_response_bytes=_MAX_RESPONSE_BYTES,
        )

    def containers(self) -> tuple[ListedContainer, ...] | Unavailable:
        """The containers of ECS tasks, ended ones included."""
        filters = quote(json.dumps({"label": [TASK_ARN_LABEL]}))
        body = self._endpoint.get(f"/containers/json?all=true&filters={filters}")
        return body if isinstance(body, Unavailable) else decode_list(body)

    def inspect(self, docker_id: str) -> EcsContainer | Unavailable:
        """One container; unavailable and ``is_gone`` after its removal."""
        body = self._endpoint.get(f"/containers/{quote(docker_id)}/json")
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

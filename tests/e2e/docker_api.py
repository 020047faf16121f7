"""A small client of the Docker Engine API over the daemon's unix socket.

The API is used and not the command line wherever answers are read: its documents are what the ECS agent itself
passes on, and a call costs a millisecond where starting the command costs thirty.
"""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

_CALL_SECONDS = 60.0


class DockerError(Exception):
    """The daemon answered a call with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"Docker answered {status}: {message}")
        self.status = status


class _UnixConnection(http.client.HTTPConnection):
    """An HTTP connection whose other end is a unix socket."""

    def __init__(self, path: Path, timeout: float | None) -> None:
        super().__init__("docker", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Open the socket; called by http.client at the first request."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(frozen=True, slots=True)
class DockerApi:
    """Calls of one daemon; every call has a connection of its own, so threads need no lock."""

    socket_path: Path

    def call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
        seconds: float | None = _CALL_SECONDS,
    ) -> Any:
        """Return the parsed answer, or None when it is empty; `seconds=None` waits as long as it takes."""
        connection = _UnixConnection(self.socket_path, seconds)
        with contextlib.closing(connection):
            answer = self._request(connection, method, path, query, body).read()
        return json.loads(answer) if answer else None

    def stream(self, path: str, *, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the documents of a call that answers one after another, until the daemon ends it."""
        connection = _UnixConnection(self.socket_path, _CALL_SECONDS)
        with contextlib.closing(connection):
            response = self._request(connection, "GET", path, query, None)
            while line := response.readline():
                yield json.loads(line)

    @staticmethod
    def _request(
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        query: dict[str, str] | None,
        body: dict[str, Any] | None,
    ) -> http.client.HTTPResponse:
        target = f"{path}?{urlencode(query)}" if query else path
        payload = None if body is None else json.dumps(body)
        connection.request(method, target, payload, {"Content-Type": "application/json"} if body else {})
        response = connection.getresponse()
        if response.status >= http.client.BAD_REQUEST:
            text = response.read().decode(errors="replace").strip()
            connection.close()
            raise DockerError(response.status, text)
        return response

"""Plays the ECS task metadata endpoint v4 over HTTP for a task made of real containers."""

import json
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol


class TaskView(Protocol):
    """What the endpoint needs of a task; an endpoint id stands for the container that asks."""

    def container_document(self, endpoint_id: str) -> dict[str, Any] | None:
        """Return the asking container's own document, or None for an unknown id."""
        ...

    def task_document(self) -> dict[str, Any]:
        """Return the document of the task."""
        ...

    def stats_documents(self) -> dict[str, dict[str, Any]]:
        """Return Docker's stats by container id, empty where there are none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """One request that the endpoint answered; `path` is what follows the endpoint id, empty for the root."""

    at: float
    path: str
    status: int


class MetadataEndpoint:
    """The server; it answers from the moment of `start` until `close`, on a free port of this machine."""

    def __init__(self, task: TaskView) -> None:
        """Keep the task; the port is opened by `start`."""
        self._task = task
        self._seen: list[SeenRequest] = []
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        """Open the port and answer in threads of this process."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="task metadata endpoint",
            daemon=True,
        ).start()

    def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def url(self, endpoint_id: str) -> str:
        """Return the value of ECS_CONTAINER_METADATA_URI_V4 for one container."""
        if self._server is None:
            raise RuntimeError("the endpoint has not been started")
        return f"http://127.0.0.1:{self._server.server_port}/v4/{endpoint_id}"

    @property
    def requests(self) -> tuple[SeenRequest, ...]:
        """Return every request so far, oldest first."""
        return tuple(self._seen)

    def count(self, path: str) -> int:
        """Return how many requests came for `/task`, `/task/stats`, `/stats` or the root (an empty path)."""
        return sum(seen.path == path for seen in self.requests)

    def answer(self, target: str) -> tuple[HTTPStatus, Any]:
        """Return the status and the document for a request target, and count the request."""
        _, version, endpoint_id, *rest = (*target.split("/"), "", "")
        path = "".join(f"/{part}" for part in rest if part)
        own = self._task.container_document(endpoint_id) if version == "v4" else None
        document = None if own is None else self._document(path, own)
        status = HTTPStatus.NOT_FOUND if document is None else HTTPStatus.OK
        self._seen.append(SeenRequest(at=time.time(), path=path, status=status))
        return status, f"unable to find {target}" if document is None else document

    def _document(self, path: str, own: dict[str, Any]) -> dict[str, Any] | None:
        match path:
            case "":
                return own
            case "/task":
                return self._task.task_document()
            case "/task/stats":
                return self._task.stats_documents()
            case "/stats":
                return self._task.stats_documents().get(own["DockerId"], {})
            case _:
                return None


def _handler(endpoint: MetadataEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are kept open, as the agent keeps them
        disable_nagle_algorithm = True  # head and body go out in two writes

        def do_GET(self) -> None:
            status, document = endpoint.answer(self.path)
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Write nothing; the requests are kept in the endpoint."""

    return Handler

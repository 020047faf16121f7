"""What the monitor lives with, misbehaving on demand: the task metadata endpoint and PutLogEvents."""

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.http_server import FakeHttpServer
from tests.task_endpoint import GROUP, STREAM, Task

_VCPU_USED = 0.4


class FaultyTask(Task):
    """A task whose monitor may be restarted."""

    def __init__(self, *others: str) -> None:
        super().__init__(2)
        self.names += others
        self.monitor_restarts = 0
        self.images: dict[str, str] = {}
        self.monitors_seen: set[str] = set()

    def cpu_seconds(self) -> float:
        """What the batch has used until now."""
        return (time.time() - self.started) * _VCPU_USED

    def container(self, name: str) -> dict[str, object]:
        document = super().container(name)
        document["Image"] = self.images.get(name, document["Image"])
        if name == "task-monitor":
            document["RestartCount"] = self.monitor_restarts
        return document


class FaultyEndpoint:
    """Serves a task to any of its containers; may die and come back at the same address."""

    def __init__(self, task: FaultyTask) -> None:
        self.task = task
        self._port = 0
        self._connections: set[socket.socket] = set()
        self._server = self._serve()
        self._port = self._server.server_address[1]
        self.address = self.address_of("task-monitor")

    def address_of(self, container: str) -> str:
        return f"http://127.0.0.1:{self._port}/v4/{container}"

    def close(self) -> None:
        """Nobody listens any more, and open connections are gone."""
        self._server.shutdown()
        self._server.server_close()
        for connection in tuple(self._connections):
            connection.shutdown(socket.SHUT_RDWR)

    def come_back(self) -> None:
        self._server = self._serve()

    def _serve(self) -> ThreadingHTTPServer:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                outer._connections.add(self.connection)

            def finish(self) -> None:
                outer._connections.discard(self.connection)
                super().finish()

            def do_GET(self) -> None:
                body = json.dumps(outer._document(self.path)).encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                try:
                    self.wfile.write(head.encode() + body)
                except OSError:  # the monitor had stopped waiting
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    def _document(self, path: str) -> dict[str, object]:
        _, _, own, *rest = path.split("/")
        if rest == ["task", "stats"]:
            self.task.monitors_seen.add(own)
        documents: dict[str, Callable[[], dict[str, object]]] = {
            "": lambda: self.task.container(own),
            "task": self.task.task,
            "task/stats": self.task.stats,
        }
        return documents["/".join(rest)]()


@dataclass(frozen=True)
class SecondMonitor:
    """What a second copy of the monitor sees of the same task."""

    endpoint: FaultyEndpoint
    name: str

    @property
    def task(self) -> Task:
        return self.endpoint.task

    @property
    def address(self) -> str:
        return self.endpoint.address_of(self.name)


@dataclass(frozen=True)
class Manner:
    """How PutLogEvents answers.

    ``takes``: the line is kept whatever is answered. ``hangs``: nothing is answered. ``quotes``: the
    answer has the headers of the request, as AWS's own has where a signature is wrong.
    """

    status: int = 200
    takes: bool = True
    hangs: bool = False
    quotes: bool = False


IS_SILENT = Manner(takes=False, hangs=True)
TAKES_AND_IS_SILENT = Manner(hangs=True)


class LogApi(FakeHttpServer):
    """CloudWatch Logs' PutLogEvents. What moto plays always works; this answers in a given manner."""

    def __init__(self) -> None:
        super().__init__()
        self.manner = Manner()
        self.requests = 0
        self.lines: list[str] = []
        self.quoted: list[str] = []
        self._closed = threading.Event()

    def environment(self) -> dict[str, str]:
        """The variables with which boto3 reaches it."""
        return {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_ENDPOINT_URL": self.url,
        }

    def records(self) -> list[dict[str, Any]]:
        """The records of the lines that the batch's stream holds."""
        return [json.loads(line)["record"] for line in self.lines]

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        manner = self.manner
        put = json.loads(body)
        assert (put["logGroupName"], put["logStreamName"]) == (GROUP, STREAM)
        if manner.takes:
            self.lines += [event["message"] for event in put["logEvents"]]
        self.requests += 1
        if manner.hangs:
            self._closed.wait()
        answered = {"nextSequenceToken": "1"}
        if manner.quotes:
            self.quoted.append(str(request.headers))
            message = (
                f"The request signature we calculated does not match.\n\nThe canonical string is\n{request.headers}"
            )
            answered = {"__type": "InvalidSignatureException", "message": message}
        return manner.status, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(answered).encode()

    def close(self) -> None:
        self._closed.set()
        super().close()

"""What the monitor lives with, misbehaving on demand: the task metadata endpoint and
PutLogEvents.
"""

import json
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

from msgspec import Struct

from tests.http_server import FakeHttpServer
from tests.task_endpoint import GROUP, STREAM, Task, TaskEndpoint

_VCPU_USED = 0.4


class FaultyTask(Task):
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


class FaultyEndpoint(TaskEndpoint[FaultyTask]):
    """May die and come back at the same address."""

    def come_back(self) -> None:
        self.listen(self.port)

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Answer as long as it lives; later, an open connection is closed."""
        if self.closed.is_set():
            self.hang_up(request)
        if request.path.endswith("/stats"):
            self.task.monitors_seen.add(request.path.split("/")[2])
        return super().answer(request, body)


class Manner(Struct, frozen=True):
    """How PutLogEvents answers: the line is kept, nothing is answered, or the answer quotes the
    request's headers.
    """

    status: int = 200
    takes: bool = True
    hangs: bool = False
    quotes: bool = False


IS_SILENT = Manner(takes=False, hangs=True)
TAKES_AND_IS_SILENT = Manner(hangs=True)


class LogApi(FakeHttpServer):
    """CloudWatch Logs' PutLogEvents.

    What moto plays always works; this answers in a given manner.
    """

    def __init__(self) -> None:
        super().__init__()
        self.manner = Manner()
        self.requests = 0
        self.lines: list[str] = []
        self.quoted: list[str] = []

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_ENDPOINT_URL": self.url,
        }

    def records(self) -> list[dict[str, Any]]:
        """The records of the lines that the batch's stream holds."""
        return [json.loads(line)["record"] for line in self.lines]

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        manner = self.manner
        put = json.loads(body)
        assert put["logGroupName"] == GROUP
        assert put["logStreamName"] == STREAM
        if manner.takes:
            self.lines += [event["message"] for event in put["logEvents"]]
        self.requests += 1
        if manner.hangs:
            self.closed.wait()
        answered = {"nextSequenceToken": "1"}
        if manner.quotes:
            self.quoted.append(str(request.headers))
            message = (
                "The request signature we calculated does not match.\n\nThe canonical string "
                f"is\n{request.headers}"
            )
            answered = {"__type": "InvalidSignatureException", "message": message}
        return (
            manner.status,
            {"Content-Type": "application/x-amz-json-1.1"},
            json.dumps(answered).encode(),
        )

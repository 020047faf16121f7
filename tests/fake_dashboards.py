"""A played Kibana that imports saved objects."""

import email
import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.http_server import FakeHttpServer


class PlayedDashboards(FakeHttpServer):
    """Takes imports and console requests as the real ones do; keeps what it got."""

    def __init__(self, version: str) -> None:
        super().__init__()
        self.version = version
        self.has_console = True
        self.imports: list[tuple[str, list[dict[str, Any]]]] = []
        self.put: dict[str, Any] = {}

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        status, answer = self._answered(request, body)
        return status, {"Content-Type": "application/json"}, json.dumps(answer).encode()

    def _answered(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
        if request.command == "GET":
            return 200, {"name": "ui", "version": {"number": self.version}}
        if not request.headers.get("kbn-xsrf") or not request.headers.get("osd-xsrf"):
            return 400, {"message": "Request must contain a kbn-xsrf header."}
        if request.path == "/api/saved_objects/_bulk_get":
            return self._find(json.loads(body))
        if request.path.startswith("/api/saved_objects/_import?overwrite=true"):
            return self._import(request.headers["Content-Type"], body)
        return self._console(request.path, body)

    def _find(self, wanted: list[dict[str, Any]]) -> tuple[int, Any]:
        known = {(one["type"], one["id"]) for _, objects in self.imports for one in objects}
        absent = {"error": {"statusCode": 404}}
        return 200, {
            "saved_objects": [
                one if (one["type"], one["id"]) in known else one | absent for one in wanted
            ]
        }

    def _import(self, content_type: str, body: bytes) -> tuple[int, dict[str, Any]]:
        message = email.message_from_bytes(
            b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body
        )
        (part,) = [part for part in message.walk() if part.get_filename()]
        name = part.get_filename() or ""
        if not name.endswith(".ndjson"):
            return 400, {"message": f"Invalid file extension {name}"}
        payload = part.get_payload(decode=True)
        assert isinstance(payload, bytes)
        objects = [json.loads(line) for line in payload.splitlines()]
        self.imports.append((name, objects))
        return 200, {"success": True, "successCount": len(objects), "successResults": []}

    def _console(self, path: str, body: bytes) -> tuple[int, Any]:
        query = parse_qs(urlsplit(path).query)
        target, method = query["path"][0], query["method"][0]
        if not self.has_console:
            return 404, {"message": "Not Found"}
        if target == "/":
            return 200, {"version": {"number": "8.7.1"}}
        if method == "GET":
            return 404, {"error": {"reason": "Lifecycle policy not found: task-profiler"}}
        self.put[target] = json.loads(body)
        return 200, {"acknowledged": True}

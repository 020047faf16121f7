"""A played search cluster for `setup stack` and `doctor`."""

import json
from http.server import BaseHTTPRequestHandler

from tests.http_server import FakeHttpServer


class Cluster(FakeHttpServer):
    """OpenSearch that has these index templates alone, and takes everything."""

    def __init__(self, *templates: str) -> None:
        super().__init__()
        self.templates = list(templates)
        self.put: list[str] = []
        self.rejects_with: int | None = None

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if request.command == "PUT" and self.rejects_with is not None:
            return (
                self.rejects_with,
                {"Content-Type": "application/json"},
                b'{"error": {"reason": "same priority"}}',
            )
        if request.command == "PUT":
            self.put.append(request.path)
        version = {"version": {"number": "2.19.0", "distribution": "opensearch"}}
        is_there = (
            request.command == "PUT"
            or request.path == "/"
            or request.path.rpartition("/")[2] in self.templates
        )
        return (
            200 if is_there else 404,
            {"Content-Type": "application/json"},
            json.dumps(version).encode(),
        )

"""A container registry in memory with basic authentication, as much of it as ``docker push`` needs."""

import hashlib
import json
from base64 import b64encode
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.http_server import FakeHttpServer

USER, PASSWORD = "AWS", "hunter2"
_AUTHORIZATION = f"Basic {b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"


class Registry(FakeHttpServer):
    """Serves a free port of 127.0.0.1, where Docker asks for no TLS."""

    def __init__(self) -> None:
        super().__init__()
        self.address = self.url.removeprefix("http://")
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}

    def manifest(self, name: str, tag: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.manifests[f"{name}/manifests/{tag}"])
        return found

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        status, headers, body = self.answer(request, _body(request))
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if request.headers.get("Authorization") != _AUTHORIZATION:
            return 401, {"WWW-Authenticate": 'Basic realm="registry"'}, b""
        url = urlsplit(request.path)
        path, name = url.path.removeprefix("/v2/"), url.path.rpartition("/")[2]
        match request.command:
            case "POST":
                made = str(len(self.uploads))
                self.uploads[made] = b""
                return 202, {"Location": f"{url.path}{made}"}, b""
            case "PATCH":
                self.uploads[name] += body
                return 202, {"Location": request.path, "Range": f"0-{len(self.uploads[name]) - 1}"}, b""
            case "PUT" if "/blobs/uploads/" in url.path:
                (digest,) = parse_qs(url.query)["digest"]
                self.blobs[digest] = self.uploads[name] + body
                return 201, {"Docker-Content-Digest": digest}, b""
            case "PUT":
                self.manifests[path] = body
                return 201, {"Docker-Content-Digest": f"sha256:{hashlib.sha256(body).hexdigest()}"}, b""
        found = self.manifests.get(path, self.blobs.get(name))
        return (404, {}, b"") if path and found is None else (200, {}, found or b"{}")


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding") != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length", 0)))
    parts = []
    while size := int(request.rfile.readline(), 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(parts)

"""A container registry in memory with basic authentication, as much of it as ``docker push`` needs."""

import contextlib
import hashlib
import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

USER, PASSWORD = "AWS", "hunter2"
_AUTHORIZATION = f"Basic {b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"


class Registry(ThreadingHTTPServer):
    """Serves a free port of 127.0.0.1, where Docker asks for no TLS."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.address = f"127.0.0.1:{self.server_port}"
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}

    def manifest(self, name: str, tag: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.manifests[f"{name}/manifests/{tag}"])
        return found


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Registry

    def do_GET(self) -> None:
        if self._is_signed_in():
            path = urlsplit(self.path).path.removeprefix("/v2/")
            found = self.server.manifests.get(path, self.server.blobs.get(path.rpartition("/")[2]))
            if path and found is None:
                self._answer(404)
            else:
                self._answer(200, found or b"{}")

    do_HEAD = do_GET  # noqa: N815  http.server's name

    def do_POST(self) -> None:
        self._body()
        if self._is_signed_in():
            name = str(len(self.server.uploads))
            self.server.uploads[name] = b""
            self._answer(202, Location=f"{urlsplit(self.path).path}{name}")

    def do_PATCH(self) -> None:
        body = self._body()
        if self._is_signed_in():
            name = urlsplit(self.path).path.rpartition("/")[2]
            self.server.uploads[name] += body
            self._answer(202, Location=self.path, Range=f"0-{len(self.server.uploads[name]) - 1}")

    def do_PUT(self) -> None:
        body, url = self._body(), urlsplit(self.path)
        if not self._is_signed_in():
            return
        if "/blobs/uploads/" in url.path:
            data = self.server.uploads[url.path.rpartition("/")[2]] + body
            (digest,) = parse_qs(url.query)["digest"]
            self.server.blobs[digest] = data
        else:
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            self.server.manifests[url.path.removeprefix("/v2/")] = body
        self._answer(201, Docker_Content_Digest=digest)

    def _is_signed_in(self) -> bool:
        if self.headers.get("Authorization") == _AUTHORIZATION:
            return True
        self._answer(401, WWW_Authenticate='Basic realm="registry"')
        return False

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextlib.contextmanager
def running_registry() -> Iterator[Registry]:
    """Run a registry for the length of the block."""
    server = Registry()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

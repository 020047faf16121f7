"""Small HTTP servers for tests: they send the answers of the test and record the requests."""

import gzip
import json
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Never, Self


class FakeHttpServer:
    """A small HTTP server on a free port; ``answer`` gives status, headers and body of each
    request.

    ``closed`` is what an answer waits for that never comes.
    """

    host = "127.0.0.1"

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.listen(0)

    def listen(self, port: int) -> None:
        outer = self
        self.closed.clear()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = (
                True  # headers and body are two writes, and the second would wait 40 ms
            )

            def do_GET(self) -> None:
                outer.serve(self)

            # Http.server's names.
            do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer((self.host, port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://{self.host}:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        with suppress(ConnectionError):  # the client has given up, or gets no answer
            status, headers, body = self.answer(request, self.read(request))
            request.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                request.send_header(name, value)
            request.end_headers()
            if request.command != "HEAD":
                request.wfile.write(body)

    @staticmethod
    def hang_up(request: BaseHTTPRequestHandler) -> Never:
        """Close the connection instead of an answer."""
        request.close_connection = True
        raise ConnectionError

    def read(self, request: BaseHTTPRequestHandler) -> bytes:
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        raise NotImplementedError

    def use_tls(self, context: ssl.SSLContext) -> None:
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class OneAnswer(FakeHttpServer):
    """Gives one answer, JSON unless a test changes it, to every request; keeps their paths,
    headers and bodies.
    """

    def __init__(self, status: int = 200, body: bytes = b"{}") -> None:
        super().__init__()
        self.status = status
        self.body = body
        self.media_type = "application/json"
        self.paths: list[str] = []
        self.headers: list[Message] = []
        self.bodies: list[bytes] = []

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        self.paths.append(request.path)
        self.headers.append(request.headers)
        self.bodies.append(body)
        return (
            self.status,
            {"X-Elastic-Product": "Elasticsearch", "Content-Type": self.media_type},
            self.body,
        )


class FakeElasticsearch(FakeHttpServer):
    """Takes every document, if it ``needs`` no other sign-in; keeps requests.

    ``stored`` has documents by their ids; ``found`` is the answer to a search.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bulks: list[list[dict[str, Any]]] = []
        self.authorizations: list[str | None] = []
        self.stored: dict[str, dict[str, Any]] = {}
        self.found: dict[str, Any] = {"hits": {"hits": []}}
        self.asked: list[str] = []
        self.needs: str | None = None
        self.refusal_status = 401
        self.refused = 0

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        text = gzip.decompress(body) if request.headers.get("Content-Encoding") == "gzip" else body
        headers = {"X-Elastic-Product": "Elasticsearch", "Content-Type": "application/json"}
        if self.needs not in (None, request.headers.get("Authorization")):
            self.refused += 1
            return self.refusal_status, headers, b'{"error": {"type": "security_exception"}}'
        if "_mget" in request.path:
            (identity,) = json.loads(text)["ids"]
            self.asked.append(identity)
            source = self.stored.get(identity)
            found = {"_id": identity, "found": source is not None, "_source": source}
            return 200, headers, json.dumps({"docs": [found]}).encode()
        if "_search" in request.path:
            return 200, headers, json.dumps(self.found).encode()
        lines = [json.loads(line) for line in text.splitlines()]
        self.bulks.append(lines)
        self.authorizations.append(request.headers.get("Authorization"))
        items = [{"update": {"status": 201}} for _ in lines[::2]]
        return 200, headers, json.dumps({"errors": False, "items": items}).encode()

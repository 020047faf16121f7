"""``GET /metrics`` over HTTP, in daemon threads: whatever a client does, it can only fail itself.

A connection is answered once and closed. There are 8 at most, each is over 5 s after it came, and of each 16 KiB are
read, so neither many clients nor slow nor talkative ones cost the monitor more than that.
"""

import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BufferedReader
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from urllib.parse import urlsplit

from profiler.clock import Clock
from profiler.logs import Log
from profiler.prometheus.connection import BoundedReader, BoundedWriter, Deadline, HeadTooLong

MAX_CONNECTIONS = 8
# Request line and headers; Prometheus sends 300 bytes.
MAX_HEAD_BYTES = 16 * 1024
MAX_CONNECTION_SECONDS = 5
# What the kernel takes of a connection before anybody reads it: else megabytes, which count as the monitor's memory.
_KERNEL_BYTES = 32 * 1024
_JOIN_SECONDS = 1
_PAGE = b"""<!doctype html><html lang="en"><title>Task Profiler</title>
<p>The metrics of this task are at <a href="/metrics">/metrics</a>.</p></html>
"""


class MetricsServer(ThreadingMixIn, TCPServer):
    """``render`` makes the body; ``address`` is where to listen: host ``::`` is every address, port 0 a free one.

    Raises OSError where nothing can listen at the address.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], render: Callable[[], bytes], content_type: str, clock: Clock, log: Log
    ) -> None:
        self.render = render
        self.content_type = content_type
        self.clock = clock
        self._log = log
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._is_closing = False
        self._is_error_logged = False
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        # TCPServer and not HTTPServer, which looks up its own name: without a DNS server that takes seconds.
        super().__init__(address, _Handler)
        self._thread = threading.Thread(target=self._serve, name="prometheus", daemon=True)

    def server_bind(self) -> None:
        """Take the address, ``::`` for IPv4 too, whatever the system's default is."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def server_activate(self) -> None:
        """Listen. What is set here is set for the connections, too."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BYTES)
        # Of an answer that nobody takes, the kernel keeps what is left, for minutes after the connection was closed.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * MAX_CONNECTION_SECONDS)
        super().server_activate()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Answer from now on; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Listen no more. Connections that are being answered are left to their threads."""
        self._is_closing = True
        self.socket.shutdown(socket.SHUT_RDWR)  # ends the wait for the next connection
        self._thread.join(_JOIN_SECONDS)
        self.server_close()

    def _serve(self) -> None:
        # serve_forever would wake up twice a second, all night long.
        while not self._is_closing:
            self.handle_request()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  as in the base class
        """Hand a connection to a thread of its own, or close it if there are too many."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread to be had
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  as in the base class
        """The work of that thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002  as in the base class
        """Called where an exception ended an answer: a client that went away is nothing to speak of."""
        error = sys.exception()
        if not isinstance(error, OSError) and not self._is_error_logged:
            self._is_error_logged = True
            self._log.error("The metrics could not be written; the report is not concerned.", reason=repr(error))


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: MetricsServer

    def setup(self) -> None:
        """Read and write within the bounds. Not by the base class, whose timeout is one of each byte."""
        self.connection = self.request
        deadline = Deadline(self.server.clock, MAX_CONNECTION_SECONDS)
        self.rfile = BufferedReader(BoundedReader(self.connection, deadline, MAX_HEAD_BYTES))
        self.wfile = BoundedWriter(self.connection, deadline)

    def handle_one_request(self) -> None:
        """The answer, also to a first line that is too long; to headers that are, the base class gives the same."""
        try:
            super().handle_one_request()
        except HeadTooLong:
            self.requestline = self.command = self.request_version = ""
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def do_GET(self) -> None:
        """/metrics, and a page that leads there; other methods are not implemented (501)."""
        try:
            path = urlsplit(self.path).path
        except ValueError:  # [, and no address of IPv6
            self.send_error(HTTPStatus.BAD_REQUEST, "Bad request target")
            return
        if path == "/metrics":
            self._answer(self.server.content_type, self.server.render())
        elif path == "/":
            self._answer("text/html; charset=utf-8", _PAGE)
        else:
            self.send_error(HTTPStatus.NOT_FOUND, "There is /metrics")

    def _answer(self, content_type: str, body: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """The ``Server`` header: no version, which is nobody's business here."""
        return "task-profiler"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Nothing: scrapes are no news."""

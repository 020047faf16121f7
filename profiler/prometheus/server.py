"""``GET /metrics`` over HTTP, in daemon threads.

Each connection has a deadline and a limit on the bytes read, and the number of connections is limited: a client cannot
make the monitor use an unlimited number of threads or amount of memory.
"""

import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from profiler.core.clock import Clock
from profiler.core.log import Log
from profiler.core.threads import start_thread
from profiler.core.timestamps import NS_PER_SECOND

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


MAX_CONNECTIONS = 8
# Request line and headers; Prometheus sends 300 bytes.
MAX_HEAD_BYTES = 16 * 1024
MAX_CONNECTION_SECONDS = 5
# The receive buffer of a connection. The default is megabytes, which count as the monitor's memory.
_RECEIVE_BUFFER_BYTES = 32 * 1024
_JOIN_SECONDS = 1
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PAGE = b"""<!doctype html><html lang="en"><title>Task Profiler</title>
<p>The metrics of this task are at <a href="/metrics">/metrics</a>.</p></html>
"""


class HeadTooLong(HTTPException):
    """The client sent a request line and headers that are longer than the limit."""


class Connection(socket.socket):
    """An accepted connection, which reads a limited number of bytes, and reads and writes until a deadline.

    The base class only has a timeout for each single call.

    Raises:
        HeadTooLong: A caller reads beyond ``max_bytes``.
        TimeoutError: The deadline has passed, ``seconds`` after the connection was accepted.
    """

    def __init__(self, accepted: socket.socket, clock: Clock, seconds: float, max_bytes: int) -> None:
        super().__init__(fileno=accepted.detach())
        self._clock = clock
        self._deadline_ns = clock.monotonic_ns() + round(seconds * NS_PER_SECOND)
        self._bytes_left = max_bytes

    def recv_into(self, buffer: "WriteableBuffer", nbytes: int = 0, flags: int = 0) -> int:
        """Read the bytes that have arrived, or wait for the first one."""
        if self._bytes_left == 0:
            raise HeadTooLong
        self._set_timeout()
        received = super().recv_into(memoryview(buffer)[: self._bytes_left], nbytes, flags)
        self._bytes_left -= received
        return received

    def sendall(self, data: "ReadableBuffer", flags: int = 0) -> None:
        """Write all data. The timeout applies to the whole call."""
        self._set_timeout()
        super().sendall(data, flags)

    def _set_timeout(self) -> None:
        left_ns = self._deadline_ns - self._clock.monotonic_ns()
        if left_ns <= 0:
            raise TimeoutError
        self.settimeout(left_ns / NS_PER_SECOND)


class MetricsServer(ThreadingMixIn, TCPServer):
    """The HTTP server.

    Args:
        address: Host and port to listen on. The host ``::`` is every address, the port 0 any free port.
        render: Generates the body of ``/metrics``, which is in Prometheus' text format.

    Raises:
        OSError: The server cannot listen on the address.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], render: Callable[[], bytes], clock: Clock, log: Log) -> None:
        self.render = render
        self._clock = clock
        self._log = log
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._is_closing = False
        self._is_error_logged = False
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        # TCPServer instead of HTTPServer: HTTPServer looks up its own host name, which takes seconds without DNS.
        super().__init__(address, _Handler)
        self._thread = threading.Thread(target=self._serve, name="prometheus", daemon=True)

    def server_bind(self) -> None:
        """Bind the address. ``::`` also accepts IPv4, independently of the system's default."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def server_activate(self) -> None:
        """Listen. Accepted connections inherit the options that are set here."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        # Without this timeout, the kernel keeps a response that the client does not read for minutes after the close.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * MAX_CONNECTION_SECONDS)
        super().server_activate()

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self.server_address[1])

    def start(self) -> bool:
        """Start the server's thread; returns False, and stops listening, if the system starts no further thread."""
        if start_thread(self._thread):
            return True
        self.server_close()
        return False

    def close(self) -> None:
        """Stop listening. Threads of open connections continue until their deadline."""
        self._is_closing = True
        self.socket.shutdown(socket.SHUT_RDWR)  # interrupts the wait for the next connection
        self._thread.join(_JOIN_SECONDS)
        self.server_close()

    def _serve(self) -> None:
        # serve_forever would wake up twice a second.
        while not self._is_closing:
            self.handle_request()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        accepted, client_address = super().get_request()
        return Connection(accepted, self._clock, MAX_CONNECTION_SECONDS, MAX_HEAD_BYTES), client_address

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  as in the base class
        """Answer a connection in a new thread, or close it if there are too many connections."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system starts no further thread
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  as in the base class
        """The body of the connection's thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002  as in the base class
        """Log the first exception that ended a response, except those of connections that were closed or timed out."""
        error = sys.exception()
        if not isinstance(error, OSError) and not self._is_error_logged:
            self._is_error_logged = True
            self._log.error("Writing the metrics failed; the report is not affected.", reason=repr(error))


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: MetricsServer

    def handle_one_request(self) -> None:
        """Answer a request. A request line that is too long gets the status that the base class sends for headers."""
        try:
            super().handle_one_request()
        except HeadTooLong:
            self.requestline = self.command = self.request_version = ""
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def do_GET(self) -> None:
        """Answer ``/metrics``, and ``/`` with a page that links to it. Other methods get the status 501."""
        try:
            path = urlsplit(self.path).path
        except ValueError:  # such as "//[": a bracket that begins no IPv6 address
            self.send_error(HTTPStatus.BAD_REQUEST, "Bad request target")
            return
        if path == "/metrics":
            self._answer(_CONTENT_TYPE, self.server.render())
        elif path == "/":
            self._answer("text/html; charset=utf-8", _PAGE)
        else:
            self.send_error(HTTPStatus.NOT_FOUND, "The metrics are at /metrics")

    def _answer(self, content_type: str, body: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """The ``Server`` header, without a version: clients do not need it."""
        return "task-profiler"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Log nothing: scrapes are frequent."""

"""Live metrics of the monitor: a snapshot after each tick, and ``GET /metrics`` over HTTP in one
daemon thread.

Connections are handled one after the other: a client cannot make the monitor use more threads, nor
more memory than the standard library's limits. One that sends nothing delays the next scrape by
``MAX_SILENCE_SECONDS``.
"""

import errno
import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any

from profiler.core.background_call import start_thread
from profiler.core.log import Log
from profiler.monitor.prometheus.prometheus_metrics import metrics_text
from profiler.monitor.prometheus.snapshot import Snapshot, SnapshotBuilder
from profiler.monitor.shared_parts import LiveMetrics

# All addresses of the task's network namespace; its security group determines who can connect.
_ALL_ADDRESSES = "::"
_ALL_IPV4_ADDRESSES = "0.0.0.0"  # noqa: S104  see above
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
MAX_SILENCE_SECONDS = 2
# The receive buffer of a connection. The default is megabytes, which count as the monitor's memory.
_RECEIVE_BUFFER_BYTES = 32 * 1024
_JOIN_SECONDS = 1
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer(TCPServer):
    """The HTTP server.

    The host ``::`` is every address, the port 0 any free one. OSError: it cannot listen.
    """

    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], render: Callable[[], bytes], log: Log) -> None:
        self.render = render
        self._log = log
        self._is_closing = False
        self._is_error_logged = False
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        # TCPServer instead of HTTPServer: HTTPServer looks up its own host name, which takes
        # seconds without DNS.
        super().__init__(address, _Handler)
        self._thread = threading.Thread(target=self._serve, name="prometheus", daemon=True)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            # It also accepts IPv4, independently of the system's default.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def server_activate(self) -> None:
        # Connections inherit it.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        super().server_activate()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> bool:
        """Start the server's thread; returns False, and stops listening, if the system starts no
        further thread.
        """
        if start_thread(self._thread):
            return True
        self.server_close()
        return False

    def close(self) -> None:
        """Stop listening. A response that is under way continues until its end or the process's."""
        self._is_closing = True
        self.socket.shutdown(socket.SHUT_RDWR)  # interrupts the wait for the next connection
        self._thread.join(_JOIN_SECONDS)
        self.server_close()

    def _serve(self) -> None:
        # serve_forever would wake up twice a second.
        while not self._is_closing:
            self.handle_request()

    # As in the base class.
    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002
        """Log the first exception that ended a response, unless the connection was closed or
        timed out.
        """
        error = sys.exception()
        if not isinstance(error, OSError) and not self._is_error_logged:
            self._is_error_logged = True
            self._log.error(
                "Writing the metrics failed; the report is not affected.", reason=repr(error)
            )


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: MetricsServer
    timeout = MAX_SILENCE_SECONDS  # for each read and write

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND, "The metrics are at /metrics")
            return
        body = self.server.render()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "task-profiler"  # the ``Server`` header, without a version: clients do not need it

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Log nothing: scrapes are frequent."""


class PrometheusExporter(LiveMetrics):
    """Serves the last published snapshot on a port; 0: any free one."""

    are_read = True

    def __init__(self, port: int, builder: SnapshotBuilder, log: Log) -> None:
        self._port = port
        self._builder = builder
        self._log = log
        self._snapshot: Snapshot | None = None
        self._server: MetricsServer | None = None

    def start(self) -> str | None:
        """Start listening; returns the reason if live metrics are missing.

        The monitor continues without them.
        """
        try:
            server = self._listen()
        except OSError as error:
            return (
                f"The monitor cannot listen on port {self._port} ({error.strerror}), so there are "
                "no live metrics: set TASK_PROFILER_PROMETHEUS_PORT to a port above 1023 that is "
                "free in the task."
            )
        if not server.start():
            return (
                "The system starts no further thread, so there are no live metrics: raise its "
                "limit on processes."
            )
        self._server = server
        return None

    def _listen(self) -> MetricsServer:
        try:
            return MetricsServer((_ALL_ADDRESSES, self._port), self._render, self._log)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
        return MetricsServer((_ALL_IPV4_ADDRESSES, self._port), self._render, self._log)

    def _render(self) -> bytes:
        """The metrics of the last snapshot, without its readings if it is too old; nothing
        before the first one.
        """
        now_ns = self._builder.shared.clock.monotonic_ns()
        return b"" if self._snapshot is None else metrics_text(self._snapshot.valid_part_at(now_ns))

    def publish(self) -> None:
        """Take a snapshot now, for the scrapes from now on."""
        if self._server is not None:
            self._snapshot = self._builder.take_snapshot()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

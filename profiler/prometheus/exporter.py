"""Live metrics of the monitor: start the server, take a snapshot after each tick, close the server."""

import errno
from collections.abc import Callable
from threading import Lock

from profiler.core.clock import Clock
from profiler.core.log import Log
from profiler.prometheus.server import MetricsServer
from profiler.prometheus.snapshot import Snapshot, SnapshotBuilder

# All addresses of the task's network namespace; its security group determines who can connect.
ALL_ADDRESSES = "::"
_ALL_IPV4_ADDRESSES = "0.0.0.0"  # noqa: S104  see above
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class RenderCache:
    """Keeps the text of the last snapshot, so that concurrent and repeated scrapes of a snapshot share one text."""

    def __init__(self, render: Callable[[Snapshot], bytes]) -> None:
        self._render = render
        self._lock = Lock()
        self._snapshot: Snapshot | None = None
        self._text = b""

    def render(self, snapshot: Snapshot) -> bytes:
        """The text of this snapshot. A concurrent call waits until the text is complete."""
        with self._lock:
            if self._snapshot is not snapshot:
                self._text = self._render(snapshot)
                self._snapshot = snapshot
            return self._text


class PrometheusExporter:
    """Serves the last published snapshot.

    Args:
        port: The port to listen on; 0: any free port.
    """

    def __init__(
        self, port: int, builder: SnapshotBuilder, clock: Clock, log: Log, *, host: str = ALL_ADDRESSES
    ) -> None:
        self._port = port
        self._builder = builder
        self._clock = clock
        self._log = log
        self._host = host
        self._snapshot: Snapshot | None = None
        self._server: MetricsServer | None = None

    def start(self) -> str | None:
        """Start listening.

        Returns:
            None, or the reason why there are no live metrics. The monitor continues without them.
        """
        try:
            from profiler.prometheus.exposition import metrics_text  # needs an extra, see pyproject
        except ImportError:
            return (
                "TASK_PROFILER_PROMETHEUS_PORT is set, but prometheus_client is not installed, so there are no live "
                "metrics: add it to the image by pip install 'task-profiler[prometheus]'."
            )

        cache = RenderCache(metrics_text)

        def render() -> bytes:
            snapshot = self.current()
            return b"" if snapshot is None else cache.render(snapshot)

        try:
            server = self._listen(render)
        except OSError as error:
            return (
                f"The monitor cannot listen on port {self._port} ({error.strerror}), so there are no live metrics: set "
                "TASK_PROFILER_PROMETHEUS_PORT to a port above 1023 that is free in the task."
            )
        if not server.start():
            return "The system starts no further thread, so there are no live metrics: raise its limit on processes."
        self._server = server
        return None

    def _listen(self, render: Callable[[], bytes]) -> MetricsServer:
        try:
            return MetricsServer((self._host, self._port), render, self._clock, self._log)
        except OSError as error:
            if self._host != ALL_ADDRESSES or error.errno not in _NO_IPV6:
                raise
        return MetricsServer((_ALL_IPV4_ADDRESSES, self._port), render, self._clock, self._log)

    @property
    def port(self) -> int | None:
        """The port that the server listens on; None if it does not listen."""
        return None if self._server is None else self._server.port

    def publish(self) -> None:
        """Take a snapshot now, for the scrapes from now on."""
        if self._server is not None:
            self._snapshot = self._builder.take()

    def current(self) -> Snapshot | None:
        """The last snapshot; without its readings if it is too old. None before the first one."""
        return None if self._snapshot is None else self._snapshot.at(self._clock.monotonic_ns())

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

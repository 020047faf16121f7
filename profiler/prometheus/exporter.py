"""Live metrics of the monitor: start the server, publish a snapshot after each tick, close the server."""

import errno
from collections.abc import Callable
from threading import Lock

from profiler.core.clock import Clock
from profiler.core.log import Log
from profiler.prometheus.server import MetricsServer
from profiler.prometheus.snapshot import Snapshot, SnapshotBuilder, without_readings

# All addresses of the task's network namespace; its security group determines who can connect.
ALL_ADDRESSES = "::"
_ALL_IPV4_ADDRESSES = "0.0.0.0"  # noqa: S104  see above
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class RenderCache:
    """Keeps the text of the last snapshot, so that concurrent and repeated scrapes of a snapshot share one text.

    Args:
        render: Generates the text of a snapshot.
    """

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
        builder: Builds the snapshots.
        clock: The clock.
        log: The monitor's log.
        hold_ns: The age of a snapshot in nanoseconds from which on its readings are no longer shown.
        host: The address to listen on.
    """

    def __init__(
        self, port: int, builder: SnapshotBuilder, clock: Clock, log: Log, *, hold_ns: int, host: str = ALL_ADDRESSES
    ) -> None:
        self._port = port
        self._builder = builder
        self._clock = clock
        self._log = log
        self._hold_ns = hold_ns
        self._host = host
        self._snapshot: Snapshot | None = None
        self._server: MetricsServer | None = None

    def start(self) -> str | None:
        """Start listening.

        Returns:
            None, or the reason why there are no live metrics. The monitor continues without them.
        """
        try:
            from profiler.prometheus.exposition import CONTENT_TYPE, metrics_text  # an extra, see pyproject
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
            self._server = self._create_server(render, CONTENT_TYPE)
        except OSError as error:
            return (
                f"The monitor cannot listen on port {self._port} ({error.strerror}), so there are no live metrics: set "
                "TASK_PROFILER_PROMETHEUS_PORT to a port above 1023 that is free in the task."
            )
        if self._server.start():
            return None
        self._server = None
        return "The system starts no further thread, so there are no live metrics: raise its limit on processes."

    def _create_server(self, render: Callable[[], bytes], content_type: str) -> MetricsServer:
        def listen_on(host: str) -> MetricsServer:
            return MetricsServer((host, self._port), render, content_type, self._clock, self._log)

        try:
            return listen_on(self._host)
        except OSError as error:
            if self._host != ALL_ADDRESSES or error.errno not in _NO_IPV6:
                raise
        return listen_on(_ALL_IPV4_ADDRESSES)

    @property
    def port(self) -> int | None:
        """The port that the server listens on; None if it does not listen."""
        return None if self._server is None else self._server.port

    def publish(self) -> None:
        """Take a snapshot now, for the scrapes from now on."""
        if self._server is not None:
            self._snapshot = self._builder.snapshot()

    def current(self) -> Snapshot | None:
        """The last snapshot; without its readings if it is too old. None before the first one."""
        snapshot = self._snapshot
        if snapshot is None or self._clock.monotonic_ns() - snapshot.taken_ns <= self._hold_ns:
            return snapshot
        return without_readings(snapshot)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

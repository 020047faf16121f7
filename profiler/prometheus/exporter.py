"""Live metrics of the monitor: start the server, publish a snapshot after each tick, close."""

import errno
from collections.abc import Callable
from threading import Lock

from profiler.core.clock import Clock
from profiler.core.log import Log
from profiler.prometheus.server import MetricsServer
from profiler.prometheus.snapshot import Snapshot, SnapshotBuilder, without_readings


class RenderCache:
    """The last text that ``make`` made, for all who ask before the next snapshot: who asks meanwhile waits for it."""

    def __init__(self, make: Callable[[Snapshot], bytes]) -> None:
        self._make = make
        self._lock = Lock()
        self._snapshot: Snapshot | None = None
        self._text = b""

    def render(self, snapshot: Snapshot) -> bytes:
        """This snapshot's text."""
        with self._lock:
            if self._snapshot is not snapshot:
                self._text = self._make(snapshot)
                self._snapshot = snapshot
            return self._text


# All addresses of the task's network namespace: its security group says who gets there.
ALL_ADDRESSES = "::"
_ALL_IPV4_ADDRESSES = "0.0.0.0"  # noqa: S104  see above
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class PrometheusExporter:
    """Serves the last published snapshot on a port of all the task's addresses."""

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
        """Listen; if that is not possible, a sentence says why, and all else goes on."""
        try:
            from profiler.prometheus.text import CONTENT_TYPE, metrics_text  # an extra, see pyproject
        except ImportError:
            return (
                "TASK_PROFILER_PROMETHEUS_PORT is set, but prometheus_client is not installed, so there are no live "
                "metrics: add it to the image by pip install 'task-profiler[prometheus]'."
            )

        rendered = RenderCache(metrics_text)

        def render() -> bytes:
            snapshot = self.current()
            return b"" if snapshot is None else rendered.render(snapshot)

        try:
            self._server = self._create_server(render, CONTENT_TYPE)
        except OSError as error:
            return (
                f"Nothing can listen on port {self._port} ({error.strerror}), so there are no live metrics: set "
                "TASK_PROFILER_PROMETHEUS_PORT to a port above 1023 that is free in the task."
            )
        self._server.start()
        return None

    def _create_server(self, render: Callable[[], bytes], content_type: str) -> MetricsServer:
        def at(host: str) -> MetricsServer:
            return MetricsServer((host, self._port), render, content_type, self._clock, self._log)

        try:
            return at(self._host)
        except OSError as error:
            if self._host != ALL_ADDRESSES or error.errno not in _NO_IPV6:
                raise
        return at(_ALL_IPV4_ADDRESSES)

    @property
    def port(self) -> int | None:
        """Where it listens, None if it does not."""
        return None if self._server is None else self._server.port

    def publish(self) -> None:
        """Show what is known now from the next scrape on."""
        if self._server is not None:
            self._snapshot = self._builder.snapshot()

    def current(self) -> Snapshot | None:
        """What a scrape shows: the last snapshot, without its readings once it is old."""
        snapshot = self._snapshot
        if snapshot is None or self._clock.monotonic_ns() - snapshot.taken_ns <= self._hold_ns:
            return snapshot
        return without_readings(snapshot)

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None

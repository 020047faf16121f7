"""HTTP to the task metadata endpoint: one kept-alive connection, bounded in time and size.

By http.client alone: a request costs a third of what one by requests does, and beside the batch 11 MiB less
are held. It follows neither redirects nor the proxies that the environment may name, and unpacks nothing.
"""

import io
import socket
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from profiler.clock import Clock
from profiler.sources import Unavailable
from profiler.times import NS_PER_SECOND

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# A task has ten containers at most and 10 kB of stats each. What decodes to the most objects becomes
# 44 times as large: 88 MiB, which the monitor's own memory limit (128 MiB) still holds.
MAX_RESPONSE_BYTES = 2 * 1024 * 1024
MAX_TIMEOUT_SECONDS = 5.0
_TIMEOUTS_UNTIL_DOUBLED = 2
_HTTP_OK = 200
# What an answer may still take once the end was asked for: it takes milliseconds where all is well.
_STOP_TIMEOUT_NS = NS_PER_SECOND // 2
_HEADERS = {"Accept": "application/json"}


class Endpoint(Protocol):
    """What the task metadata source needs of a transport."""

    def get(self, path: str, max_seconds: float | None = None) -> bytes | Unavailable:
        """The body of ``path`` below the endpoint's address, or why there is none."""
        ...


class StopSignal(Protocol):
    """A request to end, after which nobody is waited for as long as usual."""

    @property
    def requested_ns(self) -> int | None:
        """When, by the monotonic clock; None: not yet."""
        ...

    def wait_readable(self, source: socket.socket, seconds: float) -> bool:
        """Wait so long, or until ``source`` can be read or the end is asked for; says whether it can be read."""
        ...


class AdaptiveTimeout:
    """The timeout: 0.9 of the interval at first, doubled after two timeouts in a row, at most 5 s.

    It stays where it got: an endpoint that needs 2 s needs them each time.
    """

    def __init__(self, interval_seconds: float) -> None:
        self.timeout_seconds = min(0.9 * interval_seconds, MAX_TIMEOUT_SECONDS)
        self._consecutive_timeouts = 0

    def on_success(self) -> None:
        """The endpoint answered in time."""
        self._consecutive_timeouts = 0

    def on_timeout(self) -> None:
        """The endpoint did not answer in time."""
        self._consecutive_timeouts += 1
        if self._consecutive_timeouts >= _TIMEOUTS_UNTIL_DOUBLED:
            self._consecutive_timeouts = 0
            self.timeout_seconds = min(2 * self.timeout_seconds, MAX_TIMEOUT_SECONDS)


class HttpEndpoint:
    """The real endpoint, at the address that ECS gives in ``ECS_CONTAINER_METADATA_URI_V4``.

    Once ``stop_signal`` is asked for, even while an answer is waited for, each takes half a second at most;
    those that came with a time of their own keep it.
    """

    def __init__(
        self, address: str, adaptive_timeout: AdaptiveTimeout, clock: Clock, stop_signal: StopSignal | None = None
    ) -> None:
        self._address = address.rstrip("/")
        self._timeout = adaptive_timeout
        self._clock = clock
        self._stop_signal = stop_signal
        self._has_own_timeout = False
        self._request_started_ns = 0
        self._connection: HTTPConnection | None = None
        self._base_path = ""
        self._deadline_ns = 0

    def get(self, path: str, max_seconds: float | None = None) -> bytes | Unavailable:
        """The body of a 200 answer; anything else is a reason."""
        timeout_seconds = self._timeout.timeout_seconds
        if max_seconds is not None:
            timeout_seconds = min(timeout_seconds, max_seconds)
        self._has_own_timeout = max_seconds is not None
        shown = path or "/"
        try:
            answer = self._fetch(self._open_connection(), path, timeout_seconds)
        except TimeoutError:
            self.close()
            self._timeout.on_timeout()
            waited_seconds = (self._effective_deadline_ns() - self._request_started_ns) / NS_PER_SECOND
            return Unavailable(f"{shown} did not answer within {waited_seconds:.3g} s", timed_out=True)
        except (HTTPException, OSError) as error:
            self.close()
            return Unavailable(f"{shown} cannot be read: {type(error).__name__}")
        except ValueError:
            return Unavailable(f"{shown} cannot be read: {self._address!r} is not the address of an endpoint")
        if not isinstance(answer, Unavailable):
            self._timeout.on_success()
        return answer

    def close(self) -> None:
        """Let go of the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()

    def _open_connection(self) -> HTTPConnection:
        """The one connection, opened by its first request, and anew by the next one after it was closed."""
        if self._connection is None:
            parts = urlsplit(self._address)
            if parts.scheme != "http" or parts.hostname is None:
                raise ValueError(self._address)
            self._base_path = parts.path
            self._connection = HTTPConnection(parts.hostname, parts.port)
            self._connection.response_class = self._make_response  # type: ignore[assignment]  # it is only ever called
        return self._connection

    def _make_response(self, sock: socket.socket, method: str | None = None) -> HTTPResponse:
        received = _DeadlineReader(sock, self._remaining_seconds, self._wait_readable)
        return HTTPResponse(received, method=method)  # type: ignore[arg-type]  # asked for nothing but makefile

    def _fetch(self, connection: HTTPConnection, path: str, timeout_seconds: float) -> bytes | Unavailable:
        self._request_started_ns = self._clock.monotonic_ns()
        self._deadline_ns = self._request_started_ns + round(timeout_seconds * NS_PER_SECOND)
        was_kept = connection.sock is not None
        try:
            response = self._request(connection, path, timeout_seconds)
        except ConnectionError:
            if not was_kept:
                raise
            connection.close()  # the endpoint had closed it while nothing was asked
            response = self._request(connection, path, timeout_seconds)
        with response:
            return self._read_body(response, path)

    def _request(self, connection: HTTPConnection, path: str, timeout_seconds: float) -> HTTPResponse:
        connection.timeout = timeout_seconds
        if connection.sock is not None:
            connection.sock.settimeout(timeout_seconds)
        connection.request("GET", self._base_path + path, headers=_HEADERS)
        return connection.getresponse()

    def _read_body(self, response: HTTPResponse, path: str) -> bytes | Unavailable:
        """An error's is read, too, so that the connection can serve again."""
        length = response.length
        body = response.read(MAX_RESPONSE_BYTES + 1)
        if length is not None and len(body) < min(length, MAX_RESPONSE_BYTES):
            raise IncompleteRead(body, length - len(body))
        if len(body) > MAX_RESPONSE_BYTES:
            self.close()
            return Unavailable(f"{path or '/'} answered more than {MAX_RESPONSE_BYTES} bytes")
        if response.status != _HTTP_OK:
            return Unavailable(f"{path or '/'} answered HTTP {response.status}")
        return body

    def _remaining_seconds(self) -> float:
        return (self._effective_deadline_ns() - self._clock.monotonic_ns()) / NS_PER_SECOND

    def _effective_deadline_ns(self) -> int:
        requested_ns = None if self._stop_signal is None else self._stop_signal.requested_ns
        if requested_ns is None or self._has_own_timeout:
            return self._deadline_ns
        return min(self._deadline_ns, max(requested_ns, self._request_started_ns) + _STOP_TIMEOUT_NS)

    def _wait_readable(self, sock: socket.socket, seconds: float) -> bool:
        """Without anybody who could ask for haste the socket's own timeout does."""
        return self._stop_signal is None or self._stop_signal.wait_readable(sock, seconds)


class _DeadlineReader(io.RawIOBase):
    """What a socket receives, up to a deadline.

    A socket's own timeout is for each piece: head or body could drip for as long as the endpoint likes.
    """

    def __init__(
        self,
        sock: socket.socket,
        remaining_seconds: Callable[[], float],
        wait_readable: Callable[[socket.socket, float], bool],
    ) -> None:
        self._sock = sock
        self._remaining_seconds = remaining_seconds
        self._wait_readable = wait_readable
        self._received = sock.makefile("rb", buffering=0)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """As ``HTTPResponse`` asks its socket for it."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """It is for nothing else."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        """The next piece; raises TimeoutError when the time is over."""
        while (remaining_seconds := self._remaining_seconds()) > 0:
            if self._wait_readable(self._sock, remaining_seconds):
                self._sock.settimeout(remaining_seconds)
                return self._received.readinto(buffer)
        raise TimeoutError

    def close(self) -> None:
        """The socket itself stays open as long as its connection."""
        self._received.close()
        super().close()

"""HTTP to the task metadata endpoint: one kept-alive connection, bounded in time and size.

By http.client alone: a request costs a third of what one by requests does, and beside the batch 11 MiB less
are held. It follows neither redirects nor the proxies that the environment may name, and unpacks nothing.
"""

from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from typing import Protocol
from urllib.parse import urlsplit

from profiler.clock import Clock
from profiler.sources import Unavailable
from profiler.times import NS_PER_SECOND

# A task has ten containers at most and 10 kB of stats each. What decodes to the most objects becomes
# 44 times as large: 88 MiB, which the monitor's own memory limit (128 MiB) still holds.
LARGEST_ANSWER_BYTES = 2 * 1024 * 1024
LONGEST_TIMEOUT_SECONDS = 5.0
_CHUNK_BYTES = 64 * 1024
_TIMEOUTS_BEFORE_PATIENCE = 2
_HTTP_OK = 200
_HEADERS = {"Accept": "application/json"}


class Endpoint(Protocol):
    """What the task metadata source needs of a transport."""

    def get(self, path: str, at_most_seconds: float | None = None) -> bytes | Unavailable:
        """The body of ``path`` below the endpoint's address, or why there is none."""
        ...


class Patience:
    """The timeout: 0.9 of the interval at first, doubled after two timeouts in a row, at most 5 s.

    It stays where it got: an endpoint that needs 2 s needs them each time.
    """

    def __init__(self, interval_seconds: float) -> None:
        self.timeout_seconds = min(0.9 * interval_seconds, LONGEST_TIMEOUT_SECONDS)
        self._in_a_row = 0

    def answered(self) -> None:
        """The endpoint answered in time."""
        self._in_a_row = 0

    def timed_out(self) -> None:
        """The endpoint did not answer in time."""
        self._in_a_row += 1
        if self._in_a_row >= _TIMEOUTS_BEFORE_PATIENCE:
            self._in_a_row = 0
            self.timeout_seconds = min(2 * self.timeout_seconds, LONGEST_TIMEOUT_SECONDS)


class HttpEndpoint:
    """The real endpoint, at the address that ECS gives in ``ECS_CONTAINER_METADATA_URI_V4``."""

    def __init__(self, address: str, patience: Patience, clock: Clock) -> None:
        self._address = address.rstrip("/")
        self._patience = patience
        self._clock = clock
        self._connection: HTTPConnection | None = None
        self._folder = ""

    def get(self, path: str, at_most_seconds: float | None = None) -> bytes | Unavailable:
        """The body of a 200 answer; anything else is a reason."""
        timeout_seconds = self._patience.timeout_seconds
        if at_most_seconds is not None:
            timeout_seconds = min(timeout_seconds, at_most_seconds)
        shown = path or "/"
        try:
            answer = self._ask(self._connected(), path, timeout_seconds)
        except TimeoutError:
            self.close()
            self._patience.timed_out()
            return Unavailable(f"{shown} did not answer within {timeout_seconds:g} s", timed_out=True)
        except (HTTPException, OSError) as error:
            self.close()
            return Unavailable(f"{shown} cannot be read: {type(error).__name__}")
        except ValueError:
            return Unavailable(f"{shown} cannot be read: {self._address!r} is not the address of an endpoint")
        if not isinstance(answer, Unavailable):
            self._patience.answered()
        return answer

    def close(self) -> None:
        """Let go of the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> HTTPConnection:
        """The one connection, opened by its first request, and anew by the next one after it was closed."""
        if self._connection is None:
            parts = urlsplit(self._address)
            if parts.scheme != "http" or parts.hostname is None:
                raise ValueError(self._address)
            self._folder = parts.path
            self._connection = HTTPConnection(parts.hostname, parts.port)
        return self._connection

    def _ask(self, connection: HTTPConnection, path: str, timeout_seconds: float) -> bytes | Unavailable:
        deadline_ns = self._clock.monotonic_ns() + round(timeout_seconds * NS_PER_SECOND)
        was_kept = connection.sock is not None
        try:
            response = self._request(connection, path, timeout_seconds)
        except ConnectionError:
            if not was_kept:
                raise
            connection.close()  # the endpoint had closed it while nothing was asked
            response = self._request(connection, path, timeout_seconds)
        with response:
            if response.status != _HTTP_OK:
                return self._refusal(response, path)
            return self._body(response, path, deadline_ns)

    def _request(self, connection: HTTPConnection, path: str, timeout_seconds: float) -> HTTPResponse:
        connection.timeout = timeout_seconds
        if connection.sock is not None:
            connection.sock.settimeout(timeout_seconds)
        connection.request("GET", self._folder + path, headers=_HEADERS)
        return connection.getresponse()

    def _refusal(self, response: HTTPResponse, path: str) -> Unavailable:
        """A short answer is read to its end, so that the connection can serve again, but not one that drips."""
        length = response.length
        if length is None or len(response.read1(min(length, _CHUNK_BYTES))) < length:
            self.close()
        return Unavailable(f"{path or '/'} answered HTTP {response.status}")

    def _body(self, response: HTTPResponse, path: str, deadline_ns: int) -> bytes | Unavailable:
        """Piece by piece, as each has a timeout of its own; where no length is given, up to the end."""
        length = response.length
        chunks: list[bytes] = []
        size_bytes = 0
        while length is None or size_bytes < length:
            chunk = response.read1(_CHUNK_BYTES if length is None else min(length - size_bytes, _CHUNK_BYTES))
            if not chunk:
                if length is not None:
                    raise IncompleteRead(b"", length - size_bytes)
                break
            chunks.append(chunk)
            size_bytes += len(chunk)
            if size_bytes > LARGEST_ANSWER_BYTES:
                self.close()
                return Unavailable(f"{path or '/'} answered more than {LARGEST_ANSWER_BYTES} bytes")
            if self._clock.monotonic_ns() > deadline_ns:
                raise TimeoutError
        return b"".join(chunks)

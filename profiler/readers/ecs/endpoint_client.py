"""Reads the ECS task metadata endpoint, over one persistent HTTP connection with limits on time and size.

The HTTP client is our own: the standard library's takes its e-mail parser for the headers, which took a fifth of the
monitor's CPU time.
"""

import re
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from profiler.core.clock import Clock
from profiler.core.errors import UsageError
from profiler.core.stop_request import SignalHandler
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import Unavailable
from profiler.readers.ecs.container_stats import StatsReading, decode_stats
from profiler.readers.ecs.task_metadata import (
    ContainerMetadata,
    TaskMetadata,
    decode_container,
    decode_tags,
    decode_task,
)

_MAX_HEAD_BYTES = 64 * 1024
_LINE_END = b"\r\n"
_HEAD_END = b"\r\n\r\n"
_DATE = b"\r\nDate: "
_STATUS = re.compile(rb"HTTP/1\.(\S*) (\d{3})(?![^ \r])")
# A loop over all headers in Python would take longer.
_USED_HEADERS = re.compile(rb"\r\n(content-length|transfer-encoding|connection):((?:[^\r]|\r(?!\n))*)", re.IGNORECASE)
_HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")
# A task has at most ten containers with 10 kB of stats each. A response that decodes to the most objects possible grows
# 44 times: to 88 MiB, which is still within the monitor's own memory limit (128 MiB).
MAX_RESPONSE_BYTES = 2 * 1024 * 1024
MAX_TIMEOUT_SECONDS = 5.0
_HTTP_OK = 200

_T = TypeVar("_T")


class HttpError(Exception):
    """The response is not HTTP/1.x, or it is incomplete. The text is a part of a sentence."""


class Response(Struct, frozen=True):
    """A response: its status, and its body; None if the body is larger than the limit."""

    status: int
    body: bytes | None


class _KnownResponse(Struct, frozen=True, kw_only=True):
    """A response as it was received: all bytes before and after the value of its Date, which is left out."""

    before_date: bytes
    date_end: int
    after_date: bytes
    response: Response


class HttpConnection:
    """Opens its connection when it is closed. ``wait_readable`` raises TimeoutError without data in time."""

    def __init__(
        self,
        connect: Callable[[float], socket.socket],
        host: str,
        wait_readable: Callable[[socket.socket], None],
        max_body_bytes: int,
    ) -> None:
        self._connect = connect
        self._host = host
        self._wait_readable = wait_readable
        self._max_body_bytes = max_body_bytes
        self._socket: socket.socket | None = None
        self._timeout_seconds = 0.0
        self._requests: dict[str, bytes] = {}  # The requests, by path; few paths are read.
        self._known: dict[str, _KnownResponse] = {}

    @property
    def is_open(self) -> bool:
        """Whether the connection of an earlier request is kept."""
        return self._socket is not None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def get(self, path: str, timeout_seconds: float) -> Response:
        """Send a request and read the response.

        If a response has the same bytes as the last one of this path, apart from the date, the same object is returned.
        Raises HttpError for a response that is not HTTP or not complete, ConnectionError if the connection was closed
        before the response, TimeoutError after ``timeout_seconds`` for connecting or sending and when ``wait_readable``
        raises it, and OSError.
        """
        if self._socket is None:
            self._socket = self._connect(timeout_seconds)
        elif timeout_seconds != self._timeout_seconds:
            self._socket.settimeout(timeout_seconds)
        self._timeout_seconds = timeout_seconds
        request = self._requests.get(path)
        if request is None:
            text = f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept: application/json\r\n\r\n"
            request = self._requests[path] = text.encode("latin-1")
        self._socket.sendall(request)
        reader = _Reader(self._socket, self._wait_readable)
        known = self._known.get(path)
        if known is not None and reader.repeats(known):
            return known.response
        status, length, closes = _parse_head(reader.until(_HEAD_END))
        body = None  # the body even of an error is read, so that the connection can be used again
        if length is None:
            body = reader.chunks(self._max_body_bytes)
        elif length <= self._max_body_bytes:
            body = reader.exactly(length)
        response = Response(status, body)
        if closes or body is None or reader.has_more:
            self.close()
        elif (received := reader.known(response)) is not None:
            self._known[path] = received
        return response


class _Reader:
    """Reads one response from a socket."""

    def __init__(self, source: socket.socket, wait_readable: Callable[[socket.socket], None]) -> None:
        self._source = source
        self._wait_readable = wait_readable
        self._received = bytearray()
        self._packets: list[bytes] = []

    def repeats(self, known: _KnownResponse) -> bool:
        """Whether the response repeats the known one. Receives only the bytes that this check needs.

        The end of a response follows from its bytes, so that the beginning of the known one is not complete.
        """
        length = known.date_end + len(known.after_date)
        while True:
            self._receive()
            received = self._received
            is_beginning = (
                len(received) <= length
                and received.startswith(known.before_date)
                and received.find(b"\r", len(known.before_date)) == known.date_end
            )
            if is_beginning and len(received) == length:
                return received.endswith(known.after_date)
            if not is_beginning or not known.after_date.startswith(received[known.date_end :]):
                return False

    def known(self, response: Response) -> _KnownResponse | None:
        """The bytes of this response; None if they have no date."""
        received = b"".join(self._packets)
        start = received.find(_DATE, 0, received.find(_HEAD_END)) + len(_DATE)
        if start < len(_DATE):
            return None
        end = received.find(b"\r", start)
        return _KnownResponse(before_date=received[:start], date_end=end, after_date=received[end:], response=response)

    @property
    def has_more(self) -> bool:
        """Whether more bytes than the response were received."""
        return bool(self._received)

    def until(self, end_mark: bytes) -> bytes:
        """The header, or the line of a chunk, without the mark at its end."""
        while (end := self._received.find(end_mark)) < 0:
            if len(self._received) > _MAX_HEAD_BYTES:
                raise HttpError(f"the header is larger than {_MAX_HEAD_BYTES} bytes")
            self._receive()
        return self.exactly(end + len(end_mark))[: -len(end_mark)]

    def exactly(self, length: int) -> bytes:
        while len(self._received) < length:
            self._receive()
        taken = bytes(self._received[:length])
        del self._received[:length]
        return taken

    def chunks(self, max_bytes: int) -> bytes | None:
        """The bytes of all chunks; None if they are more than ``max_bytes``."""
        parts: list[bytes] = []
        size = 1
        while size:
            line = self.until(_LINE_END)
            if not line or not _HEX_DIGITS.issuperset(line):
                raise HttpError("the size of a chunk of the response is not a number")
            size = int(line, 16)
            max_bytes -= size
            if max_bytes < 0:
                return None
            parts.append(self.exactly(size + len(_LINE_END))[:size])
        return b"".join(parts)

    def _receive(self) -> None:
        """Receive more bytes. Raises ConnectionResetError before a response, and HttpError if one ends early."""
        self._wait_readable(self._source)
        received = self._source.recv(32 * 1024)  # the stats of ten containers, with one system call
        if not received:
            if not self._packets:
                raise ConnectionResetError("the connection was closed before the response")
            raise HttpError(f"the response ends after {sum(map(len, self._packets))} bytes")
        self._received += received
        self._packets.append(received)


def _parse_head(head: bytes) -> tuple[int, int | None, bool]:
    """The status, the length of the body (None: it is chunked), and whether the connection ends with the response."""
    status = _STATUS.match(head)
    if status is None:
        raise HttpError("the response is not HTTP/1.x")
    length: int | None = None
    is_chunked, closes = False, status[1] == b"0"
    for name, value in _USED_HEADERS.findall(head):
        match name.lower():
            case b"content-length":
                length = int(value) if value.strip().isdigit() else None
            case b"transfer-encoding":
                is_chunked = value.strip().lower() == b"chunked"
            case _:
                closes = closes or b"close" in value.lower()
    if not is_chunked and length is None:
        raise HttpError("the response has no Content-Length")
    return int(status[2]), None if is_chunked else length, closes


class HttpEndpoint:
    """The endpoint at the address in ``ECS_CONTAINER_METADATA_URI_V4``.

    The timeout of a request is 0.9 of the sampling interval, doubled after two timeouts in a row, at most 5 s. It never
    becomes shorter again: an endpoint that takes 2 s for a response takes them each time.

    After a stop request each response gets at most half a second, also one that is being waited for. Requests
    with their own time limit keep it.
    """

    def __init__(
        self, address: str, interval_seconds: float, clock: Clock, stop_signal: SignalHandler | None = None
    ) -> None:
        self._address = address.rstrip("/")
        self._timeout_seconds = min(0.9 * interval_seconds, MAX_TIMEOUT_SECONDS)
        self._has_timed_out = False
        self._clock = clock
        self._stop_signal = stop_signal
        self._has_own_timeout = False
        self._request_started_ns = 0
        self._connection: HttpConnection | None = None
        self._base_path = ""
        self._deadline_ns = 0

    def get(self, path: str, max_seconds: float | None = None) -> bytes | Unavailable:
        """The body of a response with status 200, else the reason. ``max_seconds`` limits the adaptive timeout."""
        timeout_seconds = min(self._timeout_seconds, MAX_TIMEOUT_SECONDS if max_seconds is None else max_seconds)
        self._has_own_timeout = max_seconds is not None
        shown = path or "/"
        try:
            response = self._fetch(self._connection or self._new_connection(), path, timeout_seconds)
        except TimeoutError:
            self.close()
            if self._has_timed_out:
                self._timeout_seconds = min(2 * self._timeout_seconds, MAX_TIMEOUT_SECONDS)
            self._has_timed_out = not self._has_timed_out
            waited_seconds = (self._effective_deadline_ns() - self._request_started_ns) / NS_PER_SECOND
            return Unavailable(f"{shown} did not answer within {waited_seconds:.3g} s", timed_out=True)
        except (HttpError, OSError) as error:
            self.close()
            return Unavailable(
                f"{shown} cannot be read: {error if isinstance(error, HttpError) else type(error).__name__}"
            )
        except ValueError:
            return Unavailable(f"{shown} cannot be read: {self._address!r} is not the address of an endpoint")
        if response.body is None or response.status != _HTTP_OK:
            answer = f"more than {MAX_RESPONSE_BYTES} bytes" if response.body is None else f"HTTP {response.status}"
            return Unavailable(f"{shown} answered {answer}")
        self._has_timed_out = False
        return response.body

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._connection is not None:
            self._connection.close()

    def _new_connection(self) -> HttpConnection:
        """The connection object. It connects at the first request, and at the first request after :meth:`close`."""
        parts, address = _split(self._address)
        self._base_path = parts.path
        self._connection = HttpConnection(
            lambda timeout_seconds: socket.create_connection(address, timeout_seconds),
            parts.netloc.rpartition("@")[2],
            self._wait_readable,
            MAX_RESPONSE_BYTES,
        )
        return self._connection

    def _fetch(self, connection: HttpConnection, path: str, timeout_seconds: float) -> Response:
        self._request_started_ns = self._clock.monotonic_ns()
        self._deadline_ns = self._request_started_ns + round(timeout_seconds * NS_PER_SECOND)
        was_kept = connection.is_open
        target = (self._base_path + path) or "/"
        try:
            return connection.get(target, timeout_seconds)
        except ConnectionError:
            if not was_kept:
                raise
            connection.close()  # the endpoint had closed the idle connection
            return connection.get(target, timeout_seconds)

    def _effective_deadline_ns(self) -> int:
        requested_ns = None if self._stop_signal is None else self._stop_signal.requested_ns
        if requested_ns is None or self._has_own_timeout:
            return self._deadline_ns
        # A healthy endpoint responds within milliseconds.
        return min(self._deadline_ns, max(requested_ns, self._request_started_ns) + NS_PER_SECOND // 2)

    def _wait_readable(self, source: socket.socket) -> None:
        """Wait for data until the deadline, which a stop request shortens. Raises TimeoutError at the deadline.

        A socket's own timeout restarts with every read, so a response that arrives slowly could take any time.
        """
        while (remaining_ns := self._effective_deadline_ns() - self._clock.monotonic_ns()) > 0:
            remaining_seconds = remaining_ns / NS_PER_SECOND
            if self._stop_signal is None:
                source.settimeout(remaining_seconds)
                return
            if self._stop_signal.wait_readable(source, remaining_seconds):
                if source.gettimeout():
                    source.settimeout(0)  # else each call polls once more
                return
        raise TimeoutError


def check_address(address: str) -> None:
    """Raise UsageError for what is not the address of an endpoint: no attempt can succeed."""
    try:
        _split(address.rstrip("/"))
    except ValueError as error:
        raise UsageError(
            f"The monitor cannot read its task, because {address!r} is not the address of a task metadata endpoint: "
            "remove ECS_CONTAINER_METADATA_URI_V4, which ECS sets itself, from the container definition."
        ) from error


def _split(address: str) -> tuple[SplitResult, tuple[str, int]]:
    """The parts of an endpoint's address, and where to connect. Raises ValueError if it is not valid."""
    parts = urlsplit(address)
    is_printable = all("!" <= character <= "~" for character in address)
    if parts.scheme != "http" or parts.hostname is None or not is_printable:
        raise ValueError(address)
    return parts, (parts.hostname, 80 if parts.port is None else parts.port)


class TaskMetadataSource:
    """The ECS task metadata endpoint; for ``device_mapper_majors`` see :func:`decode_stats`."""

    def __init__(
        self, endpoint: HttpEndpoint, version: int, device_mapper_majors: frozenset[int] | None = None
    ) -> None:
        self._endpoint = endpoint
        self._device_mapper_majors = device_mapper_majors
        self._decoded: dict[str, tuple[bytes, Any]] = {}
        self.name = f"task-metadata-v{version}"

    def task(self, max_seconds: float | None = None) -> TaskMetadata | Unavailable:
        """``GET /task``. The same bytes as last time give the same object."""
        return self._read("/task", decode_task, max_seconds)

    def stats(self, max_seconds: float | None = None) -> StatsReading | Unavailable:
        """``GET /task/stats``. The same bytes as last time give the same object.

        On Fargate the stats change every 10 s, but a request is the only way to see at once that a container has
        ended. To compare two answers costs next to nothing; to decode them was half of the work.
        """
        decode = partial(decode_stats, device_mapper_majors=self._device_mapper_majors)
        return self._read("/task/stats", decode, max_seconds)

    def own_container(self) -> ContainerMetadata | Unavailable:
        """``GET`` of the endpoint's root."""
        return self._read("", decode_container)

    def tags(self) -> Mapping[str, str] | Unavailable:
        """``GET /taskWithTags``: the task's tags. The endpoint asks the ECS API for them, which may take seconds."""
        return self._read("/taskWithTags", decode_tags)

    def _read(
        self, path: str, decode: Callable[[bytes], _T | Unavailable], max_seconds: float | None = None
    ) -> _T | Unavailable:
        body = self._endpoint.get(path, max_seconds)
        if isinstance(body, Unavailable):
            return body
        before, decoded = self._decoded.get(path, (None, None))
        if body != before:  # the connection returns the same object for a response that repeats the last one
            decoded = decode(body)
            self._decoded[path] = body, decoded
        return cast("_T | Unavailable", decoded)

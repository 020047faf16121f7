"""HTTP/1.1 over one persistent connection: GET requests for small documents.

The standard library parses headers with its e-mail parser, which took a fifth of the monitor's CPU time.
"""

import re
import socket
from collections.abc import Callable

from msgspec import Struct

_MAX_HEAD_BYTES = 64 * 1024
_MAX_LINE_BYTES = 1024
_LINE_END = b"\r\n"
_HEAD_END = b"\r\n\r\n"
_DATE = b"\r\nDate: "
# A loop over all headers in Python would take longer.
_USED_HEADERS = re.compile(rb"\r\n(content-length|transfer-encoding|connection):((?:[^\r]|\r(?!\n))*)", re.IGNORECASE)
_HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")


class HttpError(Exception):
    """The response is not HTTP/1.x, or it is incomplete. The text is a part of a sentence."""


class Response(Struct, frozen=True):
    """A response: its status, and its body; None if the body is larger than the limit."""

    status: int
    body: bytes | None


class _Head(Struct, frozen=True, kw_only=True):
    """The length of the body is None if it is chunked. ``closes``: the connection ends with the response."""

    status: int
    length: int | None
    closes: bool


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
        opened = self._open(timeout_seconds)
        request = self._requests.get(path)
        if request is None:
            text = f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept: application/json\r\n\r\n"
            request = self._requests[path] = text.encode("latin-1")
        opened.sendall(request)
        reader = _Reader(opened, self._wait_readable)
        known = self._known.get(path)
        if known is not None and reader.repeats(known):
            return known.response
        head = reader.head()
        body = None  # the body even of an error is read, so that the connection can be used again
        if head.length is None:
            body = reader.chunks(self._max_body_bytes)
        elif head.length <= self._max_body_bytes:
            body = reader.exactly(head.length)
        response = Response(head.status, body)
        if head.closes or body is None or reader.has_more:
            self.close()
        elif (received := reader.known(response)) is not None:
            self._known[path] = received
        return response

    def _open(self, timeout_seconds: float) -> socket.socket:
        if self._socket is None:
            self._socket = self._connect(timeout_seconds)
        elif timeout_seconds != self._timeout_seconds:
            self._socket.settimeout(timeout_seconds)
        self._timeout_seconds = timeout_seconds
        return self._socket


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
        while self._receive():
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

    def head(self) -> _Head:
        """The status line and the header."""
        while (end := self._received.find(_HEAD_END)) < 0:
            if len(self._received) > _MAX_HEAD_BYTES:
                raise HttpError(f"the header is larger than {_MAX_HEAD_BYTES} bytes")
            if not self._receive():
                if not self._received:
                    raise ConnectionResetError("the connection was closed before the response")
                raise HttpError("the response ends within its header")
        return _parse_head(self._take(end + len(_HEAD_END))[:-4])

    def exactly(self, length: int) -> bytes:
        """As many bytes of the body."""
        while len(self._received) < length:
            if not self._receive():
                raise HttpError(f"the response ends after {len(self._received)} of {length} bytes")
        return self._take(length)

    def chunks(self, max_bytes: int) -> bytes | None:
        """The bytes of all chunks; None if they are more than ``max_bytes``."""
        parts: list[bytes] = []
        left_bytes = max_bytes
        while size := _parse_chunk_size(self._line()):
            left_bytes -= size
            if left_bytes < 0:
                return None
            parts.append(self.exactly(size))
            if self._line():
                raise HttpError("a chunk of the response is longer than its size")
        if self._line():
            raise HttpError("the response has a trailer")
        return b"".join(parts)

    def _line(self) -> bytes:
        while (end := self._received.find(_LINE_END)) < 0:
            if len(self._received) > _MAX_LINE_BYTES:
                raise HttpError(f"a line is longer than {_MAX_LINE_BYTES} bytes")
            if not self._receive():
                raise HttpError("the response ends within a chunk")
        return self._take(end + len(_LINE_END))[:-2]

    def _take(self, length: int) -> bytes:
        taken = bytes(self._received[:length])
        del self._received[:length]
        return taken

    def _receive(self) -> bool:
        """Receive more bytes; False after the end."""
        self._wait_readable(self._source)
        received = self._source.recv(32 * 1024)  # the stats of ten containers, with one system call
        self._received += received
        self._packets.append(received)
        return bool(received)


def _parse_head(head: bytes) -> _Head:
    version, _, rest = head.partition(_LINE_END)[0].partition(b" ")
    code = rest[:3]
    if not version.startswith(b"HTTP/1.") or not code.isdigit() or rest[3:4] not in (b"", b" "):
        raise HttpError("the response is not HTTP/1.x")
    length: int | None = None
    is_chunked, closes = False, version == b"HTTP/1.0"
    for name, value in _USED_HEADERS.findall(head):
        match name.lower():
            case b"content-length":
                if not value.strip().isdigit():
                    raise HttpError("the response's Content-Length is not a number")
                length = int(value)
            case b"transfer-encoding":
                is_chunked = value.strip().lower() == b"chunked"
            case _:
                closes = closes or b"close" in value.lower()
    if not is_chunked and length is None:
        raise HttpError("the response has no Content-Length")
    return _Head(status=int(code), length=None if is_chunked else length, closes=closes)


def _parse_chunk_size(line: bytes) -> int:
    if not line or not _HEX_DIGITS.issuperset(line):
        raise HttpError("the size of a chunk of the response is not a number")
    return int(line, 16)

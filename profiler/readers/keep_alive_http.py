"""A client of HTTP servers over one persistent connection each, with limits on time and size.

The standard library's takes its e-mail parser for the headers, which took a fifth of the monitor's
CPU time.
"""

import re
import socket
from collections.abc import Callable, Iterator

from msgspec import Struct

_MAX_HEAD_BYTES = 64 * 1024
_LINE_END = b"\r\n"
_HEAD_END = b"\r\n\r\n"
_OK = 200
_DATE = b"\r\nDate: "
_STATUS = re.compile(rb"HTTP/1\.(\S*) (\d{3})(?![^ \r])")
# A loop over all headers in Python would take longer.
_USED_HEADERS = re.compile(
    rb"\r\n(content-length|transfer-encoding|connection):((?:[^\r]|\r(?!\n))*)", re.IGNORECASE
)
_HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")


class HttpError(Exception):
    """The response is not HTTP/1.x, or it is incomplete. The text is a part of a sentence."""


class Response(Struct, frozen=True):
    """A response: its status, and its body; None if the body is larger than the limit."""

    status: int
    body: bytes | None


class _KnownResponse(Struct, frozen=True, kw_only=True):
    """A response as it was received: all bytes before and after the value of its Date, which is
    left out. ``head_rest`` is the rest of the head after it; ``length`` that of the body, None in
    chunks.
    """

    before_date: bytes
    date_end: int
    head_rest: bytes
    after_date: bytes
    length: int | None
    response: Response


class HttpConnection:
    """Opens its connection when it is closed.

    ``keeps_responses`` is for few paths whose responses repeat.
    """

    def __init__(
        self,
        connect: Callable[[float], socket.socket],
        host: str,
        wait_readable: Callable[[socket.socket], None],
        max_body_bytes: int,
        *,
        keeps_responses: bool = True,
    ) -> None:
        self._connect = connect
        self._host = host
        self._wait_readable = wait_readable
        self._max_body_bytes = max_body_bytes
        self._keeps_responses = keeps_responses
        self._socket: socket.socket | None = None
        self._timeout_seconds = 0.0
        self._requests: dict[str, bytes] = {}
        self._known: dict[str, _KnownResponse] = {}

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def get(self, path: str, timeout_seconds: float) -> Response:
        """The response; the same object if only the date differs from the last one's.

        Raises HttpError for a wrong or incomplete response, ConnectionError if the connection was
        closed before it, TimeoutError after ``timeout_seconds`` for connecting or sending and from
        ``wait_readable``, and OSError.
        """
        reader = self._send(path, timeout_seconds)
        known = self._known.get(path)
        if known is not None and reader.repeats(known):
            return known.response
        if known is not None and reader.take_head(known):  # only the body is another one
            status, length, closes = known.response.status, known.length, False
        else:
            status, length, closes = _parse_head(reader.until(_HEAD_END))
        body = None  # the body even of an error is read, so that the connection can be used again
        if length is None:
            body = reader.chunks(self._max_body_bytes)
        elif length <= self._max_body_bytes:
            body = reader.exactly(length)
        response = Response(status, body)
        if closes or body is None or reader.has_more:
            self.close()
        elif self._keeps_responses and (received := reader.known(response, length)) is not None:
            self._known[path] = received
        return response

    def stream(self, path: str, timeout_seconds: float) -> Iterator[bytes]:
        """Yield the chunks of a response that may never end; first an empty one for its head.

        Raises as :meth:`get`.
        """
        reader = self._send(path, timeout_seconds)
        try:
            status, length, _ = _parse_head(reader.until(_HEAD_END))
            if status != _OK or length is not None:
                raise HttpError(f"the response has the status {status}, or it is not a stream")
            yield b""
            while chunk := reader.chunk(self._max_body_bytes):
                yield chunk
        finally:
            self.close()

    def _send(self, path: str, timeout_seconds: float) -> "_Reader":
        if self._socket is None:
            self._socket = self._connect(timeout_seconds)
        elif timeout_seconds != self._timeout_seconds:
            self._socket.settimeout(timeout_seconds)
        self._timeout_seconds = timeout_seconds
        request = self._requests.get(path)
        if request is None:
            text = f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept: application/json\r\n\r\n"
            request = text.encode("latin-1")
            if self._keeps_responses:
                self._requests[path] = request
        self._socket.sendall(request)
        return _Reader(self._socket, self._wait_readable)


class _Reader:
    def __init__(
        self, source: socket.socket, wait_readable: Callable[[socket.socket], None]
    ) -> None:
        self._source = source
        self._wait_readable = wait_readable
        self._received = bytearray()
        self._packets: list[bytes] = []

    def repeats(self, known: _KnownResponse) -> bool:
        """Whether the response repeats the known one.

        Receives only the bytes that this check needs.
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

    def take_head(self, known: _KnownResponse) -> bool:
        """Take the head if it is here, and only its date differs from the known one's."""
        received = self._received
        if not (
            received.startswith(known.before_date)
            and received.startswith(known.head_rest, known.date_end)
            and received.find(b"\r", len(known.before_date)) == known.date_end
        ):
            return False
        del received[: known.date_end + len(known.head_rest)]
        return True

    def known(self, response: Response, length: int | None) -> _KnownResponse | None:
        """The bytes of this response, whose head has this length; None if they have no date."""
        received = b"".join(self._packets)
        head_end = received.find(_HEAD_END)
        start = received.find(_DATE, 0, head_end) + len(_DATE)
        if start < len(_DATE):
            return None
        end = received.find(b"\r", start)
        return _KnownResponse(
            before_date=received[:start],
            date_end=end,
            head_rest=received[end : head_end + len(_HEAD_END)],
            after_date=received[end:],
            length=length,
            response=response,
        )

    @property
    def has_more(self) -> bool:
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
        while part := self._chunk(max_bytes):
            max_bytes -= len(part)
            parts.append(part)
        return None if part is None else b"".join(parts)

    def chunk(self, max_bytes: int) -> bytes:
        """The next chunk of a stream, of which nothing else is kept; empty for the last one."""
        self._packets.clear()
        chunk = self._chunk(max_bytes)
        if chunk is None:
            raise HttpError(f"a chunk of the response is larger than {max_bytes} bytes")
        return chunk

    def _chunk(self, max_bytes: int) -> bytes | None:
        """One chunk, empty at the end; None if it is more than ``max_bytes``."""
        line = self.until(_LINE_END)
        if not line or not _HEX_DIGITS.issuperset(line):
            raise HttpError("the size of a chunk of the response is not a number")
        size = int(line, 16)
        return None if size > max_bytes else self.exactly(size + len(_LINE_END))[:size]

    def _receive(self) -> None:
        """Receive more bytes.

        Raises ConnectionResetError before a response, and HttpError if one ends early.
        """
        self._wait_readable(self._source)
        received = self._source.recv(32 * 1024)  # the stats of ten containers, with one system call
        if not received:
            if not self._packets:
                raise ConnectionResetError("the connection was closed before the response")
            raise HttpError(f"the response ends after {sum(map(len, self._packets))} bytes")
        self._received += received
        self._packets.append(received)


def _parse_head(head: bytes) -> tuple[int, int | None, bool]:
    """The status, the length of the body (None: it is chunked), and whether the connection ends
    with the response.
    """
    status = _STATUS.match(head)
    if not status:
        raise HttpError("the response is not HTTP/1.x")
    length: int | None = None
    is_chunked = False
    closes = status[1] == b"0"
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

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


class _KnownHead(Struct, frozen=True, kw_only=True):
    """The head of a response that leaves the connection open: ``before`` and ``after`` the value
    of its Date, after which the head continues at ``place``; without a Date, all is ``before``.

    ``length``: that of the body, None in chunks.
    """

    before: bytes
    place: int
    after: bytes
    status: int
    length: int | None

    def head_end_in(self, received: bytes) -> int:
        """Where the head ends, if this one is there, perhaps with another Date; else 0."""
        if not (received.startswith(self.before) and received.startswith(self.after, self.place)):
            return 0
        if self.after and received.find(b"\r", len(self.before)) != self.place:
            return 0
        return self.place + len(self.after)


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
        self._known: dict[str, tuple[_KnownHead, Response]] = {}

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
        reader = self._send_get(path, timeout_seconds)
        head, before = self._known.get(path, (None, None))
        closes = False
        if head is None or not reader.take_known_head(head):
            head, closes = _parse_head(reader.read_until(_HEAD_END))
        body = None  # the body even of an error is read, so that the connection can be used again
        if head.length is None:
            body = reader.read_all_chunks(self._max_body_bytes)
        elif head.length <= self._max_body_bytes:
            body = reader.read_exactly(head.length)
        response = Response(head.status, body)
        if closes or body is None or reader.has_more:
            self.close()
        elif self._keeps_responses:
            response = before if before == response else response
            self._known[path] = head, response
        return response

    def stream_chunks(self, path: str, timeout_seconds: float) -> Iterator[bytes]:
        """Yield the chunks of a response that may never end; first an empty one for its head.

        Raises as :meth:`get`.
        """
        reader = self._send_get(path, timeout_seconds)
        try:
            head, _ = _parse_head(reader.read_until(_HEAD_END))
            if head.status != _OK or head.length is not None:
                raise HttpError(f"the response has the status {head.status}, or it is not a stream")
            yield b""
            while chunk := reader.read_stream_chunk(self._max_body_bytes):
                yield chunk
        finally:
            self.close()

    def _send_get(self, path: str, timeout_seconds: float) -> "_ResponseReader":
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
        return _ResponseReader(self._socket, self._wait_readable)


class _ResponseReader:
    __slots__ = ("_received", "_source", "_total", "_wait_readable")

    def __init__(
        self, source: socket.socket, wait_readable: Callable[[socket.socket], None]
    ) -> None:
        self._source = source
        self._wait_readable = wait_readable
        self._received = b""
        self._total = 0

    def take_known_head(self, head: _KnownHead) -> bool:
        """Take the head if the first packet has it; False if it is another one, or divided."""
        self._received = self._receive_packet()
        end = head.head_end_in(self._received)
        self._received = self._received[end:]
        return end > 0

    @property
    def has_more(self) -> bool:
        return bool(self._received)

    def read_until(self, end_mark: bytes) -> bytes:
        """The head, or the line of a chunk, without the mark at its end."""
        while (end := self._received.find(end_mark)) < 0:
            if len(self._received) > _MAX_HEAD_BYTES:
                raise HttpError(f"the header is larger than {_MAX_HEAD_BYTES} bytes")
            self._received += self._receive_packet()
        return self.read_exactly(end + len(end_mark))[: -len(end_mark)]

    def read_exactly(self, length: int) -> bytes:
        if len(self._received) < length:
            parts = [self._received]
            missing = length - len(self._received)
            while missing > 0:
                parts.append(self._receive_packet())
                missing -= len(parts[-1])
            self._received = b"".join(parts)
        taken = self._received[:length]
        self._received = self._received[length:]
        return taken

    def read_all_chunks(self, max_bytes: int) -> bytes | None:
        """The bytes of all chunks; None if they are more than ``max_bytes``."""
        parts: list[bytes] = []
        while part := self._read_chunk(max_bytes):
            max_bytes -= len(part)
            parts.append(part)
        return None if part is None else b"".join(parts)

    def read_stream_chunk(self, max_bytes: int) -> bytes:
        """The next chunk of a stream, which counts as a response; empty for the last one."""
        self._total = 0
        chunk = self._read_chunk(max_bytes)
        if chunk is None:
            raise HttpError(f"a chunk of the response is larger than {max_bytes} bytes")
        return chunk

    def _read_chunk(self, max_bytes: int) -> bytes | None:
        """One chunk, empty at the end; None if it is more than ``max_bytes``."""
        line = self.read_until(_LINE_END)
        if not line or not _HEX_DIGITS.issuperset(line):
            raise HttpError("the size of a chunk of the response is not a number")
        size = int(line, 16)
        return None if size > max_bytes else self.read_exactly(size + len(_LINE_END))[:size]

    def _receive_packet(self) -> bytes:
        """Receive more bytes.

        Raises ConnectionResetError before a response, and HttpError if one ends early.
        """
        self._wait_readable(self._source)
        packet = self._source.recv(32 * 1024)  # the stats of ten containers, with one system call
        if not packet:
            if not self._total:
                raise ConnectionResetError("the connection was closed before the response")
            raise HttpError(f"the response ends after {self._total} bytes")
        self._total += len(packet)
        return packet


def _parse_head(head: bytes) -> tuple[_KnownHead, bool]:
    """A head without its end mark, and whether the connection ends with the response."""
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
    whole = head + _HEAD_END
    before, date, _ = whole.partition(_DATE)
    place = len(whole)
    after = b""
    if date:
        before += date
        place = whole.index(b"\r", len(before))
        after = whole[place:]
    known = _KnownHead(
        before=before,
        place=place,
        after=after,
        status=int(status[2]),
        length=None if is_chunked else length,
    )
    return known, closes

"""A client's connection that is over at a moment, whatever the client does, and of which so many bytes are read.

A timeout of a socket counts from its last byte, so that a client which sends one now and then stays for
ever; and http.server by itself reads six megabytes of a request's head.
"""

import socket
from http.client import HTTPException
from io import BufferedIOBase, RawIOBase
from typing import TYPE_CHECKING

from profiler.clock import Clock
from profiler.times import NS_PER_SECOND

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class HeadTooLong(HTTPException):
    """The client sent more than is read."""


class Deadline:
    """So many seconds from now."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end_ns = clock.monotonic_ns() + round(seconds * NS_PER_SECOND)

    def apply_to(self, connection: socket.socket) -> None:
        """Let the connection's next call wait until then at most. Raises TimeoutError where that has passed."""
        left_ns = self._end_ns - self._clock.monotonic_ns()
        if left_ns <= 0:
            raise TimeoutError
        connection.settimeout(left_ns / NS_PER_SECOND)


class BoundedReader(RawIOBase):
    """What the client says. Raises HeadTooLong where more is asked for than ``max_bytes``, TimeoutError at the end."""

    def __init__(self, connection: socket.socket, deadline: Deadline, max_bytes: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._bytes_left = max_bytes

    def readable(self) -> bool:
        """As the base class asks of one that reads."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """What has come, or wait for it."""
        if self._bytes_left == 0:
            raise HeadTooLong
        self._deadline.apply_to(self._connection)
        read = self._connection.recv_into(memoryview(buffer)[: self._bytes_left])
        self._bytes_left -= read
        return read


class BoundedWriter(BufferedIOBase):
    """What is said to the client. Raises TimeoutError where it does not take it."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._connection = connection
        self._deadline = deadline

    def writable(self) -> bool:
        """As the base class asks of one that writes."""
        return True

    def write(self, data: "ReadableBuffer") -> int:
        """All of it: ``sendall`` keeps the timeout for the whole of its work."""
        self._deadline.apply_to(self._connection)
        self._connection.sendall(data)
        return memoryview(data).nbytes

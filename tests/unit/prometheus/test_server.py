"""A connection that ends by itself: how much is read of it, and how long it lasts."""

import socket
from collections.abc import Iterator

import pytest

from profiler.prometheus.server import Connection, HeadTooLong
from tests.fakes import FakeClock

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Our end and the client's."""
    ours, clients = socket.socketpair()
    with ours, clients:
        yield ours, clients


def bounded(ours: socket.socket, clock: FakeClock, seconds: float = 30, max_bytes: int = 1000) -> Connection:
    return Connection(ours, clock, seconds, max_bytes)


def test_what_the_client_says_is_read_line_by_line(pair: Pair) -> None:
    ours, clients = pair
    clients.sendall(b"one\r\ntwo\r\n")
    with bounded(ours, FakeClock()) as connection, connection.makefile("rb") as reader:
        assert [reader.readline(), reader.readline()] == [b"one\r\n", b"two\r\n"]
        clients.close()
        assert reader.readline() == b""


@pytest.mark.parametrize("max_bytes", [1, 100, 10_000])
def test_no_more_is_read_than_the_bound(pair: Pair, max_bytes: int) -> None:
    ours, clients = pair
    clients.sendall(b"x" * 20_000)
    with bounded(ours, FakeClock(), max_bytes=max_bytes) as connection:
        with connection.makefile("rb") as reader, pytest.raises(HeadTooLong):
            reader.readline()
        assert len(connection.recv(20_000 - max_bytes, socket.MSG_WAITALL)) == 20_000 - max_bytes


def test_a_client_that_says_nothing_is_waited_for_until_the_deadline(pair: Pair) -> None:
    with bounded(pair[0], FakeClock(), 0.01) as connection, pytest.raises(TimeoutError):
        connection.recv_into(bytearray(1))


def test_a_client_that_takes_nothing_is_waited_for_until_the_deadline(pair: Pair) -> None:
    with bounded(pair[0], FakeClock(), 0.01) as connection, pytest.raises(TimeoutError):
        connection.sendall(b"x" * 2**24)


def test_after_the_deadline_nothing_is_read_or_written_any_more(pair: Pair) -> None:
    ours, clients = pair
    clock = FakeClock()
    with bounded(ours, clock, 5) as connection:
        clients.sendall(b"ab")
        assert connection.recv_into(bytearray(1)) == 1
        connection.sendall(b"c")
        clock.advance(5)
        for late in (lambda: connection.recv_into(bytearray(1)), lambda: connection.sendall(b"d")):
            with pytest.raises(TimeoutError):
                late()
    assert clients.recv(10) == b"c"

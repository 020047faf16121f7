"""A connection that ends by itself: how much is read of it, and how long it lasts."""

import socket
from collections.abc import Iterator
from io import BufferedReader

import pytest

from profiler.prometheus.connection import BoundedReader, BoundedWriter, Deadline, HeadTooLong
from tests.fakes import FakeClock

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Our end and the client's."""
    ours, clients = socket.socketpair()
    with ours, clients:
        yield ours, clients


def test_what_the_client_says_is_read_line_by_line(pair: Pair) -> None:
    ours, clients = pair
    clients.sendall(b"one\r\ntwo\r\n")
    reader = BufferedReader(BoundedReader(ours, Deadline(FakeClock(), 30), 1000))
    assert [reader.readline(), reader.readline()] == [b"one\r\n", b"two\r\n"]
    clients.close()
    assert reader.readline() == b""


@pytest.mark.parametrize("max_bytes", [1, 100, 10_000])
def test_no_more_is_read_than_the_bound(pair: Pair, max_bytes: int) -> None:
    ours, clients = pair
    clients.sendall(b"x" * 20_000)
    reader = BufferedReader(BoundedReader(ours, Deadline(FakeClock(), 30), max_bytes))
    with pytest.raises(HeadTooLong):
        reader.readline()
    ours.settimeout(30)
    assert len(ours.recv(20_000 - max_bytes, socket.MSG_WAITALL)) == 20_000 - max_bytes


def test_a_client_that_says_nothing_is_waited_for_until_the_deadline(pair: Pair) -> None:
    with pytest.raises(TimeoutError):
        BoundedReader(pair[0], Deadline(FakeClock(), 0.01), 1000).read(1)


def test_a_client_that_takes_nothing_is_waited_for_until_the_deadline(pair: Pair) -> None:
    with pytest.raises(TimeoutError):
        BoundedWriter(pair[0], Deadline(FakeClock(), 0.01)).write(b"x" * 2**24)


def test_after_the_deadline_nothing_is_read_or_written_any_more(pair: Pair) -> None:
    ours, clients = pair
    clock = FakeClock()
    deadline = Deadline(clock, 5)
    reader, writer = BoundedReader(ours, deadline, 1000), BoundedWriter(ours, deadline)
    clients.sendall(b"ab")
    assert (reader.read(1), writer.write(b"c")) == (b"a", 1)
    clock.advance(5)
    for late in (lambda: reader.read(1), lambda: writer.write(b"d")):
        with pytest.raises(TimeoutError):
            late()
    assert clients.recv(10) == b"c"

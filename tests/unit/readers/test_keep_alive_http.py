"""The responses of HTTP servers: complete, divided, repeated, and wrong."""

import socket
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.readers import keep_alive_http
from profiler.readers.keep_alive_http import HttpConnection, HttpError, Response

MAX_BODY_BYTES = 100


class Stream:
    """A socket that receives some packets and then its end."""

    def __init__(self, packets: Iterable[bytes]) -> None:
        self._packets = [packet for packet in packets if packet]
        self.sent = b""
        self.is_closed = False

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def recv(self, size: int) -> bytes:
        packet = self._packets.pop(0) if self._packets else b""
        assert len(packet) <= size
        return packet

    def close(self) -> None:
        self.is_closed = True


def connection(*streams: Stream) -> HttpConnection:
    """A connection that opens the streams one after the other."""
    left = list(streams)
    return HttpConnection(
        lambda _: cast("socket.socket", left.pop(0)), "endpoint:80", lambda _: None, MAX_BODY_BYTES
    )


def answer(*packets: bytes) -> Response:
    return connection(Stream(packets)).get("/task", 1)


def divided(sent: bytes, cuts: Iterable[int]) -> list[bytes]:
    return [sent[start:end] for start, end in pairwise([0, *sorted(cuts), len(sent)])]


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
RESPONSES = {
    "a length": HEAD + b'Content-Length: 7\r\n\r\n{"a":1}',
    "a length in other letters": HEAD + b'content-length:7\r\n\r\n{"a":1}',
    "chunks": HEAD + b'Transfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n',
    "no reason phrase": b'HTTP/1.0 200\r\nContent-Length: 7\r\n\r\n{"a":1}',
}


@pytest.mark.parametrize("sent", RESPONSES.values(), ids=RESPONSES)
@given(cuts=st.lists(st.integers(0, 150)))
def test_a_response_is_the_same_however_it_is_divided(sent: bytes, cuts: list[int]) -> None:
    assert answer(*divided(sent, cuts)) == Response(200, b'{"a":1}')


def test_an_error_says_what_is_wrong() -> None:
    for sent, error in (
        (b"", "the connection was closed before the response"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "the response is not HTTP/1.x"),
        (b"HTTP/2 200\r\n\r\n", "the response is not HTTP/1.x"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "the response is not HTTP/1.x"),
        (HEAD, "the response ends after 49 bytes"),
        (b"x" * 70_000, "the header is larger than 65536 bytes"),
        (HEAD + b"Content-Length: 9\r\n\r\nhalf", "the response ends after 74 bytes"),
        (HEAD + b"Content-Length: -9\r\n\r\n", "the response has no Content-Length"),
        (HEAD + b"\r\n{}", "the response has no Content-Length"),
        (
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
            "the size of a chunk of the response is not a number",
        ),
        (
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n1_0\r\n",
            "the size of a chunk of the response is not a number",
        ),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{", "the response ends after 83 bytes"),
    ):
        with pytest.raises((HttpError, ConnectionResetError), match=f"^{error}$"):
            answer(*divided(sent, range(1000, len(sent), 1000)))


def test_a_body_above_the_limit_is_not_read() -> None:
    chunks = b"Transfer-Encoding: chunked\r\n\r\n64\r\n" + b"x" * 100 + b"\r\n1\r\n"
    for rest in (b"Content-Length: 101\r\n\r\n", chunks):
        stream = Stream([HEAD + rest])
        assert connection(stream).get("/task", 1) == Response(200, None)
        assert stream.is_closed


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", True),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 1\r\n\r\nx", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx more", False),
    ],
)
def test_the_connection_is_kept_if_the_response_allows_it(sent: bytes, *, is_kept: bool) -> None:
    first, second = Stream([sent]), Stream([sent])
    opened = connection(first, second)
    assert opened.get("/task", 1).body == b"x"
    assert opened.is_open == is_kept
    assert first.is_closed == (not is_kept)
    if not is_kept:
        assert opened.get("/task/stats", 2).body == b"x"
        assert second.sent.startswith(b"GET /task/stats HTTP/1.1\r\nHost: endpoint:80\r\n")


def dated(sent: bytes, date: bytes) -> bytes:
    """The response with a Date, as a server adds it."""
    return sent.replace(b"\r\nContent-Type", b"\r\nDate: " + date + b"\r\nContent-Type")


DATES = b"Sat, 21 Nov 2026 13:16:10 GMT", b"Sat, 21 Nov 2026 13:16:11 GMT"
REPEATABLE = {name: RESPONSES[name] for name in ("a length", "chunks")}
all_cuts = st.lists(st.integers(0, 200), max_size=8)


@pytest.mark.parametrize("sent", REPEATABLE.values(), ids=REPEATABLE)
@given(first_cuts=all_cuts, next_cuts=all_cuts)
def test_a_response_of_another_date_only_is_the_same_response(
    sent: bytes, first_cuts: list[int], next_cuts: list[int]
) -> None:
    first, following = (dated(sent, date) for date in DATES)
    other = REPEATABLE["a length"]
    kept = connection(
        Stream([*divided(first, first_cuts), *divided(following, next_cuts), first, other])
    )
    responses = [kept.get("/task", 1) for _ in range(4)]
    assert responses[0] == Response(200, b'{"a":1}')
    for later in responses[1:]:
        assert later is responses[0]  # so that it is not decoded again
    assert kept.is_open


def outcome(opened: HttpConnection) -> tuple[Response | str, bool]:
    try:
        response = opened.get("/task", 1)
    except (HttpError, ConnectionResetError) as error:
        return str(error), opened.is_open
    return response, opened.is_open


@given(
    sent=st.sampled_from(sorted(REPEATABLE.values())),
    at=st.integers(0, 220),
    removed=st.integers(0, 20),
    added=st.one_of(
        st.binary(max_size=4), st.sampled_from([b"\r\n", b"\r\n\r\n", b"\r", b"0", b"7"])
    ),
    cuts=all_cuts,
)
def test_a_response_is_read_as_if_no_other_came_before_it(
    sent: bytes, at: int, removed: int, added: bytes, cuts: list[int]
) -> None:
    known, following = (dated(sent, date) for date in DATES)
    packets = divided(following[:at] + added + following[at + removed :], cuts)
    after_another = connection(Stream([known, *packets]))
    assert after_another.get("/task", 1) == Response(200, b'{"a":1}')
    assert outcome(after_another) == outcome(connection(Stream(packets)))


def test_only_the_value_of_the_date_may_differ() -> None:
    in_the_body = HEAD + b"Content-Length: 11\r\n\r\n\r\nDate: "
    with_length, other_header = RESPONSES["a length"], b"1\r\nContent-Length: 6\r\nAge: 12"
    for first, following in (
        (in_the_body + b"1\r\n", in_the_body + b"2\r\n"),
        (dated(with_length, DATES[0]), dated(with_length, other_header)),
    ):
        assert len(first) == len(following)
        kept = connection(Stream([first, following]))
        kept.get("/task", 1)
        assert outcome(kept) == outcome(connection(Stream([following])))


STREAMED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@given(cuts=all_cuts)
def test_a_stream_yields_its_beginning_and_each_chunk(cuts: list[int]) -> None:
    stream = Stream(divided(STREAMED + b"3\r\n{}\n\r\n2\r\n[]\r\n0\r\n\r\n", cuts))
    opened = connection(stream)
    assert list(opened.stream_chunks("/events", 1)) == [b"", b"{}\n", b"[]"]
    assert stream.is_closed
    assert not opened.is_open


def test_what_is_wrong_with_a_stream() -> None:
    for sent, error in (
        (STREAMED + b"65\r\n", "a chunk of the response is larger than 100 bytes"),
        (
            STREAMED.replace(b"200", b"500"),
            "the response has the status 500, or it is not a stream",
        ),
        (RESPONSES["a length"], "the response has the status 200, or it is not a stream"),
        (STREAMED + b"2\r\n{}\r\n", "the connection was closed before the response"),
    ):
        with pytest.raises((HttpError, ConnectionResetError), match=f"^{error}$"):
            list(connection(Stream([sent])).stream_chunks("/events", 1))


@given(
    st.sampled_from(sorted(RESPONSES.values())),
    st.integers(0, 200),
    st.binary(min_size=1, max_size=4),
)
def test_a_response_with_wrong_bytes_is_a_response_or_an_error(
    sent: bytes, at: int, wrong: bytes
) -> None:
    with suppress(HttpError, ConnectionResetError):
        response = answer(sent[:at] + wrong + sent[at + len(wrong) :])
        assert 100 <= response.status <= 999
        assert len(response.body or b"") <= MAX_BODY_BYTES


def test_the_head_of_a_response_with_another_body_is_not_parsed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bodies = (b'{"a":1}', b'{"a":2}', b'{"a":3}')
    first, *others = (
        dated(RESPONSES["a length"].replace(bodies[0], body), date)
        for body, date in zip(bodies, (*DATES, DATES[0]), strict=True)
    )
    kept = connection(Stream([first, *others]))
    assert kept.get("/task", 1) == Response(200, bodies[0])
    monkeypatch.setattr(keep_alive_http, "_parse_head", None)
    assert [kept.get("/task", 1).body for _ in others] == [*bodies[1:]]
    assert kept.is_open

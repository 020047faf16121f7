"""The HTTP source against a real server that behaves badly in every way the facts know of."""

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from profiler.cli.wiring.build_collectors import read_tags
from profiler.core.clock import SystemClock
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import Unavailable
from profiler.readers.ecs.endpoint_client import HttpEndpoint
from tests.fakes import FakeClock, seconds
from tests.http_server import FakeHttpServer
from tools.waiting import LIMIT_SECONDS

Answer = Callable[[BaseHTTPRequestHandler], object]


class Server(FakeHttpServer):
    """Answers each path as a test says and counts connections."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, Answer] = {}
        self.connections: set[tuple[str, int]] = set()
        self.paths: list[str] = []

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        self.connections.add(request.client_address)
        self.paths.append(request.path)
        self.answers[request.path](request)


_opened: list[HttpEndpoint] = []


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running
    while _opened:
        _opened.pop().close()


def endpoint(address: str) -> HttpEndpoint:
    _opened.append(HttpEndpoint(address, LIMIT_SECONDS, SystemClock()))
    return _opened[-1]


def says(status: int, body: bytes, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def reason(result: object) -> str:
    assert isinstance(result, Unavailable)
    return result.reason


def test_one_connection_serves_all_requests_even_after_an_error(server: Server) -> None:
    server.answers = {
        "/v4/x": says(200, b"own"),
        "/v4/x/task": says(200, b"task"),
        **{f"/v4/x/{status}": says(status, b"{}") for status in (301, 500, 503)},
    }
    source = endpoint(server.url + "/v4/x/")
    assert source.get_body("") == b"own"
    for status in (301, 500, 503):
        assert reason(source.get_body(f"/{status}")) == f"/{status} answered HTTP {status}"
    assert [source.get_body("/task") for _ in range(3)] == [b"task"] * 3
    assert len(server.connections) == 1


def test_a_dropped_connection_is_a_reason_and_the_next_request_works(server: Server) -> None:
    def drop(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    server.answers = {"/task": drop}
    source = endpoint(server.url)
    assert "cannot be read" in reason(source.get_body("/task"))
    server.answers = {"/task": says(200, b"back")}
    assert source.get_body("/task") == b"back"


def test_a_connection_that_was_closed_while_idle_is_opened_anew(server: Server) -> None:
    def then_close(handler: BaseHTTPRequestHandler) -> None:
        says(200, b"own")(handler)
        handler.close_connection = True

    server.answers = {"/task": then_close}
    source = endpoint(server.url)
    assert [source.get_body("/task") for _ in range(3)] == [b"own"] * 3
    assert len(server.connections) == 3


def test_an_address_that_is_none_is_a_reason() -> None:
    for address in (
        "",
        "http://",
        "169.254.170.2:9/v4",
        "http://x:99999/v4",
        "http://[::1/v4",
        "ftp://x/v4",
    ):
        assert reason(endpoint(address).get_body("/task")) == "/task cannot be read: ValueError"


def test_silence_is_a_timeout(server: Server) -> None:
    server.answers = {"/task": lambda _: server.closed.wait(LIMIT_SECONDS)}
    result = endpoint(server.url).get_body("/task", max_seconds=0.05)
    assert result == Unavailable("/task did not answer within 0.05 s", timed_out=True)


class Impatient:
    """Asks for the end once an answer has been waited for so long; time passes only by waiting."""

    def __init__(self, clock: FakeClock, after_seconds: float) -> None:
        self._clock = clock
        self._at_ns = clock.now_ns + seconds(after_seconds)

    @property
    def requested_ns(self) -> int | None:
        return self._at_ns if self._clock.now_ns >= self._at_ns else None

    def wait_readable(self, source: socket.socket, seconds: float) -> bool:
        """Nothing ever comes; a signal ends the wait."""
        end_ns = self._clock.now_ns + round(seconds * NS_PER_SECOND)
        self._clock.now_ns = end_ns if self.requested_ns is not None else min(end_ns, self._at_ns)
        return False


@pytest.mark.parametrize(
    ("after_seconds", "max_seconds", "given_up_after"),
    [(1, None, 1.5), (0, None, 0.5), (4.4, None, 4.5), (9, None, 4.5), (0, 2, 2), (1, 2, 2)],
)
def test_when_the_end_is_asked_for_an_answer_has_half_a_second_more(
    server: Server, after_seconds: float, max_seconds: float | None, given_up_after: float
) -> None:
    server.answers = {"/task": lambda _: server.closed.wait(LIMIT_SECONDS)}
    clock = FakeClock()
    impatient: Any = Impatient(clock, after_seconds)
    source = HttpEndpoint(server.url, 5, clock, impatient)
    result = source.get_body("/task", max_seconds)
    source.close()
    assert clock.now_ns == seconds(given_up_after)
    assert reason(result) == f"/task did not answer within {given_up_after:g} s"


@pytest.mark.parametrize("where", ["head", "body"])
def test_an_answer_that_drips_is_cut_off(server: Server, where: str) -> None:
    """Each byte comes well within the timeout, and so would the next for as long as the server
    likes.
    """

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        if where == "body":
            handler.send_header("Content-Length", "1000000")
            handler.end_headers()
        else:
            handler.flush_headers()
        while not server.closed.wait(0.02):
            handler.wfile.write(b"x")

    server.answers = {"/task": drip}
    results: list[bytes | Unavailable] = []
    source = endpoint(server.url)
    reader = threading.Thread(
        target=lambda: results.append(source.get_body("/task", max_seconds=0.1)), daemon=True
    )
    reader.start()
    reader.join(LIMIT_SECONDS)
    assert [isinstance(result, Unavailable) and result.timed_out for result in results] == [True]


def test_the_tags_are_one_request_also_if_they_are_refused(server: Server) -> None:
    server.answers = {
        "/v4/x/taskWithTags": says(200, b'{"Containers": [], "TaskTags": {"team": "data"}}')
    }
    assert read_tags(server.url + "/v4/x/", 4, SystemClock()) == {"team": "data"}
    for status in (400, 503):
        server.answers = {"/taskWithTags": says(status, b"{}")}
        assert (
            reason(read_tags(server.url, 4, SystemClock()))
            == f"/taskWithTags answered HTTP {status}"
        )
    assert server.paths == ["/v4/x/taskWithTags", "/taskWithTags", "/taskWithTags"]

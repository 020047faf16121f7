"""A real server is killed during a bulk request: with a request that was written, and with one that was cut off."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

import pytest
import requests

from tests.http_server import FakeHttpServer
from tests.lambda_environment import forget_environment
from tests.search.conftest import TWO_SERVERS
from tests.search.server import SearchServer
from tests.search.test_forwarder import Context, Forward, event, forward, report, search

__all__ = ["forward"]  # the fixture

pytestmark = [pytest.mark.search, TWO_SERVERS]

CUT, UNANSWERED = "after half of the request", "after the write and before the answer"


class Relay(FakeHttpServer):
    """Passes requests on to a server, which it kills in the middle of the next bulk when told to."""

    def __init__(self, server: SearchServer) -> None:
        super().__init__()
        self.crash: str | None = None
        self.crashes: list[str] = []
        self._real = server
        self._restart: threading.Thread | None = None

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        """Answer as the server does; nothing, where it does not."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        crash, self.crash = self.crash, None
        request.close_connection = True
        if crash == CUT:
            self._send_half(request, body)
            self._kill(CUT)
            return
        try:
            answer = requests.request(
                request.command, self._real.url + request.path, data=body, headers=dict(request.headers), timeout=60
            )
        except requests.RequestException:
            return
        if crash == UNANSWERED:
            assert answer.ok
            self._kill(UNANSWERED)
            return
        request.send_response(answer.status_code)
        for name in ("X-Elastic-Product", "Content-Type"):
            if name in answer.headers:
                request.send_header(name, answer.headers[name])
        request.send_header("Content-Length", str(len(answer.content)))
        request.end_headers()
        request.wfile.write(answer.content)

    def _send_half(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        address = urlsplit(self._real.url)
        head = f"{request.requestline}\r\n{request.headers}".replace("\r\n", "\n").replace("\n", "\r\n").encode()
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(head + body[: len(body) // 2])

    def _kill(self, crash: str) -> None:
        self._real.kill()
        self.crashes.append(crash)
        self._restart = threading.Thread(target=self._real.restart)
        self._restart.start()

    def wait_for_the_server(self) -> None:
        if self._restart is not None:
            self._restart.join()


@pytest.fixture
def relay(search_server: SearchServer, forward: Forward, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    served = Relay(search_server)
    monkeypatch.setenv("ELASTICSEARCH_URL", served.url)
    forget_environment()
    yield served
    served.wait_for_the_server()
    served.close()


def test_a_server_killed_in_the_middle_of_a_bulk_loses_and_doubles_nothing(
    relay: Relay, forward: Forward, search_server: SearchServer
) -> None:
    size = 200
    for number, crash in enumerate((None, CUT, UNANSWERED)):
        relay.crash = crash
        payload = event(*(report(f"{number}-{one}") for one in range(size)))
        assert forward(payload, Context(180)) == {"indexed": size, "skipped": 0, "failed": 0}
        relay.wait_for_the_server()
    assert relay.crashes == [CUT, UNANSWERED]
    assert search(search_server, track_total_hits=True)["hits"]["total"]["value"] == 3 * size

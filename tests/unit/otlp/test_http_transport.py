"""The transport, with a real server."""

import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

import pytest
from botocore.credentials import Credentials

from profiler.core.errors import UsageError
from profiler.otlp.http_transport import HttpTransport, aws_signer
from profiler.otlp.otlp_export import MAX_ANSWER_BYTES, TransportError
from profiler.otlp.otlp_settings import read_targets
from tests.http_server import FakeHttpServer


class Server(FakeHttpServer):
    def __init__(self) -> None:
        super().__init__()
        self.result: tuple[int, dict[str, str], bytes] = (200, {"Content-Type": "application/json"}, b"{}")
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        self.requests.append((request.path, {name.lower(): value for name, value in request.headers.items()}, body))
        return self.result


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server()
    yield served
    served.close()


def test_a_request_and_its_answer(server: Server) -> None:
    answer = HttpTransport()(f"{server.url}/v1/traces?a=b", {"x-key": "1", "content-type": "x"}, b"body", 5)
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, "application/json", b"{}")
    ((path, headers, body),) = server.requests
    assert (path, headers["x-key"], headers["content-type"], body) == ("/v1/traces?a=b", "1", "x", b"body")


def test_a_redirect_is_an_answer(server: Server) -> None:
    server.result = (307, {"Location": f"{server.url}/other"}, b"")
    assert HttpTransport()(server.url, {}, b"", 5).status == 307
    assert len(server.requests) == 1


def test_an_answer_that_is_too_large_is_cut(server: Server) -> None:
    server.result = (400, {"Content-Type": "text/plain", "Retry-After": "1"}, b"x" * (MAX_ANSWER_BYTES * 3))
    answer = HttpTransport()(server.url, {}, b"", 5)
    assert (len(answer.body), answer.headers["retry-after"]) == (MAX_ANSWER_BYTES, "1")
    bomb = gzip.compress(bytes(50_000_000))
    server.result = (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, bomb)
    assert len(HttpTransport()(server.url, {}, b"", 5).body) <= MAX_ANSWER_BYTES


def test_a_connection_that_the_server_closed_after_an_answer_is_replaced() -> None:
    """urllib3 sees an earlier close by itself; this one comes with the next request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answers = [
            (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
            (b"HTTP/1.1 429 X\r\nContent-Length: 0\r\n\r\n",),
        ]

        def serve() -> None:
            for sent in answers:
                with listener.accept()[0] as connection:
                    for part in sent:
                        connection.recv(65536)
                        connection.sendall(part)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        transport, url = HttpTransport(), f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert [transport(url, {}, b"x", 5).status for _ in answers] == [200, 429]
        thread.join()


def test_a_new_connection_that_is_closed_is_final() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[None] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    listener.accept()[0].close()
                    accepted.append(None)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(TransportError):
            HttpTransport()(f"http://127.0.0.1:{listener.getsockname()[1]}", {}, b"x", 5)
        assert len(accepted) <= 1


def test_without_a_server_the_reason_has_no_address(server: Server) -> None:
    server.close()
    with pytest.raises(TransportError, match=r"^the server cannot be reached \(\w+\)$"):
        HttpTransport()(f"{server.url}/secret", {}, b"", 1)


def test_an_address_of_https_that_speaks_http(server: Server) -> None:
    with pytest.raises(TransportError, match=r"^the server does not speak TLS: check whether the address begins with "):
        HttpTransport()(server.url.replace("http", "https", 1), {}, b"", 5)


def test_a_damaged_body_is_an_error(server: Server) -> None:
    server.result = (200, {"Content-Encoding": "gzip"}, b"no gzip")
    with pytest.raises(TransportError):
        HttpTransport()(server.url, {}, b"", 5)


def test_requests_are_signed_for_their_service() -> None:
    targets = read_targets({"OTLP_ENDPOINT": "https://xray.eu-west-1.amazonaws.com"}, signs_for_aws=True)
    sign = aws_signer(lambda: Credentials("AKIA", "secret", "token"))
    for target, service in zip(targets.values(), ("xray", "logs", "monitoring"), strict=True):
        headers = sign(target, {"content-type": "x", "x-aws-log-group": "/g"}, b"body")
        authorization = headers["Authorization"]
        assert authorization.startswith("AWS4-HMAC-SHA256 Credential=AKIA/")
        assert f"/eu-west-1/{service}/aws4_request" in authorization
        assert "content-type;host;x-amz-date;x-amz-security-token;x-aws-log-group" in authorization
        assert (headers["X-Amz-Security-Token"], headers["content-type"]) == ("token", "x")


def test_without_credentials_nothing_is_signed() -> None:
    target = read_targets({"OTLP_ENDPOINT": "https://xray.eu-west-1.amazonaws.com"}, signs_for_aws=True)["traces"]
    with pytest.raises(UsageError, match="OTLP_AWS_AUTH finds no AWS credentials"):
        aws_signer(lambda: None)(target, {}, b"")

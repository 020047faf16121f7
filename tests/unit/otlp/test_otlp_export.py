"""The export within its time, with a played transport and clock; the transport, with a real
server.
"""

import gzip
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from unittest import mock

import pytest
from botocore.credentials import Credentials
from urllib3 import HTTPConnectionPool
from urllib3.exceptions import ReadTimeoutError, SSLError

from profiler.core.errors import UsageError
from profiler.core.timestamps import NS_PER_SECOND
from profiler.otlp.otlp_encoding import SIGNALS, Message, Signal
from profiler.otlp.otlp_export import (
    MAX_ANSWER_BYTES,
    HttpAnswer,
    HttpTransport,
    OtlpExporter,
    TransportError,
    aws_signer,
    export_in_time,
)
from profiler.otlp.otlp_settings import AwsService, Targets, read_targets
from tests.cases import each_case
from tests.fakes import FakeClock
from tests.http_server import FakeHttpServer
from tools.waiting import LIMIT_SECONDS

SIGNAL_OF = {"/v1/traces": "traces", "/v1/logs": "logs", "/v1/metrics": "metrics"}
MESSAGES: dict[Signal, Message] = {
    "traces": {"resourceSpans": []},
    "logs": {"resourceLogs": []},
    "metrics": {},
}
SETTINGS = {
    "OTLP_ENDPOINT": "http://backend:4318",
    "OTLP_PROTOCOL": "http/json",
    "OTLP_HEADERS": "X-Key=hunter2",
}


def answer(status: int = 200, body: bytes = b"{}", **headers: str) -> HttpAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpAnswer(
        status=status, headers={"content-type": "application/json", **named}, body=body
    )


@dataclass
class Backend:
    """Answers each signal by its script, then with 200; each request takes its time."""

    script: dict[str, list[HttpAnswer | TransportError]] = field(default_factory=dict)
    seconds: Callable[[str], float] = lambda _signal: 0.1
    clock: FakeClock = field(default_factory=FakeClock)
    requests: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)

    def __call__(
        self, url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float
    ) -> HttpAnswer:
        signal = SIGNAL_OF[url.removeprefix("http://backend:4318")]
        self.requests.append((signal, headers, body))
        self.timeouts.append(timeout_seconds)
        seconds = self.seconds(signal)
        self.clock.advance(min(seconds, timeout_seconds))
        if seconds > timeout_seconds:
            raise TransportError("the server cannot be reached (ReadTimeoutError)")
        script = self.script.get(signal)
        result = script.pop(0) if script else answer()
        if isinstance(result, TransportError):
            raise result
        return result

    @property
    def asked(self) -> list[str]:
        return [signal for signal, _, _ in self.requests]

    def exporter(self) -> OtlpExporter:
        return OtlpExporter(self, self.clock, jitter=lambda: 0.0)

    def export(self) -> list[str]:
        return self.exporter().export(
            read_targets(SETTINGS), MESSAGES, self.exporter().deadline_ns(5)
        )

    @property
    def spent_seconds(self) -> float:
        return self.clock.now_ns / NS_PER_SECOND


def test_each_signal_is_one_compressed_request() -> None:
    backend = Backend()
    assert backend.export() == []
    assert backend.asked == ["traces", "logs", "metrics"]
    _, headers, body = backend.requests[0]
    assert json.loads(gzip.decompress(body)) == {"resourceSpans": []}
    expected = {"content-type": "application/json", "content-encoding": "gzip", "x-key": "hunter2"}
    assert {**headers, **expected} == headers
    assert headers["user-agent"].startswith("task-profiler/")


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again(status: int) -> None:
    backend = Backend({"logs": [answer(status), answer(status)]})
    assert backend.export() == []
    assert backend.asked == [*SIGNALS, "logs", "logs"]
    assert backend.spent_seconds == pytest.approx(0.5 + 0.25 + 0.5)


PARTIAL = b'{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too\\nold"}}'
REFUSALS: list[tuple[HttpAnswer | TransportError, str]] = [
    *(
        (
            answer(status, b'{"message":"no key hunter2"}'),
            f"the server answered {status}: no key ***",
        )
        for status in (400, 401, 500)
    ),
    (
        answer(200, b"<html>", content_type="Text/HTML; charset=utf-8"),
        "the answer is a web page: check the address",
    ),
    (
        answer(307, location="http://elsewhere"),
        "the server answered 307, a redirect: set the final address",
    ),
    (answer(200, PARTIAL), "the server rejected a part of it: too old"),
    (
        answer(200, b'{"partialSuccess":{"rejectedSpans":1}}'),
        "the server rejected a part of it: see its log",
    ),
    (TransportError("the server cannot be reached (X)"), "the server cannot be reached (X)"),
]


@each_case(("refusal", "reason"), REFUSALS)
def test_other_answers_are_final(refusal: HttpAnswer | TransportError, reason: str) -> None:
    backend = Backend({"traces": [refusal]})
    assert backend.export() == [f"The traces were not exported: {reason} (OTLP_ENDPOINT)."]
    assert backend.asked == ["traces", "logs", "metrics"]


@pytest.mark.parametrize("text", ["60", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_a_pause_that_the_time_does_not_allow_is_no_retry(text: str) -> None:
    backend = Backend({"traces": [answer(429, retry_after=text)], "logs": [answer(503)]})
    (reason,) = backend.export()
    assert "The traces were not exported: the server answered 429" in reason
    assert backend.spent_seconds == pytest.approx(0.3 + 0.25 + 0.1)
    assert backend.asked == ["traces", "logs", "metrics", "logs"]


@pytest.mark.parametrize(
    ("text", "pause"),
    [("3", 3), ("0", 0.25), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.25), ("", 0.25), ("soon", 0.25)],
)
def test_retry_after_is_honoured_after_the_others_are_sent_if_it_is_a_pause(
    text: str, pause: float
) -> None:
    backend = Backend({"traces": [answer(429, retry_after=text)]})
    assert backend.export() == []
    assert backend.asked == ["traces", "logs", "metrics", "traces"]
    assert backend.spent_seconds == pytest.approx(0.3 + pause + 0.1)


def test_a_server_that_does_not_answer_takes_five_seconds_in_all() -> None:
    backend = Backend(seconds=lambda _signal: 100)
    reasons = backend.export()
    assert [reason.partition(":")[0] for reason in reasons] == [
        "The traces, logs and metrics were not exported"
    ]
    assert backend.spent_seconds <= 5
    assert backend.timeouts == pytest.approx([5 / 3, 5 / 3, 5 / 3])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UsageError("OTLP_ENDPOINT must be an address."), "OTLP_ENDPOINT must be an address."),
        (ValueError("Invalid header value b'hunter2'"), "The export failed (ValueError)."),
    ],
)
def test_an_error_is_a_reason_and_one_of_ours_is_so_without_its_text(
    error: Exception, reason: str
) -> None:
    def prepare() -> tuple[Targets, Mapping[Signal, Message]]:
        raise error

    assert export_in_time(prepare, Backend().exporter()) == reason


def test_the_reasons_are_sentences_and_whatever_blocks_is_abandoned() -> None:
    backend = Backend({"traces": [answer(400)], "logs": [answer(404)], "metrics": [answer(400)]})
    assert export_in_time(lambda: (read_targets(SETTINGS), MESSAGES), backend.exporter()) == (
        "The traces and metrics were not exported: the server answered 400 (OTLP_ENDPOINT). "
        "The logs were not exported: the server answered 404 (OTLP_ENDPOINT)."
    )
    released = threading.Event()

    def prepare() -> tuple[Targets, Mapping[Signal, Message]]:
        released.wait()
        return {}, {}

    reason = export_in_time(prepare, backend.exporter(), 0.01)
    released.set()
    assert reason == (
        "Nothing was exported: its settings were not read in time (OTLP_SECRET_ID). The "
        "limit is 0.01 s."
    )


def test_who_is_interrupted_waits_no_longer_and_says_so() -> None:
    released = threading.Event()

    def prepare() -> tuple[Targets, Mapping[Signal, Message]]:
        released.wait()
        return {}, {}

    said = export_in_time(prepare, Backend().exporter(), LIMIT_SECONDS, is_interrupted=lambda: True)
    released.set()
    assert said == "The export was interrupted."


def test_a_signal_for_which_no_time_is_left_is_not_sent() -> None:
    """The thread is abandoned then, so that nobody would know whether it arrived."""
    backend = Backend()
    exporter = backend.exporter()
    said = exporter.export(read_targets(SETTINGS), MESSAGES, exporter.deadline_ns(0.59))
    assert backend.asked == []
    late = "the time was up before it was sent (OTLP_ENDPOINT)"
    assert said == [f"The traces, logs and metrics were not exported: {late}."]
    assert exporter.export(read_targets(SETTINGS), MESSAGES, exporter.deadline_ns(0.61)) == []


def test_a_request_to_aws_is_signed_as_it_is_sent() -> None:
    signed: list[tuple[str, bytes]] = []

    def sign(
        service: AwsService, url: str, headers: Mapping[str, str], body: bytes
    ) -> Mapping[str, str]:
        signed.append((service.name, body))
        return {**headers, "authorization": f"for {service.name}"}

    sent: list[tuple[str, bytes]] = []

    def transport(
        url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float
    ) -> HttpAnswer:
        sent.append((headers.get("authorization", ""), body))
        return answer()

    backend = Backend()
    exporter = OtlpExporter(transport, backend.clock, jitter=lambda: 0.0, sign=sign)
    settings = {"OTLP_ENDPOINT": "https://xray.eu-west-1.amazonaws.com"}
    targets = read_targets(settings, signs_for_aws=True)
    assert exporter.export(targets, MESSAGES, exporter.deadline_ns(5)) == []
    assert [(f"for {name}", body) for name, body in signed] == sent
    assert [name for name, _ in signed] == ["xray", "logs", "monitoring"]
    sent.clear()
    assert exporter.export(read_targets(SETTINGS), MESSAGES, exporter.deadline_ns(5)) == []
    assert [name for name, _ in sent] == ["", "", ""], "another backend gets no signature of AWS"


def test_without_compression_the_body_is_sent_as_it_is() -> None:
    backend = Backend()
    exporter = backend.exporter()
    targets = read_targets({**SETTINGS, "OTLP_COMPRESSION": "none"})
    assert exporter.export(targets, MESSAGES, exporter.deadline_ns(5)) == []
    _, headers, body = backend.requests[0]
    assert "content-encoding" not in headers
    assert json.loads(body) == {"resourceSpans": []}


def certificate_error(words: str) -> SSLError:
    cause = ssl.SSLCertVerificationError(1, words)
    cause.verify_message = words
    return SSLError(cause)


def protocol_error(reason: str) -> SSLError:
    cause = ssl.SSLError(1, "an error of OpenSSL")
    cause.reason = reason
    return SSLError(cause)


@each_case(
    ("error", "reason"),
    [
        (
            ReadTimeoutError(HTTPConnectionPool("x"), "/", "Read timed out."),
            "the server did not answer completely within 60.0 s",
        ),
        (
            certificate_error("self-signed certificate."),
            (
                "the server's certificate is not trusted (self-signed certificate): set "
                "OTLP_CERTIFICATE to the file of your private CA, or check the address"
            ),
        ),
        (
            protocol_error("WRONG_VERSION_NUMBER"),
            "TLS failed (WRONG_VERSION_NUMBER): check the server and the file of OTLP_CERTIFICATE",
        ),
        # Python itself raises these without what OpenSSL adds.
        (
            SSLError(ssl.SSLEOFError(8, "EOF occurred in violation of protocol")),
            "TLS failed (SSLEOFError): check the server and the file of OTLP_CERTIFICATE",
        ),
        (
            SSLError(ssl.SSLCertVerificationError("hostname 'backend' is not in it.")),
            (
                "the server's certificate is not trusted (hostname 'backend' is not in it): set "
                "OTLP_CERTIFICATE to the file of your private CA, or check the address"
            ),
        ),
    ],
)
def test_the_reason_says_which_part_of_the_connection_to_mend(
    error: Exception, reason: str
) -> None:
    transport = HttpTransport(ca_setting="OTLP_CERTIFICATE")

    def fail(*_: object) -> HttpAnswer:
        raise error

    with mock.patch.object(transport, "_post", fail), pytest.raises(TransportError) as raised:
        transport("https://backend", {}, b"", 60)
    assert str(raised.value) == reason


class Server(FakeHttpServer):
    def __init__(self) -> None:
        super().__init__()
        self.result: tuple[int, dict[str, str], bytes] = (
            200,
            {"Content-Type": "application/json"},
            b"{}",
        )
        self.paths: list[str] = []

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        self.paths.append(request.path)
        return self.result


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as served:
        yield served


def test_a_redirect_is_an_answer_and_one_that_is_too_large_is_cut(server: Server) -> None:
    server.result = (307, {"Location": f"{server.url}/other"}, b"")
    assert HttpTransport()(server.url, {}, b"", 5).status == 307
    assert len(server.paths) == 1
    server.result = (
        400,
        {"Content-Type": "text/plain", "Retry-After": "1"},
        b"x" * (MAX_ANSWER_BYTES * 3),
    )
    answer = HttpTransport()(server.url, {}, b"", 5)
    assert len(answer.body) == MAX_ANSWER_BYTES
    assert answer.headers["retry-after"] == "1"
    bomb = gzip.compress(bytes(50_000_000))
    server.result = (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, bomb)
    assert len(HttpTransport()(server.url, {}, b"", 5).body) <= MAX_ANSWER_BYTES


@pytest.mark.parametrize(
    ("ca_file", "scheme", "reason"),
    [
        (
            None,
            "https",
            "TLS failed (WRONG_VERSION_NUMBER): check the server and the file of SSL_CERT_FILE",
        ),
        ("/dev/null", "https", "TLS failed ("),
        (None, "gopher", "the server cannot be reached (URLSchemeUnknown)"),
    ],
)
def test_without_a_connection_there_is_a_reason(
    server: Server, ca_file: str | None, scheme: str, reason: str
) -> None:
    with pytest.raises(TransportError, match=f"^{re.escape(reason)}"):
        HttpTransport(ca_file)(server.url.replace("http", scheme), {}, b"", 5)


def test_a_signal_whose_endpoint_drips_leaves_the_others_their_time(server: Server) -> None:
    """It answers a byte every 20 ms, so that no single read is late.

    Only its own time passes by the exporter's clock, so that a busy machine delays no other signal.
    """
    ended = threading.Event()
    clock = FakeClock()
    post = HttpTransport()

    def drip() -> None:
        with listener.accept()[0] as connection, suppress(OSError):
            while not ended.wait(0.02):
                connection.send(b"H")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drip, daemon=True).start()
        dripping = f"http://127.0.0.1:{listener.getsockname()[1]}"
        targets = read_targets({"OTLP_ENDPOINT": server.url, "OTLP_TRACES_ENDPOINT": dripping})

        def transport(
            url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float
        ) -> HttpAnswer:
            if url.startswith(server.url):
                return post(url, headers, body, LIMIT_SECONDS)
            clock.advance(timeout_seconds)
            return post(url, headers, body, timeout_seconds)

        exporter = OtlpExporter(transport, clock, jitter=lambda: 0.0)
        (sentence,) = exporter.export(targets, MESSAGES, exporter.deadline_ns(3))
        ended.set()
    assert re.match(
        r"The traces were not exported: the server did not answer completely within 1\.0 s",
        sentence,
    )
    assert server.paths == ["/v1/logs", "/v1/metrics"]


def test_requests_are_signed_for_their_service() -> None:
    targets = read_targets(
        {"OTLP_ENDPOINT": "https://xray.eu-west-1.amazonaws.com"}, signs_for_aws=True
    )
    sign = aws_signer(lambda: Credentials("AKIA", "secret", "token"))
    for target, service in zip(targets.values(), ("xray", "logs", "monitoring"), strict=True):
        assert target.aws is not None
        headers = sign(
            target.aws, target.url, {"content-type": "x", "x-aws-log-group": "/g"}, b"body"
        )
        authorization = headers["Authorization"]
        assert authorization.startswith("AWS4-HMAC-SHA256 Credential=AKIA/")
        assert f"/eu-west-1/{service}/aws4_request" in authorization
        assert "content-type;host;x-amz-date;x-amz-security-token;x-aws-log-group" in authorization
        assert headers["X-Amz-Security-Token"] == "token"
        assert headers["content-type"] == "x"

"""The export within its time, with a played transport and clock."""

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from profiler.core.errors import UsageError
from profiler.core.timestamps import NS_PER_SECOND
from profiler.otlp.otlp_encoding import SIGNALS, Message, Signal
from profiler.otlp.otlp_export import HttpAnswer, OtlpExporter, Transport, TransportError, export_in_time
from profiler.otlp.otlp_settings import Target, Targets, read_targets
from tests.fakes import FakeClock

SIGNAL_OF = {"/v1/traces": "traces", "/v1/logs": "logs", "/v1/metrics": "metrics"}
MESSAGES: dict[Signal, Message] = {"traces": {"resourceSpans": []}, "logs": {"resourceLogs": []}, "metrics": {}}
SETTINGS = {"OTLP_ENDPOINT": "http://backend:4318", "OTLP_PROTOCOL": "http/json", "OTLP_HEADERS": "X-Key=hunter2"}


def answer(status: int = 200, body: bytes = b"{}", **headers: str) -> HttpAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpAnswer(status=status, headers={"content-type": "application/json", **named}, body=body)


@dataclass
class Backend:
    """Answers each signal by its script, then with 200; each request takes its time."""

    script: dict[str, list[HttpAnswer | TransportError]] = field(default_factory=dict)
    seconds: Callable[[str], float] = lambda _signal: 0.1
    clock: FakeClock = field(default_factory=FakeClock)
    requests: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float) -> HttpAnswer:
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

    def export(self, seconds: float = 5.0, settings: Mapping[str, str] = SETTINGS, **options: object) -> list[str]:
        exporter = OtlpExporter(self, self.clock, jitter=lambda: 0.0, **options)  # type: ignore[arg-type]
        return exporter.export(read_targets(settings), MESSAGES, exporter.deadline_ns(seconds))

    @property
    def spent_seconds(self) -> float:
        return self.clock.now_ns / NS_PER_SECOND


def test_each_signal_is_one_compressed_request() -> None:
    backend = Backend()
    assert backend.export() == []
    assert backend.asked == ["traces", "logs", "metrics"]
    _, headers, body = backend.requests[0]
    assert json.loads(gzip.decompress(body)) == {"resourceSpans": []}
    assert (headers["content-type"], headers["content-encoding"]) == ("application/json", "gzip")
    assert headers["x-key"] == "hunter2"
    assert headers["user-agent"].startswith("task-profiler/")


def test_without_compression_the_body_is_plain() -> None:
    backend = Backend()
    backend.export(settings={**SETTINGS, "OTLP_COMPRESSION": "none"})
    assert backend.requests[0][2] == b'{"resourceSpans":[]}'
    assert "content-encoding" not in backend.requests[0][1]


def test_only_signals_with_an_address_are_sent() -> None:
    backend = Backend()
    assert backend.export(settings={"OTLP_LOGS_ENDPOINT": "http://backend:4318/v1/logs"}) == []
    assert backend.asked == ["logs"]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again(status: int) -> None:
    backend = Backend({"logs": [answer(status), answer(status)]})
    assert backend.export() == []
    assert sorted(backend.asked) == sorted([*SIGNALS, "logs", "logs"])
    assert backend.spent_seconds == pytest.approx(0.5 + 0.25 + 0.5 - 0.1)  # metrics were sent in the first pause


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 500, 501])
def test_other_errors_are_final(status: int) -> None:
    backend = Backend({"traces": [answer(status, b'{"message":"no such key hunter2"}')]})
    (reason,) = backend.export()
    expected = f"the server answered {status}: no such key ***"
    assert reason == f"The traces were not exported: {expected} (OTLP_ENDPOINT)."
    assert backend.asked == ["traces", "logs", "metrics"]


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "Text/HTML"])
def test_a_web_page_is_no_backend(content_type: str) -> None:
    backend = Backend({"traces": [answer(200, b"<html>", content_type=content_type)]})
    expected = "the answer is a web page: check the address (OTLP_ENDPOINT)"
    assert backend.export() == [f"The traces were not exported: {expected}."]


def test_what_a_server_repeats_of_the_address_and_the_signature_is_hidden() -> None:
    said = b'{"message":"POST ?key=q%2Buery: q+uery, Signature=abcd, token"}'

    def transport(url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float) -> HttpAnswer:
        return answer(403, said, content_type="Application/JSON")

    exporter = OtlpExporter(
        transport,
        FakeClock(),
        jitter=lambda: 0.0,
        sign=lambda _target, headers, _body: {**headers, "Authorization": "Signature=abcd", "X": "token"},
    )
    address = {"OTLP_TRACES_ENDPOINT": "https://xray.eu-west-1.amazonaws.com/v1/traces?key=q%2Buery"}
    (reason,) = exporter.export(read_targets(address, signs_for_aws=True), MESSAGES, 5 * NS_PER_SECOND)
    assert "the server answered 403: POST ?***: ***, ***, *** (" in reason


def test_an_unreachable_server_is_final() -> None:
    backend = Backend({"traces": [TransportError("the server cannot be reached (X)")]})
    assert backend.export() == ["The traces were not exported: the server cannot be reached (X) (OTLP_ENDPOINT)."]


def test_retry_after_is_honoured_while_the_others_are_sent() -> None:
    backend = Backend({"traces": [answer(503, retry_after="3")]})
    assert backend.export() == []
    assert backend.asked == ["traces", "logs", "metrics", "traces"]
    assert backend.spent_seconds == pytest.approx(3.2)


@pytest.mark.parametrize("text", ["60", "9" * 4000, "Wed, 21 Oct 2099 07:28:00 GMT", "Wed, 21 Oct 9999 07:28:00 GMT"])
def test_a_pause_that_the_time_does_not_allow_is_no_retry(text: str) -> None:
    backend = Backend({"traces": [answer(429, retry_after=text)]})
    (reason,) = backend.export()
    assert "The traces were not exported: the server answered 429" in reason
    assert backend.spent_seconds == pytest.approx(0.3)
    assert backend.asked == ["traces", "logs", "metrics"]


@pytest.mark.parametrize("text", ["0", "Wed, 21 Oct 2015 07:28:00 GMT", "", "soon", "-1", "1e3"])
def test_a_retry_after_without_a_pause_is_the_usual_pause(text: str) -> None:
    backend = Backend({"traces": [answer(429, retry_after=text)]})
    assert backend.export() == []
    assert backend.spent_seconds == pytest.approx(0.1 + 0.25 + 0.1)


def test_a_server_that_does_not_answer_takes_five_seconds_in_all() -> None:
    backend = Backend(seconds=lambda _signal: 100)
    reasons = backend.export()
    assert [reason.partition(":")[0] for reason in reasons] == ["The traces, logs and metrics were not exported"]
    assert backend.spent_seconds <= 5
    assert backend.timeouts == pytest.approx([5 / 3, 5 / 3, 5 / 3])


def test_time_that_one_signal_leaves_belongs_to_the_others() -> None:
    backend = Backend(seconds=lambda signal: 3.5 if signal == "metrics" else 0.1)
    assert backend.export() == []


def test_a_server_that_is_always_busy_takes_five_seconds_in_all() -> None:
    backend = Backend({signal: [answer(503)] * 100 for signal in SIGNALS})
    assert len(backend.export()) == 1
    assert backend.spent_seconds <= 5


def test_a_partial_success_has_failed_and_is_not_repeated() -> None:
    body = b'{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too\\nold"}}'
    backend = Backend({"traces": [answer(200, body)]})
    (reason,) = backend.export()
    assert reason == "The traces were not exported: the server rejected a part of it: too old (OTLP_ENDPOINT)."
    assert backend.asked.count("traces") == 1


def test_a_warning_is_no_failure() -> None:
    body = b'{"partialSuccess":{"errorMessage":"use another name"}}'
    assert Backend({"traces": [answer(200, body)]}).export() == []


def test_a_redirect_is_not_followed() -> None:
    backend = Backend({"traces": [answer(307, location="http://elsewhere")]})
    (reason,) = backend.export()
    assert "the server answered 307, a redirect: set the final address" in reason
    assert len(backend.requests) == 3


def test_a_long_message_is_cut() -> None:
    backend = Backend({"traces": [answer(400, json.dumps({"message": "x" * 5000}).encode())]})
    (reason,) = backend.export()
    assert len(reason) < 400


def test_every_attempt_is_signed() -> None:
    signed: list[str] = []

    def sign(target: Target, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        signed.append(target.url)
        return {**headers, "authorization": "signature"}

    settings = {"OTLP_ENDPOINT": "https://xray.eu-west-1.amazonaws.com"}
    backend = Backend()
    to_backend: Transport = lambda _url, *rest: backend("/v1/traces", *rest)  # noqa: E731
    exporter = OtlpExporter(to_backend, FakeClock(), jitter=lambda: 0.0, sign=sign)
    backend.script = {"traces": [answer(503)]}
    reasons = exporter.export(read_targets(settings, signs_for_aws=True), MESSAGES, 5 * NS_PER_SECOND)
    assert (reasons, len(signed)) == ([], 4)
    assert all(headers["authorization"] == "signature" for _, headers, _ in backend.requests)


# Everything in its time


def in_time(prepare: Callable[[], tuple[Targets, Mapping[Signal, Message]]], backend: Backend) -> str | None:
    return export_in_time(prepare, OtlpExporter(backend, backend.clock, jitter=lambda: 0.0))


def test_an_export_without_a_flaw_has_no_reason() -> None:
    assert in_time(lambda: (read_targets(SETTINGS), MESSAGES), Backend()) is None


def test_the_reasons_are_sentences() -> None:
    backend = Backend({"traces": [answer(400)], "logs": [answer(404)], "metrics": [answer(400)]})
    assert in_time(lambda: (read_targets(SETTINGS), MESSAGES), backend) == (
        "The traces and metrics were not exported: the server answered 400 (OTLP_ENDPOINT). "
        "The logs were not exported: the server answered 404 (OTLP_ENDPOINT)."
    )


def test_invalid_settings_are_a_reason() -> None:
    def prepare() -> tuple[Targets, Mapping[Signal, Message]]:
        raise UsageError("OTLP_ENDPOINT must be an address.")

    assert in_time(prepare, Backend()) == "OTLP_ENDPOINT must be an address."


def test_an_error_of_ours_is_a_reason_without_its_text() -> None:
    def prepare() -> tuple[Targets, Mapping[Signal, Message]]:
        raise ValueError("Invalid header value b'hunter2'")

    assert in_time(prepare, Backend()) == "The export failed (ValueError)."


def test_whatever_blocks_is_abandoned() -> None:
    import threading  # noqa: PLC0415  this test alone

    released = threading.Event()

    def prepare() -> tuple[Targets, Mapping[Signal, Message]]:
        released.wait()
        return {}, {}

    backend = Backend()
    reason = export_in_time(prepare, OtlpExporter(backend, backend.clock, jitter=lambda: 0.0), 0.01)
    released.set()
    assert reason == "The export took longer than 0.01 s."

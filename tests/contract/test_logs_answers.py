"""The sink and boto3 against a played CloudWatch Logs (moto), and against a server that answers
otherwise.
"""

import json
import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

import boto3
import pytest

from profiler.core.clock import SystemClock
from profiler.sinks import LogTarget
from profiler.sinks.report_upload import CloudWatchLogsSink, connect_logs_client
from tests.http_server import FakeHttpServer
from tests.lambda_environment import moto_account
from tests.values import present

TARGET = LogTarget(group="/ecs/jobs", stream="ecs/batch/0123", region="eu-west-1")
JSON = "application/x-amz-json-1.1"
PAGE = b"<html><body>Please sign in</body></html>"


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = JSON
    length: int | None = None  # what its Content-Length says, if that is wrong


def refusal(code: str) -> Answer:
    return Answer(400, json.dumps({"__type": code, "message": "m"}).encode())


def dropped(**info: int) -> Answer:
    """An event may be dropped with HTTP 200."""
    return Answer(200, json.dumps({"rejectedLogEventsInfo": info}).encode())


ACCEPTED = Answer(200, b'{"nextSequenceToken":"1"}')


class Portal(FakeHttpServer):
    """Gives the answers in their order, the last one again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = [ACCEPTED]
        self.messages: list[str] = []
        self.tokens: list[str | None] = []
        self.before_answer: Callable[[], object] = lambda: None

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        put = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        self.messages += [event["message"] for event in put["logEvents"]]
        self.tokens.append(request.headers["X-Amz-Security-Token"])
        self.before_answer()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        request.send_response(answer.status)
        request.send_header("Content-Type", answer.content_type)
        request.send_header("Content-Length", str(answer.length or len(answer.body)))
        request.end_headers()
        request.close_connection = answer.length is not None
        try:
            for start in range(0, len(answer.body), 65536):
                request.connection.sendall(answer.body[start : start + 65536])
        except OSError:
            request.close_connection = True


@pytest.fixture
def portal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Portal]:
    server = Portal()
    set_environment(monkeypatch, server.url)
    yield server
    server.close()


def set_environment(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_SESSION_TOKEN": "first",
        "AWS_ENDPOINT_URL": url,
    }.items():
        monkeypatch.setenv(name, value)


def sink() -> CloudWatchLogsSink:
    return CloudWatchLogsSink(connect_logs_client, SystemClock())


NOT_ACCEPTED = {
    "a page": (
        Answer(200, PAGE, "text/html"),
        "HTTP 200 with 40 bytes that are not the JSON of CloudWatch Logs",
    ),
    "nothing": (Answer(200, b""), "HTTP 200 with nothing was answered"),
    "a cut body": (Answer(200, b'{"nextSequ', length=25), "HTTP 200 with 10 bytes"),
    "a redirection": (Answer(302, PAGE, "text/html"), "HTTP 302 with 40 bytes"),
    "a refusal of a proxy": (Answer(403, PAGE, "text/html"), "HTTP 403 with 40 bytes"),
    "throttling": (refusal("ThrottlingException"), "it throttles (ThrottlingException: m)"),
    "an expired token": (
        refusal("ExpiredTokenException"),
        "the credentials have expired (ExpiredTokenException)",
    ),
}


@pytest.mark.parametrize(("answer", "said"), NOT_ACCEPTED.values(), ids=NOT_ACCEPTED)
def test_an_answer_that_is_not_an_acceptance_is_named_and_followed_by_another_attempt(
    portal: Portal, answer: Answer, said: str
) -> None:
    portal.answers = [answer]
    reason = present(sink().put(b"line", TARGET, 0.1)).reason
    assert "did not accept the line within 0.1 s, the rest of the stop budget: " in reason
    assert said in reason
    portal.answers, portal.messages = [answer, ACCEPTED], []
    assert sink().put(b"line", TARGET, 20) is None
    assert portal.messages == ["line", "line"]


@pytest.mark.parametrize(
    "answer", [ACCEPTED, Answer(200, b"{}"), refusal("DataAlreadyAcceptedException")]
)
def test_an_acceptance_is_not_repeated(portal: Portal, answer: Answer) -> None:
    portal.answers = [answer]
    assert sink().put(b"line", TARGET, 20) is None
    assert portal.messages == ["line"]


# The sink does not repeat these for a line that is alone.
REFUSED = {
    "no permission": (refusal("AccessDeniedException"), "allow logs:PutLogEvents on it"),
    "nothing there": (refusal("ResourceNotFoundException"), "does not exist"),
    "another signature": (refusal("InvalidSignatureException"), "InvalidSignatureException: m"),
    "a new event": (dropped(tooNewLogEventStartIndex=0), "2 hours ahead"),
    "an old event": (dropped(tooOldLogEventEndIndex=1), "14 days behind"),
    "an expired event": (dropped(expiredLogEventEndIndex=1), "retention"),
}


@pytest.mark.parametrize(("answer", "said"), REFUSED.values(), ids=REFUSED)
def test_a_failure_says_what_to_do(portal: Portal, answer: Answer, said: str) -> None:
    portal.answers = [answer]
    reason = present(sink().put(b"line", TARGET, 0.1)).reason
    assert said in reason
    assert "\n" not in reason


STACKS = b'{"type":"task.stacks"}'


@pytest.mark.parametrize(
    "answer",
    [refusal("InvalidParameterException"), Answer(413, PAGE), Answer(503, b""), Answer(200, PAGE)],
)
def test_the_report_arrives_alone_if_the_line_before_it_may_fail(
    portal: Portal, answer: Answer
) -> None:
    """botocore repeats a call after a fault of the server up to three times."""
    portal.answers = [*[answer] * (3 if answer.status == 503 else 1), ACCEPTED]
    assert sink().put(b"line", TARGET, 24, before=STACKS) is None
    assert portal.messages[-2:] == ["line", "line"]
    assert portal.messages.count("line") == portal.messages.count(STACKS.decode()) + 1


@pytest.mark.parametrize(
    ("answer", "reports"),
    [
        (dropped(tooOldLogEventEndIndex=1), 1),
        (dropped(expiredLogEventEndIndex=1), 1),
        (dropped(tooNewLogEventStartIndex=1), 2),
        (dropped(tooOldLogEventEndIndex=2), 2),
    ],
)
def test_only_a_report_that_was_dropped_is_sent_again_without_the_line_before_it(
    portal: Portal, answer: Answer, reports: int
) -> None:
    portal.answers = [answer, ACCEPTED]
    assert sink().put(b"line", TARGET, 24, before=STACKS) is None
    assert portal.messages == [STACKS.decode(), *["line"] * reports]


def test_a_refusal_with_another_reason_is_named(
    portal: Portal,
) -> None:
    """A refusal with another reason is named and without time for one the report goes alone."""
    assert sink().put(b"line", TARGET, 10, before=STACKS) is None
    assert portal.messages == ["line"]
    portal.answers, portal.messages = [refusal("AccessDeniedException")], []
    assert "logs:PutLogEvents" in present(sink().put(b"line", TARGET, 24, before=STACKS)).reason
    assert portal.messages == [STACKS.decode(), "line", "line"]


def test_an_expired_token_is_read_again(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    portal.answers = [refusal("ExpiredTokenException"), ACCEPTED]
    portal.before_answer = lambda: monkeypatch.setenv("AWS_SESSION_TOKEN", "second")
    assert sink().put(b"line", TARGET, 20) is None
    assert portal.tokens == ["first", "second"]


def test_the_cause_of_a_connection_that_fails_is_named(
    monkeypatch: pytest.MonkeyPatch, portal: Portal
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{closed.getsockname()[1]}"
        for url, said in (
            (refused, f"{refused[7:]} refused the connection"),
            ("http://logs.invalid", "the name of logs.invalid was not found"),
            (portal.url.replace("http:", "https:"), "the TLS connection to 127.0.0.1"),
        ):
            set_environment(monkeypatch, url)
            checked = sink()
            reason = present(checked.put(b"line", TARGET, 0.1)).reason
            assert said in reason
            assert checked.last_cause in reason


def test_a_report_has_the_time_of_now_and_ends_its_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A report has the time of now and is found at the end of its stream and trying out writes
    nothing.
    """
    with moto_account(monkeypatch, "eu-west-1"):
        logs = boto3.client("logs")
        assert not sink().holds_report(TARGET, "0123abc", 9)  # there is no such stream
        logs.create_log_group(logGroupName=TARGET.group)
        logs.create_log_stream(logGroupName=TARGET.group, logStreamName=TARGET.stream)
        assert sink().check_permission(TARGET) is None
        assert sink().put('{"report": "é"}'.encode(), TARGET, 20) is None
        (event,) = logs.get_log_events(logGroupName=TARGET.group, logStreamName=TARGET.stream)[
            "events"
        ]
        assert event["message"] == '{"report": "é"}'
        assert abs(event["timestamp"] - event["ingestionTime"]) < 60_000
        for number in range(50):
            assert sink().put(b'{"type":"task.notice","number":%d}' % number, TARGET, 20) is None
        assert not sink().holds_report(TARGET, "0123abc", 9)
        for batch in (
            "4567def",
            "0123abc",
        ):  # of another task, in a stream that is set for all of them
            assert not sink().holds_report(TARGET, "0123abc", 9)
            report = b'{"type":"task.report","record":{"container":{"id":"%s"}}}' % batch.encode()
            assert sink().put(report, TARGET, 20) is None
        assert sink().holds_report(TARGET, "0123abc", 9)

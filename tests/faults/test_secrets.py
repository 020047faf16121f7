"""No log, error, document or message contains a secret: one word that all secrets have.

Servers quote requests.
"""

import itertools
import json
import logging
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import boto3
import pytest
from moto import mock_aws

import handler
from profiler.forwarder.invocation import ForwarderError
from tests.fake_slack import TOKEN, WEBHOOK_PATH, Answer, FakeSlack
from tests.faults.misbehaving import FaultyEndpoint, FaultyTask, LogApi, Manner
from tests.http_server import FakeElasticsearch, FakeHttpServer
from tests.integration.sidecar import Sidecar, problems
from tests.lambda_environment import InvocationContext, forget_environment
from tests.log_subscriptions import REPORT, subscription_event
from tests.task_events import event as task_event
from tools.waiting import wait_until

SECRET = "hunter2"
API_KEY, PASSWORD = f"{SECRET}-key", f"{SECRET}-password"


class Cluster(FakeElasticsearch):
    """Accepts each request, or refuses it and quotes its authorization."""

    def __init__(self, refusal: str | None) -> None:
        super().__init__()
        self._refusal = refusal

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        status, headers, taken = super().answer(request, body)
        quoted = f"refused {request.headers.get('Authorization')} {API_KEY} {PASSWORD}"
        error = {"type": "security_exception", "reason": quoted}
        refusals: dict[str | None, tuple[int, bytes]] = {
            None: (status, taken),
            "unauthorized": (401, json.dumps({"error": error, "status": 401}).encode()),
            "in words": (403, json.dumps({"error": quoted, "status": 403}).encode()),
            "by a proxy": (502, f"<html>{quoted}</html>".encode()),
            "no answer of its own": (200, f'{{"took": "{quoted}"}}'.encode()),
        }
        status, said = refusals[self._refusal]
        kind = "text/html" if self._refusal == "by a proxy" else "application/json"
        return status, {**headers, "Content-Type": kind}, said


class Left:
    def __init__(self, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
        self._capfd, self._caplog = capfd, caplog
        self.texts: list[str] = []
        self.raised: list[ForwarderError] = []

    def invoke(self, function: Callable[..., object], event: object, seconds: float = 4.5) -> None:
        try:
            with self._caplog.at_level(logging.DEBUG):
                self.texts.append(
                    json.dumps(function(event, InvocationContext(round(1000 * seconds))))
                )
        except ForwarderError as error:
            self.raised.append(error)
            self.texts += traceback.format_exception(error)

    def all(self) -> str:
        output = self._capfd.readouterr()
        records = [self._caplog.handler.format(record) for record in self._caplog.records]
        return "\n".join([*self.texts, *records, output.out, output.err])


@pytest.fixture
def left(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Left:
    return Left(capfd, caplog)


@pytest.fixture(scope="module")
def fake_aws() -> Iterator[None]:
    """AWS with the secrets and a queue. The credentials contain the word, too."""
    with pytest.MonkeyPatch.context() as environment, mock_aws():
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            environment.setenv(name, f"{SECRET}-{name}")
        environment.setenv("AWS_DEFAULT_REGION", "us-west-2")
        environment.setenv("REPORT_WAIT_SECONDS", "0")
        secrets = {
            "key": {"api_key": API_KEY},
            "user": {"username": "elastic", "password": PASSWORD},
            "slack": {},
        }
        for name, content in secrets.items():
            boto3.client("secretsmanager").create_secret(
                Name=name, SecretString=json.dumps(content)
            )
        boto3.client("ssm").put_parameter(
            Name="key", Value=json.dumps({"api_key": API_KEY}), Type="SecureString"
        )
        yield


@pytest.fixture
def aws(fake_aws: None) -> Iterator[None]:
    """Clear all caches, as in a new Lambda environment."""
    forget_environment()
    yield
    forget_environment()


SIGN_INS: dict[str, dict[str, str]] = {
    "key": {"ELASTICSEARCH_API_KEY": API_KEY},
    "user": {"ELASTICSEARCH_USER": "elastic", "ELASTICSEARCH_PASSWORD": PASSWORD},
    "secret": {"ELASTICSEARCH_SECRET_ID": "key"},
    "secret with a user": {"ELASTICSEARCH_SECRET_ID": "user"},
    "parameter": {"ELASTICSEARCH_SECRET_ID": "ssm:key"},
}


def set_all(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    forget_environment()


@pytest.mark.diagonal
@pytest.mark.parametrize(
    "refusal", [None, "unauthorized", "in words", "by a proxy", "no answer of its own"]
)
@pytest.mark.parametrize("engine", ["elasticsearch", "opensearch"])
def test_forward_logs_shows_no_secret(
    engine: str, refusal: str | None, aws: None, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(refusal) as cluster:
        for sign_in in SIGN_INS.values():
            with monkeypatch.context() as environment:
                set_all(
                    environment,
                    {"ELASTICSEARCH_URL": cluster.url, "SEARCH_ENGINE": engine, **sign_in},
                )
                left.invoke(handler.forward_logs, subscription_event("hello", json.dumps(REPORT)))
    assert len(set(cluster.authorizations)) == 2  # by key and by user
    assert len(left.raised) == (0 if refusal is None else len(SIGN_INS))
    assert SECRET not in left.all()
    assert SECRET not in json.dumps(cluster.bulks)


QUOTED = f"{WEBHOOK_PATH} {TOKEN}"
SLACKS: dict[str, list[Answer]] = {
    "takes it": [],
    "a dead webhook": [Answer(404, text="no_service")],
    "quotes": [Answer(403, text=QUOTED)],
    "quotes as JSON": [Answer(200, data={"ok": False, "error": QUOTED})],
    "is down": [Answer(500, text=QUOTED)] * 9,
    "hangs up": [Answer(drop=True)] * 9,
    "is somebody else": [Answer(200, text=f"<html>{QUOTED}</html>")],
}


@pytest.mark.parametrize(
    ("how", "answers"),
    [*itertools.product(("webhook", "bot"), SLACKS), ("secret", "takes it"), ("secret", "quotes")],
)
def test_task_stopped_shows_no_secret(
    how: str, answers: str, aws: None, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = answers == "takes it"
    with FakeSlack() as slack, Cluster(None) as cluster:
        slack.script = list(SLACKS[answers])
        webhook = {"slack_failure_webhook_url": slack.webhook_url}
        boto3.client("secretsmanager").update_secret(
            SecretId="slack", SecretString=json.dumps(webhook)
        )
        bot = {
            "SLACK_BOT_TOKEN": TOKEN,
            "SLACK_FAILURE_CHANNEL": "C0FAILURE",
            "SLACK_BASE_URL": slack.base_url,
        }
        ways = {
            "webhook": {"SLACK_FAILURE_WEBHOOK_URL": slack.webhook_url},
            "bot": bot,
            "secret": {"SLACK_SECRET_ID": "slack"},
        }
        with_cluster = {"ELASTICSEARCH_URL": cluster.url, **SIGN_INS["secret"]} if works else {}
        set_all(monkeypatch, {**with_cluster, **ways[how]})
        left.invoke(handler.task_stopped, task_event(), seconds=20 if works else 4.5)
    assert slack.requests > 0
    assert bool(left.raised) == (not works)
    assert SECRET not in left.all()
    assert SECRET not in json.dumps(slack.messages) + json.dumps(cluster.bulks)


class OtlpBackend(FakeHttpServer):
    """Refuses each export and quotes its headers, as text or JSON."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        quoted = f"refused {request.headers}"
        text = json.dumps({"message": quoted}) if "json" in self._kind else quoted
        return 401, {"Content-Type": self._kind}, text.encode()


@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
def test_the_export_shows_no_secret(
    kind: str, aws: None, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_url = boto3.client("sqs").create_queue(QueueName="not-exported")["QueueUrl"]
    headers = {"OTLP_HEADERS": f"api-key=Bearer%20{API_KEY},x-other={PASSWORD}"}
    with OtlpBackend(kind) as backend:
        set_all(
            monkeypatch,
            {"OTLP_ENDPOINT": backend.url, **headers, "FAILED_ITEMS_QUEUE_URL": queue_url},
        )
        left.invoke(handler.task_stopped, task_event(), seconds=20)
    (message,) = boto3.client("sqs").receive_message(QueueUrl=queue_url)["Messages"]
    boto3.client("sqs").delete_queue(QueueUrl=queue_url)
    assert left.raised == []
    shown = left.all()
    assert "was not exported" in shown
    assert "the server answered 401: refused" in shown
    assert SECRET not in shown + message["Body"]


CREDENTIALS = {
    name: f"{SECRET}-{name}"
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "ELASTICSEARCH_API_KEY",
    )
}


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("status", [200, 400, 500])
def test_the_monitor_shows_no_secret(status: int) -> None:
    """AWS quotes the canonical request of a wrong signature, which contains the session token."""
    with LogApi() as logs, FaultyEndpoint(FaultyTask()) as endpoint:
        logs.manner = Manner(status=status, takes=status == 200, quotes=True)
        environment = {**logs.environment(), **CREDENTIALS}
        with Sidecar(
            environment, endpoint=endpoint, STOP_SECONDS="60", CHECKPOINT_SECONDS="0.2"
        ) as sidecar:
            sidecar.wait_for_samples()
            sidecar.end_batch()
            # A busy machine loads boto3 for seconds. After a refusal nothing is repeated.
            wait_until(lambda: logs.quoted, "an answer that quotes")
            logs.manner = Manner(status=400, takes=False, quotes=True)
            output, errors = sidecar.finish()
    assert any(SECRET in quote for quote in logs.quoted)
    assert bool(problems(errors)) == (status != 200)
    assert SECRET not in json.dumps([output, errors, logs.lines])

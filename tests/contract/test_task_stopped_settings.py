"""``handler.task_stopped`` with invalid settings of the search cluster or of Slack: the other
one still works.
"""

import gzip
import json
from collections.abc import Iterator
from contextlib import closing

import boto3
import pytest

import handler
from profiler.forwarder.invocation import ForwarderError
from tests.fake_slack import FakeSlack
from tests.http_server import FakeElasticsearch, OneAnswer
from tests.lambda_environment import (
    InvocationContext,
    create_idempotency_table,
    function_environment,
    register_revisions,
)
from tests.task_events import event

SECRET = "hunter2-hunter2"
MISSING = "The secret missing cannot be read"
WRONG_CLUSTERS: list[tuple[dict[str, str], str]] = [
    ({"ELASTICSEARCH_SECRET_ID": "missing"}, MISSING),
    ({"ELASTICSEARCH_URL": "search:9200"}, "ELASTICSEARCH_URL is not the address"),
    ({"ELASTICSEARCH_API_KEY": f"{SECRET}\n{SECRET}"}, "ELASTICSEARCH_API_KEY"),
    ({"SEARCH_ENGINE": "solr"}, "SEARCH_ENGINE must be"),
]
NO_TOKEN = {"SLACK_FAILURE_CHANNEL": "C1", "SLACK_FAILURE_WEBHOOK_URL": ""}
WRONG_SLACKS: list[tuple[dict[str, str], str]] = [
    ({"SLACK_SECRET_ID": "missing"}, MISSING),
    (NO_TOKEN, "SLACK_FAILURE_CHANNEL is set without SLACK_BOT_TOKEN"),
    ({"NOTIFY": "never"}, "NOTIFY must be"),
    ({"IDEMPOTENCY_TABLE": "missing"}, "IDEMPOTENCY_TABLE"),
]
WRONG_EXPORTS: list[tuple[dict[str, str], str]] = [
    ({"OTLP_SECRET_ID": "missing"}, MISSING),
    ({"OTLP_ENDPOINT": "backend:4318"}, "OTLP_ENDPOINT must be an address"),
    ({"OTLP_AWS_AUTH": "true"}, "OTLP_ENDPOINT is not an address of CloudWatch"),
    ({"IDEMPOTENCY_TABLE": "missing", "NOTIFY_FAMILIES": "x"}, "The table missing"),
]


@pytest.fixture(autouse=True)
def fakes(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeElasticsearch, slack: FakeSlack
) -> Iterator[None]:
    """A cluster and a Slack that work, and a task definition that can be read."""
    settings = {"ELASTICSEARCH_URL": cluster.url, "SLACK_FAILURE_WEBHOOK_URL": slack.webhook_url}
    with function_environment(monkeypatch, **settings):
        labels = {"TRACEPARENT": f"00-{'a' * 32}-{'b' * 16}-01"}
        register_revisions(
            "nightly", [{"name": "batch", "image": "etl:7", "memory": 64, "dockerLabels": labels}]
        )
        boto3.client("secretsmanager").create_secret(
            Name="key", SecretString=json.dumps({"api_key": "a2V5"})
        )
        yield


def refused(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> str:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ForwarderError) as error:
        handler.task_stopped(event(), InvocationContext())
    said = str(error.value)
    assert SECRET not in said
    assert said.endswith(".")
    return said


def documents(cluster: FakeElasticsearch) -> list[str]:
    actions = (
        line["update"]["_id"] for lines in cluster.bulks for line in lines if "update" in line
    )
    return [str(identity) for identity in actions]


@pytest.mark.parametrize(("settings", "said"), WRONG_CLUSTERS + WRONG_SLACKS)
def test_the_search_cluster_and_slack_work_with_invalid_settings_of_the_other(
    settings: dict[str, str],
    said: str,
    cluster: FakeElasticsearch,
    slack: FakeSlack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert said in refused(monkeypatch, settings)
    is_indexed = (settings, said) in WRONG_SLACKS
    assert documents(cluster) == ["4dd5853f44b341ee8281f38229bee377/batch"] * is_indexed
    assert len(slack.messages) == (not is_indexed)


@pytest.mark.parametrize(("settings", "said"), WRONG_EXPORTS)
def test_the_other_outputs_work_with_invalid_settings_of_the_export(
    settings: dict[str, str],
    said: str,
    cluster: FakeElasticsearch,
    slack: FakeSlack,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    queue = boto3.client("sqs").create_queue(QueueName="failed")["QueueUrl"]
    for name, value in {
        "OTLP_ENDPOINT": "http://127.0.0.1:1",
        "FAILED_ITEMS_QUEUE_URL": queue,
        **settings,
    }.items():
        monkeypatch.setenv(name, value)
    notified = None if "NOTIFY_FAMILIES" in settings else "failure"
    answer = handler.task_stopped(event(), InvocationContext())
    assert answer == {"status": "failure", "indexed": True, "notified": notified}
    assert documents(cluster) == ["4dd5853f44b341ee8281f38229bee377/batch"]
    assert len(slack.messages) == (notified is not None)
    (message,) = boto3.client("sqs").receive_message(QueueUrl=queue)["Messages"]
    failure = json.loads(message["Body"])
    assert failure["document"]["taskId"] == "4dd5853f44b341ee8281f38229bee377"
    assert failure["reason"].startswith(said)
    output = capsys.readouterr().out
    assert said in output
    assert SECRET not in output + message["Body"]


@pytest.mark.usefixtures("cluster", "slack")
def test_invalid_settings_of_notices_do_not_repeat_the_export_below_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_idempotency_table("done")
    backend = OneAnswer()
    settings = {"OTLP_ENDPOINT": backend.url, "OTLP_PROTOCOL": "http/json"}
    for name, value in {**settings, "IDEMPOTENCY_TABLE": "done"}.items():
        monkeypatch.setenv(name, value)
    with closing(backend):
        for _ in range(2):
            refused(monkeypatch, {"NOTIFY": "never"})
    assert backend.paths == ["/v1/traces", "/v1/logs", "/v1/metrics"]
    (resource,) = json.loads(gzip.decompress(backend.bodies[0]))["resourceSpans"]
    root = resource["scopeSpans"][0]["spans"][0]
    assert root["traceId"] == "a" * 32
    assert root["parentSpanId"] == "b" * 16


@pytest.mark.parametrize(
    ("settings", "authorization"),
    [
        ({"ELASTICSEARCH_SECRET_ID": "key"}, "ApiKey a2V5"),
        ({"ELASTICSEARCH_SECRET_ID": "key", "ELASTICSEARCH_API_KEY": "b3du"}, "ApiKey b3du"),
        (
            {
                "ELASTICSEARCH_SECRET_ID": "missing",
                "ELASTICSEARCH_USER": "me",
                "ELASTICSEARCH_PASSWORD": "pw",
            },
            "Basic bWU6cHc=",
        ),
    ],
)
def test_the_environment_takes_precedence_over_the_secret(
    settings: dict[str, str],
    authorization: str,
    cluster: FakeElasticsearch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    answer = handler.task_stopped(event(), InvocationContext())
    assert answer == {"status": "failure", "indexed": True, "notified": "failure"}
    assert set(cluster.authorizations) == {authorization}


@pytest.mark.parametrize("status", [401, 403])
def test_secrets_that_were_changed_are_read_again(
    status: int, cluster: FakeElasticsearch, slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret that was not changed is not tried again."""
    secrets = boto3.client("secretsmanager")
    webhook = "slack_failure_webhook_url"
    secrets.create_secret(Name="slack", SecretString=json.dumps({webhook: f"{slack.url}/old"}))
    settings = {
        "ELASTICSEARCH_SECRET_ID": "key",
        "SLACK_SECRET_ID": "slack",
        "SLACK_FAILURE_WEBHOOK_URL": "",
    }
    cluster.needs, cluster.refusal_status = "ApiKey bmV3", status
    assert f"HTTP {status}" in refused(monkeypatch, settings)
    # the report, the place of the document, the document, the comparison
    assert cluster.refused == 4
    assert slack.requests == 1
    secrets.put_secret_value(SecretId="key", SecretString=json.dumps({"api_key": "bmV3"}))
    secrets.put_secret_value(
        SecretId="slack", SecretString=json.dumps({webhook: slack.webhook_url})
    )
    answer = handler.task_stopped(event(), InvocationContext())
    assert answer == {"status": "failure", "indexed": True, "notified": "failure"}
    assert cluster.refused == 5
    assert len(cluster.bulks) == 1
    assert len(slack.messages) == 1

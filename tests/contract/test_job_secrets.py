"""Secrets of submitters in ECS's event of a job of AWS Batch reach nothing that task_stopped
writes: the same list has Batch's own variables.
"""

import json
import traceback
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

import handler
from tests import batch_jobs
from tests.batch_jobs import SECRETS, arn, job_id
from tests.fake_slack import Answer, FakeSlack
from tests.http_server import FakeElasticsearch
from tests.lambda_environment import (
    InvocationContext,
    create_idempotency_table,
    function_environment,
    register_revisions,
)
from tests.task_events import container

KILLED = "OutOfMemoryError: Container killed due to memory usage"
JOB: dict[str, Any] = {
    "jobId": f"{job_id(1)}:3",
    "jobArn": arn("job", f"{job_id(1)}:3"),
    "jobQueue": arn("job-queue", "nightly"),
    "jobDefinition": arn("job-definition", "orders:7"),
    "arrayProperties": {"index": 3},
}
FAILED: dict[str, Any] = {"containers": [{"name": "default", "exitCode": 137, "reason": KILLED}]}


@pytest.fixture(autouse=True)
def function(
    monkeypatch: pytest.MonkeyPatch, slack: FakeSlack, cluster: FakeElasticsearch
) -> Iterator[None]:
    settings = {
        "ELASTICSEARCH_URL": cluster.url,
        "SLACK_FAILURE_WEBHOOK_URL": slack.webhook_url,
        "SLACK_SUCCESS_WEBHOOK_URL": slack.webhook_url,
        "IDEMPOTENCY_TABLE": "done",
        "NOTIFY_LOG_LINES": "5",
        "REPORT_WAIT_SECONDS": "0",
        "RETRY_OUT_OF_MEMORY": "*",
    }
    with function_environment(monkeypatch, **settings):
        register_revisions("orders", [container("default", memory=64)])
        create_idempotency_table("done")
        yield


def said(cluster: FakeElasticsearch, slack: FakeSlack, captured: Any) -> str:
    """Everything that left the function: documents, messages, its log, and what it remembers."""
    remembered = boto3.client("dynamodb").scan(TableName="done")["Items"]
    sent = [cluster.bulks, slack.messages, remembered]
    return json.dumps(sent) + "".join(captured)


@pytest.mark.parametrize("detail", [{}, FAILED, {**FAILED, "startedAt": None}], ids=str)
def test_the_job_is_written_and_no_secret(
    detail: dict[str, Any],
    cluster: FakeElasticsearch,
    slack: FakeSlack,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    event = batch_jobs.task_event(JOB, 2, **detail)
    assert all(secret in json.dumps(event) for secret in SECRETS)
    assert handler.task_stopped(event, InvocationContext())["indexed"]
    ((_action, body, *_others),) = cluster.bulks
    assert body["upsert"]["batch"] == {
        "job_id": f"{job_id(1)}:3",
        "queue": "nightly",
        "compute_environment": "spot",
        "attempt": 2,
        "array_index": 3,
    }
    everything = said(cluster, slack, (*capfd.readouterr(), caplog.text))
    assert not [secret for secret in SECRETS if secret in everything]


@pytest.mark.parametrize("broken", ["slack", "cluster"])
def test_a_failure_says_no_secret(
    broken: str,
    cluster: FakeElasticsearch,
    slack: FakeSlack,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    if broken == "slack":
        slack.script = [Answer(status=404, text="no_service")] * 9
    else:
        cluster.needs = "another key"
    with pytest.raises(Exception, match=r".+") as caught:
        handler.task_stopped(batch_jobs.task_event(JOB, **FAILED), InvocationContext())
    failure = "".join(traceback.format_exception(caught.value))
    everything = said(cluster, slack, (*capfd.readouterr(), caplog.text, failure))
    assert not [secret for secret in SECRETS if secret in everything]


@pytest.mark.parametrize(
    "overrides",
    [
        {"containerOverrides": [{"name": "default", "environment": "DB_PASSWORD=hunter2-made-up"}]},
        {"containerOverrides": [{"environment": [["AWS_BATCH_JOB_ID", SECRETS[0]]]}]},
        {"containerOverrides": [{"environment": [{"name": "AWS_BATCH_JOB_ID", "value": 5}]}]},
        {"containerOverrides": [{"environment": [{"name": SECRETS[0], "value": SECRETS[1]}]}]},
        {"containerOverrides": [SECRETS[0]], "cpu": SECRETS[1]},
        SECRETS[0],
    ],
)
def test_overrides_of_another_shape_say_no_secret(
    overrides: Any,
    cluster: FakeElasticsearch,
    slack: FakeSlack,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    event = batch_jobs.task_event(JOB, **FAILED, overrides=overrides)
    assert handler.task_stopped(event, InvocationContext())["indexed"]
    everything = said(cluster, slack, (*capfd.readouterr(), caplog.text))
    assert not [secret for secret in SECRETS if secret in everything]

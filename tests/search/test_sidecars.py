"""``task_stopped`` with common task definitions, on a real search cluster and an AWS emulator that throttles."""

import json
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
import requests

import handler
from profiler.forwarder.delivery_errors import DeliveryError
from tests.aws import fake_aws
from tests.aws_proxy import AwsProxy
from tests.fake_slack import FakeSlack
from tests.lambda_environment import create_idempotency_table, forget_environment, register_revisions
from tests.search.server import SearchServer
from tests.search.test_forwarder import Context, Forward, event, forward, report
from tests.search.test_task_stopped import FAMILY, TASK_ID, LambdaContext, ShortContext, only_document
from tests.sidecars import awslogs
from tests.unit.core.test_container_roles import BATCH, INJECTED, MONITOR, SIDECARS
from tests.unit.forwarder.task.test_task_event import event as task_event

__all__ = ["forward"]  # the fixture

# What differs between the servers is in test_task_stopped.py.
pytestmark = [pytest.mark.search, pytest.mark.parametrize("search_server", ["elasticsearch8"], indirect=True)]

REGION, GROUP = "us-west-2", "/ecs/jobs"
LOGS = {"logConfiguration": awslogs(GROUP, region=REGION)}
ETL = {**BATCH, **LOGS, "name": "batch"}


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, slack: FakeSlack, forward: Forward) -> Iterator[AwsProxy]:
    """An account whose answers the test can throttle, and whose function posts to Slack."""
    assert forward is not None
    with fake_aws() as server:
        proxy = AwsProxy(server.url)
        settings = {
            **server.environment(),
            "AWS_ENDPOINT_URL": proxy.url,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_LAMBDA_FUNCTION_NAME": "task_stopped",
            "IDEMPOTENCY_TABLE": "told",
            "REPORT_WAIT_SECONDS": "0",
            "SLACK_SUCCESS_WEBHOOK_URL": slack.webhook_url,
            "SLACK_FAILURE_WEBHOOK_URL": slack.webhook_url,
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        create_idempotency_table("told")
        boto3.client("logs").create_log_group(logGroupName=GROUP)
        forget_environment()
        yield proxy
        forget_environment()
        proxy.close()


def register(*containers: dict[str, Any]) -> None:
    """Register the five revisions up to that of the event; the log streams of a task exist once it has run."""
    register_revisions(FAMILY, [{"memory": 64, **one} for one in containers])
    boto3.client("logs").create_log_stream(logGroupName=GROUP, logStreamName=f"ecs/batch/{TASK_ID}")


def ended(*containers: dict[str, Any], **exit_codes: int) -> dict[str, Any]:
    """The event of the task, with what AWS injected, in another order than the definition's."""
    listed = [
        {"name": one["name"], "image": one.get("image", "x"), "exitCode": exit_codes.get(one["name"].split("-")[0], 0)}
        for one in (*INJECTED, *reversed(containers))
    ]
    return task_event(containers=listed)


@pytest.mark.parametrize("operation", ["DescribeTaskDefinition", "GetLogEvents"])
def test_throttling_neither_loses_the_run_nor_its_notice(
    proxy: AwsProxy, slack: FakeSlack, search_server: SearchServer, operation: str
) -> None:
    register({"image": "x", **SIDECARS["xray-daemon"]}, ETL, MONITOR)
    boto3.client("logs").put_log_events(
        logGroupName=GROUP,
        logStreamName=f"ecs/batch/{TASK_ID}",
        logEvents=[{"timestamp": time.time_ns() // 1_000_000, "message": run_report()}],
    )
    stopped = ended(SIDECARS["xray-daemon"], ETL, MONITOR, batch=1)
    proxy.throttling = {operation}
    with pytest.raises(DeliveryError, match="ThrottlingException"):
        handler.task_stopped(stopped, ShortContext())
    assert slack.messages == []
    proxy.throttling = set()
    answers = [handler.task_stopped(stopped, LambdaContext()) for _ in range(2)]
    assert answers == [{"status": "failure", "indexed": True, "notified": "failure"}] * 2
    assert proxy.operations.count("DescribeTaskDefinition") - proxy.throttled <= 1
    assert len(slack.messages) == 1
    document = only_document(search_server)
    assert (document["task"]["status"], document["task"]["complete"]) == ("failure", True)


def run_report() -> str:
    return report(TASK_ID, startedAt="2026-03-01T10:11:29Z", finishedAt="2026-03-01T10:12:32Z")


def test_the_order_of_the_report_and_the_event_of_such_a_task_has_no_effect(
    proxy: AwsProxy, forward: Forward, search_server: SearchServer
) -> None:
    """Two runs of one task id, one after the other: the report says success, the event that it failed."""
    containers: list[dict[str, Any]] = [{"image": "x", **SIDECARS["aws-otel-collector"]}, ETL, MONITOR]
    register(*containers)
    payload = event(run_report(), stream=f"ecs/batch/{TASK_ID}")
    stopped = ended(*containers, batch=1)
    documents = []
    for steps in ("event report report", "report event", "report event report event"):
        for step in steps.split():
            if step == "report":
                assert forward(payload, Context())["indexed"] == 1
            else:
                assert handler.task_stopped(stopped, LambdaContext())["indexed"] is True
        documents.append(only_document(search_server))
        requests.delete(f"{search_server.url}/task-reports-2026.03", timeout=120).raise_for_status()
    assert documents[0] == documents[1] == documents[2]
    assert documents[0]["task"]["status"] == "failure"
    assert json.loads(documents[0]["record"])["record"]["status"] == "success"

"""A stopped task whose report is in a played CloudWatch Logs."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from tests.fake_slack import FakeSlack
from tests.lambda_environment import (
    create_idempotency_table,
    function_environment,
    register_revisions,
)
from tests.task_events import container

TASK_ID = "4dd5853f44b341ee8281f38229bee377"
STREAM = f"ecs/batch/{TASK_ID}"
FAMILY = "nightly"
CONTAINERS = [container("task-monitor", essential=False, memory=64), container("batch", memory=64)]


@contextlib.contextmanager
def played_aws(patch: pytest.MonkeyPatch, slack: FakeSlack) -> Iterator[Any]:
    """ECS with the task's definition, CloudWatch Logs with its streams, DynamoDB; Slack by webhook."""
    settings = {
        "IDEMPOTENCY_TABLE": "told",
        "REPORT_WAIT_SECONDS": "0",
        "SLACK_SUCCESS_WEBHOOK_URL": slack.webhook_url,
        "SLACK_FAILURE_WEBHOOK_URL": slack.webhook_url,
        "KIBANA_URL": "https://kibana.example.com",
    }
    with function_environment(patch, **settings):
        register_revisions(FAMILY, CONTAINERS)
        create_idempotency_table("told")
        logs = boto3.client("logs")
        logs.create_log_group(logGroupName="/ecs/jobs")
        for name in ("batch", "task-monitor"):
            logs.create_log_stream(logGroupName="/ecs/jobs", logStreamName=f"ecs/{name}/{TASK_ID}")
        yield logs


def put(logs: Any, line: str, stream: str = STREAM) -> None:
    lines = [{"timestamp": time.time_ns() // 1_000_000, "message": line}]
    logs.put_log_events(logGroupName="/ecs/jobs", logStreamName=stream, logEvents=lines)

"""The calls of ``handler.task_stopped``: their number, their time, and the messages on every channel."""

import json
import time
from collections.abc import Iterator
from typing import Any

import boto3
import botocore.client
import pytest

import handler
from profiler.forwarder.invocation import NoticeError
from tests.fake_slack import FakeSlack, rate_limited
from tests.http_server import FakeElasticsearch
from tests.lambda_environment import (
    create_idempotency_table,
    forget_environment,
    function_environment,
    register_revisions,
)
from tests.unit.forwarder.test_task_event import ARN, container, definition, event
from tests.unit.forwarder.test_task_stopped import BATCH_STREAM, report

TASK_ID = ARN.rsplit("/", 1)[-1]
SOURCE = {"record": report()}
DONE = {"status": "failure", "indexed": True, "notified": "failure"}


class Clock:
    """The context of an invocation whose time passes only when the function waits."""

    function_name = "task_stopped"

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self.left * 1000)

    def sleep(self, seconds: float) -> None:
        self.left -= seconds


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The AWS operations that were called."""
    made: list[str] = []
    original = botocore.client.BaseClient._make_api_call

    def record(client: Any, name: str, arguments: Any) -> Any:
        made.append(name)
        return original(client, name, arguments)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", record)
    return made


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch, slack: FakeSlack, cluster: FakeElasticsearch) -> Iterator[None]:
    settings = {
        "ELASTICSEARCH_URL": cluster.url,
        "SLACK_FAILURE_WEBHOOK_URL": slack.webhook_url,
        "IDEMPOTENCY_TABLE": "done",
    }
    with function_environment(monkeypatch, **settings):
        described = definition(container("task-monitor", essential=False, memory=64), container("batch", memory=64))
        register_revisions("nightly", described["containerDefinitions"])
        create_idempotency_table("done")
        yield


def written(cluster: FakeElasticsearch) -> dict[str, Any]:
    """The first document of the only request."""
    ((_action, body, *_others),) = cluster.bulks
    return dict(body)


def put_lines(*lines: str) -> None:
    logs = boto3.client("logs")
    logs.create_log_group(logGroupName="/ecs/jobs")
    logs.create_log_stream(logGroupName="/ecs/jobs", logStreamName=BATCH_STREAM)
    events = [{"timestamp": time.time_ns() // 1_000_000, "message": line} for line in lines]
    logs.put_log_events(logGroupName="/ecs/jobs", logStreamName=BATCH_STREAM, logEvents=events)


def test_no_log_is_read_if_the_report_is_indexed(cluster: FakeElasticsearch, calls: list[str]) -> None:
    cluster.stored[f"{TASK_ID}/batch"] = SOURCE
    assert handler.task_stopped(event(), Clock(60)) == DONE
    assert cluster.asked == [f"{TASK_ID}/batch"]
    assert "GetLogEvents" not in calls
    assert calls.count("DescribeTaskDefinition") == 1
    assert "complete" not in written(cluster)["doc"]["task"]


def test_the_log_is_read_if_the_report_is_not_indexed(
    cluster: FakeElasticsearch, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Clock(60)
    monkeypatch.setattr(time, "sleep", context.sleep)
    put_lines(report())
    assert handler.task_stopped(event(), context) == DONE
    assert set(cluster.asked) == {f"{TASK_ID}/batch"}
    assert len(cluster.asked) > 1
    assert calls.count("GetLogEvents") == 1
    assert written(cluster)["upsert"]["task"]["complete"] is True


@pytest.mark.parametrize("seconds", [12, 11])
def test_with_little_time_the_document_and_the_notice_are_sent(
    seconds: float, cluster: FakeElasticsearch, slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Clock(seconds)
    monkeypatch.setattr(time, "sleep", context.sleep)
    assert handler.task_stopped(event(), context) == DONE
    assert context.left >= 10
    assert written(cluster)["upsert"]["task"]["complete"] is False
    assert len(slack.messages) == 1


@pytest.mark.parametrize("seconds", [60, 15, 12, 9])
def test_slow_reads_of_the_log_leave_the_time_for_the_document_and_the_notice(
    seconds: float, cluster: FakeElasticsearch, slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Clock(seconds)
    monkeypatch.setattr(time, "sleep", context.sleep)
    original = botocore.client.BaseClient._make_api_call

    def slowly(client: Any, name: str, arguments: Any) -> Any:
        context.sleep(2 if name == "GetLogEvents" else 0)
        return original(client, name, arguments)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", slowly)
    monkeypatch.setenv("NOTIFY_LOG_LINES", "5")
    put_lines("one", "two")
    assert handler.task_stopped(event(), context) == DONE
    assert context.left >= min(seconds / 2, 10)
    assert len(slack.messages) == 1


def test_without_a_cluster_the_ended_run_is_a_log_line(
    cluster: FakeElasticsearch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICSEARCH_URL", "")
    monkeypatch.setenv("NOTIFY_FAMILIES", "other")
    forget_environment()
    for _ in range(2):
        assert handler.task_stopped(event(startedAt=None), Clock(60))["notified"] is None
    (line,) = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "task.ended" in line]
    expected = {"type": "task.ended", "taskId": TASK_ID, "family": "nightly", "status": "failure"}
    assert expected.items() <= line.items()
    assert cluster.bulks == []


def event_queue(detail_type: str = "Task Run Ended") -> str:
    """A queue that gets every event of the default bus."""
    sqs, events = boto3.client("sqs"), boto3.client("events")
    url = str(sqs.create_queue(QueueName="ended")["QueueUrl"])
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    pattern = {"source": ["task-profiler"], "detail-type": [detail_type]}
    events.put_rule(Name="ended", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="ended", Targets=[{"Id": "queue", "Arn": arn}])
    return url


def received(url: str) -> list[dict[str, Any]]:
    messages = boto3.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    return [json.loads(message["Body"]) for message in messages]


def test_a_retry_repeats_only_slack(slack: FakeSlack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENT_BUS_NAME", "default")
    queue = event_queue()
    slack.script = [rate_limited(3600)]
    with pytest.raises(NoticeError, match="SLACK_FAILURE_WEBHOOK_URL"):
        handler.task_stopped(event(startedAt=None), Clock(60))
    assert slack.messages == []
    assert handler.task_stopped(event(startedAt=None), Clock(60))["notified"] == "failure"
    assert len(slack.messages) == 1
    (sent,) = received(queue)
    assert sent["resources"] == [ARN]
    assert (sent["detail"]["taskArn"], sent["detail"]["exitCode"]) == (ARN, 1)
    items = boto3.client("dynamodb").scan(TableName="done")["Items"]
    assert len(items) == 2


def test_a_failure_shows_its_last_lines(slack: FakeSlack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_LOG_LINES", "2")
    put_lines("first", "Traceback <1>", "ValueError: 5", report())
    handler.task_stopped(event(), Clock(10))
    text = json.dumps(slack.messages)
    assert "```\\nTraceback &lt;1&gt;\\nValueError: 5\\n```" in text
    assert "first" not in text


@pytest.mark.parametrize(
    "detail",
    [
        {"startedAt": "0001-01-01T00:00:00+14:00"},
        {"createdAt": "12026-03-01T10:11:07Z"},
        {"stoppedReason": "half \ud800"},
        {"containers": [{"name": "batch", "exitCode": 2**70}]},
    ],
)
def test_the_usable_part_of_a_hostile_event_is_indexed_and_posted(
    detail: dict[str, Any], cluster: FakeElasticsearch, slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPORT_WAIT_SECONDS", "0")
    assert handler.task_stopped(event(**detail), Clock(60))["indexed"] is True
    assert len(slack.messages) == 1
    ((action, _body),) = cluster.bulks
    assert action["update"]["_index"] == "task-reports-2026.03"

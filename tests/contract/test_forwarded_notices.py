"""``handler.forward_logs`` and the notices of running tasks: the index, Slack, the event bus, and the table of keys."""

from collections.abc import Callable, Iterator
from time import time_ns
from typing import Any

import boto3
import pytest
from msgspec.structs import replace

import handler
from profiler.core.timestamps import format_ms
from profiler.forwarder.invocation import NoticeError
from profiler.forwarder.notices.announcements import run_idempotently
from profiler.record.notice_model import encode_notice
from tests.contract.test_task_stopped_calls import Clock, event_queue, received
from tests.fake_slack import FakeSlack, rate_limited
from tests.http_server import FakeElasticsearch
from tests.lambda_environment import create_idempotency_table, function_environment
from tests.shown_runs import stuck_notice
from tests.unit.forwarder.test_subscription import DOCUMENT, event, record

TASK_ID = stuck_notice().record.task_id


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch, slack: FakeSlack, cluster: FakeElasticsearch) -> Iterator[None]:
    settings = {
        "ELASTICSEARCH_URL": cluster.url,
        "SLACK_FAILURE_WEBHOOK_URL": slack.webhook_url,
        "EVENT_BUS_NAME": "default",
        "IDEMPOTENCY_TABLE": "done",
    }
    with function_environment(monkeypatch, **settings):
        create_idempotency_table("done")
        yield


def subscription(*, time: str | None = None, task_id: str = TASK_ID) -> dict[str, Any]:
    line = encode_notice(replace(stuck_notice(), time=time or format_ms(time_ns()))).decode()
    events = [{"id": "1", "timestamp": 1, "message": line.replace(TASK_ID, task_id)}]
    return event({**DOCUMENT, "logStream": f"ecs/task-monitor/{task_id}", "logEvents": events})


def test_a_notice_is_indexed_and_the_retry_repeats_only_slack(slack: FakeSlack, cluster: FakeElasticsearch) -> None:
    queue = event_queue("Task Run Notice")
    slack.script = [rate_limited(3600)]
    sent = subscription()
    with pytest.raises(NoticeError, match="SLACK_FAILURE_WEBHOOK_URL"):
        handler.forward_logs(sent, Clock(60))
    assert slack.messages == []
    for _ in range(2):
        assert handler.forward_logs(sent, Clock(60)) == {"indexed": 1, "skipped": 0, "failed": 0}
    (message,) = slack.messages
    assert "nightly-etl:26 has been stuck for 30 minutes" in message["text"]
    (posted,) = received(queue)
    assert (posted["detail-type"], posted["detail"]["notice"]["kind"]) == ("Task Run Notice", "stuck")
    assert len(boto3.client("dynamodb").scan(TableName="done")["Items"]) == 2
    written = {bulk[0]["update"]["_id"] for bulk in cluster.bulks}
    assert (written, len(cluster.bulks)) == ({f"{TASK_ID}/batch/stuck"}, 3)


def test_the_record_of_a_stream_is_delivered_again(slack: FakeSlack) -> None:
    slack.script = [rate_limited(3600)]
    records = {"Records": [record(7, subscription()["awslogs"]["data"])]}
    assert handler.forward_logs(records, Clock(60)) == {"batchItemFailures": [{"itemIdentifier": "7"}]}
    assert handler.forward_logs(records, Clock(60)) == {"batchItemFailures": []}
    assert len(slack.messages) == 1


def test_without_a_cluster_the_notice_is_announced(slack: FakeSlack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELASTICSEARCH_URL")
    assert handler.forward_logs(subscription(), Clock(60)) == {"indexed": 0, "skipped": 0, "failed": 0}
    assert len(slack.messages) == 1


def test_a_slow_table_does_not_use_up_the_time_of_the_invocation(
    slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timeout would fail all records of the invocation, again and again, and hold up those after them for hours."""
    clock = Clock(60)

    def run_slowly(table: str, context: Any, key: str, work: Callable[[], bool]) -> bool:
        clock.sleep(7)
        return run_idempotently(table, context, key, work)

    monkeypatch.setattr(handler, "run_idempotently", run_slowly)
    events = [subscription(task_id=f"{number:032x}") for number in range(9)]
    records = {"Records": [record(number, one["awslogs"]["data"]) for number, one in enumerate(events)]}
    repeated = handler.forward_logs(records, clock)["batchItemFailures"]
    assert clock.left > 0
    assert (len(slack.messages), repeated) == (3, [{"itemIdentifier": str(number)} for number in range(3, 9)])

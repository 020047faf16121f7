"""``handler.morning_digest``: the lines of task_stopped's log group on moto, and one message."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import ReadTimeoutError

import handler
from profiler.core.timestamps import NS_PER_MS, format_ms
from profiler.forwarder.digest_delivery import StoredLastMessages
from profiler.forwarder.invocation import DeliveryError, NoticeError, ReadError, SettingsError
from profiler.forwarder.night_period import RememberedNight
from profiler.record.last_night import last_night
from tests.fake_slack import Answer, FakeSlack
from tests.lambda_environment import (
    DigestContext,
    create_idempotency_table,
    forget_environment,
    function_environment,
)

GROUP = "/aws/lambda/profiler-task-stopped"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, slack: FakeSlack) -> Iterator[None]:
    """A function without a search cluster, whose two channels differ."""
    settings = {
        "SLACK_SUCCESS_WEBHOOK_URL": slack.webhook_url,
        "IDEMPOTENCY_TABLE": "done",
        "TASK_STOPPED_LOG_GROUP": GROUP,
    }
    with function_environment(monkeypatch, **settings):
        create_idempotency_table("done")
        boto3.client("logs").create_log_group(logGroupName=GROUP)
        yield


def put_ended(*runs: dict[str, Any], stream: str = "2026/11/25/[$LATEST]0") -> None:
    """The lines of runs that have just ended, between other lines."""
    usual = {
        "type": "task.ended",
        "text": "ended",
        "family": "nightly-etl",
        "status": "success",
        "stopCategory": "exit",
        "outcome": "success",
        "finishedAt": format_ms(time.time_ns()),
    }
    messages = [json.dumps({**usual, "taskId": f"{at}", **run}) for at, run in enumerate(runs)]
    logs = boto3.client("logs")
    logs.create_log_stream(logGroupName=GROUP, logStreamName=stream)
    logs.put_log_events(
        logGroupName=GROUP,
        logStreamName=stream,
        logEvents=[
            {"timestamp": time.time_ns() // NS_PER_MS, "message": message}
            for message in ("START RequestId: 0", *messages, '{"type": "other"}')
        ],
    )


def test_one_message_says_what_the_lines_of_the_night_say(slack: FakeSlack) -> None:
    killed = {"status": "failure", "stopCategory": "oom", "outcome": "oom", "exitCode": 137}
    put_ended({}, {}, killed)
    answer = handler.morning_digest({}, DigestContext())
    night = last_night(datetime.now(UTC))
    assert answer == {"night": night.day.isoformat(), "notified": True}
    (message,) = slack.messages
    assert "UTC: 3 runs, 1 killed for memory (nightly-etl), 2 succeeded." in message["text"]


@pytest.mark.parametrize("services", ["false", "true"])
def test_tasks_of_services_count_as_they_are_announced(
    slack: FakeSlack, monkeypatch: pytest.MonkeyPatch, services: str
) -> None:
    monkeypatch.setenv("NOTIFY_SERVICES", services)
    monkeypatch.setenv("NOTIFY_FAMILIES", "nightly-*,web")
    put_ended({}, {"family": "web", "service": True}, {"family": "other"})
    handler.morning_digest({}, DigestContext())
    (message,) = slack.messages
    assert ("UTC: 2 runs" if services == "true" else "UTC: 1 run") in message["text"]


def test_lines_of_tasks_in_the_functions_group_do_not_count(slack: FakeSlack) -> None:
    """A task definition can name every log group."""
    task = "158d1c8083dd49d6b527399fd6414f5c"
    killed = {"status": "failure", "stopCategory": "oom", "taskId": task}
    put_ended({"taskId": "honest"}, stream="2026/11/25/profiler-task-stopped[$LATEST][7b3f0c2d]")
    put_ended(killed, stream=f"ecs/batch/{task}")
    put_ended(killed, stream=f"2026/11/25/[$LATEST]0/batch/{task}")
    handler.morning_digest({}, DigestContext())
    (message,) = slack.messages
    assert "1 run, 1 succeeded" in message["text"]


def test_a_night_is_sent_once_however_often_the_function_runs(slack: FakeSlack) -> None:
    put_ended({})
    handler.morning_digest({}, DigestContext())
    put_ended({"taskId": "later"}, stream="2026/11/25/[$LATEST]1")
    again = handler.morning_digest({}, DigestContext())
    assert again == {"night": last_night(datetime.now(UTC)).day.isoformat(), "notified": False}
    assert len(slack.messages) == 1


def test_the_last_message_is_kept_without_a_date_of_expiry(slack: FakeSlack) -> None:
    put_ended({})
    handler.morning_digest({}, DigestContext())
    table = StoredLastMessages(table="done", client=boto3.client("dynamodb"))
    first = RememberedNight(end_ns=0, whole_ns=0)
    kept = table.last_remembered("slack", first)
    assert kept.tasks == ("0",)
    table.remember("slack", first)  # an invocation that was overtaken
    assert table.last_remembered("slack", first) == kept
    items = boto3.client("dynamodb").scan(TableName="done")["Items"]
    (item,) = [item for item in items if item["id"]["S"].startswith("morning-digest#")]
    assert "expiration" not in item


def test_two_invocations_at_once_begin_at_the_same_time() -> None:
    table = StoredLastMessages(table="done", client=boto3.client("dynamodb"))
    first = RememberedNight(end_ns=5, whole_ns=5)
    assert table.last_remembered("slack", first) == first
    assert table.last_remembered("slack", RememberedNight(end_ns=9, whole_ns=9)) == first


def test_a_table_that_cannot_be_used_is_named() -> None:
    table = StoredLastMessages(table="none", client=boto3.client("dynamodb"))
    with pytest.raises(DeliveryError, match="The table none cannot be used"):
        table.last_remembered("slack", RememberedNight(end_ns=0, whole_ns=0))


def test_a_channel_that_fails_is_tried_again_by_the_next_invocation(slack: FakeSlack) -> None:
    put_ended({})
    slack.script = [Answer(404, "no_service")]
    with pytest.raises(NoticeError, match="SLACK_SUCCESS_WEBHOOK_URL"):
        handler.morning_digest({}, DigestContext())
    handler.morning_digest({}, DigestContext())
    assert slack.requests == 2
    assert len(slack.messages) == 1


def test_the_failure_channel_never_gets_it(
    slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLACK_SUCCESS_WEBHOOK_URL")
    monkeypatch.setenv("SLACK_FAILURE_WEBHOOK_URL", slack.webhook_url)
    put_ended({"status": "failure", "exitCode": 1})
    assert handler.morning_digest({}, DigestContext())["notified"] is False
    assert slack.messages == []


def test_without_the_table_of_keys_nothing_is_sent(
    slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IDEMPOTENCY_TABLE")
    with pytest.raises(SettingsError, match="IDEMPOTENCY_TABLE is not set"):
        handler.morning_digest({}, DigestContext())
    assert slack.messages == []


def test_a_group_that_cannot_be_read_is_no_night_without_runs(
    slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASK_STOPPED_LOG_GROUP", "/aws/lambda/none")
    with pytest.raises(ReadError, match="logs:FilterLogEvents"):
        handler.morning_digest({}, DigestContext())
    assert slack.messages == []


def test_a_bad_time_zone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIGEST_TIME_ZONE", "Mars/Olympus")
    forget_environment()
    with pytest.raises(SettingsError, match="DIGEST_TIME_ZONE is not usable"):
        handler.morning_digest({}, DigestContext())


def test_a_call_that_gets_no_answer_leaves_time_for_the_message(slack: FakeSlack) -> None:
    """The period takes half of the time; then CloudWatch Logs is silent."""
    put_ended({})
    context = DigestContext()
    left_seconds = [40.0]
    waits_seconds = [19.5]

    def answer_late(request: AWSPreparedRequest, **_: object) -> None:
        left_seconds[0] -= waits_seconds.pop() if waits_seconds else 7
        if not waits_seconds and left_seconds[0] < 20:
            raise ReadTimeoutError(endpoint_url=request.url)

    for attempts in ((), (None, 1)):
        events = handler._client("logs", *attempts).meta.events
        events.register_first("before-send.cloudwatch-logs.FilterLogEvents", answer_late)
    with patch.object(
        context, "get_remaining_time_in_millis", lambda: round(left_seconds[0] * 1000)
    ):
        handler.morning_digest({}, context)
    assert left_seconds[0] > 0
    assert len(slack.messages) == 1

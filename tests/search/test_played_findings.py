"""Whole events through the handlers on real search clusters, with the inputs of public bug reports
and of people's hands: schedules that are off, pages of a log stream, answers of webhooks, and an
index that nobody can write to.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

import handler
from profiler.core.timestamps import format_datetime
from profiler.forwarder.invocation import DeliveryError, NoticeError
from tests.fake_slack import Answer, FakeSlack
from tests.lambda_environment import forget_environment
from tests.memory_retries import BATCH
from tests.search.conftest import TWO_SERVERS
from tests.search.forwarding import (
    TASK_ID,
    Context,
    Forward,
    call,
    event,
    played_aws,
    put,
    report,
    search,
)
from tests.task_events import event as task_event
from tools.moto_server import create_schedule_long_ago
from tools.search_server import SearchServer

pytestmark = [pytest.mark.search, TWO_SERVERS]
CLUSTER = "arn:aws:ecs:us-west-2:111122223333:cluster/jobs"
BLOCK = {"index.blocks.write": True}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, slack: FakeSlack, forward: Forward) -> Iterator[Any]:
    assert forward is not None
    with played_aws(monkeypatch, slack) as logs:
        yield logs


def killed() -> dict[str, Any]:
    now = format_datetime(datetime.now(UTC))
    return task_event(containers=[BATCH], cpu="256", memory="512", stoppedAt=now)


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"State": "DISABLED"}, "Not started again: its schedule nightly is disabled."),
        ({"EndDate": datetime.now(UTC) - timedelta(hours=1)}, "its schedule nightly has ended."),
        ({}, "Started again with"),
    ],
    ids=["disabled", "ended", "control"],
)
def test_a_killed_run_of_a_schedule_that_is_off_is_not_started_again(
    aws: Any,
    slack: FakeSlack,
    search_server: SearchServer,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.setenv("RETRY_OUT_OF_MEMORY", "*")
    forget_environment()
    ec2 = boto3.client("ec2")
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    boto3.client("ecs").create_cluster(clusterName="jobs")
    boto3.client("scheduler").create_schedule(
        Name="nightly",
        ScheduleExpression="rate(1 day)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": CLUSTER,
            "RoleArn": "arn:aws:iam::111122223333:role/schedules",
            "EcsParameters": {
                "TaskDefinitionArn": "arn:aws:ecs:us-west-2:111122223333:task-definition/nightly",
                "LaunchType": "FARGATE",
                "NetworkConfiguration": {"awsvpcConfiguration": {"Subnets": [subnet]}},
            },
        },
        **settings,
    )
    create_schedule_long_ago("nightly", "us-west-2")
    answer = handler.task_stopped(killed(), Context())
    assert answer["indexed"]
    (message,) = slack.messages
    assert said in json.dumps(message)


@pytest.mark.diagonal
@pytest.mark.parametrize("lines_of_page", [1, 2, 10_000])
def test_all_pages_of_a_stream_are_read(
    aws: Any, slack: FakeSlack, search_server: SearchServer, lines_of_page: int
) -> None:
    """The report is behind pages that have lines."""
    ended = datetime.now(UTC)  # CloudWatch's time of a line must be its own
    started = format_datetime(ended - timedelta(seconds=63))
    finished = format_datetime(ended)
    metrics = {"durationMs": 63_000, "maxMemoryUsedMB": 123}
    put(aws, report(TASK_ID, startedAt=started, finishedAt=finished, metrics=metrics))
    for number in range(5):
        put(aws, f"line {number}")

    def limit(params: dict[str, Any], **_: Any) -> None:
        params["limit"] = lines_of_page

    of_function = handler._client("logs", "us-west-2", 1)
    of_function.meta.events.register("before-parameter-build.cloudwatch-logs.GetLogEvents", limit)
    times = dict.fromkeys(("createdAt", "pullStartedAt", "startedAt"), started)
    times |= dict.fromkeys(("executionStoppedAt", "stoppedAt"), finished)
    assert handler.task_stopped(task_event(**times), Context())["indexed"]
    (hit,) = search(search_server)["hits"]["hits"]
    assert hit["_source"]["task"]["complete"]
    assert hit["_source"]["usage"]["memory"]["used_mb"]["max"] == 123
    last = [f"line {number}" for number in range(5)]
    assert all(line in json.dumps(slack.messages) for line in last)


def test_a_redrive_in_the_second_week_posts_nothing_again(
    aws: Any, slack: FakeSlack, search_server: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slack took the message, the bus did not. Redriven twice, the last time on the last day of
    the second message.
    """
    monkeypatch.setenv("EVENT_BUS_NAME", "missing")
    forget_environment()
    events = boto3.client("events")
    for _ in range(3):  # as Lambda repeats an invocation
        with pytest.raises(NoticeError, match="missing"):
            handler.task_stopped(task_event(), Context())
    for age_days in (13, 14):
        let_keys_age(age_days)
        if age_days == 14:
            events.create_event_bus(Name="missing")
            handler.task_stopped(task_event(), Context())
        else:
            with pytest.raises(NoticeError, match="missing"):
                handler.task_stopped(task_event(), Context())
    assert len(slack.messages) == 1
    assert search(search_server)["hits"]["total"]["value"] == 1


def let_keys_age(days: int) -> None:
    """Let what was done once have been done so many days earlier."""
    table = boto3.client("dynamodb")
    for item in table.scan(TableName="posted-once")["Items"]:
        old = str(int(item["expiration"]["N"]) - days * 86_400)
        table.put_item(TableName="posted-once", Item={**item, "expiration": {"N": old}})


@pytest.mark.diagonal
@pytest.mark.parametrize(
    "answer",
    [
        {"success": True},
        {"ok": True},
        {"result": "success", "msg": ""},
        {"message": "Workflow was started"},
    ],
)
def test_an_answer_of_another_webhook_is_an_answer(
    aws: Any, slack: FakeSlack, search_server: SearchServer, answer: dict[str, Any]
) -> None:
    slack.script = [Answer(200, data=answer)]
    result = handler.task_stopped(task_event(), Context())
    assert (result["indexed"], result["notified"]) == (True, "failure")
    assert slack.requests == 1


def test_a_blocked_index_loses_no_late_document(
    aws: Any, forward: Forward, search_server: SearchServer
) -> None:
    """Each is refused as a whole, with what to do, and is written when the block is gone."""
    old = report("0045", startedAt="2026-03-01T10:00:00Z")
    assert forward(event(old), Context())["indexed"] == 1
    name = "task-reports-2026.03"
    call(search_server, "PUT", f"{name}/_settings", BLOCK)
    late = report("0046", startedAt="2026-03-01T10:00:00Z", finishedAt="2026-03-01T10:00:02Z")

    def tries() -> Iterator[Any]:
        yield lambda: handler.task_stopped(task_event(group="service:web"), Context())
        yield lambda: forward(event(late), Context())

    for attempt in tries():
        with pytest.raises(DeliveryError) as raised:
            attempt()
        assert "kibana import" in str(raised.value)
    call(search_server, "PUT", f"{name}/_settings", {"index.blocks.write": None})
    for attempt in tries():
        attempt()
    found = {hit["_source"]["task"]["id"] for hit in search(search_server)["hits"]["hits"]}
    assert found == {"0045", "0046", TASK_ID}

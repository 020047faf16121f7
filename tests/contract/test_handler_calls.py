"""The calls of the handlers: their number, their time, the messages on every channel, the retry;
``notify``.
"""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, get_args

import boto3
import botocore.client
import click
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

import handler
from profiler.cli import notify_command
from profiler.cli.notify_command import notify as command
from profiler.core.aws_clients import bounded_client
from profiler.core.errors import TaskProfilerError
from profiler.core.queue_messages import KEPT_SECONDS
from profiler.core.timestamps import NS_PER_MS, format_datetime, format_ms
from profiler.forwarder.invocation import NoticeError
from profiler.forwarder.notifications.idempotency import run_idempotently
from profiler.record.notice_model import AnyNoticeLine, encode_notice_line
from tests.fake_slack import FakeSlack, rate_limited
from tests.http_server import FakeElasticsearch
from tests.lambda_environment import (
    InvocationContext,
    create_idempotency_table,
    forget_environment,
    function_environment,
    register_revisions,
)
from tests.log_subscriptions import DOCUMENT, put_lines, subscription_event
from tests.log_subscriptions import event as logs_event
from tests.log_subscriptions import record as stream_record
from tests.memory_retries import BATCH, NEW_ID, FakeAws
from tests.nth_calls import Failure, NthCallFails
from tests.shown_runs import missed_notice, stuck_notice
from tests.stopped_tasks import BATCH_STREAM, report
from tests.task_events import ARN, container, definition, event

TASK_ID = ARN.rsplit("/", 1)[-1]
SOURCE = {"record": report()}
DONE = {"status": "failure", "indexed": True, "notified": "failure"}


def before_calls(patch: pytest.MonkeyPatch, look: Callable[[str], object]) -> None:
    """Pass the name of each operation to ``look`` before a client of boto3 calls it."""
    original = botocore.client.BaseClient._make_api_call

    def call(client: Any, name: str, arguments: Any) -> Any:
        look(name)
        return original(client, name, arguments)

    patch.setattr(botocore.client.BaseClient, "_make_api_call", call)


@pytest.fixture(autouse=True)
def fakes(
    monkeypatch: pytest.MonkeyPatch, slack: FakeSlack, cluster: FakeElasticsearch
) -> Iterator[None]:
    settings = {
        "ELASTICSEARCH_URL": cluster.url,
        "SLACK_FAILURE_WEBHOOK_URL": slack.webhook_url,
        "IDEMPOTENCY_TABLE": "done",
        "NOTIFY_LOG_LINES": "0",
    }
    with function_environment(monkeypatch, **settings):
        described = definition(
            container("task-monitor", essential=False, memory=64), container("batch", memory=64)
        )
        register_revisions("nightly", described["containerDefinitions"])
        create_idempotency_table("done")
        yield


def written(cluster: FakeElasticsearch) -> dict[str, Any]:
    """The first document of the only request."""
    ((_action, body, *_others),) = cluster.bulks
    return dict(body)


def test_no_log_is_read_if_the_report_is_indexed(
    cluster: FakeElasticsearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    before_calls(monkeypatch, calls.append)
    cluster.stored[f"{TASK_ID}/batch"] = SOURCE
    in_time = event(stoppedAt=format_datetime(datetime.now(UTC)))
    assert handler.task_stopped(in_time, InvocationContext()) == DONE
    assert cluster.asked == [f"{TASK_ID}/batch"]
    assert "GetLogEvents" not in calls
    assert calls.count("DescribeTaskDefinition") == 1
    assert written(cluster)["doc"] == {}, "what is stored comes first"


def test_a_throttled_read_of_a_log_is_one_call_of_botocore() -> None:
    """botocore would repeat it within a second or two, which keeps a burst of stopped tasks
    throttled.
    """
    assert (
        handler._log_tail().client_for("eu-west-1").meta.config.retries["total_max_attempts"] == 1
    )


@pytest.mark.diagonal
@pytest.mark.parametrize("read_seconds", [0, 2])
@pytest.mark.parametrize("seconds", [60, 15, 12, 11, 9])
def test_reads_of_the_log_leave_the_time_for_the_document_and_the_notice(
    seconds: float,
    read_seconds: float,
    cluster: FakeElasticsearch,
    slack: FakeSlack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = InvocationContext(round(1000 * seconds))
    monkeypatch.setattr(time, "sleep", context.sleep)
    before_calls(
        monkeypatch, lambda name: context.sleep(read_seconds if name == "GetLogEvents" else 0)
    )
    monkeypatch.setenv("NOTIFY_LOG_LINES", "5")
    logs = boto3.client("logs")
    logs.create_log_group(logGroupName="/ecs/jobs")
    put_lines(logs, "/ecs/jobs", BATCH_STREAM, "one", "two")
    assert handler.task_stopped(event(), context) == DONE
    assert context.left_ms >= 1000 * min(seconds / 2, 10)
    assert written(cluster)["upsert"]["task"]["complete"] is False
    assert len(slack.messages) == 1


def test_a_search_in_a_part_of_the_indices_of_runs_is_said_once(
    cluster: FakeElasticsearch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "has runs already is only known in part, so a run may have two documents"
    line = report(taskId=str(DOCUMENT["logStream"]).rpartition("/")[2], taskArn=None)
    cluster.found["_shards"] = {"total": 2, "successful": 1}
    for _ in range(2):
        forwarded = handler.forward_logs(subscription_event(line), InvocationContext())
        assert forwarded["indexed"] == 1
    output = capsys.readouterr().out
    assert output.count(said) == 1
    assert "1 shard of the search cluster did not answer" in output


def test_without_a_cluster_the_ended_run_is_a_log_line(
    cluster: FakeElasticsearch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the event has and cannot be used is in the log, too."""
    monkeypatch.setenv("ELASTICSEARCH_URL", "")
    monkeypatch.setenv("NOTIFY_FAMILIES", "other")
    forget_environment()
    batch = {"name": "batch", "exitCode": 2**31, "reason": "\ud800"}
    odd = event(startedAt="0001-01-01T00:00:00Z", pullStartedAt=None, group="", containers=[batch])
    for _ in range(2):
        assert handler.task_stopped(odd, InvocationContext())["notified"] is None
    output = capsys.readouterr().out
    (line,) = [json.loads(line) for line in output.splitlines() if "task.ended" in line]
    expected = {"type": "task.ended", "taskId": TASK_ID, "family": "nightly", "status": "unknown"}
    assert expected.items() <= line.items()
    assert (
        output.count(f"task {TASK_ID} has values that cannot be used: startedAt, exitCode, reason.")
        == 2
    )
    assert cluster.bulks == []


def event_queue() -> str:
    """A queue that gets the ended runs of the default bus."""
    sqs, events = boto3.client("sqs"), boto3.client("events")
    url = str(sqs.create_queue(QueueName="ended")["QueueUrl"])
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    pattern = {"source": ["task-profiler"], "detail-type": ["Task Run Ended"]}
    events.put_rule(Name="ended", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="ended", Targets=[{"Id": "queue", "Arn": arn}])
    return url


def received(url: str) -> list[dict[str, Any]]:
    messages = (
        boto3.client("sqs")
        .receive_message(QueueUrl=url, MaxNumberOfMessages=10)
        .get("Messages", [])
    )
    return [json.loads(message["Body"]) for message in messages]


def test_a_retry_repeats_only_slack(slack: FakeSlack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENT_BUS_NAME", "default")
    queue = event_queue()
    slack.script = [rate_limited(3600)]
    with pytest.raises(NoticeError, match="SLACK_FAILURE_WEBHOOK_URL"):
        handler.task_stopped(event(startedAt=None), InvocationContext())
    assert slack.messages == []
    assert handler.task_stopped(event(startedAt=None), InvocationContext())["notified"] == "failure"
    assert len(slack.messages) == 1
    (sent,) = received(queue)
    assert sent["resources"] == [ARN]
    assert sent["detail"]["taskArn"] == ARN
    assert sent["detail"]["exitCode"] == 1
    items = boto3.client("dynamodb").scan(TableName="done")["Items"]
    # Slack, the bus and the printed line. An event may wait in its queue, and in it again.
    left_seconds = [int(item["expiration"]["N"]) - time.time() for item in items]
    assert len(left_seconds) == 3
    assert min(left_seconds) > 2 * KEPT_SECONDS


def test_an_event_that_is_redriven_in_the_second_week_posts_nothing_twice(
    slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slack took the message, the bus did not."""
    monkeypatch.setenv("EVENT_BUS_NAME", "missing")
    with pytest.raises(NoticeError, match="missing"):
        handler.task_stopped(event(startedAt=None), InvocationContext())
    assert len(slack.messages) == 1
    table = boto3.client("dynamodb")
    for item in table.scan(TableName="done")["Items"]:  # as if it were written 13 days ago
        old = str(int(item["expiration"]["N"]) - 13 * 86_400)
        table.put_item(TableName="done", Item={**item, "expiration": {"N": old}})
    monkeypatch.setenv("EVENT_BUS_NAME", "default")
    forget_environment()
    handler.task_stopped(event(startedAt=None), InvocationContext())
    assert len(slack.messages) == 1


def killed(**detail: Any) -> dict[str, Any]:
    now = format_datetime(datetime.now(UTC))
    return event(containers=[BATCH], cpu="256", memory="512", stoppedAt=now, **detail)


@pytest.mark.parametrize("families", ["", "other", "other, night*"])
def test_a_killed_run_of_a_selected_family_is_started_once(
    families: str,
    slack: FakeSlack,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in {
        "RETRY_OUT_OF_MEMORY": families,
        "REPORT_WAIT_SECONDS": "0",
        "ELASTICSEARCH_URL": "",
    }.items():
        monkeypatch.setenv(name, value)
    forget_environment()
    aws = FakeAws()
    read = handler._definitions()
    monkeypatch.setattr(handler, "_definitions", lambda: read)
    made, real = (
        {name: aws.client(name) for name in ("ecs", "events", "scheduler")},
        handler._client,
    )
    monkeypatch.setattr(
        handler, "_client", lambda name, *region: made.get(name) or real(name, *region)
    )
    one = killed()
    for _ in range(2):
        assert handler.task_stopped(one, InvocationContext())["status"] == "failure"
    is_retried = "night*" in families
    assert len(aws.requests) == is_retried
    (message,) = slack.messages
    assert (
        f"Started again with 1 GB (was 512 MB): task {NEW_ID[:8]}" in str(message)
    ) is is_retried
    if is_retried:
        limit = aws.requests[0]["overrides"]["containerOverrides"]
        assert limit == [{"name": "batch", "command": ["x"], "memory": 96}]
        retry = killed(
            taskArn=one["detail"]["taskArn"][:-8] + "0" * 8, startedBy=aws.requests[0]["startedBy"]
        )
        handler.task_stopped(retry, InvocationContext())
        assert len(aws.requests) == 1
        assert "This was the retry of 4dd5853f" in str(slack.messages[-1])
    assert "Not started again" not in capsys.readouterr().out


NOTICED_ID = stuck_notice().record.task_id


def subscription(*, task_id: str = NOTICED_ID) -> dict[str, Any]:
    now_ns = time.time_ns()
    stuck = stuck_notice()
    record = replace(stuck.record, started_at=format_ms(now_ns))
    line = encode_notice_line(replace(stuck, time=format_ms(now_ns), record=record)).decode()
    text = line.replace(NOTICED_ID, task_id)
    events = [{"id": "1", "timestamp": now_ns // NS_PER_MS, "message": text}]
    return logs_event({**DOCUMENT, "logStream": f"ecs/task-monitor/{task_id}", "logEvents": events})


def test_without_a_cluster_the_notice_is_sent(
    slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ELASTICSEARCH_URL")
    forget_environment()
    assert handler.forward_logs(subscription(), InvocationContext()) == {
        "indexed": 0,
        "skipped": 0,
        "failed": 0,
        "untrusted": 0,
    }
    assert len(slack.messages) == 1


def test_a_slow_table_does_not_use_up_the_time_of_the_invocation(
    slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timeout would fail all records of the invocation, again and again, and hold up those
    after them for hours.
    """
    monkeypatch.setenv("EVENT_BUS_NAME", "default")
    clock = InvocationContext()

    def run_slowly(table: str, context: Any, key: str, work: Callable[[], bool]) -> bool:
        clock.sleep(7)
        return run_idempotently(table, context, key, work)

    monkeypatch.setattr(handler, "run_idempotently", run_slowly)
    events = [subscription(task_id=f"{number:032x}") for number in range(9)]
    records = {
        "Records": [
            stream_record(number, one["awslogs"]["data"]) for number, one in enumerate(events)
        ]
    }
    repeated = handler.forward_logs(records, clock)["batchItemFailures"]
    assert clock.left_ms > 0
    assert len(slack.messages) == 2
    assert repeated == [{"itemIdentifier": str(number)} for number in range(2, 9)]


Notify = Callable[..., Result]


@pytest.fixture
def notify(monkeypatch: pytest.MonkeyPatch) -> Notify:
    """Calls ``task-profiler notify``."""
    # CliRunner replaces the stream, not the file descriptor.
    monkeypatch.setattr("profiler.cli.printing.write_out", partial(click.echo, nl=False))

    def call(*options: str, line: str | None = None) -> Result:
        return CliRunner().invoke(command, ["-", *options], input=line or json.dumps(event()))

    return call


def printed(result: Result) -> dict[str, Any]:
    assert result.exception is None
    return dict(json.loads(result.stdout))


def test_an_event_is_printed_and_sent_to_every_channel(
    notify: Notify, slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENT_BUS_NAME", "default")
    queue = event_queue()
    document = printed(notify())
    assert document["channel"] == "failure"
    assert slack.messages == []
    assert received(queue) == []
    assert slack.messages == []
    assert notify().stderr == "task-profiler: Nothing was sent; --yes sends it.\n"
    assert document["detail"]["taskArn"] == ARN
    assert document["detail"]["status"] == "failure"
    assert printed(notify("--yes")) == document
    assert [posted["blocks"] for posted in slack.messages] == [document["blocks"]]
    assert [sent["detail"] for sent in received(queue)] == [document["detail"]]


@pytest.mark.parametrize("failure", get_args(Failure))
def test_a_channel_that_fails_is_said_with_the_one_that_has_the_notification(
    notify: Notify, slack: FakeSlack, monkeypatch: pytest.MonkeyPatch, failure: Failure
) -> None:
    monkeypatch.setenv("EVENT_BUS_NAME", "default")
    queue = event_queue()
    calls = NthCallFails(bounded_client, 1, failure)
    monkeypatch.setattr(notify_command, "bounded_client", calls.open)
    done = notify("--yes")
    assert calls.calls == ["put_events"]
    assert isinstance(done.exception, TaskProfilerError)
    said = {
        "denied": "accept the event (AccessDeniedException): check",
        "throttled": "too many calls: send it again in a minute.",
        "lost": "did not answer (ReadTimeoutError), so it may have the event: ",
    }
    assert said[failure] in str(done.exception)
    assert str(done.exception).endswith(
        "The channel slack has the notification, and gets it again if the command is repeated."
    )
    assert len(slack.messages) == 1
    assert len(received(queue)) == (failure == "lost")


@pytest.mark.parametrize("line", [stuck_notice(), missed_notice()], ids=["run", "schedule"])
def test_the_line_of_a_notice_is_accepted(
    notify: Notify, line: AnyNoticeLine, slack: FakeSlack
) -> None:
    document = printed(notify("--yes", line=encode_notice_line(line).decode()))
    assert document["channel"] == "failure"
    assert document["detail"]["notice"]["kind"] == line.notice.kind
    assert [posted["blocks"] for posted in slack.messages] == [document["blocks"]]


def test_nobody_repeats_a_command_for_its_user(
    notify: Notify, slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slack asks for a pause of an hour, for which the function's next attempt would do."""
    monkeypatch.setenv("SLACK_FAILURE_WEBHOOK_URL", slack.webhook_url)
    slack.script = [rate_limited(3600)]
    said = str(notify("--yes").exception)
    assert "ran out of time (HTTP 429, with a pause of 3600 s): repeat it; " in said
    assert said.endswith(
        "Slack takes about one message a second, so wait for its pause, or a minute."
    )


def test_what_cannot_be_sent_is_an_error(notify: Notify, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACK_FAILURE_WEBHOOK_URL")
    assert "set SLACK_FAILURE_WEBHOOK_URL or EVENT_BUS_NAME" in str(notify("--yes").exception)
    invalid = notify(line='{"type": "task.notice"}').exception
    assert isinstance(invalid, TaskProfilerError)  # which the command line prints as one sentence
    assert "pass the line unchanged, as in the log" in str(invalid)

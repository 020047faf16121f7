"""``RetryOutOfMemory`` for jobs of AWS Batch, through the deployed handler, the real table of keys,
the channels and the search cluster: once, whatever is delivered, and without a secret.
"""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import botocore.client
import pytest
from botocore.exceptions import ClientError

import handler
from profiler.aws_account.eventbridge_calls import ScheduleReader
from profiler.forwarder.invocation import ForwarderError, InProgressError
from tests import batch_jobs
from tests.batch_jobs import SECRETS
from tests.fake_batch import FakeBatch
from tests.fake_slack import FakeSlack
from tests.http_server import FakeElasticsearch
from tests.lambda_environment import (
    InvocationContext,
    create_idempotency_table,
    forget_environment,
    function_environment,
)

KILLED = "OutOfMemoryError: Container killed due to memory usage"
RETRY_OF = "task-profiler:retry-of"
RESIZED_FROM = "task-profiler:resized-from"
Json = dict[str, Any]


@pytest.fixture
def batch() -> Iterator[FakeBatch]:
    with FakeBatch() as fake:
        fake.now_ms = round(datetime.now(UTC).timestamp() * 1000)
        fake.add_queue("nightly", "spot")
        fake.define("orders", 1, 4096)
        yield fake


@pytest.fixture(autouse=True)
def function(
    monkeypatch: pytest.MonkeyPatch,
    slack: FakeSlack,
    cluster: FakeElasticsearch,
    batch: FakeBatch,
) -> Iterator[None]:
    settings = {
        "ELASTICSEARCH_URL": cluster.url,
        "SLACK_FAILURE_WEBHOOK_URL": slack.webhook_url,
        "SLACK_SUCCESS_WEBHOOK_URL": slack.webhook_url,
        "IDEMPOTENCY_TABLE": "done",
        "REPORT_WAIT_SECONDS": "0",
        "BATCH_JOBS": "true",
        "RETRY_OUT_OF_MEMORY": "ord*",
        **batch.environment(),
    }
    with function_environment(monkeypatch, **settings):
        create_idempotency_table("done")
        yield


def killed(batch: FakeBatch, **asked: Any) -> Json:
    job = batch.submit("orders", "nightly", "orders", **asked)
    batch.begin(job)
    batch.end(job, 1, KILLED)
    return job


def send(event: Json) -> Json:
    return dict(handler.task_stopped(event, InvocationContext()))


def keys() -> list[Json]:
    return list(boto3.client("dynamodb").scan(TableName="done")["Items"])


def retries(batch: FakeBatch) -> list[Json]:
    return [job for job in batch.jobs.values() if RETRY_OF in job["tags"]]


def test_a_killed_job_is_started_again_once_and_the_message_says_it(
    batch: FakeBatch, slack: FakeSlack, cluster: FakeElasticsearch
) -> None:
    job = killed(batch)
    for _ in range(3):
        forget_environment()
        send(batch.event(job))
    (new,) = retries(batch)
    (message,) = slack.messages
    started = f"Started again with 6 GB (was 4 GB): job {new['jobId'][:8]}."
    assert message["text"].startswith("❌ orders failed: Ran out of memory with 4 GB")
    assert started in message["text"]
    assert cluster.bulks[0][1]["upsert"]["task"]["retried_as"] == new["jobId"]
    batch.begin(new)
    batch.end(new, 0)
    send(batch.event(new))
    said = "Succeeded with 6 GB after 4 GB were too little: set 6 GB."
    assert said in slack.messages[1]["text"]
    assert cluster.bulks[-1][1]["upsert"]["task"]["retry_of"] == job["jobId"]
    assert len(batch.requests("SubmitJob")) == 1


@pytest.mark.parametrize("kind", ["schedule", "rule", "rule orders/night"])
def test_a_job_whose_schedule_somebody_switched_off_is_not_started_again(
    batch: FakeBatch, slack: FakeSlack, kind: str
) -> None:
    """While its last run worked."""
    if kind != "schedule":
        events = boto3.client("events")
        bus = "default"
        when = {"ScheduleExpression": "rate(1 day)"}
        if "/" in kind:
            bus = "orders"
            events.create_event_bus(Name=bus)
            when = {"EventPattern": '{"source": ["orders"]}'}
        events.put_rule(Name="night", EventBusName=bus, State="DISABLED", **when)
        definition = batch_jobs.arn("job-definition", "orders:1")
        parameters = {"JobDefinition": definition, "JobName": "orders"}
        queue = batch_jobs.arn("job-queue", "nightly")
        target = {"Id": "1", "Arn": queue, "BatchParameters": parameters}
        events.put_targets(Rule="night", EventBusName=bus, Targets=[target])
    else:
        asked = {"JobName": "orders", "JobQueue": "nightly", "JobDefinition": "orders"}
        boto3.client("scheduler").create_schedule(
            Name="night",
            ScheduleExpression="rate(1 day)",
            State="DISABLED",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={
                "Arn": "arn:aws:scheduler:::aws-sdk:batch:submitJob",
                "RoleArn": f"arn:aws:iam::{batch_jobs.ACCOUNT}:role/schedules",
                "Input": json.dumps(asked),
            },
        )
    send(batch.event(killed(batch)))
    title = kind if "/" in kind else f"{kind} night"
    assert f"Not started again: its {title} is disabled." in slack.messages[0]["text"]
    assert retries(batch) == []


def test_a_rule_that_somebody_deletes_while_it_is_read_refuses_no_job(
    monkeypatch: pytest.MonkeyPatch, batch: FakeBatch, slack: FakeSlack
) -> None:
    """ListRules names it, and ListTargetsByRule does not know it any more."""
    monkeypatch.setattr(ScheduleReader, "rules_of_queue", lambda *_: iter([{"Name": "deleted"}]))
    send(batch.event(killed(batch)))
    assert "Started again with 6 GB" in slack.messages[0]["text"]
    assert len(retries(batch)) == 1


def test_without_the_setting_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch, batch: FakeBatch, slack: FakeSlack
) -> None:
    monkeypatch.setenv("RETRY_OUT_OF_MEMORY", "")
    send(batch.event(killed(batch)))
    assert [name for name, _ in batch.calls] == ["DescribeJobDefinitions"]
    assert len(slack.messages) == 1


def test_an_invocation_that_dies_in_the_call_leaves_the_key(
    batch: FakeBatch, slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a function that Lambda kills: the job may be submitted."""
    job = killed(batch)
    submit = batch._SubmitJob

    def die(asked: Json) -> Json:
        submit(asked)
        raise SystemExit

    with monkeypatch.context() as dying:
        dying.setattr(batch, "_SubmitJob", die)
        with pytest.raises(SystemExit):
            send(batch.event(job))
    # A while later, the key of the whole work is free again: Lambda killed the invocation.
    with_expiry = [(int(one["in_progress_expiration"]["N"]), one) for one in keys()]
    (first, _), (last, _) = sorted(with_expiry, key=lambda pair: pair[0])
    assert last - first > 20 * 86_400_000, "that of the call is busy as long as it is kept"
    for expiry, one in with_expiry:
        if expiry == first:
            boto3.client("dynamodb").delete_item(TableName="done", Key={"id": one["id"]})
    send(batch.event(job))
    assert "It is not known whether it was started again" in slack.messages[0]["text"]
    assert len(retries(batch)) == 1


def test_two_deliveries_at_once_are_one_job_and_one_message(
    batch: FakeBatch, slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one is repeated by Lambda, when the first one has ended."""
    job = killed(batch)
    submit = batch._SubmitJob

    def meanwhile(asked: Json) -> Json:
        with pytest.raises(InProgressError):
            send(batch.event(job))
        return submit(asked)

    with monkeypatch.context() as during:
        during.setattr(batch, "_SubmitJob", meanwhile)
        send(batch.event(job))
    send(batch.event(job))
    assert len(retries(batch)) == len(slack.messages) == 1
    assert "Started again with 6 GB" in slack.messages[0]["text"]


def test_a_lost_answer_is_said_and_never_repeated(
    batch: FakeBatch, slack: FakeSlack, capfd: pytest.CaptureFixture[str]
) -> None:
    batch.lost.add("SubmitJob")
    job = killed(batch)
    for _ in range(2):
        forget_environment()
        send(batch.event(job))
    assert len(retries(batch)) == len(batch.requests("SubmitJob")) == 1
    assert "It is not known whether it was started again" in slack.messages[0]["text"]
    assert f"Job {job['jobId']}: It is not known" in capfd.readouterr().out


def test_a_busy_batch_is_asked_again_by_lambda(
    batch: FakeBatch, slack: FakeSlack, cluster: FakeElasticsearch
) -> None:
    job = killed(batch)
    batch.failing.add("DescribeJobs")
    with pytest.raises(ForwarderError, match="not started again yet"):
        send(batch.event(job))
    assert "It is not known yet whether the run is started again" in slack.messages[0]["text"]
    batch.failing.clear()
    send(batch.event(job))
    (new,) = retries(batch)
    assert cluster.bulks[-1][1]["upsert"]["task"]["retried_as"] == new["jobId"]
    assert len(slack.messages) == 1


@pytest.mark.diagonal
@pytest.mark.parametrize("level", [logging.WARNING, logging.DEBUG])
@pytest.mark.parametrize("fault", ["refused", "lost", "throttled", None])
def test_no_secret_leaves_the_function(
    fault: str | None,
    level: int,
    batch: FakeBatch,
    slack: FakeSlack,
    cluster: FakeElasticsearch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """But into SubmitJob."""
    variables = [{"name": "KEY", "value": SECRETS[0]}]
    over = {"environment": variables, "command": ["load", SECRETS[3]]}
    job = killed(
        batch,
        parameters={"a": SECRETS[2]},
        tags={"owner": SECRETS[1]},
        containerOverrides=over,
    )
    if fault == "refused":
        batch.refused.add("SubmitJob")
    elif fault == "lost":
        batch.lost.add("SubmitJob")
    elif fault == "throttled":
        batch.failing.add("DescribeJobDefinitions")
    caplog.set_level(level)
    said = ""
    try:
        send(batch.event(job))
    except ForwarderError as error:
        said = f"{error} {error.__cause__} {error.__context__}"
    said += json.dumps([slack.messages, cluster.bulks, keys()]) + caplog.text
    said += "".join(capfd.readouterr())
    assert not [secret for secret in SECRETS if secret in said]
    if fault in (None, "lost"):
        sent = json.dumps(batch.requests("SubmitJob"))
        assert all(secret in sent for secret in SECRETS)


def test_a_kill_after_a_resize_is_said_at_once(batch: FakeBatch, slack: FakeSlack) -> None:
    batch.definitions[0]["tags"] = {RESIZED_FROM: "3/2048/8192"}
    send(batch.event(killed(batch)))
    text = slack.messages[0]["text"]
    assert "Its memory was reduced from 8 GB to 4 GB. This puts it back: " in text
    command = "task-profiler taskdef resize --job-definition orders --revert --register"
    assert command in text


@pytest.mark.parametrize(
    ("tag", "asked"),
    [
        ("3/2048/2048", None),  # it was enlarged
        ("nonsense", None),
        ("3/2048/8192", "2048"),  # the job asked for another size
    ],
)
def test_another_kill_is_no_resize_s(
    batch: FakeBatch, slack: FakeSlack, tag: str, asked: str | None
) -> None:
    batch.definitions[0]["tags"] = {RESIZED_FROM: tag}
    over: Json = {}
    if asked is not None:
        over = {
            "containerOverrides": {"resourceRequirements": [{"type": "MEMORY", "value": asked}]}
        }
    send(batch.event(killed(batch, **over)))
    assert "was reduced" not in slack.messages[0]["text"]


def test_a_definition_that_may_not_be_read_costs_a_sentence(
    batch: FakeBatch, slack: FakeSlack, capfd: pytest.CaptureFixture[str]
) -> None:
    batch.refused.add("DescribeJobDefinitions")
    send(batch.event(killed(batch)))
    assert "Not started again: " in slack.messages[0]["text"]
    assert "batch:DescribeJobDefinitions" in capfd.readouterr().out


def refusing(patch: pytest.MonkeyPatch, nth: int = 0) -> list[str]:
    """Refuse the call of boto3 with this number, not counting those to the table of keys, whose
    names are returned.
    """
    original = botocore.client.BaseClient._make_api_call
    made: list[str] = []

    def call(client: Any, name: str, arguments: Any) -> Any:
        if client.meta.service_model.service_name == "dynamodb":
            return original(client, name, arguments)
        made.append(name)
        if len(made) == nth:
            answer: Any = {
                "Error": {"Code": "AccessDeniedException", "Message": "not authorized"},
                "ResponseMetadata": {"HTTPStatusCode": 400},
            }
            raise ClientError(answer, name)
        return original(client, name, arguments)

    patch.setattr(botocore.client.BaseClient, "_make_api_call", call)
    return made


@pytest.mark.slow
def test_a_refused_call_of_a_retry_is_said_and_nothing_is_started_twice(
    batch: FakeBatch, slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call in turn, and the event is delivered again with all rights."""
    with monkeypatch.context() as patch:
        whole = refusing(patch)
        send(batch.event(killed(batch)))
    assert whole[-2:] == ["SubmitJob", "DescribeJobDefinitions"]
    for nth, operation in enumerate(whole, 1):
        job = killed(batch)
        started, said = len(retries(batch)), len(slack.messages)
        forget_environment()
        with monkeypatch.context() as patch:
            refusing(patch, nth)
            send(batch.event(job))
        forget_environment()
        send(batch.event(job))
        (message,) = slack.messages[said:]
        after_submission = nth > whole.index("SubmitJob") + 1
        assert len(retries(batch)) - started == after_submission, operation
        sentence = "Started again with 6 GB" if after_submission else "Not started again: "
        assert sentence in message["text"], operation

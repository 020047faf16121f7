"""``batch_job_changed``: one message a job, whatever the order of events, and the document of a job
without an attempt.
"""

import json
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import pytest

import handler
from profiler.core.timestamps import NS_PER_DAY, NS_PER_MS
from profiler.forwarder.invocation import ForwarderError
from profiler.forwarder.night_period import NightPeriod, remembered_before_first
from tests import batch_jobs
from tests.batch_jobs import SECRETS, end_without_attempt, queue_blocked_event
from tests.fake_batch import FakeBatch
from tests.fake_slack import Answer, FakeSlack
from tests.http_server import FakeElasticsearch
from tests.lambda_environment import (
    InvocationContext,
    create_idempotency_table,
    function_environment,
    register_revisions,
)
from tests.printed_lines import runs_of_lines
from tests.task_events import container

KILLED = "OutOfMemoryError: Container killed due to memory usage"
MINUTE = 60_000


@pytest.fixture
def batch() -> Iterator[FakeBatch]:
    with FakeBatch() as fake:
        fake.add_queue("nightly", "spot")
        fake.define("orders", 1, 4096, retryStrategy={"attempts": 3})
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
        **batch.environment(),
    }
    with function_environment(monkeypatch, **settings):
        register_revisions("orders", [container("default", memory=64)])
        create_idempotency_table("done")
        yield


def ran(batch: FakeBatch, job: dict[str, Any], code: int, reason: str | None = None) -> None:
    batch.begin(job)
    batch.now_ms += MINUTE
    batch.end(job, code, reason)


def send(event: dict[str, Any]) -> dict[str, Any]:
    """To the function that both rules of the stack have as their target."""
    return dict(handler.task_stopped(event, InvocationContext()))


def headers(slack: FakeSlack) -> list[str]:
    return [message["blocks"][0]["text"]["text"] for message in slack.messages]


def test_a_job_with_three_attempts_is_one_message(
    batch: FakeBatch, slack: FakeSlack, cluster: FakeElasticsearch
) -> None:
    job = batch.submit("orders", "nightly", "orders", parameters={"key": SECRETS[3]})
    ran(batch, job, 137, KILLED)
    retried = batch.event(job)
    ran(batch, job, 137, KILLED)
    ran(batch, job, 0)
    ended = batch.event(job)
    killed = [{"name": "default", "exitCode": 137, "reason": KILLED}]
    tasks = [batch_jobs.task_event(job, number, containers=killed) for number in (1, 2)]
    tasks.append(batch_jobs.task_event(job, 3))
    for event in (ended, *tasks, retried, ended):
        send(event)
    assert headers(slack) == ["✅ orders succeeded at its third attempt"]
    bodies = [body for bulk in cluster.bulks for body in bulk[1::2]]
    written: dict[str, list[Any]] = {"task.report": [], "batch.job": []}
    for body in bodies:
        written[body["upsert"]["event"]["dataset"]].append(body)
    by_events = [one["upsert"]["batch"]["attempt"] for one in written["batch.job"]]
    assert by_events == [1, 2, 3, 1, 1, 2, 3], "of the end, of the repetition, of the end again"
    assert [one["upsert"]["batch"]["attempt"] for one in written["task.report"]] == [1, 2, 3]
    for one in written["task.report"]:
        assert one["upsert"]["batch"]["job_name"] == "orders"
        assert one["upsert"]["batch"]["allowed_attempts"] == 3
        assert one["upsert"]["task"]["family"] == "orders"
        assert one["upsert"]["task"]["revision"] == "1", "the job definition's"
    assert len(batch.requests("DescribeJobs")) == 1
    everything = json.dumps([cluster.bulks, slack.messages])
    assert not [secret for secret in SECRETS if secret in everything]


def test_a_job_that_is_repeated_completes_its_attempts_document_alone(
    batch: FakeBatch, slack: FakeSlack, cluster: FakeElasticsearch
) -> None:
    job = batch.submit("orders", "nightly", "orders")
    assert send(batch.event(job)) == {"status": "RUNNABLE", "indexed": False, "notified": None}
    batch.begin(job)
    batch.end(job, None, status_reason="Host EC2 (instance i-0a1b) terminated.")
    assert send(batch.event(job)) == {"status": "RUNNABLE", "indexed": True, "notified": None}
    ((action, body),) = cluster.bulks
    task = batch_jobs.task_arn(job["jobId"], 1).rpartition("/")[2]
    assert action["update"]["_id"] == f"{task}/default"
    written = body["upsert"]
    assert (written["task"]["job_end"], written["task"]["repeated"]) == ("infrastructure", True)
    assert (written["batch"]["attempt"], written["batch"]["allowed_attempts"]) == (1, 3)
    assert "known_at" not in written["task"], "no run, before ECS has told of one"
    assert slack.messages == []


def test_a_child_that_failed_completes_its_document_and_is_silent(
    batch: FakeBatch, slack: FakeSlack, cluster: FakeElasticsearch
) -> None:
    parent = batch.submit("orders", "nightly", "orders", arrayProperties={"size": 2})
    child = batch.jobs[f"{parent['jobId']}:1"]
    child["retryStrategy"] = {"attempts": 1}
    ran(batch, child, 143, None)
    child["attempts"][0]["statusReason"] = "Job attempt duration exceeded timeout"
    assert send(batch.event(child))["indexed"]
    written = cluster.bulks[0][1]["upsert"]
    assert written["task"]["job_end"] == "timeout"
    assert not written["task"].keys() & {"repeated", "last_attempt"}
    assert written["batch"]["array_index"] == 1
    assert slack.messages == []


def test_the_costs_are_those_of_the_attempts(
    batch: FakeBatch, slack: FakeSlack, cluster: FakeElasticsearch
) -> None:
    job = batch.submit("orders", "nightly", "orders")
    ran(batch, job, 1)
    ran(batch, job, 0)
    hits = [
        {"_source": {"batch": {"attempt": number}, "cost": {"usd": usd}}}
        for number, usd in ((1, 0.25), (2, 0.5))
    ]
    cluster.found = {"hits": {"hits": hits}}
    send(batch.event(job))
    assert "$0.75 ($0.25 of it for failed attempts)" in slack.messages[0]["text"]


@pytest.mark.parametrize(
    "part", [{"timed_out": True}, {"_shards": {"total": 2, "successful": 1, "failed": 1}}]
)
def test_a_partial_answer_is_no_cost(
    batch: FakeBatch,
    slack: FakeSlack,
    cluster: FakeElasticsearch,
    capsys: pytest.CaptureFixture[str],
    part: dict[str, Any],
) -> None:
    """Of an attempt's containers, the one that has cost most may be missing."""
    job = batch.submit("orders", "nightly", "orders")
    ran(batch, job, 0)
    hits = [{"_source": {"batch": {"attempt": 1}, "cost": {"usd": 0.25}}}]
    cluster.found = {"hits": {"hits": hits}, **part}
    send(batch.event(job))
    assert "$" not in slack.messages[0]["text"]
    assert f"The message of the job {job['jobId']} has no cost." in capsys.readouterr().out


@pytest.mark.parametrize("order", [1, -1])
def test_an_attempt_on_spot_has_cost_at_least_what_its_documents_say_in_any_order(
    batch: FakeBatch, slack: FakeSlack, cluster: FakeElasticsearch, order: int
) -> None:
    """A document for each container: only the monitor's report knows the capacity provider."""
    job = batch.submit("orders", "nightly", "orders")
    ran(batch, job, 0)
    of_attempt = {"batch": {"attempt": 1}, "cost": {"usd": 0.5}}
    on_spot = {**of_attempt, "task": {"capacity_provider": "FARGATE_SPOT"}}
    hits = [{"_source": source} for source in (on_spot, of_attempt)][::order]
    cluster.found = {"hits": {"hits": hits}}
    send(batch.event(job))
    assert "≥ $0.50" in slack.messages[0]["text"]


@pytest.mark.slow
def test_an_array_of_10_000_is_one_message_and_few_calls(
    batch: FakeBatch, slack: FakeSlack
) -> None:
    parent = batch.submit("orders", "nightly", "orders", arrayProperties={"size": 10_000})
    for index in range(10_000):
        child = batch.jobs[f"{parent['jobId']}:{index}"]
        child |= {"status": "SUCCEEDED", "stoppedAt": batch.now_ms}
    failed = [batch.jobs[f"{parent['jobId']}:{index}"] for index in (17, 204, 998)]
    for child, code in zip(failed, (3, 137, 137), strict=True):
        ended = {"exitCode": code, "reason": KILLED if code == 137 else ""}
        child |= {"status": "FAILED", "startedAt": batch.now_ms - MINUTE}
        child["container"] |= ended
        send(batch.event(child))
        send(batch_jobs.task_event(child))
    parent["arrayProperties"]["statusSummary"] = {"SUCCEEDED": 9_997, "FAILED": 3}
    end_without_attempt(parent, batch.now_ms, "Array Child Job failed")
    send(batch.event(parent))
    (message,) = slack.messages
    causes = "ran out of memory with 4 GB (2), exit code 3 (1)"
    said = f"9,997 of 10,000 succeeded; children 17, 204 and 998 failed: {causes}."
    assert message["text"] == f"❌ orders failed: {said}"
    assert len(batch.requests("DescribeJobs")) == 1
    assert len(batch.requests("ListJobs")) == 1


@pytest.mark.parametrize("missing", ["ListJobs", "DescribeJobs"])
def test_a_missing_right_costs_names_alone_and_is_said(
    missing: str, batch: FakeBatch, slack: FakeSlack, capsys: pytest.CaptureFixture[str]
) -> None:
    batch.refused.add(missing)
    parent = batch.submit("orders", "nightly", "orders", arrayProperties={"size": 2})
    parent["arrayProperties"]["statusSummary"] = {"SUCCEEDED": 1, "FAILED": 1}
    end_without_attempt(parent, batch.now_ms, "Array Child Job failed")
    task = batch_jobs.task_event(batch.jobs[f"{parent['jobId']}:0"])
    assert send(task)["indexed"]
    assert send(batch.event(parent))["notified"] == "failure"
    assert headers(slack) == ["❌ orders failed"]
    is_unknown = "which children failed is not known" in slack.messages[0]["text"]
    assert is_unknown == (missing == "ListJobs")
    assert f"allow batch:{missing}" in capsys.readouterr().out


def test_a_busy_batch_delays_the_message_and_takes_nothing_from_it(
    batch: FakeBatch, slack: FakeSlack, cluster: FakeElasticsearch
) -> None:
    parent = batch.submit("orders", "nightly", "orders", arrayProperties={"size": 2})
    ran(batch, batch.jobs[f"{parent['jobId']}:1"], 3)
    batch.jobs[f"{parent['jobId']}:1"] |= {"status": "FAILED", "stoppedAt": batch.now_ms}
    parent["arrayProperties"]["statusSummary"] = {"SUCCEEDED": 1, "FAILED": 1}
    end_without_attempt(parent, batch.now_ms, "Array Child Job failed")
    batch.failing.add("ListJobs")
    with pytest.raises(ForwarderError, match="not posted yet"):
        send(batch.event(parent))
    assert slack.messages == []
    batch.failing.clear()
    send(batch.event(parent))
    assert "1 failed: exit code 3" in slack.messages[0]["text"]


def test_a_job_without_an_attempt_has_a_document_without_numbers(
    batch: FakeBatch, slack: FakeSlack, cluster: FakeElasticsearch
) -> None:
    job = batch.submit("orders", "nightly", "orders")
    end_without_attempt(job, batch.now_ms, "CannotX: no such thing")
    assert send(batch.event(job)) == {"status": "FAILED", "indexed": True, "notified": "failure"}
    ((action, body),) = cluster.bulks
    document = body["doc"]
    assert action["update"]["_id"] == job["jobId"]
    assert document["event"]["dataset"] == "batch.job"
    assert document["task"]["stopped_reason"] == "CannotX: no such thing"
    assert document["batch"]["job_definition"] == document["task"]["family"] == "orders"
    assert "usage" not in document
    assert headers(slack) == ["❌ orders failed before it started"]


@pytest.mark.parametrize("is_terminated", [False, True])
def test_a_job_without_an_attempt_is_in_the_morning_message_without_a_cluster_too(
    batch: FakeBatch,
    slack: FakeSlack,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    is_terminated: bool,
) -> None:
    """Its line is that of a task that never started, and is printed once."""
    monkeypatch.delenv("ELASTICSEARCH_URL")
    job = batch.submit("orders", "nightly", "orders", parameters={"key": SECRETS[3]})
    end_without_attempt(job, batch.now_ms, "CannotX", isTerminated=is_terminated)
    for _ in range(2):
        assert not send(batch.event(job))["indexed"]
    printed = capsys.readouterr().out.splitlines()
    (line,) = [text for text in printed if '"task.ended"' in text]
    ended = json.loads(line)
    assert ended["taskId"] == ended["batch"]["jobId"] == job["jobId"]
    assert ended["stoppedReason"] == "CannotX"
    assert not [secret for secret in SECRETS if secret in line]
    now_ns = batch.now_ms * NS_PER_MS + NS_PER_DAY // 24
    period = NightPeriod(last=remembered_before_first(now_ns), end_ns=now_ns, zone=UTC)
    runs = runs_of_lines([(batch.now_ms, line)], period)
    group = "stopped" if is_terminated else "failure"
    assert {name: dict(families) for name, families in runs.counts.items()} == {
        group: {"orders": 1}
    }


def test_of_a_job_with_attempts_or_of_a_dependent_one_no_line_is_printed(
    batch: FakeBatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ECS's event prints that of each attempt; a dependent job is silent."""
    ended = batch.submit("orders", "nightly", "orders")
    ran(batch, ended, 1)
    ran(batch, ended, 1)
    ran(batch, ended, 1)
    dependent = batch.submit("orders", "nightly", "orders")
    end_without_attempt(dependent, batch.now_ms, "Dependent Job failed")
    for job in (ended, dependent):
        send(batch.event(job))
    assert "task.ended" not in capsys.readouterr().out


def counted(period: NightPeriod, printed: list[tuple[int, str]]) -> tuple[Any, NightPeriod]:
    """What a message says of the lines that were printed before it, and the period of the next."""
    before = [(at_ms, line) for at_ms, line in printed if at_ms * NS_PER_MS < period.end_ns]
    runs = runs_of_lines(before, period)
    last = period.next_remembered(runs.remembered)
    following = NightPeriod(last=last, end_ns=period.end_ns + NS_PER_DAY, zone=UTC)
    return {name: dict(families) for name, families in runs.counts.items()}, following


def first_message(batch: FakeBatch) -> NightPeriod:
    """The period of a message that is sent now."""
    now_ns = (batch.now_ms + 1) * NS_PER_MS
    return NightPeriod(last=remembered_before_first(now_ns), end_ns=now_ns, zone=UTC)


Printed = list[tuple[int, str]]


class Events:
    """Sends events, and keeps the lines that are printed meanwhile."""

    def __init__(self, batch: FakeBatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.batch = batch
        self.capsys = capsys
        self.printed: Printed = []

    def send(self, *events: dict[str, Any]) -> None:
        for event in events:
            send(event)
        self.printed += [
            (self.batch.now_ms, line)
            for line in self.capsys.readouterr().out.splitlines()
            if '"task.ended"' in line or '"job.repeated"' in line
        ]

    def task(self, job: dict[str, Any], number: int) -> dict[str, Any]:
        ended = job["attempts"][number - 1]["container"]
        containers = [{"name": "default", "exitCode": ended.get("exitCode")}]
        return batch_jobs.task_event(job, number, containers=containers)


@pytest.fixture
def events(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Events:
    """Without a search cluster."""
    monkeypatch.delenv("ELASTICSEARCH_URL")
    return Events(batch, capsys)


@pytest.mark.parametrize("hours", [1, 20])
def test_without_a_cluster_a_job_whose_next_attempt_still_runs_is_in_the_message_of_its_end(
    batch: FakeBatch, events: Events, hours: int
) -> None:
    job = batch.submit("orders", "nightly", "orders")
    ran(batch, job, 1)
    events.send(batch.event(job), events.task(job, 1), batch.event(job))
    assert ['"job.repeated"' in line for _, line in events.printed].count(True) == 1
    alone = batch.submit("orders", "nightly", "orders", retryStrategy={"attempts": 1})
    ran(batch, alone, 1)
    events.send(events.task(alone, 1), batch.event(alone))
    told, following = counted(first_message(batch), events.printed)
    assert told == {"failure": {"orders": 1}}, "the control alone"
    batch.now_ms += hours * 60 * MINUTE
    ran(batch, job, 0)
    events.send(events.task(job, 2), batch.event(job))
    told, following = counted(following, events.printed)
    assert told == {"success": {"orders": 1}}
    assert counted(following, events.printed)[0] == {}


@pytest.mark.diagonal
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("is_between", [True, False])
def test_without_a_cluster_a_job_that_somebody_ends_while_it_waits_is_in_one_message(
    batch: FakeBatch, events: Events, order: int, *, is_between: bool
) -> None:
    """In that of its end, whatever came first: its task's event, or Batch's two."""
    job = batch.submit("orders", "nightly", "orders")
    ran(batch, job, 1)
    waiting = [events.task(job, 1), batch.event(job)]
    events.send(*waiting[::order])
    messages = []
    following = first_message(batch)
    if is_between:
        told, following = counted(following, events.printed)
        messages.append(told)
    batch.now_ms += 60 * MINUTE
    job |= {"status": "FAILED", "stoppedAt": batch.now_ms, "isTerminated": True}
    events.send(batch.event(job), batch.event(job))
    following = NightPeriod(last=following.last, end_ns=following.end_ns + NS_PER_DAY, zone=UTC)
    for _ in range(2):
        told, following = counted(following, events.printed)
        messages.append(told)
    assert [told for told in messages if told] == [{"failure": {"orders": 1}}]
    assert messages[-1] == {}


def test_without_a_cluster_a_job_whose_last_attempt_got_no_task_is_in_one_message(
    batch: FakeBatch, events: Events
) -> None:
    job = batch.submit("orders", "nightly", "orders")
    ran(batch, job, 1)
    events.send(events.task(job, 1), batch.event(job))
    batch.begin(job)
    batch.end(job, None, status_reason="Task failed to start")
    batch.end(job, None, status_reason="Task failed to start")
    del job["attempts"][-1]["container"]["taskArn"]
    job |= {"status": "FAILED", "stoppedAt": batch.now_ms}
    events.send(batch.event(job))
    told, following = counted(first_message(batch), events.printed)
    assert sum(told["failure"].values()) == 1
    assert counted(following, events.printed)[0] == {}


@pytest.mark.parametrize("moment_ms", [10**18, -1, "1", 7_999_999_999_999])
def test_a_time_that_no_calendar_has_costs_nothing(
    moment_ms: object, batch: FakeBatch, slack: FakeSlack, cluster: FakeElasticsearch
) -> None:
    job = batch.submit("orders", "nightly", "orders")
    end_without_attempt(job, batch.now_ms, "no", createdAt=moment_ms, startedAt=moment_ms)
    assert send(batch.event(job))["indexed"]
    task = cluster.bulks[0][1]["doc"]["task"]
    assert task["created_at"] == task["stopped_at"]
    job |= {"jobArn": f"{job['jobArn'][:-1]}0", "stoppedAt": moment_ms}
    assert not send(batch.event(job))["indexed"]
    assert len(slack.messages) == 2


def test_a_queue_that_is_blocked_is_one_message(batch: FakeBatch, slack: FakeSlack) -> None:
    job = batch.submit("orders", "nightly", "orders")
    reason = "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - too much"
    event = queue_blocked_event(job, reason, batch.now_ms)
    send(event)
    send(event)
    assert headers(slack) == ["❌ orders cannot start and blocks the queue nightly"]
    assert "Raise maxvCpus" in slack.messages[0]["text"]


def test_a_name_and_a_reason_are_anybodys_words(batch: FakeBatch, slack: FakeSlack) -> None:
    job = batch.submit("orders", "nightly", "orders")
    job["jobName"] = "<!channel> \x1b[31m" + "x" * 5_000
    end_without_attempt(job, batch.now_ms, "<https://evil.example.com|ok> " * 500)
    send(batch.event(job))
    sent = json.dumps(slack.messages)
    assert "<!channel>" not in sent
    assert "<https" not in sent
    assert "u001b" not in sent
    assert len(sent) < 8_000


def test_a_channel_that_fails_is_repeated_and_the_document_is_written(
    batch: FakeBatch, slack: FakeSlack, cluster: FakeElasticsearch
) -> None:
    job = batch.submit("orders", "nightly", "orders")
    end_without_attempt(job, batch.now_ms, "no")
    slack.script = [Answer(status=404, text="no_service")]
    with pytest.raises(ForwarderError):
        send(batch.event(job))
    assert len(cluster.bulks) == 1
    send(batch.event(job))
    assert headers(slack) == ["❌ orders failed before it started"]


def test_without_the_setting_each_attempt_has_its_message(
    monkeypatch: pytest.MonkeyPatch, batch: FakeBatch, slack: FakeSlack
) -> None:
    monkeypatch.setenv("BATCH_JOBS", "false")
    job = batch.submit("orders", "nightly", "orders")
    ran(batch, job, 0)
    send(batch_jobs.task_event(job))
    assert len(slack.messages) == 1
    assert batch.calls == []


@pytest.mark.parametrize(
    ("families", "is_told"), [("ord*", True), ("orders", True), ("load", False), ("nightly", False)]
)
@pytest.mark.parametrize("batch_jobs_setting", ["true", "false"])
def test_families_are_the_names_of_job_definitions(
    monkeypatch: pytest.MonkeyPatch,
    batch: FakeBatch,
    slack: FakeSlack,
    *,
    families: str,
    is_told: bool,
    batch_jobs_setting: str,
) -> None:
    """Not of jobs and queues. Of an attempt, it is the family of its task in ECS."""
    monkeypatch.setenv("BATCH_JOBS", batch_jobs_setting)
    monkeypatch.setenv("NOTIFY_FAMILIES", families)
    job = batch.submit("load", "nightly", "orders")
    for _ in range(3):
        ran(batch, job, 1)
    is_one = batch_jobs_setting == "true"
    send(batch.event(job) if is_one else batch_jobs.task_event(job))
    assert len(slack.messages) == int(is_told)


@pytest.mark.parametrize(
    "event",
    [{"source": "aws.batch"}, {"source": "aws.batch", "detail-type": "Batch Job State Change"}],
)
def test_another_event_of_batch_is_nothing(event: dict[str, Any], slack: FakeSlack) -> None:
    assert send(event) == {"status": None, "indexed": False, "notified": None}
    assert slack.messages == []

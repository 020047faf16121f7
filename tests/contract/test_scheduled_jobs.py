"""``task-profiler schedules`` of jobs of AWS Batch, with moto for EventBridge, and a double of Batch."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.aws_proxy import AwsProxy, ProxiedAccount
from tests.command_line import run_here
from tests.fake_batch import FakeBatch
from tests.step_functions import SUBMIT_JOB, machine, make_machine, running
from tools.moto_server import fake_aws

QUEUE = "arn:aws:batch:us-east-1:123456789012:job-queue/nightly"
ROLE = "arn:aws:iam::123456789012:role/start"
SUBMIT = "arn:aws:scheduler:::aws-sdk:batch:submitJob"
NOW = datetime.now(UTC)
DUE = (NOW - timedelta(hours=5)).replace(second=0, microsecond=0)
DAILY = f"cron({DUE.minute} {DUE.hour} * * ? *)"


class Jobs(ProxiedAccount):
    """An account whose rules and schedules submit jobs to the queue ``nightly``."""

    batch: FakeBatch

    def rule(self, name: str, job: str, definition: str = "etl") -> None:
        self.events.put_rule(Name=name, ScheduleExpression=DAILY)
        parameters = {"JobDefinition": definition, "JobName": job}
        target = {"Id": "1", "Arn": QUEUE, "RoleArn": ROLE, "BatchParameters": parameters}
        self.events.put_targets(Rule=name, Targets=[target])

    def schedule(self, name: str, asked: object, expression: str = DAILY) -> None:
        self.scheduler.create_schedule(
            Name=name,
            ScheduleExpression=expression,
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": SUBMIT, "RoleArn": ROLE, "Input": json.dumps(asked)},
        )

    def submitted(self, name: str, after: timedelta = timedelta(seconds=20)) -> dict[str, Any]:
        self.batch.now_ms = round((DUE + after).timestamp() * 1000)
        return self.batch.submit(name, "nightly", "etl")

    def run(self, *words: str) -> Any:
        place = self.aws.environment() | {"AWS_ENDPOINT_URL": self.proxy.url}
        return run_here(place | self.batch.environment(), "schedules", *words)

    def rows(self, *words: str) -> dict[str, dict[str, Any]]:
        done = self.run("--json", *words)
        return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.fixture
def account() -> Iterator[Jobs]:
    nothing: dict[str, Any] = {"Events": []}
    with (
        fake_aws() as aws,
        AwsProxy(aws.url, answers={"LookupEvents": nothing}) as proxy,
        FakeBatch() as batch,
    ):
        made = Jobs(aws, proxy)
        made.batch = batch
        batch.add_queue("nightly", "spot")
        batch.define("etl")
        yield made


def test_due_times_of_rules_are_told_by_the_jobs_of_their_name_and_definition(
    account: Jobs,
) -> None:
    for name in ("ran", "missed", "late", "refused", "waiting", "other"):
        account.rule(name, f"{name}-job", "etl:7" if name == "ran" else "etl")
    account.batch.define("another")
    ran = account.submitted("ran-job")
    account.batch.begin(ran)
    account.batch.end(ran, 1)
    account.submitted("late-job", timedelta(minutes=40))
    account.submitted("waiting-job")
    refused = account.submitted("refused-job")
    refused |= {"status": "FAILED", "statusReason": "\x1b[2Jno role", "stoppedAt": 1}
    refused["stoppedAt"] = refused["createdAt"]
    account.batch.submit("other-job", "nightly", "another")
    rows = account.rows()
    account.batch.now_ms = round(NOW.timestamp() * 1000)
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "ran": "ran",
        "missed": "missed",
        "late": "late",
        "refused": "refused",
        "waiting": "running",
        "other": "missed",
    }
    assert rows["waiting"]["reason"].endswith("has not started yet.")
    assert rows["late"]["reason"] == "The job was submitted 40m 00s after the due time."
    assert "no role" in rows["refused"]["reason"]
    assert "\x1b" not in rows["refused"]["reason"]
    ran_row = rows["ran"]
    assert (ran_row["cluster"], ran_row["queue"], ran_row["family"]) == (None, "nightly", "etl")


def test_a_schedule_of_scheduler_submits_jobs_too(account: Jobs) -> None:
    """Its dates are after the due time, so that nothing was due before it was made."""
    asked = {"JobName": "load", "JobQueue": "nightly", "JobDefinition": "etl"}
    account.schedule("load", asked, "at(2031-01-01T00:00:00)")
    account.schedule("unreadable", {}, "at(2031-01-01T00:00:00)")
    changing = {**asked, "JobName": "load-<aws.scheduler.execution-id>"}
    account.schedule("changing", changing, "rate(1 minute)")
    rows = account.rows()
    assert (rows["load"]["queue"], rows["load"]["family"]) == ("nightly", "etl")
    assert rows["load"]["nextDue"] == "2031-01-01T00:00:00.000Z"
    assert (rows["changing"]["outcome"], rows["changing"]["reason"]) == (
        "unknown",
        "The name of its jobs changes each time, so they are not known.",
    )
    assert {one["filters"][0]["values"][0] for one in account.batch.requests("ListJobs")} == {
        "load"
    }


def test_jobs_that_may_not_be_listed_are_unknown_and_the_right_is_named(account: Jobs) -> None:
    account.rule("nightly", "load")
    account.batch.refused.add("ListJobs")
    row = account.rows()["nightly"]
    assert row["outcome"] == "unknown"
    assert "allow batch:ListJobs" in row["reason"]


def test_a_cluster_and_a_table_tell_jobs_from_tasks(account: Jobs) -> None:
    account.rule("nightly", "load")
    account.submitted("load")
    assert "nightly" in account.run().stdout
    assert "in the cluster nightly" in account.run("--cluster", "nightly").stderr
    listed = account.rows("etl")
    assert [*listed] == ["nightly"]


def test_a_schedule_that_is_pinned_to_a_dead_definition_says_so(account: Jobs) -> None:
    account.batch.define("etl")
    account.rule("pinned", "a-job", "etl:1")
    account.rule("alive", "b-job", "etl:2")
    account.rule("unpinned", "c-job", "etl")
    account.rule("deleted", "d-job", "etl:9")
    account.rule("gone", "e-job", "gone")
    account.rule("not-filled", "f-job", "etl-{stage}:9")
    account.batch.definitions[0]["status"] = "INACTIVE"
    reasons = {name: row["reason"] or "" for name, row in account.rows().items()}
    dead = "It is pinned to etl:1, which was deregistered, so it starts nothing."
    assert reasons["pinned"].startswith(dead)
    assert reasons["deleted"].startswith("It is pinned to etl:9, which does not exist, so")
    assert reasons["gone"].startswith("gone has no active revision, so it starts nothing.")
    assert reasons["not-filled"].startswith(
        "It is pinned to etl-{stage}:9, which does not exist, so"
    )
    assert "nothing" not in reasons["alive"] + reasons["unpinned"]
    assert account.run().returncode == 1
    states = account.aws.client("stepfunctions")
    for name, definition in (("night", "etl:1"), ("noon", "gone"), ("day", "etl:2")):
        make_machine(states, name, machine(running({"JobDefinition": definition}, SUBMIT_JOB)))
    said = account.run().stderr
    state = "The state 'Run' of the state machine"
    assert (
        f"{state} night is pinned to etl:1, which was deregistered, so it starts nothing." in said
    )
    assert f"{state} noon starts nothing: gone has no active revision." in said
    assert f"{state} day" not in said
    account.batch.refused.add("DescribeJobDefinitions")
    done = account.run()
    assert done.returncode == 0
    assert "allow batch:DescribeJobDefinitions" in done.stderr

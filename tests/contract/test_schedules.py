"""``task-profiler schedules`` and its readers, with moto behind a proxy that plays what moto
does not know.
"""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from moto.scheduler.models import scheduler_backends

from profiler.aws_account.eventbridge_calls import ScheduleReader
from profiler.aws_account.started_tasks import read_clusters
from profiler.core.timestamps import NS_PER_SECOND, format_ms, local_zone
from profiler.record.record_model import encode
from tests.aws_proxy import AwsProxy, ProxiedAccount
from tests.runs import report
from tests.step_functions import machine, make_machine, running
from tests.values import present
from tools.moto_server import FakeAws, fake_aws

ARN = "arn:aws:ecs:us-east-1:123456789012"
CLUSTER = f"{ARN}:cluster/jobs"
ROLE = "arn:aws:iam::123456789012:role/start"
NOW = datetime.now(UTC)


class Account(ProxiedAccount):
    """An account with schedules and rules. ``tasks`` are the tasks that ECS describes."""

    def __init__(self, aws: FakeAws, proxy: AwsProxy) -> None:
        super().__init__(aws, proxy)
        self.scheduler.create_schedule_group(Name="etl")
        self.define("etl")

    def define(self, family: str) -> None:
        container = {"name": "batch", "image": "etl:26", "memory": 64}
        self.ecs.register_task_definition(family=family, containerDefinitions=[container])

    def client(self, service: str) -> Any:
        return FakeAws(url=self.proxy.url).client(service)

    def schedule(self, name: str, expression: str, target: str = CLUSTER, **more: Any) -> None:
        parameters = {
            "TaskDefinitionArn": f"{ARN}:task-definition/{more.pop('family', 'etl')}",
            "TaskCount": 2,
        }
        destination = {"Arn": target, "RoleArn": ROLE} | (
            {"EcsParameters": parameters} if "cluster" in target else {}
        )
        destination |= {"DeadLetterConfig": {"Arn": "arn:aws:sqs:us-east-1:123456789012:dead"}}
        given = {"FlexibleTimeWindow": {"Mode": "OFF"}, "GroupName": "default"} | more
        self.scheduler.create_schedule(
            Name=name, ScheduleExpression=expression, Target=destination, **given
        )

    def rule(self, name: str, expression: str, *families: str, **more: Any) -> None:
        kind = "ScheduleExpression" if expression.startswith(("rate", "cron")) else "EventPattern"
        self.events.put_rule(Name=name, **{kind: expression}, **more)
        for family in families * 3:
            self.define(family)
        definitions = [
            {"TaskDefinitionArn": f"{ARN}:task-definition/{family}:3"} for family in families
        ]
        started = {"Arn": CLUSTER, "RoleArn": ROLE}
        targets = [
            {"Id": str(place), **started, "EcsParameters": one}
            for place, one in enumerate(definitions)
        ]
        targets.append({"Id": "queue", "Arn": "arn:aws:sqs:us-east-1:123456789012:other"})
        self.events.put_targets(Rule=name, Targets=targets)

    def has_tasks(self, *tasks: dict[str, Any]) -> None:
        """Let ECS list and describe these tasks, in each of its lists."""
        self.proxy.answers["ListTasks"] = {"taskArns": [task["taskArn"] for task in tasks]}
        self.proxy.answers["DescribeTasks"] = {"tasks": list(tasks), "failures": []}

    def run(self, *words: str) -> Any:
        return self.command("schedules", *words)


def ecs_task(
    name: str, family: str, started_by: str, created: datetime, **more: Any
) -> dict[str, Any]:
    arns = {
        "taskArn": f"{ARN}:task/jobs/{name}",
        "taskDefinitionArn": f"{ARN}:task-definition/{family}:3",
    }
    return {**arns, "startedBy": started_by, "createdAt": created.timestamp(), **more}


@pytest.fixture
def account() -> Iterator[Account]:
    nothing: dict[str, Any] = {"Events": []}
    with (
        fake_aws() as aws,
        AwsProxy(aws.url, page_size=2, answers={"LookupEvents": nothing}) as proxy,
    ):
        yield Account(aws, proxy)


def test_schedules_and_rules_are_read_from_all_pages(account: Account) -> None:
    began = time.time_ns() - NS_PER_SECOND  # AWS's times are of less precision
    start, end = (datetime(2030, month, 1, tzinfo=UTC) for month in (1, 2))
    window = {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 5}
    whole: dict[str, Any] = {
        "GroupName": "etl",
        "FlexibleTimeWindow": window,
        "StartDate": start,
        "EndDate": end,
    }
    account.schedule(
        "whole",
        "cron(0 2 * * ? *)",
        ScheduleExpressionTimezone="Asia/Tokyo",
        State="DISABLED",
        **whole,
    )
    account.schedule("plain", "rate(5 minutes)", ActionAfterCompletion="NONE")
    account.schedule("once", "at(2031-01-01T00:00:00)", ActionAfterCompletion="DELETE")
    account.schedule("queue", "rate(5 minutes)", "arn:aws:sqs:us-east-1:123456789012:other")
    account.rule("rule", "rate(1 hour)", "first", "second")
    account.rule("off", "rate(1 hour)", "first", State="DISABLED")
    account.rule("event", '{"source": ["x"]}', "first")
    found = ScheduleReader(account.client).read_timed_schedules()
    assert found.problems == ()
    by_title = {
        f"{one.name} {one.definition_arn.rpartition('/')[2]}": one for one in found.schedules
    }
    assert set(by_title) == {
        "whole etl",
        "plain etl",
        "once etl",
        "rule first:3",
        "rule second:3",
        "off first:3",
    }
    one = by_title["whole etl"]
    assert one.kind == "schedule"
    assert one.group == "etl"
    assert one.time_zone == "Asia/Tokyo"
    assert one.is_enabled is False
    assert one.window_minutes == 5
    assert one.task_count == 2
    assert one.cluster_arn == CLUSTER
    assert one.starts_ns == int(start.timestamp()) * NS_PER_SECOND
    assert one.ends_ns == int(end.timestamp()) * NS_PER_SECOND
    assert began <= (one.created_ns or 0) <= time.time_ns()
    assert one.modified_ns == one.created_ns
    assert one.dead_letter_arn == "arn:aws:sqs:us-east-1:123456789012:dead"
    ended = {title for title, one in by_title.items() if one.is_deleted_at_end}
    assert ended == {"once etl"}
    rule = by_title["rule first:3"]
    assert rule.kind == "rule"
    assert rule.group == "default"
    assert rule.expression == "rate(1 hour)"
    assert rule.created_ns is None
    assert [by_title[f"{name} first:3"].is_enabled for name in ("rule", "off")] == [True, False]


def test_an_unchanged_schedule_is_read_once(
    account: Account,
) -> None:
    """An unchanged schedule is read once and one for which there was no time the next time."""
    account.schedule("one", "rate(5 minutes)")
    account.schedule("two", "rate(5 minutes)")
    reader = ScheduleReader(account.client)
    first = reader.read_timed_schedules()
    account.proxy.operations.clear()
    assert reader.read_timed_schedules() == first
    assert [name for name in account.proxy.operations if name.startswith("GET /schedules/")] == []
    account.scheduler.delete_schedule(Name="two")
    account.schedule("two", "rate(7 minutes)")
    assert {one.expression for one in reader.read_timed_schedules().schedules} == {
        "rate(5 minutes)",
        "rate(7 minutes)",
    }

    # The next call continues with the schedules for which the time did not suffice.
    for number in range(3):
        account.schedule(f"s{number}", "rate(5 minutes)")
    reader = ScheduleReader(account.client)
    steps = []
    for calls in (2, 2, 1):
        left = iter([True] * calls)
        account.proxy.operations.clear()
        found = reader.read_timed_schedules(lambda left=left: next(left, False))  # type: ignore[misc]
        read = [name for name in account.proxy.operations if name.startswith("GET /schedules/")]
        steps.append((len(found.schedules), found.unread, len(read)))
    assert steps == [(2, 3, 2), (4, 1, 2), (5, 0, 1)]


def test_what_cannot_be_read_does_not_hide_the_others(account: Account) -> None:
    for name in ("one", "two", "three"):
        account.schedule(name, "rate(5 minutes)")
    account.rule("rule", "rate(1 hour)", "first")
    account.proxy.refused = {"GET /schedules/two", "ListRules"}
    found = ScheduleReader(account.client).read_timed_schedules()
    assert {one.name for one in found.schedules} == {"one", "three"}
    assert [problem.split(":")[0] for problem in found.problems] == [
        "The rules of EventBridge could not be read",
        "The schedule two could not be read",
    ]


def test_the_tasks_of_clusters(account: Account) -> None:
    containers = [
        {"name": "task-monitor", "exitCode": 9},
        {"name": "a", "exitCode": 0},
        {"name": "b", "exitCode": 3},
    ]
    stopped = {
        "startedAt": NOW.timestamp(),
        "stoppedAt": NOW.timestamp(),
        "stopCode": "EssentialContainerExited",
    }
    tasks = [
        ecs_task("1", "etl", "me", NOW),
        ecs_task("2", "etl", "me", NOW, containers=containers, **stopped),
    ]
    account.has_tasks(*tasks)
    now_ns = round(NOW.timestamp()) * NS_PER_SECOND
    clusters = read_clusters(account.client("ecs"), [CLUSTER, CLUSTER], now_ns)
    (running, ended) = clusters[CLUSTER].tasks or ()
    assert running.family == "etl"
    assert running.started_by == "me"
    assert running.stopped_ns is None
    assert abs(running.created_ns / NS_PER_SECOND - NOW.timestamp()) < 0.002
    assert ended.exit_code == 3
    assert ended.stop_code == "EssentialContainerExited"
    assert clusters[CLUSTER].known_since_ns == now_ns - 55 * 60 * NS_PER_SECOND
    account.proxy.refused = {"DescribeTasks"}
    unread = read_clusters(account.client("ecs"), [CLUSTER], now_ns)[CLUSTER]
    assert unread.tasks is None
    assert present(unread.problem).endswith("allow ecs:ListTasks and ecs:DescribeTasks.")
    assert not unread.is_gone


def test_a_cluster_that_does_not_exist_is_told_from_one_that_cannot_be_read(
    account: Account,
) -> None:
    deleted = f"{CLUSTER}-deleted"
    found = read_clusters(account.client("ecs"), [deleted], 0)[deleted]
    assert (found.is_gone, found.tasks) == (True, None)


def daily(moment: datetime) -> str:
    return f"cron({moment.minute} {moment.hour} * * ? *)"


def test_the_command_shows_what_came_of_each_schedule(account: Account) -> None:
    due = NOW - timedelta(minutes=30)
    account.rule("nightly", daily(due), "nightly")
    account.rule("lost", daily(due), "lost")
    account.rule("forgotten", daily(NOW - timedelta(hours=5)), "old")
    account.rule("broken", "cron(0 2 31 2 ? *)", "broken")
    account.schedule("later", "at(2031-01-01T00:00:00)")
    account.schedule("off", "rate(1 hour)", State="DISABLED", GroupName="etl")
    started = due.replace(second=20, microsecond=0)
    account.has_tasks(
        ecs_task("1", "nightly", "events-rule/nightly", started, stoppedAt=NOW.timestamp())
    )
    shown = account.run("--json")
    assert shown.returncode == 0, shown.stderr
    rows = {row["name"]: row for row in map(json.loads, shown.stdout.splitlines())}
    of_family = [*map(json.loads, account.run("--json", "nightl?").stdout.splitlines())]
    assert {row["name"] for row in of_family} == {
        name for name, row in rows.items() if row["family"] == "nightly"
    }
    assert "starts an ECS task of nobody: check --region" in account.run("nobody").stderr
    outcomes = {"lost": "missed", "forgotten": "unknown", "nightly": "ran", "off": "disabled"}
    assert {name: row["outcome"] for name, row in rows.items()} == outcomes | dict.fromkeys(
        ("later", "broken"), "none"
    )
    ran = rows["nightly"]
    assert ran["kind"] == "rule"
    assert ran["expression"] == daily(due)
    assert ran["cluster"] == "jobs"
    dues = [f"{one:%Y-%m-%dT%H:%M}:00.000Z" for one in (due, due + timedelta(days=1))]
    assert [ran["lastDue"], ran["nextDue"]] == dues
    account.events.remove_targets(
        Rule="lost", Ids=["0", "queue"]
    )  # it asks CloudTrail, which takes a second
    table = account.run("--cluster", "jobs").stdout.splitlines()
    assert table[0].split() == [
        "Schedule",
        "Expression",
        "Last",
        "due",
        f"({local_zone()})",
        "Outcome",
        "Next",
        "due",
    ]
    assert [line.split()[0] for line in table[1:6]] == [
        "forgotten",
        "nightly",
        "broken",
        "later",
        "etl/off",
    ]
    assert table[6:] == [
        "",
        (
            "- forgotten: ECS shows a stopped task for about an hour, so a task of this time is "
            "no longer known."
        ),
    ]


def test_a_schedule_that_calls_run_task_itself_is_listed(account: Account) -> None:
    """Its tasks are known by the StartedBy of its request, and unknown without one."""
    due = NOW - timedelta(minutes=30)
    asked: dict[str, object] = {"Cluster": "jobs", "TaskDefinition": "etl"}
    requests: dict[str, dict[str, object]] = {
        "named": {**asked, "StartedBy": "nightly"},
        "missed": {**asked, "StartedBy": "weekly"},
        "changing": {**asked, "StartedBy": "<aws.scheduler.execution-id>"},
        "nameless": asked,
        "as-ecs": {"cluster": CLUSTER, "taskDefinition": "etl:1", "count": 3, "startedBy": "x"},
        "typo": {
            **asked,
            "Overrides": {"ContainerOverrides": [{"Name": "btch", "Command": ["etl"]}]},
        },
    }
    for name, request in requests.items():
        account.scheduler.create_schedule(
            Name=name,
            ScheduleExpression=daily(due),
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={
                "Arn": "arn:aws:scheduler:::aws-sdk:ecs:runTask",
                "RoleArn": ROLE,
                "Input": json.dumps(request),
            },
        )
    account.schedule("usual", daily(due))
    for name in (*requests, "usual"):
        made = scheduler_backends["123456789012"]["us-east-1"].get_schedule("default", name)
        made.creation_date = made.last_modified_date = (NOW - timedelta(days=2)).timestamp()
    started = due.replace(second=20, microsecond=0)
    account.has_tasks(
        *(
            ecs_task(str(number), "etl", starter, started, stoppedAt=NOW.timestamp())
            for number, starter in enumerate(
                ("nightly", "x", "x", "chronos-schedule/usual", "chronos-schedule/usual")
            )
        )
    )
    shown = account.run("--json", "--cluster", "jobs")
    rows = {row["name"]: row for row in map(json.loads, shown.stdout.splitlines())}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "named": "ran",
        "missed": "missed",
        "changing": "unknown",
        "nameless": "unknown",
        "as-ecs": "missed",
        "typo": "unknown",
        "usual": "ran",
    }
    assert rows["as-ecs"]["reason"] == "2 of 3 tasks were started."
    unknown = "It calls RunTask without a StartedBy of its own"
    for name in ("changing", "nameless"):
        assert rows[name]["reason"].startswith(unknown)
        assert rows[name]["nextDue"] == rows["named"]["nextDue"] is not None
    assert "the container btch, which the definition does not have" in rows["typo"]["reason"]
    assert shown.returncode == 1


def test_a_schedule_of_a_family_without_an_active_revision_starts_nothing(account: Account) -> None:
    account.schedule("alive", "rate(1 hour)")
    account.schedule("gone", "rate(1 hour)", family="gone")
    account.schedule("off", "rate(1 hour)", family="gone", State="DISABLED")
    shown = account.run("--json")
    assert shown.returncode == 1
    reasons = {row["name"]: row["reason"] for row in map(json.loads, shown.stdout.splitlines())}
    assert reasons["gone"].startswith("gone has no active revision, so it starts nothing.")
    assert "no active revision" not in f"{reasons['alive']}{reasons['off']}"
    account.proxy.refused = {"ListTaskDefinitionFamilies"}
    unread = account.run()
    assert unread.returncode == 0
    assert "It is unknown whether all schedules start tasks or jobs." in unread.stderr


def test_the_usual_duration_comes_from_past_runs(account: Account, tmp_path: Path) -> None:
    account.schedule("hourly", "rate(1 hour)")
    family: dict[str, Any] = {"family": "etl", "account_id": "123456789012", "region": "us-east-1"}
    started = format_ms(time.time_ns() - 7200 * NS_PER_SECOND)
    runs = [
        report(
            task_id=f"a{minutes}",
            metrics={"duration_ms": minutes * 60_000},
            started_at=started,
            **family,
        )
        for minutes in (69, 70, 71)
    ]
    file = tmp_path / "runs.jsonl"
    file.write_bytes(b"".join(encode(run) + b"\n" for run in runs))
    (row,) = map(json.loads, account.run("--json", "--from", str(file)).stdout.splitlines())
    assert row["usualDurationMs"] == 4_200_000
    assert row["overlap"] == "takes 1h 10m, due every 1h 00m"
    lacking = account.run("--json", "--from", str(tmp_path / "other"))
    assert json.loads(lacking.stdout)["usualDurationMs"] is None
    assert "The usual durations are unknown. " in lacking.stderr


def test_rules_that_cannot_be_read_are_a_warning_and_an_exit_code(account: Account) -> None:
    account.schedule("one", "rate(5 minutes)")
    account.proxy.refused = {"ListRules"}
    shown = account.run("--json")
    assert shown.returncode == 1
    assert "The rules of EventBridge could not be read" in shown.stderr
    assert json.loads(shown.stdout)["name"] == "one"


def test_an_input_without_a_definition_starts_nothing(account: Account) -> None:
    for call in ("ecs:runTask", "batch:submitJob"):
        target = {"Arn": f"arn:aws:scheduler:::aws-sdk:{call}", "RoleArn": ROLE, "Input": "{}"}
        account.scheduler.create_schedule(
            Name=call.replace(":", "-"),
            ScheduleExpression="rate(1 hour)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target=target,
        )
    shown = account.run("--json")
    assert shown.returncode == 1, shown.stderr
    for line in shown.stdout.splitlines():
        row = json.loads(line)
        assert row["reason"].startswith("Its input names no definition, so it starts nothing.")


def test_a_rule_that_is_deleted_after_it_was_listed_is_no_problem(account: Account) -> None:
    account.rule("kept", "rate(1 hour)", "etl")
    account.rule("old", "rate(1 hour)", "etl")

    def delete(operation: str, body: bytes) -> None:
        if operation == "ListTargetsByRule" and b'"old"' in body:
            account.proxy.before = lambda _operation, _body: None
            account.events.remove_targets(Rule="old", Ids=["0", "queue"])
            account.events.delete_rule(Name="old")

    account.proxy.before = delete
    found = ScheduleReader(account.client).read_timed_schedules()
    assert [schedule.name for schedule in found.schedules] == ["kept"]
    assert found.problems == ()
    account.rule("old", "rate(1 hour)", "etl")
    account.proxy.before = delete
    assert [target.name for target in ScheduleReader(account.client).read_targets()] == ["kept"]


def test_an_account_without_schedules_and_one_that_cannot_be_read_are_sentences(
    account: Account,
) -> None:
    account.schedule("queue", "rate(5 minutes)", "arn:aws:sqs:us-east-1:123456789012:other")
    shown = account.run()
    assert shown.returncode == 1, shown.stderr
    assert shown.stdout == ""
    assert shown.stderr == (
        "task-profiler: No schedule and no rule of EventBridge starts an ECS task: check "
        "--region and --profile.\n"
    )
    make_machine(
        account.client("stepfunctions"), "night", machine(running({"TaskDefinition": "gone"}))
    )
    assert (
        "The state 'Run' of the state machine night starts nothing: gone has no active revision.\n"
    ) in account.run().stderr
    account.proxy.refused = {"ListTaskDefinitionFamilies"}
    unread = account.run().stderr
    assert "It is unknown whether all schedules start tasks or jobs. " in unread
    assert "allow ecs:ListTaskDefinitionFamilies" in unread
    account.proxy.refused = set()
    account.schedule("one", "rate(5 minutes)")
    assert "in the cluster other" in account.run("--cluster", "other").stderr
    account.rule("nightly", "rate(1 hour)", "nightly")
    assert account.run("--cluster", "jbos").stderr.endswith("Did you mean jobs?\n")
    assert account.run("nigtly").stderr.endswith("Did you mean nightly?\n")
    assert "Did you mean" not in account.run("nightly", "--cluster", "other").stderr
    account.proxy.refused = {"ListRules", "GET /schedules"}
    shown = account.run()
    assert shown.returncode == 1
    assert (
        "allow events:ListEventBuses, events:ListRules and events:ListTargetsByRule" in shown.stderr
    )

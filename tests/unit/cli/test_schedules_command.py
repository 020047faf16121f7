"""The table of schedules; due times that ECS has forgotten, judged with the tasks of past runs;
AWS's reasons.
"""

from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from msgspec.structs import replace

from profiler.cli.schedules_command import (
    ScheduleRow,
    judge_account,
    past_tasks_by_cluster,
    schedule_table_lines,
    sort_key_of_row,
    titled_schedule_row,
)
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_SECOND, format_ms, parse_ns
from profiler.record.family_identity import FamilyKey
from profiler.record.family_statistics import UsualDuration
from profiler.runs.past_runs.past_run import PastRun, TaskEvent
from profiler.runs.past_runs.run_source import RunSource
from profiler.schedules.due_outcomes import JudgedSchedule
from profiler.schedules.schedule_model import DueTime, Schedule
from tests.fakes import FakeClock
from tests.run_sources import NOW_NS, ListedRuns, run
from tests.scheduled_account import FakeCloudTrail, event, run_task
from tests.terminals import texts

CLUSTER = "arn:aws:ecs:eu-west-1:123456789012:cluster/jobs"
NOW = parse_ns("2026-11-20T08:00:00Z") or 0
MINUTE_MS = 60_000
HOUR_NS = 3600 * NS_PER_SECOND


def ecs(created_ns: int | None) -> Mock:
    """A client of ECS whose cluster has a task of the rule, unless ``created_ns`` is None."""
    created = datetime.fromtimestamp((created_ns or 0) / NS_PER_SECOND, UTC)
    task = {
        "taskArn": "t/1",
        "taskDefinitionArn": "d/nightly:1",
        "startedBy": "events-rule/nightly",
    }
    client = Mock(describe_tasks=Mock(return_value={"tasks": [task | {"createdAt": created}]}))
    client.get_paginator().paginate.return_value = [
        {"taskArns": [] if created_ns is None else ["t/1"]}
    ]
    return client


def schedule(hours_ago: float, **more: Any) -> Schedule:
    name = more.get("name", "nightly")
    arn = f"arn:aws:ecs:eu-west-1:123456789012:task-definition/{name}"
    identity: dict[str, Any] = {
        "kind": "schedule",
        "name": name,
        "definition_arn": arn,
        "cluster_arn": CLUSTER,
    }
    created_ns = NOW_NS - round(hours_ago * HOUR_NS) - 24 * HOUR_NS
    return Schedule(**identity | {"expression": "rate(1 day)", "created_ns": created_ns} | more)


def judged(
    one: Schedule,
    past: RunSource | None = None,
    cloudtrail: FakeCloudTrail | None = None,
    *,
    created_ns: int | None = None,
) -> DueTime:
    clients = {"ecs": ecs(created_ns), "cloudtrail": cloudtrail or FakeCloudTrail()}
    (found,) = judge_account([one], clients.__getitem__, past, FakeClock(), NOW_NS)
    (due,) = found.due_times
    return due


def past_run(hours_ago: float, started_by: str | None = "chronos-schedule/nightly") -> PastRun:
    place = {"account_id": "123456789012", "region": "eu-west-1", "cluster": "jobs"}
    return PastRun(
        report=run("a1", hours_ago, family="nightly", **place),
        event=TaskEvent(started_by=started_by),
    )


def test_a_past_run_answers_a_due_time_that_ecs_has_forgotten(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A due time that ECS has forgotten is answered by a past run which does not prove a late task."""
    assert judged(schedule(5)).outcome == "unknown"
    assert judged(schedule(5), ListedRuns([past_run(4.99)])).outcome == "ran"
    for other in (past_run(4.99, None), past_run(4.99, "someone"), past_run(6)):
        assert judged(schedule(5), ListedRuns([other])).outcome == "unknown"
    for created_ns in (None, NOW_NS):  # also if ECS knows another task
        late = judged(schedule(5), ListedRuns([past_run(4.5)]), created_ns=created_ns)
        assert late.outcome == "unknown"
        assert late.task is None
    failing = Mock(runs=Mock(side_effect=TaskProfilerError("The cluster does not answer.")))
    assert judged(schedule(5), failing).outcome == "unknown"
    assert "The cluster does not answer." in capsys.readouterr().err


def test_a_missed_run_with_a_reason_is_refused() -> None:
    missed = schedule(0.5)
    assert judged(missed).outcome == "missed"
    call = run_task(format_ms(NOW_NS - HOUR_NS // 2 + NS_PER_SECOND), failure="RESOURCE:MEMORY")
    due = judged(missed, cloudtrail=FakeCloudTrail(call))
    assert due.outcome == "refused"
    assert due.reason == "RunTask started no task: RESOURCE:MEMORY."


MOMENT = format_ms(NOW_NS - HOUR_NS // 2)
RULE = schedule(
    0, kind="rule", created_ns=None, expression=f"cron({MOMENT[14:16]} {MOMENT[11:13]} * * ? *)"
)


def test_a_rule_that_changed_after_its_due_time_proves_nothing() -> None:
    """A rule that was or may have been enabled after its due time or changed before its late task."""
    assert judged(RULE).outcome == "missed"
    enabled = event("EnableRule", format_ms(NOW_NS - HOUR_NS // 4), {"name": "nightly"})
    assert judged(RULE, cloudtrail=FakeCloudTrail(enabled)).outcome == "unknown"
    created_ns = NOW_NS - HOUR_NS // 9
    assert judged(RULE, created_ns=created_ns).outcome == "late"
    put = event("PutRule", format_ms(NOW_NS - HOUR_NS // 20), {"name": "nightly"})
    assert judged(RULE, cloudtrail=FakeCloudTrail(put), created_ns=created_ns).outcome == "unknown"
    due = judged(RULE, cloudtrail=Mock(lookup_events=Mock(side_effect=TaskProfilerError("no"))))
    assert due.outcome == "unknown"
    assert due.reason == (
        "CloudTrail, which shows changes of rules, cannot be read, so the rule may have been "
        "changed."
    )


DAILY = TaskEvent(started_by="chronos-schedule/daily", stop_code="EssentialContainerExited")


def test_only_runs_whose_starter_is_known_are_tasks() -> None:
    runs = [
        PastRun(report=run("a1", 3, family="etl", cluster="jobs", exit_code=3), event=DAILY),
        PastRun(report=run("a2", 4, family="etl", cluster="jobs")),
        PastRun(
            report=run("a3", 5, family="etl", cluster="jobs"),
            event=TaskEvent(stop_code="UserInitiated"),
        ),
        PastRun(report=run("a4", 6, family="e*", cluster="other"), event=DAILY),
        PastRun(report=run("a5", 7, family="else", cluster="jobs"), event=DAILY),
        PastRun(report=run("a7", 3, family="etl", cluster="jobs", account_id="2"), event=DAILY),
        PastRun(report=run("a6", 300, family="etl", cluster="jobs"), event=DAILY),
    ]
    keys = [FamilyKey("etl", None, "us-east-1"), FamilyKey("e*", None, "us-east-1")]
    found = past_tasks_by_cluster(
        ListedRuns(runs * 2), keys, NOW_NS - 24 * HOUR_NS
    )  # a task with several containers is one
    families = {cluster: [task.family for task in tasks] for cluster, tasks in found.items()}
    assert families == {"jobs": ["etl"], "other": ["e*"]}
    (task,) = found["jobs"]
    assert task.created_ns == NOW_NS - 3 * HOUR_NS
    assert task.started_by == "chronos-schedule/daily"
    assert task.exit_code == 3
    assert task.stopped_ns is not None


def listed(name: str, expression: str, **more: Any) -> Schedule:
    return schedule(9, name=name, expression=expression, created_ns=NOW - 10**15, **more)


def due(outcome: Any, moment: str = "2026-11-20T02:00:00Z", reason: str | None = None) -> DueTime:
    return DueTime(due_ns=parse_ns(moment) or 0, outcome=outcome, reason=reason)


def rows() -> list[tuple[str, ScheduleRow]]:
    judged = (
        (listed("nightly-etl", "cron(0 2 * * ? *)"), due("ran"), 20),
        (listed("load", "cron(30 7 * * ? *)", time_zone="Europe/Berlin"), due("missed"), None),
        (
            listed("hourly-import", "rate(1 hour)", group="imports"),
            due("overlapped", reason="It still ran."),
            70,
        ),
        (listed("weekly-a", "cron(0 2 ? * MON *)"), due("unknown", reason="ECS forgot."), None),
        (listed("weekly-b", "cron(0 2 ? * MON *)"), due("unknown", reason="ECS forgot."), None),
    )
    made = [
        titled_schedule_row(
            JudgedSchedule(schedule=one, due_times=(last,)),
            UsualDuration(median_ms=minutes * MINUTE_MS, p95_ms=minutes * MINUTE_MS, runs=9)
            if minutes
            else None,
            NOW,
        )
        for one, last, minutes in judged
    ]
    made.append(
        titled_schedule_row(JudgedSchedule(schedule=listed("new", "cron(0 9 * * ? *)")), None, NOW)
    )
    return sorted(made, key=sort_key_of_row)


def shown(width: int | None) -> str:
    return "".join(f"{row}\n" for row in texts(schedule_table_lines(rows(), width)))


WIDE = """\
Schedule               Expression                        Last due (UTC)    Outcome     Next due            Usual
load                   cron(30 7 * * ? *) Europe/Berlin  2026-11-20 02:00  missed      2026-11-21 06:30        -
imports/hourly-import  rate(1 hour) UTC                  2026-11-20 02:00  overlapped  2026-11-20 08:13   1h 10m
weekly-a               cron(0 2 ? * MON *) UTC           2026-11-20 02:00  unknown     2026-11-23 02:00        -
weekly-b               cron(0 2 ? * MON *) UTC           2026-11-20 02:00  unknown     2026-11-23 02:00        -
nightly-etl            cron(0 2 * * ? *) UTC             2026-11-20 02:00  ran         2026-11-21 02:00  20m 00s
new                    cron(0 9 * * ? *) UTC             -                 none        2026-11-20 09:00        -

- imports/hourly-import: It still ran.
- imports/hourly-import: takes 1h 10m, due every 1h 00m.
- weekly-a, weekly-b: ECS forgot.
"""


def test_the_table() -> None:
    assert shown(None) == shown(140) == WIDE
    narrow = shown(80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.partition("\n\n")[2] == WIDE.partition("\n\n")[2]  # the sentences fit


@pytest.mark.usefixtures("los_angeles")
def test_the_times_of_the_sentences_are_those_of_the_table() -> None:
    title, row = rows()[0]
    late = replace(
        row, last_due="2026-11-20T01:00:00Z", reason="It ran at 2026-11-20T01:00:06.000Z."
    )
    text = "\n".join(texts(schedule_table_lines([(title, late)], None)))
    assert "(PST/PDT)" in text
    assert text.count("2026-11-19 17:00") == 2


def test_a_row_as_json() -> None:
    _, unread = titled_schedule_row(
        JudgedSchedule(schedule=listed("x", "cron(x)"), problem="Cannot be read."), None, NOW
    )
    assert unread.outcome == "unknown"
    assert unread.reason == "Cannot be read."
    assert unread.next_due is None
    (row,) = [one for title, one in rows() if title == "imports/hourly-import"]
    assert " ".join(msgspec.to_builtins(row)) == (
        "name kind expression timeZone cluster queue stateMachine family lastDue outcome reason "
        "nextDue usualDurationMs overlap"
    )
    assert row.name == "hourly-import"
    assert row.last_due == "2026-11-20T02:00:00.000Z"
    assert row.usual_duration_ms == 4_200_000

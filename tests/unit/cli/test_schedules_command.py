"""Due times that ECS has forgotten, judged with the tasks of past runs; and AWS's reasons."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from profiler.cli.schedules_command import judge_account, past_tasks
from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.record.family_identity import FamilyKey
from profiler.runs.past_runs.run_source import PastRun, RunFilter, TaskEvent
from profiler.schedules.schedule_model import DueTime, Schedule
from tests.fakes import FakeClock
from tests.run_sources import NOW_NS, ListedRuns, run
from tests.scheduled_account import FakeCloudTrail, event, run_task

CLUSTER = "arn:aws:ecs:eu-west-1:123456789012:cluster/jobs"
HOUR_NS = 3600 * NS_PER_SECOND


class Ecs:
    """A client of ECS whose cluster has a task of the rule, unless ``created_ns`` is None."""

    def __init__(self, created_ns: int | None = None) -> None:
        self._created_ns = created_ns

    def get_paginator(self, _operation: str) -> "Ecs":
        return self

    def paginate(self, **_given: Any) -> list[dict[str, Any]]:
        return [{"taskArns": [] if self._created_ns is None else ["t/1"]}]

    def describe_tasks(self, **_given: Any) -> dict[str, Any]:
        created = datetime.fromtimestamp((self._created_ns or 0) / NS_PER_SECOND, UTC)
        task = {"taskArn": "t/1", "taskDefinitionArn": "d/nightly:1", "startedBy": "events-rule/nightly"}
        return {"tasks": [task | {"createdAt": created}]}


def schedule(hours_ago: float, **more: Any) -> Schedule:
    arn = "arn:aws:ecs:eu-west-1:123456789012:task-definition/nightly"
    identity: dict[str, Any] = {"kind": "schedule", "name": "nightly", "definition_arn": arn, "cluster_arn": CLUSTER}
    created_ns = NOW_NS - round(hours_ago * HOUR_NS) - 24 * HOUR_NS
    return Schedule(**identity | {"expression": "rate(1 day)", "created_ns": created_ns} | more)


def judged(
    one: Schedule,
    past: Sequence[PastRun] | None = None,
    cloudtrail: FakeCloudTrail | None = None,
    *,
    created_ns: int | None = None,
) -> DueTime:
    clients = {"ecs": Ecs(created_ns), "cloudtrail": cloudtrail or FakeCloudTrail()}
    clock: Clock = FakeClock()
    source = None if past is None else ListedRuns(past)
    (found,) = judge_account([one], clients.__getitem__, source, clock, NOW_NS)
    (due,) = found.due_times
    return due


def past_run(hours_ago: float, started_by: str | None = "chronos-schedule/nightly") -> PastRun:
    place = {"account_id": "123456789012", "region": "eu-west-1", "cluster": "jobs"}
    return PastRun(report=run("a1", hours_ago, family="nightly", **place), event=TaskEvent(started_by=started_by))


def test_a_due_time_that_ecs_has_forgotten_is_answered_by_a_past_run_of_the_schedule() -> None:
    assert judged(schedule(5)).outcome == "unknown"
    assert judged(schedule(5), [past_run(4.99)]).outcome == "ran"
    for other in (past_run(4.99, None), past_run(4.99, "someone"), past_run(6)):
        assert judged(schedule(5), [other]).outcome == "unknown"


def test_a_past_run_does_not_prove_a_late_task() -> None:
    due = judged(schedule(5), [past_run(4.5)])
    assert (due.outcome, due.task) == ("unknown", None)


def test_a_source_that_fails_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    class Failing(ListedRuns):
        def runs(self, selection: RunFilter) -> Any:
            raise TaskProfilerError("The cluster does not answer.")

    clients = {"ecs": Ecs(), "cloudtrail": FakeCloudTrail()}
    (found,) = judge_account([schedule(5)], clients.__getitem__, Failing([]), FakeClock(), NOW_NS)
    assert found.due_times[0].outcome == "unknown"
    assert "The cluster does not answer." in capsys.readouterr().err


def test_a_missed_run_with_a_reason_is_refused() -> None:
    missed = schedule(0.5)
    assert judged(missed).outcome == "missed"
    call = run_task(format_ms(NOW_NS - HOUR_NS // 2 + NS_PER_SECOND), failure="RESOURCE:MEMORY")
    due = judged(missed, cloudtrail=FakeCloudTrail(call))
    assert (due.outcome, due.reason) == ("refused", "RunTask started no task: RESOURCE:MEMORY.")


MOMENT = format_ms(NOW_NS - HOUR_NS // 2)
RULE = schedule(0, kind="rule", created_ns=None, expression=f"cron({MOMENT[14:16]} {MOMENT[11:13]} * * ? *)")


def test_a_rule_that_was_enabled_after_its_due_time_is_unknown() -> None:
    assert judged(RULE).outcome == "missed"
    enabled = event("EnableRule", format_ms(NOW_NS - HOUR_NS // 4), {"name": "nightly"})
    assert judged(RULE, cloudtrail=FakeCloudTrail(enabled)).outcome == "unknown"


def test_a_late_task_of_a_rule_that_was_changed_is_unknown() -> None:
    created_ns = NOW_NS - HOUR_NS // 9
    assert judged(RULE, created_ns=created_ns).outcome == "late"
    put = event("PutRule", format_ms(NOW_NS - HOUR_NS // 20), {"name": "nightly"})
    assert judged(RULE, cloudtrail=FakeCloudTrail(put), created_ns=created_ns).outcome == "unknown"


def test_a_rule_that_can_have_been_changed_is_unknown() -> None:
    class Unreadable(FakeCloudTrail):
        def lookup_events(self, **_given: Any) -> Any:
            raise TaskProfilerError("no")

    due = judged(RULE, cloudtrail=Unreadable())
    assert due.outcome == "unknown"
    assert due.reason == "CloudTrail, which shows changes of rules, cannot be read, so the rule may have been changed."


DAILY = TaskEvent(started_by="chronos-schedule/daily", stop_code="EssentialContainerExited")


def test_only_runs_whose_starter_is_known_are_tasks() -> None:
    runs = [
        PastRun(report=run("a1", 3, family="etl", cluster="jobs", exit_code=3), event=DAILY),
        PastRun(report=run("a2", 4, family="etl", cluster="jobs")),
        PastRun(report=run("a3", 5, family="etl", cluster="jobs"), event=TaskEvent(stop_code="UserInitiated")),
        PastRun(report=run("a4", 6, family="e*", cluster="other"), event=DAILY),
        PastRun(report=run("a5", 7, family="else", cluster="jobs"), event=DAILY),
        PastRun(report=run("a7", 3, family="etl", cluster="jobs", account_id="2"), event=DAILY),
        PastRun(report=run("a6", 300, family="etl", cluster="jobs"), event=DAILY),
    ]
    keys = [FamilyKey("etl", None, "us-east-1"), FamilyKey("e*", None, "us-east-1")]
    found = past_tasks(ListedRuns(runs * 2), keys, NOW_NS - 24 * HOUR_NS)  # a task with several containers is one
    families = {cluster: [task.family for task in tasks] for cluster, tasks in found.items()}
    assert families == {"jobs": ["etl"], "other": ["e*"]}
    (task,) = found["jobs"]
    assert task.created_ns == NOW_NS - 3 * HOUR_NS
    assert (task.started_by, task.exit_code) == ("chronos-schedule/daily", 3)
    assert task.stopped_ns is not None

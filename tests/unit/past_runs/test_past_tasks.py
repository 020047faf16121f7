"""Tasks of past runs of which ECS's event named the starter."""

from profiler.past_runs.past_tasks import past_tasks
from profiler.past_runs.run_source import PastRun, TaskEvent
from profiler.record.family_identity import FamilyKey
from tests.run_sources import NOW_NS, ListedRuns, run

HOUR_NS = 3600 * 1_000_000_000
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
    found = past_tasks(
        ListedRuns(runs),
        [FamilyKey("etl", None, "us-east-1"), FamilyKey("e*", None, "us-east-1")],
        NOW_NS - 24 * HOUR_NS,
    )
    assert {cluster: [task.family for task in tasks] for cluster, tasks in found.items()} == {
        "jobs": ["etl"],
        "other": ["e*"],
    }
    (task,) = found["jobs"]
    assert task.created_ns == NOW_NS - 3 * HOUR_NS
    assert (task.started_by, task.exit_code) == ("chronos-schedule/daily", 3)
    assert task.stopped_ns is not None


def test_a_task_with_several_containers_is_one() -> None:
    one = run("a1", 3, family="etl", cluster="jobs")
    found = past_tasks(ListedRuns([PastRun(report=one, event=DAILY)] * 2), [FamilyKey("etl", None, "us-east-1")], 0)
    assert len(found["jobs"]) == 1

"""The findings about a family of a cluster: reports that are due, pins, and groups that are too large."""

from typing import Any

import pytest

from profiler.aws_account.doctor.cluster_checks import ClusterChecks, FamilyHealth, LastReports
from profiler.aws_account.doctor.findings import Finding
from profiler.aws_account.family_monitors import FamilyMonitor, MonitorState
from profiler.aws_account.rollout import PlannedFamily
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.core.timestamps import NS_PER_SECOND
from profiler.schedules.schedule_model import Schedule
from profiler.task_definitions.definition_json import TaskDefinitionDocument

DAY_NS = 86_400 * NS_PER_SECOND
NOW_NS = 20_000 * DAY_NS + DAY_NS // 2  # at noon
ARN = "arn:aws:ecs:us-east-1:123456789012:task-definition/etl:2"


def schedule(**fields: Any) -> Schedule:
    given = {"kind": "rule", "name": "etl", "expression": "cron(0 2 * * ? *)", "cluster_arn": "c"}
    return Schedule(**{**given, "definition_arn": ARN.rpartition(":")[0], **fields})


def findings(
    *schedules: Schedule,
    state: MonitorState = "current",
    registered_days_ago: float | None = 5,
    reports: LastReports | None = None,
    **planned: Any,
) -> list[Finding]:
    registered_ns = None if registered_days_ago is None else round(NOW_NS - registered_days_ago * DAY_NS)
    document = TaskDefinitionDocument(definition={}, arn=ARN, registered_ns=registered_ns)
    monitor = FamilyMonitor(
        state=state, planned=PlannedFamily(family="etl", action="up to date", document=document, **planned)
    )
    health = FamilyHealth(family="etl", monitor=state, log_group="/ecs/etl", log_group_exists=True, forwarded_to=("f",))
    checks = ClusterChecks("my jobs", schedules, reports or LastReports(), NOW_NS, is_indexed=True)
    (judged,) = checks.judged([monitor], [health])
    return list(judged.findings)


def test_a_report_that_was_due_is_a_problem() -> None:
    (found,) = findings(schedule())
    assert (found.level, found.topic) == ("problem", "report")
    assert found.text.startswith("A run was due at 2024-10-03T02:00:00.000Z, and there is no report of the last 8 days")


@pytest.mark.parametrize(
    "given",
    [
        {"schedules": (schedule(is_enabled=False),)},
        {"schedules": (schedule(expression="cron(nonsense)"),)},
        {"schedules": (schedule(),), "registered_days_ago": 1},  # its first night is the last one
        {"schedules": (schedule(),), "registered_days_ago": None},
        {"schedules": (schedule(expression="cron(0 2 1 1 ? *)"),)},  # once a year
        {"schedules": ()},
    ],
)
def test_a_report_that_was_not_due_is_a_note(given: dict[str, Any]) -> None:
    (found,) = findings(*given.pop("schedules"), **given)
    assert (found.level, found.text) == ("note", "There is no report of the last 8 days.")


def test_a_report_and_what_could_not_be_read_are_no_finding() -> None:
    assert findings(schedule(), reports=LastReports(newest_ns={"etl": 1})) == []
    assert findings(schedule(), reports=LastReports(is_known=False)) == []
    (found,) = findings(schedule(), reports=LastReports(unread=frozenset({"/ecs/etl"})))
    assert (found.level, found.advice) == ("note", "Use --elasticsearch.")
    # A service has no report.
    assert findings(schedule(), state="service") == []


def test_a_schedule_that_starts_a_revision_without_the_monitor_is_a_problem() -> None:
    target = ScheduledTarget(
        kind="rule", name="nightly", group="default", cluster_arn="c", definition_arn=ARN[:-1] + "1", content={}
    )
    reports = LastReports(newest_ns={"etl": 1})
    (found,) = findings(unmonitored=(target,), reports=reports)
    assert (found.level, found.text) == ("problem", "The rule nightly is pinned to etl:1, which has no monitor.")
    assert "add-monitor --cluster 'my jobs' --register --update-schedules" in (found.advice or "")

"""The findings about a family of a cluster: reports that are due, pins, and groups that are too
large.
"""

from collections.abc import Iterator, Mapping
from hashlib import md5
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from msgspec.structs import replace

from profiler.aws_account.doctor.cluster_checks import (
    ClusterChecks,
    FamilyHealth,
    LastReportsByFamily,
    LimitedPageReader,
    newest_reports,
)
from profiler.aws_account.doctor.findings import Finding
from profiler.aws_account.family_monitors import FamilyMonitor, MonitorState
from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.report_prerequisites import ReportPathReader
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.record.line_trust import AccountTrust
from profiler.record.record_model import encode
from profiler.runs.past_runs.log_group_runs import LogGroupRuns
from profiler.schedules.schedule_model import Schedule
from profiler.task_definitions.definition_json import TaskDefinitionDocument
from tests.run_sources import log_event
from tests.runs import report

DAY_NS = 86_400 * NS_PER_SECOND
NOW_NS = 20_000 * DAY_NS + DAY_NS // 2  # at noon
ARN = "arn:aws:ecs:us-east-1:123456789012:task-definition/etl:2"
NO_REPORTS = LastReportsByFamily()


def schedule(**fields: Any) -> Schedule:
    given = {"kind": "rule", "name": "etl", "expression": "cron(0 2 * * ? *)", "cluster_arn": "c"}
    return Schedule(**{**given, "definition_arn": ARN.rpartition(":")[0], **fields})


def findings(
    *schedules: Schedule,
    state: MonitorState = "current",
    registered_days_ago: float | None = 5,
    reports: LastReportsByFamily | None = NO_REPORTS,
    **planned: Any,
) -> list[Finding]:
    registered_ns = (
        None if registered_days_ago is None else round(NOW_NS - registered_days_ago * DAY_NS)
    )
    document = TaskDefinitionDocument(definition={}, arn=ARN, registered_ns=registered_ns)
    family = PlannedFamily(family="etl", action="up to date", document=document, **planned)
    monitor = FamilyMonitor(state=state, planned=family)
    health = FamilyHealth(
        family="etl",
        monitor=state,
        log_group="/ecs/etl",
        log_group_exists=True,
        forwarded_to=("f",),
    )
    checks = ClusterChecks(schedules, reports, NOW_NS, is_indexed=True)
    (judged,) = checks.judge_families([monitor], [health])
    return list(judged.findings)


def test_a_report_that_was_due_is_a_problem() -> None:
    (found,) = findings(schedule())
    assert found.level == "problem"
    assert found.topic == "report"
    assert found.text.startswith(
        "A run was due at 2024-10-03T02:00:00.000Z, and there is no report of the last 8 days"
    )


@pytest.mark.parametrize(
    "given",
    [
        {"schedules": (schedule(is_enabled=False),)},
        {"schedules": (schedule(expression="cron(nonsense)"),)},
        {
            "schedules": (schedule(kind="schedule", modified_ns=NOW_NS - DAY_NS),)
        },  # enabled or daily since then
        {"schedules": (schedule(),), "registered_days_ago": 1},  # its first night is the last one
        {"schedules": (schedule(),), "registered_days_ago": None},
        {"schedules": (schedule(expression="cron(0 2 1 1 ? *)"),)},  # once a year
        {"schedules": ()},
    ],
)
def test_a_report_that_was_not_due_is_a_note(given: dict[str, Any]) -> None:
    (found,) = findings(*given.pop("schedules"), **given)
    assert found.level == "note"
    assert found.text == "There is no report of the last 8 days."


def test_a_report_and_what_could_not_be_read_are_no_finding() -> None:
    assert findings(schedule(), reports=LastReportsByFamily(newest_ns={"etl": 1})) == []
    assert findings(schedule(), reports=None) == []
    (found,) = findings(schedule(), reports=LastReportsByFamily(unread=frozenset({"/ecs/etl"})))
    assert found.level == "note"
    assert found.advice == "Use --from https://HOST."
    # A service has no report.
    assert findings(schedule(), state="service") == []


@pytest.mark.parametrize("state", ["current", "instance"])
def test_a_report_in_the_stream_from_which_airflow_reads_is_a_problem(state: MonitorState) -> None:
    (found,) = findings(
        state=state, started_by=("Airflow",), reports=LastReportsByFamily(newest_ns={"etl": 1})
    )
    assert found.level == "problem"
    assert "reads XCom" in found.text
    assert "--family etl --report-stream monitor --register" in (found.advice or "")


def test_a_schedule_that_starts_a_revision_without_the_monitor_is_a_problem() -> None:
    target = ScheduledTarget(
        kind="rule",
        name="nightly",
        group="default",
        cluster_arn="c",
        definition_arn=ARN[:-1] + "1",
        content={},
    )
    (found,) = findings(unmonitored=(target,), reports=LastReportsByFamily(newest_ns={"etl": 1}))
    assert found.level == "problem"
    assert found.text == "The rule nightly is pinned to etl:1, which has no monitor."
    assert "add-monitor --family etl --register --update-schedules" in (found.advice or "")


def test_a_subscription_of_notices_alone_forwards_no_reports() -> None:
    """A stack without a search cluster has it, with Notify=running."""
    patterns = {"f1": '{ $.type = "task.notice" }', "f2": '{ $.type = "task.*" }', "f3": ""}
    filters = [
        {
            "destinationArn": f"arn:aws:lambda:us-east-1:123456789012:function:{name}",
            "filterPattern": pattern,
        }
        for name, pattern in patterns.items()
    ]
    pages = {"describe_log_groups": {"logGroups": [{"logGroupName": "/ecs/etl"}]}}
    pages["describe_subscription_filters"] = {"subscriptionFilters": filters}
    logs = MagicMock()
    logs.get_paginator = lambda name: SimpleNamespace(paginate=lambda **_: [pages[name]])
    logs.describe_account_policies = lambda **_: {}
    paths = ReportPathReader(lambda _service: logs)
    assert paths.log_group("/ecs/etl").forwarded_to == ("f2", "f3")
    assert paths.problems == set()


# The newest report of each family: how much is read

HOUR_NS = 3600 * NS_PER_SECOND
ACCOUNT, REGION = "123456789012", "us-east-1"


def line(family: str, hours_ago: int, *, account_id: str | None = ACCOUNT) -> dict[str, Any]:
    given, at_ns = report(0, family=family), NOW_NS - hours_ago * HOUR_NS
    at, place = format_ms(at_ns), {"account_id": account_id, "region": REGION}
    task_id = md5(f"{family}-{hours_ago}".encode(), usedforsecurity=False).hexdigest()
    known = {"task_id": task_id, "started_at": at, "finished_at": at}
    made = replace(given, record=replace(given.record, **known, **place), time=at)
    return log_event(encode(made).decode())


class Groups:
    """FilterLogEvents with some pages for each group, whatever the time."""

    def __init__(self, **pages: list[dict[str, Any]]) -> None:
        self.pages, self.calls = pages, list[str]()

    def __call__(self, **parameters: Any) -> Iterator[Mapping[str, Any]]:
        self.calls.append(parameters["logGroupName"])
        yield from self.pages[parameters["logGroupName"]]


def newest(groups: Groups, *families: str) -> tuple[Mapping[str, int], set[str]]:
    pages = LimitedPageReader(groups)
    trust = AccountTrust(account_id=ACCOUNT)
    source = LogGroupRuns(pages, sorted(groups.pages), NOW_NS, trust=trust)
    return newest_reports(source, frozenset(families), ARN, NOW_NS), pages.unread


def test_reading_ends_when_each_family_of_the_account_has_a_report() -> None:
    events = [line("a", 5), line("a", 3), line("b", 4), line("other", 1)]
    groups = Groups(one=[{"events": events[:2]}], two=[{"events": events[2:]}])
    assert newest(groups, "a", "b") == (
        {"a": NOW_NS - 3 * HOUR_NS, "b": NOW_NS - 4 * HOUR_NS},
        set(),
    )
    assert groups.calls == ["one", "two"]
    groups = Groups(
        one=[{"events": [line("a", 1, account_id="111122223333"), line("b", 1, account_id=None)]}]
    )
    assert newest(groups, "a", "b")[0] == {"b": NOW_NS - HOUR_NS}
    assert groups.calls == ["one"] * 3  # the last eight days


def test_a_large_group_is_not_read_to_its_end() -> None:
    pages = [{"events": [], "nextToken": "t"}] * 100
    assert newest(Groups(large=pages, small=[{"events": []}] * 5), "a") == ({}, {"large"})

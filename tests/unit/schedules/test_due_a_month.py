"""How many tasks a family's schedules start in a month."""

from typing import Any

import pytest

from profiler.core.timestamps import DAYS_PER_MONTH, NS_PER_DAY
from profiler.schedules.due_times import tasks_a_month
from profiler.schedules.schedule_model import Schedule
from tests.cases import each_case
from tests.fakes import START_NS

MONTHS = {
    "rate(15 minutes)": 96 * DAYS_PER_MONTH,
    "rate(1 minute)": 1440 * DAYS_PER_MONTH,
    "rate(7 days)": DAYS_PER_MONTH / 7,
    "cron(0 2 * * ? *)": DAYS_PER_MONTH,
    "cron(0 2 ? * MON-FRI *)": DAYS_PER_MONTH * 5 / 7,
    "cron(0/10 8-17 ? * MON-FRI *)": 60 * DAYS_PER_MONTH * 5 / 7,
    "cron(0 6 1 * ? *)": 1,
    "cron(0 6 1 1,4,7,10 ? *)": 1 / 3,
}


def schedule(expression: str, **more: Any) -> Schedule:
    known: dict[str, Any] = {
        "kind": "schedule",
        "name": "one",
        "expression": expression,
        "created_ns": START_NS - NS_PER_DAY,
        "cluster_arn": "arn:aws:ecs:eu-west-1:111122223333:cluster/jobs",
        "definition_arn": "nightly",
    }
    return Schedule(**{**known, **more})


@each_case("expression", MONTHS)
def test_a_month_has_the_mean_number_of_due_times(expression: str) -> None:
    found = tasks_a_month([schedule(expression)], START_NS)
    assert found == pytest.approx(MONTHS[expression], rel=0.02)


def test_the_phase_of_a_rule_with_a_rate_does_not_matter() -> None:
    found = tasks_a_month([schedule("rate(1 hour)", kind="rule", created_ns=None)], START_NS)
    assert found == pytest.approx(24 * DAYS_PER_MONTH, rel=0.01)


def test_schedules_and_their_tasks_add_up() -> None:
    nightly = schedule("cron(0 2 * * ? *)", task_count=3)
    found = tasks_a_month([nightly, schedule("cron(0 14 * * ? *)")], START_NS)
    assert found == pytest.approx(4 * DAYS_PER_MONTH, rel=0.01)


@pytest.mark.parametrize(
    "dead",
    [
        schedule("at(2030-01-01T00:00:00)"),
        schedule("rate(1 hour)", ends_ns=START_NS - 1),
        schedule("every now and then"),
    ],
    ids=["once", "ended", "not readable"],
)
def test_what_is_never_due_again_or_cannot_be_read_is_no_rate(dead: Schedule) -> None:
    assert tasks_a_month([dead], START_NS) is None
    nightly = schedule("cron(0 2 * * ? *)")
    assert tasks_a_month([dead, nightly], START_NS) == tasks_a_month([nightly], START_NS)


def test_without_schedules_nothing_is_known() -> None:
    assert tasks_a_month([], START_NS) is None

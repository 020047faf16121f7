"""A schedule is moved as it is, whatever AWS answers."""

import boto3
import pytest
from botocore.stub import Stubber
from msgspec.structs import replace

from profiler.aws_account.eventbridge_calls import ScheduleReader
from profiler.aws_account.scheduled_targets import (
    ScheduledTarget,
    is_target_over,
    may_start_target,
)
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_DAY

ARN = "arn:aws:ecs:eu-west-1:111122223333:task-definition/nightly"
TARGET = ScheduledTarget(
    kind="schedule",
    name="night",
    group="default",
    cluster_arn="arn:aws:ecs:eu-west-1:111122223333:cluster/jobs",
    definition_arn=f"{ARN}:1",
    content={
        "Name": "night",
        "ScheduleExpression": "cron(0 3 * * ? *)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": "arn:aws:ecs:eu-west-1:111122223333:cluster/jobs",
            "RoleArn": "arn:aws:iam::111122223333:role/starts-tasks",
            "EcsParameters": {"TaskDefinitionArn": f"{ARN}:1"},
        },
    },
)


@pytest.mark.parametrize("dates", [{}, {"StartDate": 4_000_000_000}], ids=["none", "a later one"])
def test_a_refusal_for_another_reason_keeps_the_start_date(dates: dict[str, int]) -> None:
    target = replace(TARGET, content={**TARGET.content, **dates})
    session = boto3.Session("id", "secret", region_name="eu-west-1")
    clients = {name: session.client(name) for name in ("events", "scheduler")}
    with Stubber(clients["scheduler"]) as scheduler:
        refusal = "The EndDate must be later than the StartDate."
        scheduler.add_client_error("update_schedule", "ValidationException", refusal)
        with pytest.raises(TaskProfilerError, match="later than the StartDate"):
            ScheduleReader(clients.__getitem__).move_to_revision(target, f"{ARN}:2")


LONG_AGO = {"ScheduleExpression": "cron(0 3 1 1 ? 2020)"}
PATTERN = {"EventPattern": '{"source": ["jobs"]}'}
OFF = {"State": "DISABLED"}


@pytest.mark.parametrize(
    ("rule", "is_over", "may_start"),
    [
        (LONG_AGO, True, False),
        (PATTERN, False, True),
        ({**LONG_AGO, **PATTERN}, False, True),  # events start it, too
        ({**LONG_AGO, **PATTERN, **OFF}, False, False),
        ({"ScheduleExpression": "cron(0 3 * * ? *)"}, False, True),
        ({"ScheduleExpression": "cron(0 3 * * ? *)", **OFF}, False, False),
        ({"ScheduleExpression": "rate(1 day)"}, False, True),
    ],
)
def test_a_rule_is_over_after_its_last_due_time_unless_events_start_it(
    rule: dict[str, str], *, is_over: bool, may_start: bool
) -> None:
    target = replace(TARGET, kind="rule", content=TARGET.content["Target"], rule=rule)
    now_ns = 20_000 * NS_PER_DAY  # in 2024
    assert is_target_over(target, now_ns) == is_over
    assert may_start_target(target, now_ns) == may_start

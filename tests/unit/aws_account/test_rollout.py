"""What a rollout does not carry out."""

from typing import Literal
from unittest.mock import Mock

import pytest

from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.rollout import Rollout
from profiler.aws_account.rollout_request import RolloutRequest
from profiler.aws_account.scheduled_targets import ScheduledTarget

ACCOUNT = "arn:aws:ecs:eu-west-1:111122223333"
PINNED = ScheduledTarget(
    kind="schedule",
    name="night",
    group="default",
    cluster_arn=f"{ACCOUNT}:cluster/jobs",
    definition_arn=f"{ACCOUNT}:task-definition/etl:1",
    content={},
)


@pytest.mark.parametrize("part", ["monitor", "size"])
def test_a_family_whose_plan_has_failed_is_not_planned_again_and_carried_out(
    part: Literal["monitor", "size"],
) -> None:
    """Where AWS answers again meanwhile, it would be changed by a plan that nobody has seen."""
    open_client, plan_change = Mock(), Mock()
    rollout = Rollout(
        open_client=open_client,
        request=RolloutRequest(register=True, update_schedules=True),
        plan_change=plan_change,
        part=part,
        wall_ns=Mock(),
        on_step=Mock(),
        on_problem=Mock(),
    )
    failed = PlannedFamily(family="etl", action="failed", pinned=(PINNED,), movable=(PINNED,))
    assert rollout.carry_out_plan(failed) is failed
    assert open_client.mock_calls == plan_change.mock_calls == []
    assert not rollout.counts

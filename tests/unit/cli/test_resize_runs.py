"""Which families a log group stops that could not be read."""

import pytest

from profiler.cli.resize_runs import unread_group_of_definition


@pytest.mark.parametrize(
    ("unread", "found"),
    [
        (("us-east-1", "/ecs/jobs"), "/ecs/jobs"),
        ((None, "/ecs/jobs"), "/ecs/jobs"),
        (("us-west-2", "/ecs/jobs"), None),
        (("us-east-1", "/ecs/other"), None),
    ],
)
def test_a_group_of_the_same_name_in_another_region_stops_no_family(
    unread: tuple[str | None, str], found: str | None
) -> None:
    options = {"awslogs-group": "/ecs/jobs", "awslogs-region": "us-east-1"}
    logs = {"logDriver": "awslogs", "options": options}
    definition = {"containerDefinitions": [{"name": "batch", "logConfiguration": logs}]}
    assert unread_group_of_definition(definition, {unread}) == found
